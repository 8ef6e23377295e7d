"""`ensembed evaluate`: STS scores of models and encoders."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from ensembed.cli.console import print_json, print_table
from ensembed.cli.options import PATH, How, how_options
from ensembed.sts import LAYOUTS, NAMES, PROTOCOLS, Dataset, Protocol, Result, evaluate_all, read_pairs
from ensembed.sts.encode_once import EncodeOnce
from ensembed.sts.find import TESTS, find_sts, text_version
from ensembed.support.provenance import provenance


@click.command()
@click.argument("models", nargs=-1, required=True)
@click.option(
    "--sts", "names", multiple=True, type=click.Choice([*NAMES, "tests"]), help="A data set; `tests` is all six."
)
@click.option("--pairs", multiple=True, type=PATH, help="A file of score<TAB>text1<TAB>text2.")
@click.option("--data", type=PATH, help="Folder with the STS data. [default: $ENSEMBED_DATA]")
@click.option("--layout", type=click.Choice(LAYOUTS), help="Version of the text. [default: the first that is found]")
@click.option("--protocol", type=click.Choice(PROTOCOLS), default="mean")
@click.option("--parts", is_flag=True, help="Show every sub-testset.")
@how_options("threads", "trust", "quiet", "as_json")
def evaluate(
    models: tuple[str, ...],
    names: tuple[str, ...],
    pairs: tuple[Path, ...],
    data: Path | None,
    layout: str | None,
    protocol: Protocol,
    parts: bool,
    how: How,
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
    with how.progress() as progress:
        memory = EncodeOnce()  # models often share members
        for source in dict.fromkeys(models):
            encoder = memory.remember(how.open_model(source, progress))
            results[source] = evaluate_all(partial(encoder.encode, progress=progress), datasets, protocol)
    if how.as_json:
        scores = {source: [result.to_json() for result in scores] for source, scores in results.items()}
        print_json({"provenance": provenance(), "protocol": protocol, "models": scores})
        return
    _print(results, protocol, parts)


def _print(results: dict[str, list[Result]], protocol: Protocol, parts: bool) -> None:
    headers, rows = ["model"], []
    for source, scores in results.items():
        headers, row = ["model"], [source]
        for result in scores:
            shown = result.parts if parts and len(result.parts) > 1 else ()
            headers += [result.dataset, *(f"{result.dataset}/{part.name}" for part in shown)]
            row += [str(result.score), *(str(part.score) for part in shown)]
        rows.append(row)
    print_table(headers, rows)
    click.echo(f"\nPearson/Spearman x 100; protocol {protocol}; text {text_version(scores)}.")
    for result in scores:
        if result.missing:
            click.echo(f"{result.dataset} is without {', '.join(result.missing)}: not in the data folder.")
