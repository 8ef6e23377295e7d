"""`ensembed reliability`: which encoders to trust, without labels."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from ensembed.cli.console import print_json, print_table
from ensembed.cli.options import (
    FILE,
    How,
    check_outputs,
    corpus_argument,
    default_members_options,
    force_option,
    how_options,
    moved_members,
)
from ensembed.corpora.corpus import Corpus, ListCorpus
from ensembed.errors import InputError, MissingError
from ensembed.fetch.catalog import require_pulled
from ensembed.models.model_vectors import model_vectors
from ensembed.reliability import reliability as estimate_reliability
from ensembed.reliability.trust_estimate import LEAST_ROWS, sample_rows, sample_sentences
from ensembed.reliability.trust_report import HEADERS, TrustReport
from ensembed.support.atomic_files import write_output
from ensembed.support.extras import import_extra
from ensembed.support.heatmap import can_show, short_names
from ensembed.support.provenance import provenance


@click.command()
@corpus_argument
@default_members_options
@click.option(
    "--rows", type=click.IntRange(min=LEAST_ROWS), default=6000, help="Distinct sentences to look at, chosen at random."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the samples.")
@click.option("--plot", type=FILE, help="Draw leads and weights, as an SVG file.")
@force_option
@how_options(["store", "wait", "errors", "column", "file_format", "threads", "trust", "quiet", "as_json"])
def reliability(
    corpus: Path, encoders: tuple[str, ...], rows: int, seed: int, plot: Path | None, force: bool, how: How
) -> None:
    """Estimate which members to trust on the unlabelled sentences of CORPUS. No label is read.

    standing: how far a member stands above its strongest rival; 1 is some, 3 is much. It is the sum of four parts.
    lead: the member predicts more of the rival than the rival of it, on held-out sentences, beyond what the words of a
    sentence explain. dims: its vectors use more dimensions. length: its cosines depend less on the lengths of
    sentences. words: they depend less on shared words. agrees: the correlation of its cosines with the best member's,
    over pairs that are near under the best. weight: the weight of its cosines, where the best has 1, as `fit` takes it.
    weight is: its three factors. trust is 1 for a member that stands as high as the best, and larger for one that
    agrees with it. own is smaller for one that says what another member says. spread is larger for one whose cosines
    lie close together. 95%: bootstrap interval. sure: how often an encoder of this standing has the better cosines.

    A member that agrees neither with another member nor with the words carries no information (random vectors, a
    constant, vectors of other sentences) and gets weight 0. Copies of a member share one weight. Noise on top of
    information is not recognised: a good encoder with much random noise added can seem to lead. The intervals cover the
    choice of the sentences only, not such noise or text of another kind.

    It takes as many distinct sentences as the largest member has dimensions, some hundred with most encoders; some
    thousand are better. With fewer the estimate can be wrong and seem certain, so all members count the same then, each
    for the spread of its cosines.

    A member may be a saved model; -e OLD=NEW then says where a member of that model is now. Only the sampled sentences
    are encoded, unless the store already has the views of the whole corpus. Each distinct
    sentence counts once.

    \b
    Examples:
      ensembed reliability corpus.txt -e minilm -e use-lite -e wordllama
      ensembed reliability corpus.txt --ensemble gte-small,minilm,glove --rows 3000 --plot trust.svg
      ensembed reliability corpus.txt --ensemble default --json
    """
    if plot is not None:
        if plot.suffix.lower() != ".svg":
            raise click.UsageError(f"the plot is an SVG file: call it {plot.stem}.svg, not {plot.name}")
        check_outputs(force, plot=plot)
        import_extra("matplotlib.figure", "report", "--plot")
    how = replace(how, moved=moved_members(encoders))
    sources = [name for name in dict.fromkeys(encoders) if name not in how.moved]
    with how.open_corpus(corpus) as source, how.progress() as progress:
        sample = sample_rows(len(source), source, rows, seed)
        if len(sources) > 1 and len(sample) < LEAST_ROWS:  # before the work, and not after it
            raise InputError(
                f"{source} holds {len(sample)} distinct sentences: it takes at least {LEAST_ROWS} to find out which of "
                f"{len(sources)} members to trust; take a larger corpus"
            )
        require_pulled(sources)
        members = [how.open_model(name, progress, beside=sources) for name in sources]
        looked_at: Corpus = source
        try:
            views = model_vectors(source, members, how.views, encode=False)
        except MissingError:
            looked_at = ListCorpus(sample_sentences(source, sample))
            views = model_vectors(looked_at, members, how.views, progress=progress)
        estimate = estimate_reliability(
            views, sentences=looked_at, names=sources, rows=rows, seed=seed, progress=progress
        )
        key = source.key
    labels = short_names(estimate.names, 36, "…" if can_show("…", sys.stdout.encoding) else "...")
    report = TrustReport(estimate, labels, str(source))
    if plot is not None:
        from ensembed.paper.report.reliability_figure import reliability_svg

        write_output(plot, reliability_svg(report).encode())
        click.echo(f"wrote {plot}", err=True)
    if how.as_json:
        facts = {"provenance": provenance(), "corpus": {"what": str(source), "key": key}}
        print_json(facts | report.to_json(members))
        return
    print_table(HEADERS, report.rows())
    click.echo()
    click.echo("\n".join(report.lines()))
