"""`ensembed index`: make a search index of a file, add to it, delete from it."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import click

from ensembed.cli.common import STDIN, human_bytes, print_json, print_table, progress_bars, read_batches
from ensembed.cli.options import Columns, How, column_options, gathered, how_options
from ensembed.corpora.corpus import BadBytes
from ensembed.corpora.record_reader import RecordFile
from ensembed.errors import CorpusError, SearchIndexError
from ensembed.search import Index
from ensembed.search.index_files import MANIFEST, Manifest, read_manifest
from ensembed.search.index_input import BATCH, add_file
from ensembed.support.progress import Progress


def _given(**settings: Any) -> dict[str, Any]:  # noqa: ANN401 - of several types
    return {name: value for name, value in settings.items() if value is not None}


setting_options = gathered(
    "settings",
    lambda kind, dtype, rescore, graph_rows: _given(kind=kind, dtype=dtype, rescore=rescore, graph_rows=graph_rows),
    click.option(
        "--kind",
        type=click.Choice(["auto", "exact", "hnsw"]),
        help="Of a new index: compare with every row, walk a graph, or that from --graph-rows rows on. [default: auto]",
    ),
    click.option(
        "--dtype",
        type=click.Choice(["float32", "int8", "binary"]),
        help="Of a new index: what is compared first; hits are scored from float32 rows always. [default: float32]",
    ),
    click.option(
        "--rescore",
        type=click.IntRange(min=1),
        help="Of a new index: candidates for every hit. [default: 1; 4 with int8, 16 with binary]",
    ),
    click.option("--graph-rows", type=click.IntRange(min=1), help="See --kind. [default: 250000]"),
)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("file", required=False)
@click.option("--model", "-m", help="A saved model's folder or an encoder's name; a new index needs it.")
@setting_options
@column_options
@click.option("--replace", is_flag=True, help="Replace rows whose ids come again; otherwise that is an error.")
@click.option("--again", is_flag=True, help="Add a FILE that was added before once more.")
@click.option("--delete", "--remove", "deleted", multiple=True, metavar="ID", help="Delete a row; give it repeatedly.")
@click.option("--delete-from", metavar="FILE", help="Delete the rows whose ids stand in FILE, one a line; - for stdin.")
@click.option("--compact", is_flag=True, help="Write the rows anew without the deleted ones.")
@click.option("--verify", is_flag=True, help="Read every byte first and compare the checksums.")
@click.option("--batch", type=click.IntRange(min=1), default=BATCH, show_default=True, help="Texts kept at a time.")
@click.option("--wait", type=click.FloatRange(min=0), default=0.0, help="Seconds to wait for another writer.")
@how_options
def index(
    folder: Path,
    file: str | None,
    model: str | None,
    settings: dict[str, Any],
    columns: Columns,
    replace: bool,
    again: bool,
    deleted: tuple[str, ...],
    delete_from: str | None,
    compact: bool,
    verify: bool,
    batch: int,
    wait: float,
    how: How,
) -> None:
    """Make a search index in FOLDER of the texts in FILE, or add them to the one that is there.

    FILE is text (a line a row), CSV or TSV with a header, or JSON Lines, plain or gzipped; - is standard input. Other
    columns are kept as metadata. The model is remembered, and how the index searches is fixed when it is made. The
    command can be interrupted at any time, even by kill -9: what was kept stays, and the same command goes on. Without
    FILE it deletes, compacts, verifies, or says what is in FOLDER.

    \b
    Examples:
      ensembed index my-index articles.csv --model my-model --text-column title --id-column number
      ensembed index my-index more.jsonl --id-column id --replace
      ensembed index my-index --delete 17 --delete 23
      ensembed index big-index sentences.txt.gz --model minilm --dtype int8
      ensembed search my-index "how do I reset my password"
    """
    source = None if file is None else _source(file, columns, how.errors)
    said = {}
    with progress_bars(how.quiet) as progress:
        found = read_manifest(folder) if (folder / MANIFEST).exists() else None
        known = model or (found.source if found is not None and settings else None)
        if found is not None and found.next_key == 0 and source is not None and known is not None:
            # It never had a row, as after a first run that failed: nothing ties it to what was said then.
            model, settings, found = known, _renewed(found, settings), None
        if found is not None:
            _check_same(folder, found, settings)
            opened = _opened(folder, model, verify, wait, how, progress)
        else:
            if model is None or source is None:
                raise click.UsageError(f"There is no index in {folder}: to make one, give a FILE and --model.")
            encoder = how.open_model(model, progress)
            opened = Index.create(folder, encoder, source=model, remake=True, wait=wait, **settings)
        if ids := [*deleted, *_ids(delete_from)]:
            said["deleted"] = opened.delete(ids, progress=progress)
        if source is not None:
            done = add_file(opened, source, replace=replace, again=again, batch=batch, progress=progress)
            said |= {"added": done.added, "blank": done.blank, "before": done.before}
            if opened.manifest.graph is not None:
                opened.build_graph(progress=progress)
        if compact:
            opened.compact(progress=progress)
    facts = opened.facts
    if how.as_json:
        print_json(facts | {f"now_{key}": value for key, value in said.items()})
        return
    shown = facts | {"bytes": human_bytes(facts["bytes"])}
    changes = [[f"{key} now", str(value)] for key, value in said.items() if value or key in ("added", "deleted")]
    print_table(["what", ""], [*([key, str(value)] for key, value in shown.items()), *changes], left=2)


def _renewed(found: Manifest, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of an index that is made anew: those that are given, and the others as they were."""
    before = vars(found.settings)
    if settings.get("dtype", found.settings.dtype) != found.settings.dtype:
        before = {name: value for name, value in before.items() if name != "rescore"}  # each dtype has its own
    return before | settings


def _check_same(folder: Path, found: Manifest, settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        if (before := getattr(found.settings, name)) != value:
            option = f"--{name.replace('_', '-')}"
            raise SearchIndexError(
                f"{folder} was made with {option} {before}, which stays, not {value}: leave out {option}, or make "
                "another index in a new folder"
            )


def _opened(folder: Path, model: str | None, verify: bool, wait: float, how: How, progress: Progress) -> Index:
    encoder = None if model is None else how.open_model(model, progress)
    found = Index.open(
        folder, encoder, verify=verify, threads=how.threads, trust=how.trust, wait=wait, progress=progress
    )
    if model is not None:
        found.remember(model)
    return found


def _source(file: str, columns: Columns, errors: BadBytes) -> RecordFile:
    if file == "-":
        return columns.file(sys.stdin.buffer, STDIN, errors)
    path = Path(file)
    if not path.exists() or path.is_dir():  # better now than when the model is open
        raise CorpusError(f"{file!r} is a folder, not a file" if path.is_dir() else f"there is no file {file!r}")
    # A pipe is read once: there is no coming back to it.
    source = path if path.is_file() else path.open("rb")
    return columns.file(source, file, errors)


def _ids(file: str | None) -> list[str]:
    """The ids in a file; blank lines name nothing."""
    if file is None:
        return []
    return [line for line in itertools.chain.from_iterable(read_batches(Path(file))) if line.strip()]
