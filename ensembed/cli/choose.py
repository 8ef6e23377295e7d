"""`ensembed choose`: which encoders, and which ensemble of them, suit a text, without labels."""

from __future__ import annotations

import re
import shlex
import time
import timeit
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from ensembed.cli.completion import ENCODER
from ensembed.cli.console import print_json, print_table
from ensembed.cli.options import POSITIVE, How, corpus_argument, how_options
from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders.base import Encoder
from ensembed.errors import InputError
from ensembed.fetch.catalog import catalog, is_pulled
from ensembed.models.model_vectors import model_vectors
from ensembed.models.named_ensembles import split_names
from ensembed.reliability import reliability
from ensembed.reliability.encoder_choice import Choice, Subset
from ensembed.reliability.encoder_choice import choose as choose_encoders
from ensembed.reliability.trust_estimate import LEAST_ROWS, Reliability, sample_rows, sample_sentences
from ensembed.support.provenance import provenance

# Sentences that an encoder is timed on, and how often.
_TIMED, _REPEATS = 64, 3
_UNITS = {"ms": 1.0, "s": 1000.0, "us": 0.001}
_SHOWN = 5


def _milliseconds(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|us|s)?\s*", value)
    if match is None or not float(match[1]):
        raise click.BadParameter(f"{value!r} is not a time such as 3ms, 0.5ms or 1s (a sentence).")
    return float(match[1]) * _UNITS[match[2] or "ms"]


@click.command()
@corpus_argument
@click.option(
    "--encoder", "-e", "encoders", multiple=True, metavar="NAME", type=ENCODER,
    help="An encoder to choose from; several times, or with commas. [default: all of the catalogue that are here]",
)  # fmt: skip
@click.option("--budget", callback=_milliseconds, help="The most time of an ensemble for a sentence, as in 3ms.")
@click.option("--dims", type=POSITIVE, help="The most dimensions of the vectors.")
@click.option("--members", type=POSITIVE, default=3, help="The most members of an ensemble.")
@click.option("--rows", type=click.IntRange(min=LEAST_ROWS), default=3000, help="Distinct sentences to look at.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the samples.")
@how_options(["store", "wait", "errors", "column", "file_format", "threads", "trust", "quiet", "as_json"])
def choose(
    corpus: Path,
    encoders: tuple[str, ...],
    budget: float | None,
    dims: int | None,
    members: int,
    rows: int,
    seed: int,
    how: How,
) -> None:
    """Choose encoders, and an ensemble of them, for the unlabelled sentences of CORPUS. No label is read.

    The table has the encoders, the best first: how far each stands below the first (`ensembed reliability` explains
    it), how probable it is that it is better than the next, its time a sentence on this machine, and what it adds to
    the others of the chosen ensemble, in points of correlation with people's judgements of similarity. Then whether an
    ensemble helps at all, the best ensembles, and the command that fits the chosen one.

    The expectations are rough: they come from encoders and pairs of STS-B dev, and say which ensemble is likely to be
    better, not what it will score. They are about similarity of sentences; for retrieval, and for text of another kind,
    judge with `ensembed evaluate`. Only sampled sentences are encoded, and kept in the view store.

    Fewer than 50 distinct sentences are an error. With fewer than the largest encoder has dimensions (384 for minilm,
    512 for use-m3) the answer comes with a warning that the order may be wrong; with --json `decided` is "too few".

    \b
    Examples:
      ensembed choose corpus.txt
      ensembed choose corpus.txt -e minilm,use-m3,use-lite,wordllama --budget 3ms
      ensembed choose corpus.txt -e gte-small -e minilm -e use-m3 --members 2 --dims 512 --json
    """
    names = [part for name in encoders for part in (split_names(name) if "," in name else (name,))]
    here = [entry.name for entry in catalog().values() if entry.kind != "dataset" and entry.dim and is_pulled(entry)]
    names = list(dict.fromkeys(names or here))
    if len(names) < 2:
        raise click.UsageError(
            "There is nothing to choose from: name two encoders or more, or first: ensembed pull minilm use-m3"
        )
    with how.open_corpus(corpus) as source, how.progress() as progress:
        sample = sample_rows(len(source), source, rows, seed)
        if len(sample) < LEAST_ROWS:
            raise InputError(
                f"{source} holds {len(sample)} distinct sentences: it takes at least {LEAST_ROWS} to choose encoders "
                "by; take a larger corpus, or fit without a choice: ensembed fit CORPUS --weights equal --out MODEL"
            )
        sentences = sample_sentences(source, sample)
        models = [how.open_model(name, progress) for name in names]
        views = model_vectors(ListCorpus(sentences), models, how.views, progress=progress)
        estimate = reliability(views, sentences=sentences, names=names, rows=rows, seed=seed, progress=progress)
        costs = [_cost(model, sentences[:_TIMED]) for model in models]
        key = source.key
    sizes = [model.spec.dim for model in models]
    choice = choose_encoders(estimate, costs, sizes, members=members, budget=budget)
    command = _command(str(corpus), names, choice.best, dims, how)
    if how.as_json:
        facts = {"provenance": provenance(), "corpus": {"what": str(source), "key": key}, "sentences": len(sentences)}
        print_json(facts | _json(estimate, choice, costs, sizes) | {"command": command})
        return
    print_table(["encoder", "below the first", "better than the next", "ms", "dim", "adds"], _rows(
        estimate, choice, costs, sizes
    ))  # fmt: skip
    click.echo()
    click.echo("\n".join(_lines(estimate, choice, command)))


def _cost(model: Encoder, sentences: Sequence[str]) -> float:
    """Return the milliseconds that a sentence takes, in a batch: the least of some runs after the first."""
    encode = partial(model.encode, list(sentences))
    encode()  # loads what is needed, starts threads and takes memory
    return 1000 * min(timeit.repeat(encode, timer=time.perf_counter, number=1, repeat=_REPEATS)) / len(sentences)


def _rows(estimate: Reliability, choice: Choice, costs: Sequence[float], sizes: Sequence[int]) -> list[list[str]]:
    rows = []
    for j, better in zip(choice.ranking, choice.better, strict=True):
        mark = " *" if j in choice.best.members else ""
        below = f"{max(estimate.standings[estimate.best, j], 0.0):.1f}"
        sure = "" if better is None else f"{better:.0%}"
        adds = "" if choice.best.members == (j,) else f"{100 * choice.adds[j]:+.1f}"
        rows.append([f"{estimate.names[j]}{mark}", below, sure, f"{costs[j]:.3g}", str(sizes[j]), adds])
    return rows


def _lines(estimate: Reliability, choice: Choice, command: str) -> list[str]:
    names = estimate.names

    def called(subset: Subset) -> str:
        return " + ".join(names[j] for j in subset.members)

    lines = []
    if estimate.decided == "too few":
        lines.append(
            f"Warning: {estimate.sentences} distinct sentences are too few for these encoders, it takes "
            f"{estimate.needed}: the order may be wrong."
        )
    gain = 100 * (choice.best.gain - choice.alone.gain)
    if choice.helps:
        lines.append(
            f"An ensemble helps on this text: {called(choice.best)} (*) is expected to be better than "
            f"{called(choice.alone)} alone, by about {gain:.1f} points, at {choice.best.cost:.3g} ms a sentence "
            f"instead of {choice.alone.cost:.3g}."
        )
    else:
        lines.append(f"No ensemble is expected to be better than {called(choice.alone)} alone by more than noise.")
    shown = [f"{called(subset)} ({100 * subset.gain:+.1f}, {subset.cost:.3g} ms)" for subset in choice.subsets[:_SHOWN]]
    lines.append(f"The best, with the expected gain over the first encoder: {', '.join(shown)}.")
    if choice.helps and choice.best != choice.subsets[0]:
        lines.append(f"{called(choice.best)} is chosen because it is the cheapest of those that differ by noise only.")
    lines += [f"{name} says nothing about these sentences and is left out." for name in estimate.mute]
    copies = [(j, first) for j, first in enumerate(estimate.copies) if j != first]
    lines += [f"{names[j]} says the same as {names[first]} and is left out." for j, first in copies]
    return [*lines, "No label was read. Where you have scored pairs, `ensembed evaluate` tells for certain.", command]


def _command(corpus: str, names: Sequence[str], best: Subset, dims: int | None, how: How) -> str:
    columns = [] if how.column is None else ["--text-column", how.column]
    form = [] if how.file_format is None else ["--format", how.file_format]
    read = [corpus, *columns, *form, *(["--errors", how.errors] if how.errors != "strict" else [])]
    if len(best.members) == 1:
        name = names[best.members[0]]
        if dims is not None and dims < best.dim:
            name += f"{'&' if '?' in name else '?'}truncate_dim={dims}"
        return shlex.join(["ensembed", "encode", "-e", name, *read, "--out", "vectors.npy"])
    members = [word for j in best.members for word in ("-e", names[j])]
    short = ["--dim", str(dims)] if dims is not None and dims < best.dim else []
    return shlex.join(["ensembed", "fit", *read, *members, *short, "--out", "my-model"])


def _json(estimate: Reliability, choice: Choice, costs: Sequence[float], sizes: Sequence[int]) -> dict[str, object]:
    names = estimate.names

    def plain(subset: Subset) -> dict[str, object]:
        facts = {"gain": round(subset.gain, 5), "milliseconds": round(subset.cost, 4), "dim": subset.dim}
        return {"members": [names[j] for j in subset.members], **facts}

    ranking = [
        {
            "encoder": names[j],
            "below_first": round(float(max(estimate.standings[estimate.best, j], 0.0)), 4),
            "better_than_next": None if better is None else round(better, 4),
            "milliseconds": round(costs[j], 4),
            "dim": sizes[j],
            "adds": round(choice.adds[j], 5),
        }
        for j, better in zip(choice.ranking, choice.better, strict=True)
    ]
    return {
        "ranking": ranking,
        "decided": estimate.decided,
        "sure": round(estimate.sure, 4),
        "ensemble_helps": choice.helps,
        "chosen": plain(choice.best),
        "best_alone": plain(choice.alone),
        "best_subsets": [plain(subset) for subset in choice.subsets[:_SHOWN]],
        "mute": list(estimate.mute),
        "copies": {names[j]: names[first] for j, first in enumerate(estimate.copies) if j != first},
    }
