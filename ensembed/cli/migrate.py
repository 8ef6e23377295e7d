"""`ensembed migrate`: make an index of one model an index of another."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ensembed.cli.completion import MODEL
from ensembed.cli.console import print_index_facts, print_json, print_table
from ensembed.cli.options import FOLDER, How, how_options
from ensembed.methods.encoder_map_fitting import FittedMap
from ensembed.methods.encoder_maps import KINDS, NAMES, named_kinds
from ensembed.models.translation import LEAST, Verdict, figure_rows
from ensembed.reliability.search_agreement import LEAST_ROWS
from ensembed.search.migration import SAMPLE
from ensembed.search.migration import migrate as migrate_index


@click.command()
@click.argument("folder", type=FOLDER)
@click.option("--to", "model", type=MODEL, required=True, metavar="NAME", help="The new model: a folder or a name.")
@click.option("--out", "-o", type=FOLDER, required=True, help="Folder for the new index.")
@click.option(
    "--sample", type=click.IntRange(min=LEAST_ROWS), default=SAMPLE, help="Texts to embed, to fit the map on."
)
@click.option("--kind", type=click.Choice(NAMES), help="The kind of map. [default: the one that finds most]")
@click.option(
    "--least",
    type=click.FloatRange(0, 1),
    default=LEAST,
    help="Ask before going on with less of the ten nearest than this.",
)
@click.option("--yes", "-y", is_flag=True, help="Go on without asking.")
@how_options(["store", "wait", "threads", "moved", "trust", "quiet", "as_json"])
def migrate(
    folder: Path, model: str, out: Path, sample: int, kind: str | None, least: float, yes: bool, how: How
) -> None:
    """Make the index in FOLDER one of another model by translating its vectors; the texts are not embedded again.

    A sample of the texts is embedded with the new model, and a map from the old vectors to the new ones is fitted on
    it. The figures (`ensembed translate` explains them) are printed first; if they promise less than --least, the
    command asks before it goes on. FOLDER is only read. The new index is complete or absent: interrupted, even by kill
    -9, the same command goes on. It is searched with the new model, and new texts are embedded with it. It knows which
    rows were translated: `ensembed index OUT --embed-translated 100000` embeds some of them, at any time.

    \b
    Examples:
      ensembed migrate my-index --to gte-small --out new-index
      ensembed migrate my-index --to gte-small --sample 20000 --least 0.6 --out new-index --yes
      ensembed index new-index --embed-translated 100000
    """

    def confirm(fitted: FittedMap, verdict: Verdict) -> bool:
        figures = {"translated": fitted.translated, "kept": fitted.kept, "unlike": fitted.unlike}
        if not how.as_json:
            print_table(*figure_rows(figures))
        click.echo(f"\n{fitted.kind}, fitted on {fitted.rows} texts; {verdict}.", err=how.as_json)
        if yes or not verdict.falls_short:
            return True
        # Beside bars rich takes click's [y/N] for a colour, and shows nothing.
        return sys.stdin.isatty() and click.confirm("Go on (y or n, the default)?", show_default=False, err=True)

    with how.progress() as progress:
        index = migrate_index(
            folder,
            out,
            model,
            sample=sample,
            kinds=KINDS if kind is None else named_kinds(kind),
            least=least,
            confirm=confirm,
            store=how.views,
            wait=how.wait,
            progress=progress,
            **how.opening,
        )
    facts = index.facts
    if how.as_json:
        print_json(facts)
    else:
        print_index_facts(facts)
