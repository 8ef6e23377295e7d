"""`ensembed search`: ask an index."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from ensembed.cli.common import (
    STDIN,
    json_option,
    options,
    print_json,
    print_table,
    progress_bars,
    threads_option,
    trust_option,
)
from ensembed.corpora.corpus import read_lines
from ensembed.errors import InputError, SearchIndexError
from ensembed.models.opening import open_model
from ensembed.search import Hit, Index

_SHOWN = 100


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@click.option("-k", "count", type=click.IntRange(min=1), default=10, show_default=True, help="Hits for every query.")
@click.option("--model", "-m", help="Where the index's model is, if it was moved.")
@options(threads_option, trust_option, json_option)
def search(
    folder: Path,
    queries: tuple[str, ...],
    count: int,
    model: str | None,
    threads: int | None,
    trust: bool,
    as_json: bool,
) -> None:
    """Find the texts in the index FOLDER that are nearest to each QUERY.

    Without a QUERY it asks for one after the other, until Ctrl-D; from a pipe it reads a query a line and answers at
    once. Scores are cosines. --json prints one object a line for every query.

    \b
    Examples:
      ensembed search my-index "how do I reset my password"
      ensembed search my-index -k 3 --json < queries.txt
      ensembed search my-index
    """
    with progress_bars(quiet=False) as progress:
        encoder = None if model is None else open_model(model, threads=threads, progress=progress, trust=trust)
        opened = Index.open(folder, encoder, threads=threads, trust=trust, progress=progress)
        if not len(opened):
            raise SearchIndexError(f"{folder} holds no rows: add some with ensembed index {folder} FILE")
        _ = opened.model  # opened now, so that the first answer is as quick as the others
    if queries:
        for query, hits in zip(queries, opened.search(list(queries), count), strict=True):
            if len(queries) > 1 and not as_json:
                click.echo(f"\n{query}")
            _show(query, hits, as_json)
        return
    asked = _typed(opened, as_json) if sys.stdin.isatty() else read_lines(sys.stdin.buffer, name=STDIN)
    for query in asked:
        try:
            [hits] = opened.search([query], count)
        except InputError as error:  # one bad line of many: the others can be answered
            if as_json:
                print_json({"query": query.encode("utf-8", "replace").decode(), "error": str(error)})
            else:
                click.echo(f"error: {error}", err=True)
            continue
        _show(query, hits, as_json)
        sys.stdout.flush()


def _show(query: str, hits: list[Hit], as_json: bool) -> None:
    if as_json:
        found = [
            {"id": hit.id, "score": round(hit.score, 6), "text": hit.text, "metadata": dict(hit.metadata)}
            for hit in hits
        ]
        print_json({"query": query, "hits": found})
        return
    rows = [[f"{hit.score:.4f}", hit.id, _short(hit)] for hit in hits]
    print_table(["score", "id", "text"], rows, left=3)


def _short(hit: Hit) -> str:
    """The text on one line, cut where it is long."""
    text = " ".join(hit.text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _typed(opened: Index, as_json: bool) -> Iterator[str]:
    """Lines that a person types, until the end of the file; blank ones ask for nothing."""
    click.echo(f"{len(opened)} rows, {opened.manifest.spec.name}. Type a query; Ctrl-D ends.", err=True)
    import_readline()
    while True:
        # With --json standard output is for a program.
        click.echo("search> ", nl=False, err=as_json)
        try:
            line = input()
        except EOFError:
            click.echo("", err=True)
            return
        if line.strip():
            yield line


def import_readline() -> None:
    """Let `input` edit lines and remember them, where the system has readline."""
    try:
        import readline  # noqa: F401 - gives the prompt a history
    except ImportError:
        return
