"""`ensembed similarity`: how alike sentences are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from ensembed.cli.completion import MODEL
from ensembed.cli.console import STDIN, print_json, print_table
from ensembed.cli.options import INPUT, How, how_options, read_batches
from ensembed.errors import CorpusError
from ensembed.sts.protocol import cosine


@click.command()
@click.argument("model", type=MODEL)
@click.argument("sentences", nargs=-1)
@click.option("--pairs", type=INPUT, help="Read sentence1<TAB>sentence2 from a file (- for standard input) instead.")
@how_options(["threads", "moved", "trust", "as_json"])
def similarity(model: str, sentences: tuple[str, ...], pairs: Path | None, how: How) -> None:
    """Print how alike sentences are.

    The cosine of the first of SENTENCES with each of the others; MODEL is a saved model's folder or an encoder's name.
    "my-model?truncate_dim=256" keeps the 256 leading dimensions.

    \b
    Examples:
      ensembed similarity my-model "A dog runs." "A puppy is running." "Stocks fell."
      ensembed similarity minilm --pairs pairs.tsv --json
    """
    example = 'ensembed similarity minilm "A dog runs." "A puppy is running."'
    if (pairs is None) == (len(sentences) == 0):
        raise click.UsageError("give two or more sentences, or --pairs FILE")
    if pairs is None and len(sentences) == 1:
        raise click.UsageError(f"give a model, and at least two sentences to compare: {example}")
    if len(sentences) > 2 and not any(" " in sentence.strip() for sentence in sentences):
        click.echo(f"note: every sentence is one word; sentences need straight quotes: {example}", err=True)
    with how.progress() as progress:
        encoder = how.open_model(model, progress)
    batches: Iterable[list[tuple[str, str]]] = (
        _read_pairs(pairs) if pairs is not None else [[(sentences[0], other) for other in sentences[1:]]]
    )
    table = []
    for batch in batches:
        left, right = zip(*batch, strict=True)
        for first, second, value in zip(left, right, cosine(encoder.encode(left), encoder.encode(right)), strict=True):
            if how.as_json:
                print_json({"sentence1": first, "sentence2": second, "cosine": round(float(value), 6)})
            else:
                table.append([f"{value:.4f}", first[:60], second[:60]])
    if not how.as_json:
        print_table(["cosine", "sentence1", "sentence2"], table, left=3)


def _read_pairs(path: Path) -> Iterator[list[tuple[str, str]]]:
    """Yield the pairs of a file in batches, without blank lines."""
    number = 0
    for lines in read_batches(path):
        batch = []
        for number, line in enumerate(lines, number + 1):  # noqa: B020 - counts on from the last batch
            if not line.strip():
                continue
            columns = line.split("\t")
            if len(columns) != 2:
                name = STDIN if str(path) == "-" else path
                hint = ", without a score (`ensembed evaluate --pairs` takes scored pairs)" if len(columns) == 3 else ""
                raise CorpusError(
                    f"{name}, line {number}: {len(columns)} columns instead of 2; write sentence1<TAB>sentence2{hint}"
                )
            batch.append((columns[0], columns[1]))
        if batch:
            yield batch
