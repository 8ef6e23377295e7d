"""`ensembed demo`: the paper's main table, from nothing, on encoders of the catalogue."""

from __future__ import annotations

from importlib.util import find_spec

import click

from ensembed.cli.completion import PULLED
from ensembed.cli.options import How, how_options
from ensembed.models.named_ensembles import named_ensemble

_WITHOUT_NPM = "ensembed demo use-m3 paraphrase"


@click.command()
@click.argument("encoders", nargs=-1, type=PULLED)
@how_options(["quiet", "as_json"])
def demo(encoders: tuple[str, ...], how: How) -> None:
    """Repeat the paper's main table on the default encoders, or on ENCODERS of the catalogue, from nothing.

    Pulls the encoders and the STS Benchmark, fits every method on its unlabelled sentences, and prints members,
    meta-embeddings and the paper's figures in one table: some minutes on two cores, seconds when it is run again. The
    autoencoder needs the extra `ae`, and is left out without it. `ensembed reproduce` runs all experiments.

    \b
    Examples:
      ensembed demo
      ensembed demo use-lite wordllama
    """
    from ensembed.errors import PullError
    from ensembed.fetch.registry_sources import NO_NPM
    from ensembed.paper.main_table_demo import run_demo
    from ensembed.paper.tables.paper_tables import main_table
    from ensembed.paper.tables.table_formats import main_text, to_json

    members = [name for text in encoders for name in text.split(",") if name] or list(named_ensemble("default"))
    try:
        with how.progress() as progress:
            findings = run_demo(members, " ".join(["ensembed demo", *members]), progress)
    except PullError as error:
        without = f"; encoders that need no npm: {_WITHOUT_NPM}" if NO_NPM in str(error) else ""
        raise PullError(f"{error}; then again: {' '.join(['ensembed demo', *encoders])}{without}") from error
    if how.as_json:
        click.echo(to_json(main_table(findings), findings))
        return
    click.echo(main_text(findings))
    if find_spec("torch") is None:
        click.echo("\nWithout the autoencoder, which needs torch: pip install 'ensembed[ae]'")
    click.echo("\nYour own text: ensembed fit corpus.txt -e " + ",".join(members) + " --out my-model")
