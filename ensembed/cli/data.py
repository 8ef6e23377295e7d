"""`ensembed data`: the STS sets and the paper's corpus, which are here and how to get the others."""

from __future__ import annotations

from typing import Any

import click

from ensembed.cli.completion import DATA_SET
from ensembed.cli.console import human_bytes, print_json, print_table
from ensembed.cli.options import FOLDER, How, how_options, json_option
from ensembed.errors import DatasetError
from ensembed.fetch.catalog import DataSet, data_set, data_sets
from ensembed.fetch.fetcher import Fetched
from ensembed.sts.find import Place, fetch_data, locate, target_folder
from ensembed.support.machine import data_dirs


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def data(context: click.Context, as_json: bool) -> None:
    """List the STS sets and the paper's corpus, and where they are on this machine; fetch them with `data fetch`.

    \b
    Examples:
      ensembed data
      ensembed data fetch sts12 sts13 sts14 sts15 sts16 stsb
      ensembed data fetch billion-word

    Commands look for data in ENSEMBED_DATA, then in what was fetched into the cache; for STS-B also where `ensembed
    pull` puts it.
    """
    if context.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError(f"put --json behind {context.invoked_subcommand}")
        return
    sets = [(entry, locate(entry)) for entry in data_sets().values()]
    if as_json:
        print_json([_facts(entry, place) for entry, place in sets])
        return
    where = [f"{place.kind}{', damaged' if place.problem else ''}" if place else "-" for _, place in sets]
    rows = [
        [e.name, at, e.holds, human_bytes(e.size), e.licence, e.title] for (e, _), at in zip(sets, where, strict=True)
    ]
    print_table(["name", "where", "holds", "size", "licence", "what"], rows, left=6)
    click.echo()
    for entry, place in sets:
        if place is not None and place.problem:
            click.echo(f"{entry.name} is damaged: {place.problem}")
        if entry.note:
            click.echo(f"{entry.name}: {entry.note}")
    looked = ", ".join(map(str, data_dirs())) or "no folder"
    click.echo(f"looked in: {looked}; `ensembed data fetch` puts into: {target_folder()}")


@data.command()
@click.argument("names", nargs=-1, type=DATA_SET)
@click.option("--all", "everything", is_flag=True, help="Fetch all of them: 1.8 GB to download.")
@click.option(
    "--data", "folder", type=FOLDER, help="Folder to put them in. [default: $ENSEMBED_DATA, or `data` in the cache]"
)
@click.option("--force", is_flag=True, help="Fetch again what is there already, and replace it.")
@click.option("--keep-archives", "keep", is_flag=True, help="Keep the downloaded archives in the cache.")
@how_options(["quiet", "as_json"])
def fetch(names: tuple[str, ...], everything: bool, how: How, **settings: Any) -> None:  # noqa: ANN401 - the options
    """Fetch data sets by NAME from their publishers and check every file against its pinned hash.

    The licences are shown first. Files are put in place when all files of a set are downloaded and checked. An
    interrupted fetch goes on where it stopped, and data that is there already is not fetched again. Without a network,
    the message says which files to put where.

    \b
    Examples:
      ensembed data fetch sts12 stsb
      ensembed data fetch --all --data ~/data
    """
    if not names and not everything:
        raise click.UsageError("name what to fetch, or give --all; `ensembed data` lists the names")
    chosen = list(data_sets().values()) if everything else [data_set(name) for name in dict.fromkeys(names)]
    for entry in chosen:
        lines = [f"{entry.name}: {entry.title}", *entry.terms, *([entry.note] if entry.note else [])]
        click.echo("\n  ".join(lines), err=True)
    done: list[Fetched] = []
    failures: dict[str, str] = {}
    with how.progress() as progress:
        for entry in chosen:
            try:
                done.append(fetch_data(entry, **settings, progress=progress))
            except DatasetError as error:
                failures[entry.name] = str(error)
    if how.as_json:
        facts = [{"name": f.name, "source": f.source, "folder": str(f.folder), "error": None} for f in done]
        failed = [{"name": n, "source": None, "folder": None, "error": error} for n, error in failures.items()]
        print_json(facts + failed)
    elif done:
        rows = [[fetched.name, fetched.source or "already there", str(fetched.folder)] for fetched in done]
        print_table(["name", "from", "folder"], rows, left=3)
    if failures:
        raise DatasetError("\n".join(failures.values()))


def _facts(entry: DataSet, place: Place | None) -> dict[str, object]:
    return {name: getattr(entry, name) for name in ("name", "title", "count", "unit")} | {
        "bytes": entry.size,
        "licence": entry.licence,
        "terms": list(entry.terms),
        "note": entry.note,
        "here": place is not None and place.problem is None,
        "where": place and place.kind,
        "folder": place and str(place.folder),
        "problem": place and place.problem,
        "urls": list(entry.urls),
    }
