"""`ensembed bench`: what an ensemble costs on this machine."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from ensembed.cli.common import (
    encoder_option,
    errors_option,
    json_option,
    open_corpus,
    options,
    print_json,
    print_table,
    progress_bars,
    quiet_option,
    threads_option,
)
from ensembed.corpora.corpus import BadBytes
from ensembed.models.ensemble_costs import default_sentences, measure
from ensembed.support.provenance import provenance


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, allow_dash=True))
@encoder_option
@click.option(
    "--sentences",
    "-n",
    "count",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    help="How many lines of FILE to encode at the most.",
)
@options(errors_option, threads_option, quiet_option, json_option)
def bench(
    file: Path | None,
    encoders: tuple[str, ...],
    count: int,
    errors: BadBytes,
    threads: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure what the members of an ensemble cost on this machine.

    FILE is plain or gzipped text, one sentence a line; - is standard input. Without it, made-up messages to a help desk
    are encoded; your own sentences tell more, since longer ones take longer. Repeated and blank lines are left out.

    Shown are, for each member: its speed and its share of the time, how long it takes to open it, to encode its first
    sentence and a sentence by itself (the median, and what 95% stay under), and by how much the process grew. Then the
    ensemble with its members one after the other and side by side, what combining their vectors adds to it, and the
    speed of looking up sentences that are in the view store. Nothing is kept.

    \b
    Examples:
      ensembed bench -e minilm -e use-lite
      ensembed bench --ensemble default inbox.txt --sentences 5000
      ensembed bench -e minilm -e wordllama inbox.txt.gz --threads 1 --json
    """
    if file is None:
        sentences = default_sentences(count)
    else:
        with open_corpus(file, errors) as corpus:
            sentences = list(itertools.islice(corpus, count))
    with progress_bars(quiet) as progress:
        costs = measure(encoders, sentences, threads=threads, progress=progress)
    if as_json:
        print_json(costs.to_json() | {"provenance": provenance()})
        return
    print_table(*costs.member_table())
    click.echo()
    print_table(*costs.ensemble_table())
