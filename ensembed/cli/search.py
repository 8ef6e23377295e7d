"""`ensembed search`: ask an index."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import click

from ensembed.cli.completion import MODEL
from ensembed.cli.console import STDIN, print_json, print_table
from ensembed.cli.options import FOLDER, How, how_options
from ensembed.corpora.corpus import read_lines
from ensembed.errors import InputError, SearchIndexError
from ensembed.models.translation import verdict
from ensembed.reliability.search_agreement import LEAST_ROWS
from ensembed.search import Hit, Index
from ensembed.search.index_files import MANIFEST
from ensembed.search.index_input import check_texts
from ensembed.search.migration import SAMPLE, query_map
from ensembed.support.progress import Progress
from ensembed.support.text_tables import printable

_SHOWN = 100


@click.command()
@click.argument("folder", type=FOLDER)
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@click.option("-k", "count", type=click.IntRange(min=1), default=10, help="Hits for every query.")
@click.option("--model", "-m", type=MODEL, metavar="NAME", help="Where the index's model is, if it was moved.")
@click.option(
    "--query-model",
    type=MODEL,
    metavar="NAME",
    help="Encode queries with another model, and translate them to the index's: a name, or a map of `translate`.",
)
@click.option("--sample", type=click.IntRange(min=LEAST_ROWS), default=SAMPLE, help="Texts to fit that map on.")
@how_options(["threads", "moved", "trust", "store", "as_json"])
def search(
    folder: Path,
    queries: tuple[str, ...],
    count: int,
    model: str | None,
    query_model: str | None,
    sample: int,
    how: How,
) -> None:
    """Find the texts in the index FOLDER that are nearest to each QUERY.

    Without a QUERY it asks for one after the other, until Ctrl-D; from a pipe it reads a query a line and answers at
    once. Scores are cosines. --json prints one object a line for every query.

    With --query-model the index's own model is not needed: the other model embeds some texts of the index, once, and a
    map from its vectors to the index's is fitted on them. How good that is goes to standard error.

    \b
    Examples:
      ensembed search my-index "how do I reset my password"
      ensembed search my-index -k 3 --json < queries.txt
      ensembed search my-index
      ensembed search my-index --query-model gte-small "how do I reset my password"
    """
    if model is not None and query_model is not None:
        raise click.UsageError("Give --model, the index's own one, or --query-model, another one.")
    if queries and not os.path.exists(folder) and os.path.isfile(Path(queries[-1]) / MANIFEST):  # noqa: PTH110, PTH113 - False for any text
        words = shlex.join([queries[-1], str(folder), *queries[:-1]])
        raise click.UsageError(f"FOLDER comes before the queries: ensembed search {words}")
    if len(queries) > 1 and not any(" " in query.strip() for query in queries):
        click.echo('note: every query is one word; one of several words needs quotes: "interest rates rise"', err=True)
    with how.progress() as progress:
        index = Index.open(folder, model, **how.opening, progress=progress)
        if not len(index):
            raise SearchIndexError(f"{folder} holds no rows: add some with ensembed index {folder} FILE")
        ask = _asker(index, query_model, sample, how, progress)
    if queries:
        for query, hits in zip(queries, ask(list(queries), count), strict=True):
            if len(queries) > 1 and not how.as_json:
                click.echo(f"\n{printable(query)}")
            _print(query, hits, how.as_json)
        return
    for query in _typed(index, how.as_json) if sys.stdin.isatty() else read_lines(sys.stdin.buffer, name=STDIN):
        try:
            [hits] = ask([query], count)
        except InputError as error:  # one bad line of many: the others can be answered
            if how.as_json:
                print_json({"query": query.encode("utf-8", "replace").decode(), "error": str(error)})
            else:
                click.echo(f"error: {printable(str(error))}", err=True)
            continue
        _print(query, hits, how.as_json)
        sys.stdout.flush()


def _asker(
    index: Index, query_model: str | None, sample: int, how: How, progress: Progress
) -> Callable[[list[str], int], list[list[Hit]]]:
    """Return what searches for texts. Models are opened now, so that the first answer is as quick as the others."""
    if query_model is None:
        _ = index.model
        return index.search
    store = how.views
    mapped = query_map(index, query_model, sample=sample, store=store, threads=how.threads, progress=progress)
    if mapped.fitted is not None:
        figure = mapped.fitted.translated
        expected = verdict(figure, mapped.fitted.unlike, len(index))
        click.echo(f"note: {mapped.fitted.kind}; recall@10 {figure.recall_10}; {expected}", err=True)
    return lambda texts, count: index.search(mapped.vectors(check_texts(texts, "query")), count)


def _print(query: str, hits: list[Hit], as_json: bool) -> None:
    if as_json:
        print_json({"query": query, "hits": [asdict(hit) | {"score": round(hit.score, 6)} for hit in hits]})
        return
    rows = []
    for hit in hits:
        text = " ".join(hit.text.split())
        rows.append([f"{hit.score:.4f}", hit.id, text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"])
    print_table(["score", "id", "text"], rows, left=3)


def _typed(index: Index, as_json: bool) -> Iterator[str]:
    """Yield the lines that a person types, except blank ones."""
    click.echo(f"{len(index)} rows, {printable(index.manifest.spec.name.text)}. Type a query; Ctrl-D ends.", err=True)
    if not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":  # readline writes escapes
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - gives the prompt a history, where the system has it
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
