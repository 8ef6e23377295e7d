"""`ensembed evaluate`: STS scores of models and encoders."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from ensembed.cli.common import (
    json_option,
    options,
    print_json,
    print_table,
    progress_bars,
    quiet_option,
    threads_option,
    trust_option,
)
from ensembed.models.opening import open_model
from ensembed.sts import LAYOUTS, NAMES, PROTOCOLS, Dataset, Protocol, Result, evaluate_all, read_pairs
from ensembed.sts.find import TESTS, find_sts, text_version
from ensembed.sts.once import Vectors
from ensembed.support.provenance import provenance


@click.command()
@click.argument("models", nargs=-1, required=True)
@click.option(
    "--sts", "names", multiple=True, type=click.Choice([*NAMES, "tests"]), help="A data set; `tests` is all six."
)
@click.option("--pairs", multiple=True, type=click.Path(path_type=Path), help="A file of score<TAB>text1<TAB>text2.")
@click.option("--data", type=click.Path(path_type=Path), help="Folder with the STS data. [default: $ENSEMBED_DATA]")
@click.option("--layout", type=click.Choice(LAYOUTS), help="Text version. [default: the first that is there]")
@click.option("--protocol", type=click.Choice(PROTOCOLS), default="mean", show_default=True)
@click.option("--parts", is_flag=True, help="Show every sub-testset.")
@options(threads_option, trust_option, quiet_option, json_option)
def evaluate(
    models: tuple[str, ...],
    names: tuple[str, ...],
    pairs: tuple[Path, ...],
    data: Path | None,
    layout: str | None,
    protocol: Protocol,
    parts: bool,
    threads: int | None,
    trust: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Score MODELS (folders of saved models, names of encoders) on semantic textual similarity.

    The figures are Pearson's r / Spearman's rho, times 100, of the cosine with the gold score. Protocols: mean (the
    paper's: the plain mean over a year's sub-testsets), wmean (weighted by their size), all (a year's pairs pooled).
    STS-B comes from the data folder or from `ensembed pull stsb`. Without --sts and --pairs, STS-B dev is scored: keep
    the test sets for the final table.

    \b
    Examples:
      ensembed evaluate my-model minilm use-lite
      ensembed evaluate my-model --sts tests --protocol wmean --parts
      ensembed evaluate my-model --pairs mine.tsv --json
    """
    wanted = [name for given in names for name in (TESTS if given == "tests" else (given,))]
    if not wanted and not pairs:
        wanted = ["stsb-dev"]
    datasets = [find_sts(name, data, layout) for name in dict.fromkeys(wanted)]
    datasets += [Dataset.of(read_pairs(path)) for path in pairs]
    results: dict[str, list[Result]] = {}
    with progress_bars(quiet) as progress:
        vectors = Vectors()  # models often share members
        for source in dict.fromkeys(models):
            encoder = vectors.remember(open_model(source, threads=threads, progress=progress, trust=trust))
            results[source] = evaluate_all(partial(encoder.encode, progress=progress), datasets, protocol)
    if as_json:
        print_json(
            {
                "provenance": provenance(),
                "protocol": protocol,
                "models": {source: [result.to_json() for result in found] for source, found in results.items()},
            }
        )
        return
    _print(results, protocol, parts)


def _print(results: dict[str, list[Result]], protocol: Protocol, parts: bool) -> None:
    columns = next(iter(results.values()))
    headers = ["model"]
    for result in columns:
        headers.append(result.dataset)
        headers += [f"{result.dataset}/{part.name}" for part in result.parts if parts and len(result.parts) > 1]
    rows = []
    for source, found in results.items():
        row = [source]
        for result in found:
            row.append(str(result.score))
            row += [str(part.score) for part in result.parts if parts and len(result.parts) > 1]
        rows.append(row)
    print_table(headers, rows)
    click.echo(f"\nPearson/Spearman x 100; protocol {protocol}; text {text_version(columns)}.")
    for result in columns:
        if result.missing:
            click.echo(f"{result.dataset} is without {', '.join(result.missing)}: not in the data folder.")
