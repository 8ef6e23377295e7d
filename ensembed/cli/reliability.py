"""`ensembed reliability`: which encoders to trust, without labels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ensembed.cli.common import (
    corpus_argument,
    encoder_option,
    open_corpus,
    options,
    print_json,
    print_table,
    progress_bars,
)
from ensembed.cli.options import HowKept, how_kept_options
from ensembed.corpora.corpus import Corpus, ListCorpus
from ensembed.encoders import Encoder
from ensembed.errors import InputError, MissingError
from ensembed.reliability import Reliability
from ensembed.reliability import reliability as find_reliability
from ensembed.reliability.estimate import LEAST_ROWS, LEVEL
from ensembed.reliability.sample import sample_rows, sample_sentences
from ensembed.support.atomic_files import write_atomically
from ensembed.support.extras import import_extra
from ensembed.support.heatmap import can_show, short_names
from ensembed.support.provenance import provenance
from ensembed.views import ViewStore

_HEADERS = ["member", "lead", "95%", "agrees with the best", "weight", "95%"]
# From this part of the bootstrap samples on, the order is not a matter of which sentences were drawn.
_SURE, _FAIRLY = 0.975, 0.8
_HONEST = (
    "No label was read. Lead and weight are about these sentences: for another kind of text, run it on that. Where you "
    "have scored pairs, `ensembed evaluate` tells for certain."
)


@click.command()
@options(corpus_argument, encoder_option)
@click.option(
    "--rows",
    type=click.IntRange(min=LEAST_ROWS),
    default=6000,
    show_default=True,
    help="Distinct sentences to look at, drawn at random.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the samples.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw leads and weights, as an SVG file.")
@how_kept_options
def reliability(
    corpus: Path,
    encoders: tuple[str, ...],
    rows: int,
    seed: int,
    plot: Path | None,
    how: HowKept,
) -> None:
    """Find out which members to trust on the unlabelled sentences of CORPUS. No label is read.

    lead: how much more a member predicts of what the others say than they predict of what it says, beyond what the
    words of a sentence tell by themselves. It is a difference of two R^2 on sentences held out, against its strongest
    rival; the member with the largest is trusted most, and of those within 0.01 the one whose cosines follow the words
    least. agrees with the best: the correlation of its cosines with the best member's, over pairs that are near under
    the best. weight: what its cosines count beside the best one's 1; a method takes these as weights. (A weight has the
    spread of a member's cosines divided out, so that one whose cosines all lie close together may have a large one.)
    95%: bootstrap intervals.

    A member that agrees with no other and not with the words says nothing (random vectors, a constant, vectors of other
    sentences) and gets the weight 0. Members that say the same share one weight. What is not seen is noise on top of
    knowledge: a good encoder with much random noise added can seem to lead. The intervals are about which sentences
    were drawn; they do not cover that, nor text of another kind. Some hundred sentences are few: take a thousand.

    Only the sentences that are looked at are encoded, unless the views of the whole corpus are in the store already.
    Each distinct sentence counts once.

    \b
    Examples:
      ensembed reliability corpus.txt -e minilm -e use-lite -e wordllama
      ensembed reliability corpus.txt --ensemble gte-small,minilm,glove --rows 3000 --plot trust.svg
      ensembed reliability corpus.txt --ensemble default --json
    """
    if plot is not None:  # better now than after the work
        if plot.suffix.lower() != ".svg":
            raise click.UsageError(f"the plot is an SVG file: call it {plot.stem}.svg, not {plot.name}")
        if not plot.parent.is_dir():
            raise click.UsageError(f"there is no folder {str(plot.parent)!r} to write {plot.name} in")
        import_extra("matplotlib.figure", "report", "--plot")
    sources = list(dict.fromkeys(encoders))
    with open_corpus(corpus, how.errors) as source, progress_bars(how.quiet) as progress:
        sample = sample_rows(len(source), source, rows, seed)
        if len(sources) > 1 and len(sample) < LEAST_ROWS:  # better now than after the work
            raise InputError(
                f"{source} holds {len(sample)} distinct sentences: it takes at least {LEAST_ROWS} to find out which of "
                f"{len(sources)} members to trust"
            )
        members = [how.open_model(name, progress) for name in sources]
        views = _stored(how.views, source, members)
        looked_at: Corpus = source
        if views is None:
            looked_at = ListCorpus(sample_sentences(source, sample))
            views = how.views_of(looked_at, members, progress)
        found = find_reliability(views, sentences=looked_at, names=sources, rows=rows, seed=seed, progress=progress)
        key = source.key
    mark = "…" if can_show("…", sys.stdout.encoding) else "..."
    labels = short_names(found.names, 36, mark)
    order = _order(found)
    lines = [*_verdict(found, labels, order), *_remarks(found, labels), _protocol(found, str(source)), _HONEST]
    if plot is not None:
        from ensembed.cli.reliability_plot import plot as draw_plot

        write_atomically(plot, draw_plot(found, order, " ".join(lines)).encode())
        click.echo(f"wrote {plot}", err=True)
    if how.as_json:
        print_json({"provenance": provenance()} | _facts(found, str(source), key, members))
        return
    print_table(_HEADERS, [_row(found, labels, j) for j in order])
    click.echo()
    for line in lines:
        click.echo(line)


def _stored(store: ViewStore, corpus: Corpus, members: Sequence[Encoder]) -> list[Any] | None:
    """The members' views of the whole corpus, or None unless all are complete."""
    if not all(member.cacheable for member in members):
        return None
    try:
        return [store.view(corpus, member.spec) for member in members]
    except MissingError:
        return None


def _order(found: Reliability) -> list[int]:
    """The members, the most trusted first, those that say nothing last."""
    return sorted(
        range(len(found.names)), key=lambda j: (found.names[j] in found.mute, j != found.best, -found.lead[j])
    )


def _row(found: Reliability, labels: Sequence[str], j: int) -> list[str]:
    if found.names[j] in found.mute:
        return [labels[j], "-", "", "-", "0.00", ""]
    return [
        labels[j],
        f"{found.lead[j]:+.3f}",
        f"{found.lead_low[j]:+.3f} to {found.lead_high[j]:+.3f}",
        f"{found.agreement[j]:.2f}",
        f"{found.weights[j]:.2f}",
        f"{found.weights_low[j]:.2f} to {found.weights_high[j]:.2f}",
    ]


def _verdict(found: Reliability, labels: Sequence[str], order: Sequence[int]) -> list[str]:
    """Whom to trust most, and how sure that is."""
    rivals = [j for j in order if found.names[j] not in found.mute and found.copies[j] != found.copies[found.best]]
    best = labels[found.best]
    if found.decided == "nothing":
        return ["No two members agree, and nothing else tells which of them to believe: they all count the same."]
    if not rivals:
        alone = "all others say the same" if len(found.names) - len(found.mute) > 1 else "there is no other"
        return [f"{best} has nothing to be compared with: {alone}."]
    part = f"it comes first in {found.sure:.0%} of the bootstrap samples"
    if found.decided == "words":
        level = [labels[j] for j in rivals if found.lead[j] >= found.lead[found.best] - LEVEL]
        line = f"{best} and {', '.join(level)} lead alike: which to trust most is not sure on these sentences. "
        return [f"{line}{best} is taken, whose cosines follow the words least ({part})."]
    if found.sure >= _SURE:
        return [f"Trust {best} most: {part}."]
    if found.sure >= _FAIRLY:
        return [f"Trust {best} most, probably: {part}. {labels[rivals[0]]} is next."]
    return [f"{best} and {labels[rivals[0]]} are hardly to be told apart: {best} is ahead, but {part} only."]


def _remarks(found: Reliability, labels: Sequence[str]) -> list[str]:
    """Members that say nothing, or the same."""
    lines = [
        f"{label} says nothing about these sentences that another member or the words confirm: its weight is 0."
        for name, label in zip(found.names, labels, strict=True)
        if name in found.mute
    ]
    same = [(j, first) for j, first in enumerate(found.copies) if j != first]
    return lines + [f"{labels[j]} says the same as {labels[first]}: they share one weight." for j, first in same]


def _protocol(found: Reliability, what: str) -> str:
    return f"Looked at: {found.sentences} distinct sentences of {what}, {found.pairs} near pairs, seed {found.seed}."


def _facts(found: Reliability, what: str, key: str, members: Sequence[Encoder]) -> dict[str, Any]:
    def numbers(values: Any) -> Any:  # noqa: ANN401 - lists, of lists or not
        return values.round(6).tolist()

    return {
        "corpus": {"what": what, "key": key},
        "best": found.names[found.best],
        "sure": found.sure,
        "decided": found.decided,
        "members": [
            {
                "member": name,
                "spec": members[j].spec.to_json(),
                "lead": numbers(found.lead[j]),
                "lead_interval": [numbers(found.lead_low[j]), numbers(found.lead_high[j])],
                "agreement_with_best": numbers(found.agreement[j]),
                "weight": numbers(found.weights[j]),
                "weight_interval": [numbers(found.weights_low[j]), numbers(found.weights_high[j])],
                "whitened_weight": numbers(found.whitened_weights[j]),
                "whitened": j in found.whitened,
                "mute": name in found.mute,
                "copy_of": None if found.copies[j] == j else found.names[found.copies[j]],
            }
            for j, name in enumerate(found.names)
        ],
        "sufficiency": numbers(found.sufficiency),
        "sentences": found.sentences,
        "pairs": found.pairs,
        "lexical": found.lexical,
        "seed": found.seed,
    }
