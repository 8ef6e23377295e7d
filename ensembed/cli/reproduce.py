"""`ensembed reproduce`: the paper's experiments, and some beyond them, on any ensemble."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import click

from ensembed.cli.console import print_json
from ensembed.cli.options import FOLDER, PATH, How, command_line, default_members_options, how_options
from ensembed.corpora.corpus import Corpus
from ensembed.fetch.catalog import catalog, data_set
from ensembed.fetch.fetcher import pull
from ensembed.models.ensemble import Ensemble
from ensembed.paper.experiments.dev_experiments import TRAININGS, Training
from ensembed.paper.named_corpora import open_corpora
from ensembed.sts import LAYOUTS, PROTOCOLS, Protocol
from ensembed.sts.find import find_available, locate
from ensembed.support.machine import cache_dir


@click.command()
@default_members_options
@click.option(
    "--corpus",
    "corpora",
    multiple=True,
    metavar="NAME|FILE",
    help="What to fit on: stsb-train, billion-word, or a file of text or records. The first is that of the main "
    "tables; the others are compared with it. [default: billion-word if it is here, stsb-train]",
)
@click.option(
    "--beside",
    multiple=True,
    metavar="NAME",
    help="An encoder that is no member, such as a student, to score and time beside the ensemble. Repeat it for more.",
)
@click.option(
    "--out", type=FOLDER, default=Path("reproduction"), help="Folder for report.html, findings.json and the tables."
)
@click.option("--data", type=PATH, help="Folder with the STS data. [default: $ENSEMBED_DATA]")
@click.option("--layout", type=click.Choice(LAYOUTS), help="Version of the text. [default: the first that is found]")
@click.option("--protocol", type=click.Choice(PROTOCOLS), default="mean")
@click.option(
    "--autoencoder",
    "training",
    type=click.Choice([*TRAININGS, "none"]),
    default="reduced",
    help="How long autoencoders are trained: for some 215,000 sentences in whole epochs, as in the paper (for a GPU), "
    "or not at all.",
)
@click.option("--resamples", type=click.IntRange(min=1000), default=2000, help="Number of bootstrap samples.")
@click.option("--texts/--no-texts", default=True, help="Quote the pairs that changed most, or only say where they are.")
@click.option(
    "--fresh", is_flag=True, help="Run all experiments again; views are kept. Omit it to go on after an interruption."
)
@how_options(["store", "wait", "errors", "column", "threads", "quiet", "as_json"])
def reproduce(
    encoders: tuple[str, ...],
    corpora: tuple[str, ...],
    beside: tuple[str, ...],
    out: Path,
    data: Path | None,
    layout: str | None,
    protocol: Protocol,
    training: Training | Literal["none"],
    resamples: int,
    texts: bool,
    fresh: bool,
    how: How,
) -> None:
    """Run everything the paper reports, and more, on an ensemble, and write tables and a report.

    The search for GCCA's tau and the autoencoder's depth and loss (on STS-B dev); members, up-projections and every
    method on STS12-16 and STS-B, with 95% intervals and a paired test against the best member; without each member;
    every sub-testset; against dimensions, corpus size and corpus; what a sentence costs. OUT gets report.html, which
    opens from the disk without a network, and every table as Markdown, CSV, JSON and LaTeX.

    What is missing of the catalogue is pulled first. Views and finished experiments are kept: run the same command
    again after an interruption, or for the same pages in seconds. The test sets come from `ensembed data fetch --all`.

    \b
    Examples:
      ensembed reproduce
      ensembed reproduce --ensemble minilm,gte-small,wordllama --corpus news.txt.gz --corpus stsb-train --out report
      ensembed reproduce --beside onnx:six-onnx --beside model2vec:fast-model
      ensembed reproduce --ensemble paper --corpus billion-word --autoencoder paper
    """
    from ensembed.paper.experiments.run_experiments import Plan, run_experiments
    from ensembed.paper.laboratory import Laboratory
    from ensembed.paper.notebook import Notebook
    from ensembed.paper.report.page import check_before, write_report
    from ensembed.paper.tables.table_formats import main_text

    check_before(out, training=training != "none")
    plan = Plan(
        command_line("fresh", "store", "wait", "quiet", "as_json"),
        protocol,
        None if training == "none" else training,
        resamples=resamples,
        texts=texts,
        threads=how.threads,
    )
    with how.progress() as progress:
        absent = ["stsb"] if data is None and locate(data_set("stsb")) is None else []
        pull([*(name for name in (*encoders, *beside) if name in catalog()), *absent], progress=progress)
        opened = open_corpora(corpora, data=data, layout=layout, errors=how.errors, column=how.column)
        datasets = find_available(data, layout)
        notebook = Notebook(cache_dir() / "reproduce", fresh, progress)

        def laboratory(names: tuple[str, ...], texts: Mapping[str, Corpus]) -> Laboratory:
            ensemble = Ensemble(names, threads=how.threads, progress=progress)
            return Laboratory.prepare(ensemble, texts, datasets, store=how.views, notebook=notebook, progress=progress)

        findings = run_experiments(
            laboratory(encoders, {corpus.name: corpus.corpus for corpus in opened}),
            plan,
            [corpus.what for corpus in opened],
            laboratory(beside, {}) if beside else None,
        )
        written = write_report(findings, out)
    if how.as_json:
        print_json({"written": [str(path) for path in written]})
        return
    click.echo(main_text(findings))
    click.echo(f"\nwritten: {written[0]} and {len(written) - 1} other files in {out}")
