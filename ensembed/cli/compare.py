"""`ensembed compare`: which encoders are alike, and which differ."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import numpy as np
from click.core import ParameterSource
from numpy.typing import NDArray

from ensembed.cli.common import open_corpus, print_json, print_table, progress_bars
from ensembed.cli.options import HowKept, how_kept_options
from ensembed.corpora.corpus import BadBytes, Corpus, ListCorpus
from ensembed.encoders import Encoder
from ensembed.reliability.likeness import LEAST_ROWS, Comparison, Pair, check_sample
from ensembed.reliability.likeness import compare as compare_views
from ensembed.sts.find import find_sts
from ensembed.sts.protocol import distinct_sentences
from ensembed.support.atomic_files import write_atomically
from ensembed.support.heatmap import Panel, can_show, figure, print_heatmap, short_names, svg_heatmap
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table

_DEFAULT = "the distinct sentences of STS-B train"
_HEADERS = ["encoder", "encoder", "CKA", "cosines", "overlap"]
# From here on, an encoder tells a linear method next to nothing that the other does not.
_TWINS = 0.95
# What makes no difference to the figures is left out of the command that a page repeats.
_NO_MATTER = {"store", "wait", "threads", "quiet"}
_HONEST = (
    "Different does not mean good: without labels nobody can tell which encoder is better (`ensembed evaluate` scores "
    "them on pairs that have labels). Look for members that are good and differ."
)
# A page says what the help says, with the references.
_MEANINGS = (
    "All figures are of vectors scaled to length one, and of each distinct sentence once.",
    (
        "CKA: linear centred kernel alignment (Kornblith et al. 2019) with the unbiased estimate of HSIC (Song et al. "
        "2012; Nguyen et al. 2021): 0 for encoders with nothing in common."
    ),
    "cosines: Pearson's r between the cosines of all pairs of sampled sentences.",
    (
        "overlap: the mean part of a sampled sentence's nearest neighbours, by cosine among the sampled ones, that two "
        "encoders share."
    ),
)


@click.command()
@click.argument("encoders", metavar="ENCODER...", nargs=-1)
@click.option(
    "--corpus",
    "path",
    type=click.Path(path_type=Path, allow_dash=True),
    help="A text file, plain or gzipped, one sentence a line; - is standard input. [default: STS-B train]",
)
@click.option(
    "--rows",
    type=click.IntRange(min=LEAST_ROWS),
    default=2000,
    show_default=True,
    help="Sentences to sample for cosines and neighbours; CKA takes all.",
)
@click.option(
    "--neighbours", type=click.IntRange(min=1), default=10, show_default=True, help="Nearest neighbours to look at."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the sample.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Write the heat maps to this file.")
@click.option(
    "--markdown", type=click.Path(path_type=Path, dir_okay=False), help="Write a page with everything to this file."
)
@how_kept_options
@click.pass_context
def compare(
    context: click.Context,
    encoders: tuple[str, ...],
    path: Path | None,
    rows: int,
    neighbours: int,
    seed: int,
    svg: Path | None,
    markdown: Path | None,
    how: HowKept,
) -> None:
    """Show how alike ENCODERs (names, folders of saved models) are, without labels.

    Three figures for every pair, all of vectors scaled to length one. CKA: linear centred kernel alignment over all
    sentences, debiased: encoders with nothing in common have 0, on a small corpus too. cosines: Pearson's r between the
    cosines of all pairs of sampled sentences. overlap: the part of a sentence's nearest neighbours that two encoders
    share. An encoder that tells no sentences apart has 0 in all three. Pairs are sorted by CKA; the other
    figures may order them differently.

    An ensemble gains most from good members that differ. Which encoder is good these figures do not tell.

    The vectors are cached as by `ensembed embed`: an interrupted run goes on where it was. Each distinct sentence
    counts once. The sentences of STS-B train come from the data folder or from `ensembed pull stsb`.

    \b
    Examples:
      ensembed compare minilm use-lite wordllama
      ensembed compare minilm my-model --corpus news.txt.gz --rows 5000 --svg alike.svg
    """
    sources = list(dict.fromkeys(encoders))
    if len(sources) < 2:
        raise click.UsageError(f"give at least two different encoders to compare, not {len(sources)}")
    for file in (svg, markdown):  # better now than after the work
        if file is not None and not file.parent.is_dir():
            raise click.UsageError(f"there is no folder {str(file.parent)!r} to write {file.name} in")
    with _opened(path, how.errors) as corpus, progress_bars(how.quiet) as progress:
        first = corpus.index.first_rows
        distinct = np.flatnonzero(first == np.arange(len(first)))
        check_sample(len(distinct), rows, neighbours)  # better now than after the work
        members = [how.open_model(source, progress) for source in sources]
        found = compare_views(
            how.views_of(corpus, members, progress),
            names=sources,
            among=distinct,
            rows=rows,
            neighbours=neighbours,
            seed=seed,
            progress=progress,
        )
    what = _DEFAULT if path is None else str(corpus)
    if svg is not None:
        write_atomically(svg, svg_heatmap(found.names, _panels(found), _protocol(found, what)).encode())
    if markdown is not None:
        picture = "" if svg is None else os.path.relpath(svg, markdown.parent)
        written = f"Written by `{_command(context)}`{', which prints the figures as JSON' if how.as_json else ''}."
        write_atomically(markdown, _page(found, what, corpus.key, members, written, picture).encode())
    if how.as_json:
        print_json({"provenance": provenance()} | _facts(found, what, corpus, members))
        return
    _print(found, what)


@contextmanager
def _opened(path: Path | None, errors: BadBytes) -> Iterator[Corpus]:
    """The corpus: the file's, or the sentences of STS-B train."""
    if path is None:
        yield ListCorpus(distinct_sentences([find_sts("stsb-train")]))
        return
    with open_corpus(path, errors) as corpus:
        yield corpus


def _print(found: Comparison, what: str) -> None:
    mark = "…" if can_show("…", sys.stdout.encoding) else "..."
    labels = dict(zip(found.names, short_names(found.names, 36, mark), strict=True))
    print_table(_HEADERS, _rows(found, labels), left=2)
    click.echo()
    print_heatmap(found.names, _panels(found)[0])
    click.echo()
    for line in (*_protocol(found, what), *_advice(found, labels)):
        click.echo(line)


def _rows(found: Comparison, labels: dict[str, str]) -> list[list[str]]:
    """A line per pair, the most alike first."""
    return [
        [labels[pair.first], labels[pair.second], figure(pair.cka), figure(pair.cosines), figure(pair.overlap)]
        for pair in found.pairs
    ]


def _panels(found: Comparison) -> list[Panel]:
    return [
        Panel("CKA", found.cka),
        Panel("Correlation of cosines", found.cosines),
        Panel(f"Overlap of {found.neighbours} neighbours", found.overlap),
    ]


def _protocol(found: Comparison, what: str) -> list[str]:
    """What the figures were measured on."""
    sample = f"{found.sampled} of them, seed {found.seed}" if found.sampled < found.rows else "all of them"
    return [
        f"CKA: {found.rows} sentences, {what}.",
        f"Cosines and {found.neighbours} neighbours: {sample}. Overlap by chance: {found.chance:.3f}.",
    ]


def _advice(found: Comparison, labels: dict[str, str]) -> list[str]:
    """What to make of it, a sentence each."""
    lines = [f"{labels[name]} tells no sentences apart: its figures are 0." for name in found.mute]
    pairs = [pair for pair in found.pairs if not {pair.first, pair.second} & set(found.mute)]
    if pairs and pairs[0].cka >= _TWINS:
        lines.append(f"Most alike: {_both(pairs[0], labels)}: the one adds little to the other.")
    elif len(pairs) > 1:
        lines.append(f"Most alike: {_both(pairs[0], labels)}.")
    if len(pairs) > 1:
        lines.append(f"Most different: {_both(pairs[-1], labels)}.")
    return [*lines, _HONEST]


def _both(pair: Pair, labels: dict[str, str]) -> str:
    return f"{labels[pair.first]} and {labels[pair.second]} (CKA {figure(pair.cka)})"


def _page(found: Comparison, what: str, key: str, members: Sequence[Encoder], written: str, picture: str) -> str:
    names = {name: name.replace("|", "\\|") for name in found.names}
    made = ", ".join(f"{name} {value}" for name, value in provenance().items())
    specs = ", ".join(f"{member.spec.name} ({member.spec.dim}, {member.spec.revision})" for member in members)
    notes = [*_protocol(found, what), f"The corpus's key: {key}.", *_MEANINGS, *_advice(found, names)]
    notes += [f"Encoders (dimension, revision): {specs}.", f"Made with {made}."]
    lines = ["# How alike encoders are", "", written, "", *([f"![heat maps]({quote(picture)})", ""] if picture else [])]
    lines += [markdown_table(_HEADERS, _rows(found, names), left=2), "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def _command(context: click.Context) -> str:
    """The command line that gave these figures."""
    words = ["ensembed", "compare", *context.params["encoders"]]
    for option in context.command.params:
        name = option.name or ""
        given = context.get_parameter_source(name) == ParameterSource.COMMANDLINE
        if isinstance(option, click.Option) and given and name not in _NO_MATTER:
            words += option.opts[:1] if option.is_flag else [option.opts[0], str(context.params[name])]
    return shlex.join(words)


def _facts(found: Comparison, what: str, corpus: Corpus, members: Sequence[Encoder]) -> dict[str, Any]:
    def matrix(values: NDArray[Any]) -> list[list[float]]:
        return [[round(float(value), 6) for value in row] for row in values]

    return {
        "corpus": {"what": what, "sentences": len(corpus), "distinct": found.rows, "key": corpus.key},
        "encoders": [
            {"encoder": name, "spec": member.spec.to_json(), "key": member.spec.key}
            for name, member in zip(found.names, members, strict=True)
        ],
        "rows": found.rows,
        "sampled": found.sampled,
        "neighbours": found.neighbours,
        "seed": found.seed,
        "chance": found.chance,
        "mute": list(found.mute),
        "cka": matrix(found.cka),
        "cosines": matrix(found.cosines),
        "overlap": matrix(found.overlap),
        "pairs": [
            {"encoders": [pair.first, pair.second], "cka": pair.cka, "cosines": pair.cosines, "overlap": pair.overlap}
            for pair in found.pairs
        ],
    }
