"""`ensembed bench`: what an ensemble costs on this machine."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from ensembed.cli.console import print_json, print_table
from ensembed.cli.options import INPUT, POSITIVE, How, how_options, members_options
from ensembed.models.ensemble_costs import default_sentences, measure
from ensembed.support.provenance import provenance


@click.command()
@click.argument("file", required=False, type=INPUT)
@members_options
@click.option("--sentences", "-n", "count", type=POSITIVE, default=2000, help="Encode at most this many lines of FILE.")
@how_options(["errors", "column", "file_format", "threads", "quiet", "as_json"])
def bench(file: Path | None, encoders: tuple[str, ...], count: int, how: How) -> None:
    """Measure what the members of an ensemble cost on this machine.

    FILE is text (a sentence a line), CSV, TSV or JSON Lines, plain or gzipped; - is standard input. Without it, made-up
    messages to a help desk are encoded; your own sentences tell more, since longer ones take longer. Repeated and blank
    lines are left out.

    The table has, for each member: its speed and its share of the time, how long it takes to open it, to encode its
    first sentence and a sentence by itself (the median, and what 95% stay under), and by how much the process grew.
    Then the ensemble with its members one after the other and side by side, what combining their vectors adds to it,
    and the speed of looking up sentences that are in the view store. Nothing is kept.

    \b
    Examples:
      ensembed bench -e minilm -e use-lite
      ensembed bench --ensemble default inbox.txt --sentences 5000
      ensembed bench -e minilm -e wordllama inbox.txt.gz --threads 1 --json
    """
    if file is None:
        sentences = default_sentences(count)
    else:
        with how.open_corpus(file) as corpus:
            sentences = list(itertools.islice(corpus, count))
    with how.progress() as progress:
        costs = measure(encoders, sentences, threads=how.threads, progress=progress)
    if how.as_json:
        print_json(costs.to_json() | {"provenance": provenance()})
        return
    print_table(*costs.member_table())
    click.echo()
    print_table(*costs.ensemble_table())
