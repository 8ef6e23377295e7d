"""`ensembed evaluate`: scores of models and encoders on STS and on tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from click.core import ParameterSource

from ensembed.cli.completion import MODEL
from ensembed.cli.console import print_json, print_table
from ensembed.cli.options import PATH, How, how_options
from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders.base import FloatArray
from ensembed.models.model_vectors import model_vectors
from ensembed.models.named_ensembles import split_names
from ensembed.sts import (
    LAYOUTS,
    NAMES,
    PROTOCOLS,
    Dataset,
    Protocol,
    Result,
    distinct_sentences,
    evaluate_all,
    read_pairs,
)
from ensembed.sts.find import TESTS, find_sts, text_version
from ensembed.support.provenance import provenance
from ensembed.views import ViewStore

if TYPE_CHECKING:
    from ensembed.tasks import Task, TaskResults

_MTEB = "mteb:"
_WAIT = 600.0  # seconds, by default, for another evaluation that encodes the same STS sentences


@click.command()
@click.argument("models", nargs=-1, required=True, type=MODEL)
@click.option(
    "--sts", "names", multiple=True, type=click.Choice([*NAMES, "tests"]), help="A data set; `tests` is all six."
)
@click.option("--pairs", multiple=True, type=PATH, help="A file of score<TAB>text1<TAB>text2.")
@click.option(
    "--task",
    "tasks",
    multiple=True,
    metavar="NAME-OR-PATH[:SPLIT]",
    help="A task: a folder or file of yours, one below `tasks` in the data folder, or mteb:NAME of an installed mteb.",
)
@click.option("--data", type=PATH, help="Folder with the STS data and the tasks. [default: $ENSEMBED_DATA]")
@click.option("--layout", type=click.Choice(LAYOUTS), help="Version of the text. [default: the first that is found]")
@click.option("--protocol", type=click.Choice(PROTOCOLS), default="mean")
@click.option("--parts", is_flag=True, help="Show every sub-testset, and every figure of a task with its interval.")
@click.option(
    "--resamples", type=click.IntRange(min=0), default=2000, help="Resamples for the intervals and tests of tasks."
)
@how_options(["threads", "moved", "trust", "quiet", "as_json", "store", "wait"])
def evaluate(
    models: tuple[str, ...],
    names: tuple[str, ...],
    pairs: tuple[Path, ...],
    tasks: tuple[str, ...],
    data: Path | None,
    layout: str | None,
    protocol: Protocol,
    parts: bool,
    resamples: int,
    how: How,
) -> None:
    """Score MODELS (folders of saved models, names of encoders) on semantic textual similarity, or on tasks.

    The figures of STS are Pearson's r / Spearman's rho, times 100, of the cosine with the gold score. Protocols: mean
    (the paper's: the plain mean over a year's sub-testsets), wmean (weighted by their size), all (a year's pairs
    pooled). STS-B comes from the data folder or from `ensembed pull stsb`. Without --sts, --pairs and --task, STS-B dev
    is scored: keep the test sets for the final table.

    A task is search (nDCG@10, MAP, recall@100), reranking (MAP, MRR), texts with labels (clusters: V-measure; classes:
    accuracy) or pairs (average precision, or correlations). docs/guides/evaluate.md shows the files. Every ensemble
    among MODELS is compared with the best single encoder among them by a paired bootstrap test. Vectors are kept in the
    store: an interrupted evaluation encodes no text again. Without --wait, another process that encodes the same STS
    sentences is waited for, at most ten minutes.

    \b
    Examples:
      ensembed evaluate my-model minilm use-lite
      ensembed evaluate my-model --sts tests --protocol wmean --parts
      ensembed evaluate my-model --pairs mine.tsv --json
      ensembed evaluate my-model minilm --task my-queries --task tickets.tsv
    """
    wanted = [name for given in names for name in (TESTS if given == "tests" else (given,))]
    if not wanted and not pairs and not tasks:
        wanted = ["stsb-dev"]
    datasets = [find_sts(name, data, layout) for name in dict.fromkeys(wanted)]
    datasets += [Dataset.of(read_pairs(path)) for path in pairs]
    chosen = _find_tasks(tasks, data)
    results: dict[str, list[Result]] = {}
    scored: TaskResults | None = None
    with how.progress() as progress:
        sources = tuple(dict.fromkeys(name for text in models for name in split_names(text)))
        opened = {source: how.open_model(source, progress, beside=sources) for source in sources}
        if datasets:
            corpus = ListCorpus(distinct_sentences(datasets))
            views = model_vectors(corpus, list(opened.values()), _store(how), progress=progress)
            scores = [_score(np.asarray(view[:]), datasets, protocol) for view in views]
            results = dict(zip(opened, scores, strict=True))
        if chosen:
            from ensembed.tasks import evaluate_tasks

            scored = evaluate_tasks(opened, chosen, resamples=resamples, store=how.views, progress=progress)
    if how.as_json:
        _print_json(results, protocol, scored)
        return
    if results:
        _print(results, protocol, parts)
    if scored is not None:
        if results:
            click.echo()
        _print_tasks(scored, parts)


def _store(how: How) -> ViewStore:
    """Return the store, which without --wait waits for other evaluations."""
    given = click.get_current_context().get_parameter_source("wait") is not ParameterSource.DEFAULT
    return ViewStore(how.store, wait=how.wait if given else _WAIT)


def _score(vectors: FloatArray, datasets: Sequence[Dataset], protocol: Protocol) -> list[Result]:
    """Score the vectors of the distinct sentences of data sets."""
    return evaluate_all(lambda _sentences: vectors, datasets, protocol)


def _find_tasks(names: Sequence[str], data: Path | None) -> list[Task]:
    """Return the tasks of these names; nothing of them is imported without names."""
    if not names:
        return []
    from ensembed.tasks import find_tasks

    tasks: list[Task] = []
    for name in dict.fromkeys(names):
        if name.startswith(_MTEB):
            from ensembed.integrations.mteb_tasks import mteb_tasks

            tasks += mteb_tasks(name.removeprefix(_MTEB))
        else:
            tasks += find_tasks(name, data)
    return tasks


def _print_json(results: dict[str, list[Result]], protocol: Protocol, scored: TaskResults | None) -> None:
    models = {source: [result.to_json() for result in scores] for source, scores in results.items()}
    tasks = scored.to_json() if scored is not None else {"models": {}}
    both = {source: [*models.get(source, []), *tasks["models"].get(source, [])] for source in models | tasks["models"]}
    compared = {"comparisons": tasks["comparisons"]} if scored is not None else {}
    print_json({"provenance": provenance(), "protocol": protocol, "models": both, **compared})


def _print_tasks(scored: TaskResults, parts: bool) -> None:
    first = next(iter(scored.results.values()))
    means = len(first) > 1
    headers = ["model", *(f"{result.task} {result.main}" for result in first), *(["mean"] if means else [])]
    rows = []
    for model, results in scored.results.items():
        cells = [f"{100 * result.figures[result.main].value:.1f}" for result in results]
        rows.append([model, *cells, *([f"{100 * scored.mean(model).value:.1f}"] if means else [])])
    print_table(headers, rows)
    if parts:
        click.echo()
        _print_figures(scored)
    comparisons = scored.comparisons()
    if comparisons:
        click.echo("\nAgainst the best single encoder, by a paired bootstrap test:\n")
        main = {(result.task, result.main) for result in first} | {("mean", "mean")}
        lines = []
        for test in comparisons:
            if parts or (test.task, test.figure) in main:
                interval = f"{100 * test.low:+.1f} to {100 * test.high:+.1f}"
                figures = [f"{100 * test.difference:+.1f}", interval, f"{test.p_holm:.3f}"]
                lines.append([test.model, test.task, test.figure, test.member, *figures])
        print_table(["model", "task", "figure", "best", "gain", "95%", "p"], lines, left=4)
    click.echo("\nFigures x 100; p by Holm's correction for the number of ensembles.")


def _print_figures(scored: TaskResults) -> None:
    rows = []
    for model, results in scored.results.items():
        for result in results:
            for name, figure in result.figures.items():
                low, high = figure.interval
                interval = f"{100 * low:.1f} to {100 * high:.1f}" if len(figure.resampled) else ""
                rows.append([model, result.task, result.kind, name, f"{100 * figure.value:.1f}", interval])
    print_table(["model", "task", "kind", "figure", "score", "95%"], rows, left=4)


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
