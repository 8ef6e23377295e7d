"""Tasks in files: simple TSV layouts, BEIR's JSON Lines, and names of tasks below a data folder.

UTF-8, gzipped or not (`docs.tsv` or `docs.tsv.gz`), without quoting; a first line of the columns' names (id and text,
or text and label) is dropped. A folder is read by the files that are in it:

| task | files |
| --- | --- |
| retrieval | `docs.tsv` and `queries.tsv`: id, text; `qrels.tsv`: query, document, grade |
| retrieval | BEIR's `corpus.jsonl` (`_id`, `title`, `text`), `queries.jsonl` (`_id`, `text`) and `qrels/test.tsv` |
| reranking | `cands.tsv`: query, candidate, 0 or 1; both are texts, or ids of `texts.tsv`: id, text |
| labels | `test.tsv` (or `all.tsv`), and `train.tsv` to learn from: text, label |
| pairs | a file: score, text, text; scores of 0 and 1 are classes, others are grades |

A split other than `test` follows a colon: `scifact:train` reads `queries_train.tsv` and `qrels_train.tsv`, `trecqa:dev`
reads `cands_dev.tsv`, `banking77:train` reads `train.tsv` alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ensembed.corpora.corpus import read_lines, shorten
from ensembed.errors import AbsentDatasetError, DatasetError
from ensembed.sts.datasets import Pairs, read_pairs
from ensembed.support.file_limits import parse_json
from ensembed.support.machine import data_dirs
from ensembed.tasks.class_and_cluster_tasks import Classification, Clustering
from ensembed.tasks.pair_tasks import pair_task
from ensembed.tasks.ranking_tasks import Ranking, Reranking
from ensembed.tasks.task import Task

_ENDINGS, _JSON_ENDINGS = (".tsv", ".tsv.gz"), (".jsonl", ".jsonl.gz")
_LAYOUT = "docs/guides/evaluate.md shows the layouts"


def find_tasks(name: str, folder: Path | None = None) -> list[Task]:
    """Return the tasks of a name: texts with labels are two, classification and clustering.

    Args:
        name: a file, a folder, or the name of a task in `tasks` of a data folder; a split may follow after a colon.
        folder: the data folder; by default those of `ENSEMBED_DATA` and the cache.

    Raises:
        AbsentDatasetError: there is no such task.
        DatasetError: a file is missing, or a line of it is wrong.
    """
    for text, split in _readings(name):
        places = [Path(text)] if text else []
        places += [place for data in _data_folders(folder) for place in _named(data / "tasks", text)]
        for place in places:
            if place.exists():
                return read_tasks(place, split)
    known = sorted({known for data in _data_folders(folder) for known in _names(data / "tasks")})
    way_out = "for tasks by name set ENSEMBED_DATA, or folder=… (--data)"
    here = f"the data folder has {', '.join(known)}" if known else way_out
    raise AbsentDatasetError(f"there is no task {name!r}: it is neither a file or folder nor a name; {here}")


def read_tasks(place: Path, split: str | None = None) -> list[Task]:
    """Read the tasks of a file or folder; see the module for the layouts."""
    if place.is_file():
        if split is not None:
            raise DatasetError(f"{place} is a file, which has no split {split!r}: name its folder, or leave it out")
        return _file_tasks(place)
    if not place.is_dir():
        raise DatasetError(f"{place} is neither a file nor a folder; {_LAYOUT}")
    name = place.resolve().name if split is None else f"{place.resolve().name}:{split}"
    if _first(place, "corpus", endings=_JSON_ENDINGS):
        return [_beir(name, place, split or "test")]
    if _first(place, "docs"):
        return [_retrieval(name, place, split)]
    if candidates := _first(place, *_split_names("cands", split)):
        return [_reranking(name, place, candidates)]
    if labels := _first(place, *([split] if split else ["test", "all"])):
        return _label_tasks(name, labels, None if split else _first(place, "train"))
    what = f"no split {split!r}" if split else "no docs.tsv, corpus.jsonl, cands.tsv, test.tsv or all.tsv"
    there = ", ".join(sorted(path.name for path in place.iterdir())[:12]) or "nothing"
    raise DatasetError(f"{place} is no task: there is {what} in it, but {there}; {_LAYOUT}")


def _readings(name: str) -> Iterator[tuple[str, str | None]]:
    """Yield the readings of a name: as it is, and with its last part as a split."""
    yield name, None
    text, colon, split = name.rpartition(":")
    if colon and text and split and "/" not in split and "\\" not in split:
        yield text, split


def _data_folders(folder: Path | None) -> list[Path]:
    return [folder] if folder is not None else data_dirs()


def _named(tasks: Path, name: str) -> Iterator[Path]:
    """Yield where a task of that name may be: `tasks/KIND/NAME`, a folder or a file."""
    if not name or not all(part not in ("", ".", "..") for part in name.split("/")):
        return
    for folder in (tasks, *sorted(path for path in tasks.glob("*") if path.is_dir())):
        yield folder / name
        yield from (folder / f"{name}{ending}" for ending in _ENDINGS)


def _names(tasks: Path) -> Iterator[str]:
    for path in tasks.glob("*/*"):
        yield path.name.removesuffix(".gz").removesuffix(".tsv")


def _first(place: Path, *stems: str, endings: Sequence[str] = _ENDINGS) -> Path | None:
    paths = (place / f"{stem}{ending}" for stem in stems for ending in endings)
    return next((path for path in paths if path.is_file()), None)


def _split_names(stem: str, split: str | None) -> list[str]:
    return [f"{stem}_{split}"] if split else [stem, f"{stem}_test"]


def _needed(place: Path, *stems: str) -> Path:
    if path := _first(place, *stems):
        return path
    raise DatasetError(
        f"{place} is not complete: there is no {' or '.join(f'{stem}.tsv' for stem in stems)}; {_LAYOUT}"
    )


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is not blank."""
    return ((n, line) for n, line in enumerate(read_lines(path, error=DatasetError), 1) if line.strip())


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("\t")]


def _rows(path: Path, columns: int, what: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each line that is not blank or a header, without blanks around them."""
    for place, (number, line) in enumerate(_lines(path)):
        cells = _cells(line)
        if place == 0 and ", ".join(cells).casefold() == what:
            continue
        if len(cells) != columns:
            raise DatasetError(
                f"{path}, line {number}: {columns} columns ({what}) with tabs between them were expected, "
                f"{len(cells)} seen: {shorten(line)}"
            )
        yield number, cells


def _texts_by_id(path: Path) -> dict[str, str]:
    """Return the texts of a file of ids and texts; a blank text is left out, because it says nothing."""
    texts: dict[str, str] = {}
    for number, (id_, text) in _rows(path, 2, "id, text"):
        if id_ in texts:
            raise DatasetError(f"{path}, line {number}: the id {id_!r} is there twice")
        if text:
            texts[id_] = text
    if not texts:
        raise DatasetError(f"{path} holds no text")
    return texts


def _grade(path: Path, number: int, text: str) -> float:
    try:
        grade = float(text)
    except ValueError:
        grade = math.nan
    if not math.isfinite(grade) or "_" in text:  # Python reads 1_0 as 10
        raise DatasetError(f"{path}, line {number}: a number was expected as grade, {shorten(text)} seen")
    return grade


def _judgements(path: Path) -> dict[str, dict[str, float]]:
    """Return the grades by query and document; four columns are TREC's, whose second says nothing."""
    grades: dict[str, dict[str, float]] = {}
    for place, (number, line) in enumerate(_lines(path)):
        cells = _cells(line)
        if place == 0 and cells[-1].casefold() == "score":
            continue
        if len(cells) == 4:
            del cells[1]
        if len(cells) != 3:
            raise DatasetError(
                f"{path}, line {number}: query, document and grade with tabs between them were expected, "
                f"{shorten(line)} seen"
            )
        grades.setdefault(cells[0], {})[cells[1]] = _grade(path, number, cells[2])
    return grades


def _retrieval(name: str, place: Path, split: str | None) -> Task:
    documents = _texts_by_id(_needed(place, "docs"))
    queries = _texts_by_id(_needed(place, *_split_names("queries", split), *(["queries"] if split else [])))
    relevance = _judgements(_needed(place, *_split_names("qrels", split)))
    return _ranking(name, queries, documents, relevance)


def _ranking(
    name: str, queries: dict[str, str], documents: dict[str, str], relevance: dict[str, dict[str, float]]
) -> Ranking:
    if unknown := [query for query in relevance if query not in queries]:
        raise DatasetError(f"{name}: there are judgements of the query {unknown[0]!r}, which is not among the queries")
    return Ranking.of(name, queries, documents, relevance)


def _beir(name: str, place: Path, split: str) -> Task:
    documents = {
        id_: text
        for id_, values in _json_records(place, "corpus")
        if (text := f"{values.get('title') or ''} {values.get('text') or ''}".strip())
    }
    queries = {
        id_: text for id_, values in _json_records(place, "queries") if (text := str(values.get("text") or "").strip())
    }
    if not documents or not queries:
        raise DatasetError(f"{place}: {'queries' if documents else 'corpus'}.jsonl holds no text")
    judgements = place / "qrels" / f"{split}.tsv"
    if not judgements.is_file():
        there = ", ".join(sorted(path.stem for path in (place / "qrels").glob("*.tsv"))) or "none"
        raise DatasetError(f"{place} has no split {split!r}: there is no {judgements}; the splits are: {there}")
    return _ranking(name, queries, documents, _judgements(judgements))


def _json_records(place: Path, stem: str) -> Iterator[tuple[str, dict[str, object]]]:
    path = _first(place, stem, endings=_JSON_ENDINGS)
    if path is None:
        raise DatasetError(f"{place} is not complete: there is no {stem}.jsonl")
    seen: set[str] = set()
    for number, line in _lines(path):
        try:
            value = parse_json(line.encode())
        except ValueError as error:
            raise DatasetError(f"{path}, line {number} is no JSON: {error}") from None
        if not isinstance(value, dict) or "_id" not in value:
            raise DatasetError(f"{path}, line {number} is no JSON object with an _id: {shorten(line)}")
        id_ = str(value["_id"])
        try:
            f"{id_}{value.get('title')}{value.get('text')}".encode()
        except UnicodeEncodeError:  # JSON can write it as \ud800
            raise DatasetError(f"{path}, line {number} holds a lone surrogate, which is not text") from None
        if id_ in seen:
            raise DatasetError(f"{path}, line {number}: the id {id_!r} is there twice")
        seen.add(id_)
        yield id_, value


def _reranking(name: str, place: Path, path: Path) -> Task:
    file = _first(place, "texts")
    texts = _texts_by_id(file) if file else None
    relevance: dict[str, dict[str, float]] = {}
    for number, (query, candidate, grade) in _rows(path, 3, "query, candidate, 0 or 1"):
        for id_ in (query, candidate):
            if not id_ or (texts is not None and id_ not in texts):
                raise DatasetError(f"{path}, line {number}: {shorten(id_)} is not in {file or 'the line'}")
        relevance.setdefault(query, {})[candidate] = _grade(path, number, grade)
    # A query whose candidates are all relevant, or none of them, has the same score whatever the model does.
    relevance = {
        query: grades for query, grades in relevance.items() if len({grade > 0 for grade in grades.values()}) == 2
    }
    if not relevance:
        raise DatasetError(f"{path}: no query has both relevant and other candidates")
    candidates = {query: tuple(grades) for query, grades in relevance.items()}
    ids = (relevance, [document for some in candidates.values() for document in some])
    queries, documents = ({id_: texts[id_] if texts else id_ for id_ in some} for some in ids)
    return Reranking.of(name, queries, documents, relevance, candidates=candidates)


def _label_tasks(name: str, path: Path, train: Path | None) -> list[Task]:
    texts, labels = _labels(path)
    learned = _labels(train) if train else ((), ())
    return [Classification(name, texts, labels, *learned), Clustering(name, texts, labels)]


def _labels(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    rows = []
    for number, (text, label) in _rows(path, 2, "text, label"):
        if not text or not label:
            raise DatasetError(f"{path}, line {number}: the {'label' if text else 'text'} is empty; remove the line")
        rows.append((text, label))
    if not rows:
        raise DatasetError(f"{path} holds no text with a label")
    texts, labels = zip(*rows, strict=True)
    return texts, labels


def _file_tasks(path: Path) -> list[Task]:
    name = path.name.removesuffix(".gz").removesuffix(".tsv").removesuffix(".txt")
    _, first = next(_lines(path), (0, ""))
    columns = _cells(first)
    if len(columns) == 2:
        # `banking77/train.tsv` is called banking77:train, as by its other name.
        folder = path.resolve().parent.name
        return _label_tasks(f"{folder}:{name}" if name in ("train", "test", "all", "dev") else name, path, None)
    if len(columns) == 3:
        return [pair_task(read_pairs(path, name))]
    if columns[0].casefold() == "score" and len(columns) > 3:
        return [pair_task(_wide_pairs(path, name, columns))]
    raise DatasetError(
        f"{path} is no task: a line has 2 columns (text, label) or 3 (score, text, text) with tabs between them, "
        f"but the first has {len(columns)}: {shorten(first)}; {_LAYOUT}"
    )


def _wide_pairs(path: Path, name: str, header: Sequence[str]) -> Pairs:
    """Read pairs with further columns behind the texts, which are left out."""
    rows = []
    for number, (score, first, second, *_) in _rows(path, len(header), ", ".join(header).casefold()):
        if not first or not second:
            raise DatasetError(f"{path}, line {number}: a text of the pair is empty; remove the pair")
        rows.append((_grade(path, number, score), first, second))
    if not rows:
        raise DatasetError(f"{path} holds no pair")
    scores, left, right = zip(*rows, strict=True)
    return Pairs(name, left, right, np.array(scores, np.float64))
