"""What a sentence costs in milliseconds, beside its scores."""

from __future__ import annotations

import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ensembed.encoders.base import Encoder
from ensembed.methods import Method
from ensembed.paper.experiments.scored_systems import Scored
from ensembed.paper.findings import DEV, MEAN, Ablation, Cost
from ensembed.paper.laboratory import Laboratory, Trial
from ensembed.sts.protocol import distinct_sentences
from ensembed.support.provenance import provenance

# Encoders and combinations are timed on a random sample of the sentences that are scored.
_SENTENCES, _REPEATS, _WARM_UP = 500, 3, 32


@dataclass(frozen=True)
class Times:
    """Seconds per sentence: the best of three calls, warm."""

    sentences: int  # how many were timed, in one call
    members: tuple[float, ...]  # of every encoder, in the ensemble's order
    combining: dict[str, float]  # of every combination, by label, without its encoders


def measure(
    laboratory: Laboratory, metas: Sequence[Scored], methods: Sequence[Method], corpus: str, threads: int | None
) -> Times:
    """Time all members, the meta-embeddings of the main table, and methods without a member, on the same sentences.

    Methods were fitted on the corpus of this name; `threads` is how many the encoders have, None for all cores.
    """
    texts = distinct_sentences(laboratory.datasets)
    sample = np.random.default_rng(0).permutation(len(texts))[:_SENTENCES]
    sentences, vectors = [texts[i] for i in sample], [view[sample] for view in laboratory.evaluation]
    encoders, known = laboratory.ensemble.encoders, provenance()
    shared = [sentences, [known["processor"], known["onnxruntime"], threads]]

    def timed(facts: list[Any], prepare: Callable[[], Callable[[], object]]) -> float:
        """Return the seconds per sentence of the call that `prepare` makes, or take them from the notebook."""
        return laboratory.notebook.record(float, [facts, *shared], lambda: _seconds(prepare()) / len(sentences))

    def warm(encoder: Encoder) -> Callable[[], object]:
        encoder.encode(sentences[:_WARM_UP])
        return partial(encoder.encode, sentences)

    members = []
    for done, encoder in enumerate(encoders, 1):
        members.append(timed([encoder.spec.key], partial(warm, encoder)))
        laboratory.progress("cost", done, len(encoders))
    combining = {
        label: timed(laboratory.facts(trial), partial(laboratory.combining, trial, vectors))
        for label, trial in _trials(laboratory, metas, methods, corpus).items()
    }
    return Times(len(sentences), tuple(members), combining)


def costs(
    times: Times,
    singles: Sequence[Scored],
    metas: Sequence[Scored],
    ablations: Sequence[Ablation],
    names: Sequence[str],
) -> tuple[Cost, ...]:
    """Return the costs of members, of meta-embeddings, and of meta-embeddings without a member."""
    scored = [(single.system, seconds, 0.0) for single, seconds in zip(singles, times.members, strict=True)]
    for meta in metas:
        combining = times.combining[meta.system.label]
        scored.append((meta.system, _encoding(meta.method, times.members) + combining, combining))
    rows = [
        Cost(system.label, 1e3 * seconds, 1e3 * combining, system.dim, system.score(DEV), system.score(MEAN))
        for system, seconds, combining in scored
    ]
    saved = dict(zip(names, times.members, strict=True))
    for ablation in ablations:
        if ablation.without:
            label = _without(ablation.method, ablation.without)
            combining = times.combining[label]
            seconds = sum(times.members) - saved[ablation.without] + combining
            rows.append(Cost(label, 1e3 * seconds, 1e3 * combining, ablation.dim, ablation.score, None))
    return tuple(rows)


def _encoding(method: Method | None, members: Sequence[float]) -> float:
    """Return the time of the members that are encoded: those of weight 0 are not."""
    weights = method.weighting if method else "equal"
    counted = (1.0,) * len(members) if isinstance(weights, str) else weights
    return sum(seconds for seconds, weight in zip(members, counted, strict=True) if weight)


def _trials(
    laboratory: Laboratory, metas: Sequence[Scored], methods: Sequence[Method], corpus: str
) -> dict[str, Trial]:
    everyone = laboratory.everyone
    trials = {meta.system.label: Trial(meta.method, everyone, meta.system.corpus) for meta in metas}
    if len(everyone) > 2:
        for j, encoder in enumerate(laboratory.ensemble.encoders):
            members = tuple(k for k in everyone if k != j)
            trials |= {_without(method.name, encoder.spec.name): Trial(method, members, corpus) for method in methods}
    return trials


def _without(method: str, member: str) -> str:
    return f"meta:{method} without {member}"


def _seconds(call: Callable[[], object]) -> float:
    return min(timeit.repeat(call, number=1, repeat=_REPEATS))
