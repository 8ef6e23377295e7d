"""`ensembed data`: the STS sets and the paper's corpus, which are here and how to get the others."""

from __future__ import annotations

from pathlib import Path

import click

from ensembed.cli.console import human_bytes, print_json, print_table, progress_bars
from ensembed.cli.options import FOLDER, json_option, quiet_option
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
    found = [(one, locate(one)) for one in data_sets().values()]
    if as_json:
        print_json([_facts(one, place) for one, place in found])
        return
    rows = [[one.name, _where(place), one.holds, human_bytes(one.size), one.licence, one.title] for one, place in found]
    print_table(["name", "where", "holds", "size", "licence", "what"], rows, left=6)
    click.echo()
    for one, place in found:
        if place is not None and place.problem:
            click.echo(f"{one.name} is damaged: {place.problem}")
        if one.note:
            click.echo(f"{one.name}: {one.note}")
    looked = ", ".join(map(str, data_dirs())) or "no folder"
    click.echo(f"looked in: {looked}; `ensembed data fetch` puts into: {target_folder()}")


@data.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Fetch all of them: 1.8 GB to download.")
@click.option(
    "--data", "folder", type=FOLDER, help="Folder to put them in. [default: $ENSEMBED_DATA, or `data` in the cache]"
)
@click.option("--force", is_flag=True, help="Fetch again what is there already, and replace it.")
@click.option("--keep-archives", is_flag=True, help="Keep the downloaded archives in the cache.")
@quiet_option
@json_option
def fetch(
    names: tuple[str, ...],
    everything: bool,
    folder: Path | None,
    force: bool,
    keep_archives: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Fetch data sets by NAME from their publishers and check every file against its pinned hash.

    The licences are shown first. Nothing is put in place before all of a set is there and checked; an interrupted fetch
    is taken up where it stopped, and what is there already is not fetched again. Where there is no network, the message
    says which files to put where.

    \b
    Examples:
      ensembed data fetch sts12 stsb
      ensembed data fetch --all --data ~/data
    """
    if not names and not everything:
        raise click.UsageError("name what to fetch, or give --all; `ensembed data` lists the names")
    chosen = list(data_sets().values()) if everything else [data_set(name) for name in dict.fromkeys(names)]
    for one in chosen:
        click.echo(_licence(one), err=True)
    done: list[Fetched] = []
    failures: dict[str, str] = {}
    with progress_bars(quiet) as progress:
        for one in chosen:
            try:
                done.append(fetch_data(one, folder, force=force, keep=keep_archives, progress=progress))
            except DatasetError as error:
                failures[one.name] = str(error)
    if as_json:
        facts = [{"name": one.name, "source": one.source, "folder": str(one.folder), "error": None} for one in done]
        failed = [{"name": n, "source": None, "folder": None, "error": error} for n, error in failures.items()]
        print_json(facts + failed)
    elif done:
        rows = [[one.name, one.source or "already there", str(one.folder)] for one in done]
        print_table(["name", "from", "folder"], rows, left=3)
    if failures:
        raise DatasetError("\n".join(failures.values()))


def _licence(one: DataSet) -> str:
    lines = [f"{one.name}: {one.title}", *(f"  {term}" for term in one.terms), *([f"  {one.note}"] if one.note else [])]
    return "\n".join(lines)


def _where(place: Place | None) -> str:
    if place is None:
        return "-"
    return f"{place.kind}{', damaged' if place.problem else ''}"


def _facts(one: DataSet, place: Place | None) -> dict[str, object]:
    return {
        "name": one.name,
        "title": one.title,
        "count": one.count,
        "unit": one.unit,
        "bytes": one.size,
        "licence": one.licence,
        "terms": list(one.terms),
        "note": one.note,
        "here": place is not None and place.problem is None,
        "where": place and place.kind,
        "folder": place and str(place.folder),
        "problem": place and place.problem,
        "urls": list(one.urls),
    }
