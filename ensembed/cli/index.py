"""`ensembed index`: make a search index of a file, add to it, delete from it."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import click

from ensembed.cli.common import (
    STDIN,
    errors_option,
    human_bytes,
    json_option,
    open_model,
    options,
    print_json,
    print_table,
    progress_bars,
    quiet_option,
    read_batches,
    threads_option,
    trust_option,
)
from ensembed.corpus import BadBytes
from ensembed.errors import CorpusError
from ensembed.progress import Progress
from ensembed.search import Index
from ensembed.search.imports import BATCH, add_file
from ensembed.search.manifest import MANIFEST, Codes, Kind
from ensembed.search.records import FileFormat, RecordFile

file_options = options(
    click.option(
        "--format",
        "file_format",
        type=click.Choice(["text", "csv", "tsv", "jsonl"]),
        help="What FILE is. [default: by its ending; text, a line a row, where that says nothing]",
    ),
    click.option("--text-column", default="text", show_default=True, help="Of CSV and JSONL: what is found."),
    click.option("--id-column", help="Of CSV and JSONL: what rows are called. [default: none; rows are numbered]"),
)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("file", required=False)
@click.option("--model", "-m", help="A saved model's folder or an encoder's name; a new index needs it.")
@click.option(
    "--kind",
    type=click.Choice(["auto", "exact", "hnsw"]),
    default="auto",
    show_default=True,
    help="Of a new index: compare with every row, walk a graph, or that from --graph-rows rows on.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "int8", "binary"]),
    default="float32",
    show_default=True,
    help="Of a new index: what is compared first; hits are scored from float32 rows always.",
)
@click.option(
    "--rescore",
    type=click.IntRange(min=1),
    help="Of a new index: candidates for every hit. [default: 1; 4 with int8, 16 with binary]",
)
@click.option("--graph-rows", type=click.IntRange(min=1), default=250_000, show_default=True, help="See --kind.")
@file_options
@click.option("--replace", is_flag=True, help="Replace rows whose ids come again; otherwise that is an error.")
@click.option("--again", is_flag=True, help="Add a FILE that was added before once more.")
@click.option("--delete", "--remove", "deleted", multiple=True, metavar="ID", help="Delete a row; give it repeatedly.")
@click.option("--delete-from", metavar="FILE", help="Delete the rows whose ids stand in FILE, one a line; - for stdin.")
@click.option("--compact", is_flag=True, help="Write the rows anew without the deleted ones.")
@click.option("--verify", is_flag=True, help="Read every byte first and compare the checksums.")
@click.option("--batch", type=click.IntRange(min=1), default=BATCH, show_default=True, help="Texts kept at a time.")
@click.option("--wait", type=click.FloatRange(min=0), default=0.0, help="Seconds to wait for another writer.")
@options(errors_option, threads_option, trust_option, quiet_option, json_option)
def index(
    folder: Path,
    file: str | None,
    model: str | None,
    kind: Kind,
    dtype: Codes,
    rescore: int | None,
    graph_rows: int,
    file_format: FileFormat | None,
    text_column: str,
    id_column: str | None,
    replace: bool,
    again: bool,
    deleted: tuple[str, ...],
    delete_from: str | None,
    compact: bool,
    verify: bool,
    batch: int,
    wait: float,
    errors: BadBytes,
    threads: int | None,
    trust: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make a search index in FOLDER of the texts in FILE, or add them to the one that is there.

    FILE is text (a line a row), CSV or TSV with a header, or JSON Lines, plain or gzipped; - is standard input. Other
    columns are kept as metadata. The model is remembered. The command can be interrupted at any time, even by kill -9:
    what was kept stays, and the same command goes on. Without FILE it deletes, compacts, verifies, or says what is in
    FOLDER.

    \b
    Examples:
      ensembed index my-index articles.csv --model my-model --text-column title --id-column number
      ensembed index my-index more.jsonl --id-column id --replace
      ensembed index my-index --delete 17 --delete 23
      ensembed index big-index sentences.txt.gz --model minilm --dtype int8
      ensembed search my-index "how do I reset my password"
    """
    source = None if file is None else _source(file, file_format, text_column, id_column, errors)
    said = {}
    with progress_bars(quiet) as progress:
        if (folder / MANIFEST).exists():
            opened = _opened(folder, model, threads, trust, wait, verify, progress)
        else:
            if model is None or source is None:
                raise click.UsageError(f"There is no index in {folder}: to make one, give a FILE and --model.")
            encoder = open_model(model, threads, progress, trust=trust)
            settings = {"kind": kind, "dtype": dtype, "rescore": rescore, "graph_rows": graph_rows}
            opened = Index.create(folder, encoder, source=model, wait=wait, **settings)  # type: ignore[arg-type] # click checks them
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
    if as_json:
        print_json(facts | {f"now_{key}": value for key, value in said.items()})
        return
    shown = facts | {"bytes": human_bytes(facts["bytes"])}
    changes = [[f"{key} now", str(value)] for key, value in said.items() if value or key in ("added", "deleted")]
    print_table(["what", ""], [*([key, str(value)] for key, value in shown.items()), *changes], left=2)


def _opened(
    folder: Path, model: str | None, threads: int | None, trust: bool, wait: float, verify: bool, progress: Progress
) -> Index:
    encoder = None if model is None else open_model(model, threads, progress, trust=trust)
    found = Index.open(folder, encoder, verify=verify, threads=threads, trust=trust, wait=wait, progress=progress)
    if model is not None:
        found.remember(model)
    return found


def _source(
    file: str, file_format: FileFormat | None, text_column: str, id_column: str | None, errors: BadBytes
) -> RecordFile:
    if file == "-":
        return RecordFile(sys.stdin.buffer, STDIN, file_format, text_column, id_column, errors)
    path = Path(file)
    if not path.exists() or path.is_dir():  # better now than when the model is open
        raise CorpusError(f"{file!r} is a folder, not a file" if path.is_dir() else f"there is no file {file!r}")
    # A pipe is read once: there is no coming back to it.
    source = path if path.is_file() else path.open("rb")
    return RecordFile(source, file, file_format, text_column, id_column, errors)


def _ids(file: str | None) -> list[str]:
    """The ids in a file; blank lines name nothing."""
    if file is None:
        return []
    return [line for line in itertools.chain.from_iterable(read_batches(Path(file))) if line.strip()]
