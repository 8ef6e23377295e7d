"""`ensembed index`: make a search index of a file, add to it, delete from it."""

from __future__ import annotations

import itertools
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ensembed.cli.completion import MODEL
from ensembed.cli.console import print_index_facts, print_json
from ensembed.cli.options import (
    PATH,
    Columns,
    Gathered,
    How,
    column_options,
    how_options,
    read_batches,
    shown_name,
)
from ensembed.corpora.corpus import BadBytes
from ensembed.corpora.record_files import RecordFile
from ensembed.errors import CorpusError
from ensembed.search.index_files import MANIFEST
from ensembed.search.index_input import BATCH, add_file, delete_before
from ensembed.search.search_index import open_or_create

setting_options = Gathered(
    "settings",
    lambda **settings: {name: value for name, value in settings.items() if value is not None},
    {
        "kind": click.option(
            "--kind",
            type=click.Choice(["auto", "exact", "hnsw"]),
            help="Of a new index. exact: compare all rows; hnsw: use a graph; auto: a graph from --graph-rows rows on. "
            "[default: auto]",
        ),
        "dtype": click.option(
            "--dtype",
            type=click.Choice(["float32", "int8", "binary"]),
            help="Of a new index: what is compared first; hits are scored from float32 rows always. [default: float32]",
        ),
        "rescore": click.option(
            "--rescore",
            type=click.IntRange(min=1),
            help="Of a new index: candidates for every hit. [default: 1; 4 with int8, 16 with binary]",
        ),
        "graph_rows": click.option("--graph-rows", type=click.IntRange(min=1), help="See --kind. [default: 250000]"),
    },
)


adding_options = Gathered(
    "adding",
    dict,  # arguments of `add_file`
    {
        "replace": click.option(
            "--replace", is_flag=True, help="Replace rows whose ids come again; otherwise that is an error."
        ),
        "again": click.option("--again", is_flag=True, help="Add a FILE that was added before once more."),
        "batch": click.option("--batch", type=click.IntRange(min=1), default=BATCH, help="Texts kept at a time."),
    },
)


@click.command()
@click.argument("folder", type=PATH)
@click.argument("file", required=False, type=click.Path())
@click.option(
    "--model",
    "-m",
    type=MODEL,
    metavar="NAME",
    help="A saved model's folder or an encoder's name; a new index needs it.",
)
@setting_options
@column_options
@adding_options
@click.option("--delete", "--remove", "deleted", multiple=True, metavar="ID", help="Delete a row; give it repeatedly.")
@click.option("--delete-from", metavar="FILE", help="Delete the rows whose ids are in FILE, one a line; - for stdin.")
@click.option(
    "--change-model", is_flag=True, help="Encode all texts of the index again with --model, which it has from then on."
)
@click.option(
    "--embed-translated",
    type=click.IntRange(min=1),
    metavar="ROWS",
    help="Embed at most so many of the rows that `ensembed migrate` translated.",
)
@click.option("--compact", is_flag=True, help="Write the rows again without the deleted ones.")
@click.option("--verify", is_flag=True, help="Read every byte first and compare the checksums.")
@click.option("--wait", type=click.FloatRange(min=0), default=0.0, help="Seconds to wait for another writer.")
@how_options(["errors", "threads", "moved", "trust", "quiet", "as_json"])
def index(
    folder: Path,
    file: str | None,
    model: str | None,
    settings: dict[str, Any],
    columns: Columns,
    adding: dict[str, Any],
    deleted: tuple[str, ...],
    delete_from: str | None,
    change_model: bool,
    embed_translated: int | None,
    compact: bool,
    verify: bool,
    wait: float,
    how: How,
) -> None:
    """Make a search index in FOLDER of the texts in FILE, or add them to the one that is there.

    FILE is text (a line a row), CSV or TSV with a header, or JSON Lines, plain or gzipped; - is standard input. Other
    columns are kept as metadata. The model is remembered, and how the index searches is fixed when it is made. The
    command can be interrupted at any time, even by kill -9: finished batches stay, and the same command continues.
    Without FILE it deletes, compacts, verifies, changes the model, or says what is in FOLDER. An index searches with
    the model that it was made with; after a change of model --change-model brings it over, and until that is done the
    old one can be searched.

    \b
    Examples:
      ensembed index my-index articles.csv --model my-model --text-column title --id-column number
      ensembed index my-index more.jsonl --id-column id --replace
      ensembed index my-index --delete 17 --delete 23
      ensembed index my-index --model my-new-model --change-model
      ensembed index big-index sentences.txt.gz --model minilm --dtype int8
      ensembed search my-index "how do I reset my password"
    """
    if folder.is_file():
        words = shlex.join([file or "my-index", str(folder)])
        raise click.UsageError(f"FOLDER, where the index is, comes before FILE: ensembed index {words} …")
    source = None if file is None else _source(file, columns, how.errors)
    if not os.path.lexists(folder / MANIFEST) and (model is None or source is None):
        words = shlex.join(["ensembed", "index", str(folder), file or "FILE", "--model", model or "MODEL"])
        raise click.UsageError(f"There is no index in {folder}: to make one, write {words}")
    if change_model and model is None:
        raise click.UsageError("--change-model needs the new model: --model NAME.")
    changes = {}
    with how.progress() as progress:
        opened = open_or_create(
            folder,
            model,
            settings,
            adding=source is not None,
            change_model=change_model,
            verify=verify,
            wait=wait,
            progress=progress,
            **how.opening,
        )
        lines = () if delete_from is None else itertools.chain.from_iterable(read_batches(Path(delete_from)))
        if ids := [*deleted, *(line for line in lines if line.strip())]:
            if source is None:
                changes["deleted"] = opened.delete(ids, progress=progress)
            else:
                how_added = {name: adding[name] for name in ("replace", "again")}
                changes["deleted"] = delete_before(opened, source, ids, **how_added, progress=progress)
        if source is not None:
            changes |= asdict(add_file(opened, source, **adding, progress=progress))
        if embed_translated is not None:
            changes["embedded"] = opened.embed_translated(embed_translated, progress=progress)
        if compact:
            opened.compact(progress=progress)
    facts = opened.facts
    if verify and (rows := facts["without_block_checksums"]):
        problem = f"{rows} rows have no checksums of blocks, so that a search may not notice later damage"
        click.echo(f"note: {problem}; --compact adds them", err=True)
    if how.as_json:
        print_json({**facts, **{f"now_{key}": value for key, value in changes.items()}})
        return
    told = {key: value for key, value in changes.items() if value or key in ("added", "deleted", "embedded")}
    print_index_facts({**facts, **{f"{key} now": value for key, value in told.items()}})


def _source(file: str, columns: Columns, errors: BadBytes) -> RecordFile:
    if file == "-":
        return columns.file(sys.stdin.buffer, shown_name(Path(file)), errors)
    path = Path(file)
    if not path.exists() or path.is_dir():  # better now than when the model is open
        raise CorpusError(f"{file!r} is a folder, not a file" if path.is_dir() else f"there is no file {file!r}")
    return columns.file(path if path.is_file() else path.open("rb"), file, errors)  # a pipe can be read only once
