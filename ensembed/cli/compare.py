"""`ensembed compare`: which encoders are alike, and which differ."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np

from ensembed.cli.completion import MODEL
from ensembed.cli.console import print_json, print_table
from ensembed.cli.options import FILE, INPUT, How, check_outputs, command_line, force_option, how_options
from ensembed.corpora.corpus import Corpus, ListCorpus
from ensembed.models.model_vectors import model_vectors
from ensembed.models.named_ensembles import split_names
from ensembed.reliability.likeness import HEADERS, LEAST_ROWS, LikenessReport, check_sample
from ensembed.reliability.likeness import compare as compare_views
from ensembed.sts.find import find_sts
from ensembed.sts.protocol import distinct_sentences
from ensembed.support.atomic_files import write_output
from ensembed.support.heatmap import can_show, print_heatmap, short_names
from ensembed.support.provenance import provenance

_DEFAULT = "the distinct sentences of STS-B train"


@click.command()
@click.argument("encoders", metavar="ENCODER...", nargs=-1, type=MODEL)
@click.option(
    "--corpus",
    "path",
    type=INPUT,
    help="Text (a sentence a line), CSV, TSV or JSON Lines, plain or gzipped; - is standard input. "
    "[default: STS-B train]",
)
@click.option(
    "--rows",
    type=click.IntRange(min=LEAST_ROWS),
    default=2000,
    help="Sentences to sample for cosines and neighbours; CKA takes all.",
)
@click.option("--neighbours", type=click.IntRange(min=1), default=10, help="Nearest neighbours to look at.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the sample.")
@click.option("--svg", type=FILE, help="Write the heat maps to this file.")
@click.option("--markdown", type=FILE, help="Write a page with everything to this file.")
@force_option
@how_options(["store", "wait", "errors", "column", "file_format", "threads", "moved", "trust", "quiet", "as_json"])
def compare(
    encoders: tuple[str, ...],
    path: Path | None,
    rows: int,
    neighbours: int,
    seed: int,
    svg: Path | None,
    markdown: Path | None,
    force: bool,
    how: How,
) -> None:
    """Show how alike ENCODERs (names, folders of saved models) are, without labels.

    Three figures for every pair, all of vectors scaled to length one. CKA: linear centred kernel alignment over all
    sentences, debiased: encoders with nothing in common have 0, on a small corpus too. cosines: Pearson's r between the
    cosines of all pairs of sampled sentences. overlap: the part of a sentence's nearest neighbours that two encoders
    share. An encoder that tells no sentences apart has 0 in all three. Pairs are sorted by CKA; the other
    figures may order them differently.

    An ensemble gains most from good members that differ. These figures do not show which encoder is good:
    `ensembed reliability` estimates that without labels, and `ensembed evaluate` measures it with labels.

    The vectors are cached as by `ensembed embed`: an interrupted run goes on where it was. Each distinct sentence
    counts once. The sentences of STS-B train come from the data folder or from `ensembed pull stsb`.

    \b
    Examples:
      ensembed compare minilm use-lite wordllama
      ensembed compare minilm my-model --corpus news.txt.gz --rows 5000 --svg alike.svg
    """
    sources = list(dict.fromkeys(name for text in encoders for name in split_names(text)))
    if len(sources) < 2:
        example = "ensembed compare minilm wordllama --corpus FILE"
        raise click.UsageError(f"give at least two different encoders to compare, not {len(sources)}: {example}")
    check_outputs(force, file=path, svg=svg, markdown=markdown)
    with _sentences(path, how) as corpus, how.progress() as progress:
        first = corpus.index.first_rows
        distinct = np.flatnonzero(first == np.arange(len(first)))
        check_sample(len(distinct), rows, neighbours)  # before the work, and not after it
        members = [how.open_model(source, progress, beside=sources) for source in sources]
        views = model_vectors(corpus, members, how.views, progress=progress)
        sample = {"rows": rows, "neighbours": neighbours, "seed": seed}
        comparison = compare_views(views, names=sources, among=distinct, **sample, progress=progress)
    report = LikenessReport(comparison, _DEFAULT if path is None else str(corpus), corpus, members)
    if svg is not None:
        write_output(svg, report.svg().encode())
    if markdown is not None:
        picture = "" if svg is None else os.path.relpath(svg, markdown.parent)
        command = command_line("store", "wait", "threads", "quiet", "force")  # these do not change the figures
        origin = f"Written by `{command}`{', which prints the figures as JSON' if how.as_json else ''}."
        write_output(markdown, report.page(origin, picture).encode())
    if how.as_json:
        print_json({"provenance": provenance()} | report.to_json())
        return
    labels = short_names(comparison.names, 36, "…" if can_show("…", sys.stdout.encoding) else "...")
    print_table(HEADERS, report.rows(labels), left=2)
    click.echo()
    print_heatmap(comparison.names, report.panels()[0])
    click.echo()
    click.echo("\n".join([*report.protocol(), *report.advice(labels)]))


@contextmanager
def _sentences(path: Path | None, how: How) -> Iterator[Corpus]:
    """Open the file, or the sentences of STS-B train."""
    if path is None:
        yield ListCorpus(distinct_sentences([find_sts("stsb-train")]))
        return
    with how.open_corpus(path) as corpus:
        yield corpus
