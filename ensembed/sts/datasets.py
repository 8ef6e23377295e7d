"""STS data sets: sentence pairs with gold scores, read from any of the layouts people have them in.

A year of the shared tasks (`sts12` to `sts16`) has several sub-testsets; a split of the STS Benchmark is one. Layouts:

| layout | files | text |
| --- | --- | --- |
| `tsv` | `sts/sts12/MSRpar.tsv`, `sts/stsb/dev.tsv`: `score<TAB>sentence1<TAB>sentence2` | the organisers' |
| `raw` | SentEval's: `STS12-en-test/STS.input.X.txt`, `STS.gs.X.txt`, `STSBenchmark/sts-dev.csv` | the organisers' |
| `tok` | the same folders, as SentEval's own download script leaves them | tokenised, lower case |
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ensembed.corpora.corpus import read_lines, shorten
from ensembed.errors import AbsentDatasetError, DatasetError
from ensembed.support.machine import data_dir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

# The sub-testsets of each year, named and ordered as in the paper's appendix.
PARTS = {
    "sts12": ("MSRpar", "MSRvid", "SMTeuroparl", "OnWN", "SMTnews"),
    "sts13": ("FNWN", "OnWN", "SMT", "headlines"),
    "sts14": ("OnWN", "deft-forum", "deft-news", "headlines", "images", "tweet-news"),
    "sts15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "sts16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
SPLITS = {"stsb-train": "train", "stsb-dev": "dev", "stsb-test": "test"}
NAMES = (*PARTS, *SPLITS)
LAYOUTS = ("tsv", "raw", "tok")

# The organisers' names of two sub-testsets that the paper calls by shorter ones.
_FILE_NAMES = {("sts12", "OnWN"): "surprise.OnWN", ("sts12", "SMTnews"): "surprise.SMTnews"}
# The Linguistic Data Consortium licenses the sentences of this one, so most people have its gold scores alone.
_OPTIONAL = {("sts13", "SMT")}
# SentEval's STS folders below the folder that a user names.
_SENTEVAL_ROOTS = {"raw": "senteval/downstream/STS", "tok": "senteval_tok/downstream/STS"}
_ANY_ROOTS = ("downstream/STS", "data/downstream/STS", "STS", ".")


@dataclass(frozen=True, eq=False)
class Pairs:
    """One sub-testset: its name in tables (`MSRpar`), its sentence pairs, and their gold scores [n] on any scale."""

    name: str
    sentences1: tuple[str, ...]
    sentences2: tuple[str, ...]
    scores: NDArray[np.float64]  # read-only

    def __post_init__(self) -> None:
        scores = np.array(self.scores, np.float64)  # a copy, which nobody else can change
        counts = (len(self.sentences1), len(self.sentences2), len(scores) if scores.ndim == 1 else scores.shape)
        if len(set(counts)) != 1:
            raise DatasetError(f"{self.name}: sentences1, sentences2 and scores differ in length: {counts}")
        if not len(scores):
            raise DatasetError(f"{self.name}: there is no scored sentence pair")
        if not np.isfinite(scores).all():
            bad = int(np.argmin(np.isfinite(scores)))
            raise DatasetError(f"{self.name}: gold score {bad} is {scores[bad]}; remove the pair or score it")
        scores.flags.writeable = False
        object.__setattr__(self, "sentences1", tuple(self.sentences1))
        object.__setattr__(self, "sentences2", tuple(self.sentences2))
        object.__setattr__(self, "scores", scores)

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True, eq=False)
class Dataset:
    """One STS data set.

    Attributes:
        name: one of `NAMES`, or the user's own.
        parts: the sub-testsets, in the order of the paper's appendix.
        missing: sub-testsets that belong to the set but could not be read.
        layout: `tsv`, `raw` or `tok` (the text changes the scores), or `pairs` for a user's own file.
    """

    name: str
    parts: tuple[Pairs, ...]
    missing: tuple[str, ...] = ()
    layout: str = "pairs"

    def __post_init__(self) -> None:
        if not self.parts:
            raise DatasetError(f"{self.name}: a data set needs at least one sub-testset")

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    @classmethod
    def of(cls, pairs: Pairs) -> Dataset:
        """Return a data set of one part, such as a user's own file."""
        return cls(pairs.name, (pairs,))

    @property
    def fingerprint(self) -> str:
        """The hash of every sentence and score, the same in every layout; results carry it."""
        facts = [[part.name, part.scores.tolist(), part.sentences1, part.sentences2] for part in self.parts]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def load_sts(name: str, folder: Path | str | None = None, layout: str | None = None) -> Dataset:
    """Read a data set by name, from the first known layout in a folder.

    Args:
        name: `sts12` to `sts16`, `stsb-train`, `stsb-dev` or `stsb-test`.
        folder: a folder that holds `sts/`, `senteval/` or `senteval_tok/`, any folder on the way down to the files,
            SentEval's checkout or its `data`; None for `ensembed.support.machine.data_dir()`.
        layout: `tsv`, `raw` or `tok`; None takes the first that is found, in this order. The text decides whether
            SentEval's files are `raw` or `tok`: `tok` has no upper-case letter in the whole set.

    Raises:
        AbsentDatasetError: nothing of the data set is in this folder, or not in this layout.
        DatasetError: there is no such data set, or a file of it is missing or damaged.
    """
    if name not in NAMES:
        raise DatasetError(f"there is no STS data set {name!r}; choose one of {', '.join(NAMES)}")
    if layout is not None and layout not in LAYOUTS:
        raise DatasetError(f"there is no layout {layout!r}; choose one of {', '.join(LAYOUTS)}")
    root = data_dir() if folder is None else Path(folder)
    if root is None:
        raise AbsentDatasetError(
            f"no folder to read {name} from: name one (folder=…, --data), or set ENSEMBED_DATA to it"
        )
    if not root.is_dir():
        raise AbsentDatasetError(f"{root} is not a folder, so {name} cannot be read from it")
    looked = []
    for style, place in _places(name, root, layout):
        files = _files(name, style, place)
        if any(path.is_file() for paths in files.values() for path in paths):
            dataset = _load(name, style, files)
            if layout not in (None, dataset.layout):
                what = f"as {dataset.layout!r}, not as {layout!r} (text without upper-case letters is 'tok')"
                raise AbsentDatasetError(f"{place} holds {name} {what}; leave the layout out, or name another folder")
            return dataset
        looked.append(next(iter(files.values()))[0])
    where = f"{root} as {layout}" if layout else str(root)
    raise AbsentDatasetError(f"{name} is not in {where}: none of these files is there: {', '.join(map(str, looked))}")


def read_stsb(folder: Path | str, split: str) -> Dataset:
    """Read a split (`train`, `dev` or `test`) of the STS Benchmark from the folder that has its `sts-train.csv`."""
    name = f"stsb-{split}"
    if name not in SPLITS:
        raise DatasetError(f"there is no split {split!r} of the STS Benchmark; choose one of train, dev, test")
    return _load(name, "senteval", {name: (Path(folder) / f"sts-{split}.csv",)})


def read_pairs(path: Path | str, name: str | None = None) -> Pairs:
    r"""Read a file of `score<TAB>sentence1<TAB>sentence2` lines: UTF-8, no quoting, may be gzipped.

    Lines end with `\n` or `\r\n`; a header begins with `score`; blank lines, and blanks around sentences, are dropped.
    `name` is the name in tables; None takes the file's. A DatasetError names the file and the line.
    """
    path = Path(path)
    if not path.exists():
        raise DatasetError(f"there is no file {str(path)!r}; give one with score<TAB>text<TAB>text a line")

    def rows() -> Iterator[tuple[float, str, str]]:
        lines = [(number, line) for number, line in enumerate(_lines(path), 1) if line.strip()]
        for place, (number, line) in enumerate(lines):
            columns = line.split("\t")
            if place == 0 and len(columns) == 3 and columns[0].strip().casefold() == "score":
                continue
            _check_order(path, number, columns)
            yield _row(path, number, *_columns(path, number, columns, (3,)))

    return _pairs(name or path.name.removesuffix(".gz").removesuffix(".tsv").removesuffix(".txt"), path, rows())


def _check_order(path: Path, number: int, columns: list[str]) -> None:
    """Refuse the two most frequent mistakes in a user's own file, with a hint."""
    if len(columns) == 1 and columns[0].count(",") > 1:
        what = f"commas were seen where tabs were expected: {shorten(columns[0])}"
        raise _bad(path, number, f"3 tab-separated columns were expected, 1 seen; {what}")
    if len(columns) == 3 and not math.isfinite(_number(columns[0])) and math.isfinite(_number(columns[2])):
        what = f"the score comes first: write {columns[2].strip()}<TAB>sentence1<TAB>sentence2"
        raise _bad(path, number, f"a finite number was expected as gold score, {shorten(columns[0])} seen; {what}")


def _number(text: str) -> float:
    """Return the number, or NaN."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _places(name: str, root: Path, layout: str | None) -> Iterator[tuple[str, Path]]:
    """Yield the folders that may hold the data set's files, each with the style of its files: `tsv` or `senteval`."""
    tsv, senteval = (name, f"STS{name[3:]}-en-test") if name in PARTS else ("stsb", "STSBenchmark")
    # A year's own folder counts only under its own name: `headlines` and `OnWN` are in several years.
    here = root.resolve().name
    if layout in (None, "tsv"):
        yield from (("tsv", root / below) for below in (f"sts/{tsv}", tsv))
        if here == tsv:
            yield "tsv", root
    if layout != "tsv":
        own = [_SENTEVAL_ROOTS[layout]] if layout else list(_SENTEVAL_ROOTS.values())
        yield from (("senteval", root / below / senteval) for below in (*own, *_ANY_ROOTS))
        if here == senteval or name in SPLITS:  # the names of the Benchmark's files are its own wherever they are
            yield "senteval", root


def _files(name: str, style: str, place: Path) -> dict[str, tuple[Path, ...]]:
    """Return for every part of the data set its files: one, or sentences and gold."""
    if name in SPLITS:
        split = SPLITS[name]
        return {name: (place / (f"{split}.tsv" if style == "tsv" else f"sts-{split}.csv"),)}
    if style == "tsv":
        return {part: (place / f"{part}.tsv",) for part in PARTS[name]}
    stems = {part: _FILE_NAMES.get((name, part), part) for part in PARTS[name]}
    return {part: (place / f"STS.input.{stem}.txt", place / f"STS.gs.{stem}.txt") for part, stem in stems.items()}


def _load(name: str, style: str, files: dict[str, tuple[Path, ...]]) -> Dataset:
    # An optional part counts as missing without its sentences; its gold scores alone are of no use.
    missing = tuple(part for part, paths in files.items() if (name, part) in _OPTIONAL and not paths[0].is_file())
    needed = {part: paths for part, paths in files.items() if part not in missing}
    if lacking := [path for paths in needed.values() for path in paths if not path.is_file()]:
        raise DatasetError(f"{name} is not complete: there is no {', '.join(map(str, lacking))}")
    if style == "tsv":
        parts = tuple(read_pairs(paths[0], part) for part, paths in needed.items())
        return Dataset(name, parts, missing, "tsv")
    read = _read_stsb if name in SPLITS else _read_senteval
    parts = tuple(read(part, *paths) for part, paths in needed.items())
    texts = (text for part in parts for text in (*part.sentences1, *part.sentences2))
    return Dataset(name, parts, missing, "raw" if any(text != text.lower() for text in texts) else "tok")


def _read_senteval(name: str, sentences: Path, gold: Path) -> Pairs:
    inputs, scores = _lines(sentences), _lines(gold)
    if len(inputs) != len(scores):
        lengths = f"{sentences} has {len(inputs)} lines but {gold} has {len(scores)}"
        raise DatasetError(f"{lengths}; restore both from the same archive (unscored pairs have an empty gold line)")

    def rows() -> Iterator[tuple[float, str, str]]:
        for number, (line, score) in enumerate(zip(inputs, scores, strict=True), 1):
            # Four columns are the organisers' STS16 files: the last two say where the sentences come from.
            first, second = _columns(sentences, number, line.split("\t"), (2, 4))[:2]
            if score.strip():  # the organisers scored a sample of the pairs of 2015 and 2016, and left the others empty
                value = _score(gold, number, score)
                yield value, _sentence(sentences, number, first), _sentence(sentences, number, second)

    return _pairs(name, gold, rows())


def _read_stsb(name: str, path: Path) -> Pairs:
    def rows() -> Iterator[tuple[float, str, str]]:
        for number, line in enumerate(_lines(path), 1):
            # genre, file, year, id, score, sentence1, sentence2 and, in some rows, where the two sentences come from.
            yield _row(path, number, *_columns(path, number, line.split("\t"), (7, 9))[4:7])

    return _pairs(name, path, rows())


def _lines(path: Path) -> list[str]:
    lines = list(read_lines(path, error=DatasetError))
    if not lines:
        raise DatasetError(f"{path} is empty")
    return lines


def _columns(path: Path, number: int, columns: list[str], allowed: tuple[int, ...]) -> list[str]:
    if len(columns) not in allowed:
        wanted = " or ".join(map(str, allowed))
        seen = shorten("\t".join(columns))
        form = "; write score<TAB>text<TAB>text a line" if 3 in allowed else ""
        raise _bad(path, number, f"{wanted} tab-separated columns were expected, {len(columns)} seen: {seen}{form}")
    return columns


def _row(path: Path, number: int, score: str, first: str, second: str) -> tuple[float, str, str]:
    return _score(path, number, score), _sentence(path, number, first), _sentence(path, number, second)


def _score(path: Path, number: int, text: str) -> float:
    value = _number(text)
    if not math.isfinite(value) or "_" in text:  # Python reads 1_0 as 10
        raise _bad(path, number, f"a finite number was expected as gold score, {shorten(text)} seen")
    return value


def _sentence(path: Path, number: int, text: str) -> str:
    if not (stripped := text.strip()):
        raise _bad(path, number, "a sentence of the pair is empty; remove the pair")
    return stripped


def _pairs(name: str, path: Path, rows: Iterable[tuple[float, str, str]]) -> Pairs:
    pairs = list(rows)
    if not pairs:
        raise DatasetError(f"{path} holds no scored sentence pair")
    scores, first, second = zip(*pairs, strict=True)
    return Pairs(name, first, second, np.array(scores, np.float64))


def _bad(path: Path, number: int, what: str) -> DatasetError:
    return DatasetError(f"{path}, line {number}: {what}")
