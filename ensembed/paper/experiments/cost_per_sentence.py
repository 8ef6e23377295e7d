"""What a sentence costs, beside what it buys."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ensembed.methods import Auto, Method
from ensembed.paper.experiments.scored_systems import Scored
from ensembed.paper.findings import DEV, MEAN, Ablation, Cost
from ensembed.paper.laboratory import Laboratory, Trial
from ensembed.sts.protocol import distinct_sentences
from ensembed.support.provenance import provenance

# Sentences that encoders and combinations are timed on: some of those that are scored, drawn at random.
_SENTENCES = 500
_REPEATS = 3
_WARM_UP = 32


@dataclass(frozen=True)
class Times:
    """Seconds per sentence.

    Attributes:
        sentences: how many were timed, in one call, warm; the best of three calls counts.
        members: of every encoder, in the ensemble's order.
        combining: of every combination, by label, less its encoders.
    """

    sentences: int
    members: tuple[float, ...]
    combining: dict[str, float]


def measure(
    laboratory: Laboratory, metas: Sequence[Scored], methods: Sequence[Method], corpus: str, threads: int | None
) -> Times:
    """Time all members, and all combinations of them that are scored, on the same sentences.

    Args:
        laboratory: members and views.
        metas: the meta-embeddings of the main table.
        methods: the methods whose ablations are scored.
        corpus: what they were fitted on.
        threads: how many the encoders were given; None for all.
    """
    texts = distinct_sentences(laboratory.datasets)
    sample = np.random.default_rng(0).permutation(len(texts))[:_SENTENCES]
    sentences = [texts[i] for i in sample]
    encoders = laboratory.ensemble.encoders

    def timed(trials: Mapping[str, Trial], *, alone: bool) -> Times:
        facts = [
            [encoder.spec.key for encoder in encoders],
            {label: laboratory.facts(trial) for label, trial in trials.items()},
            sentences,
            [provenance()["processor"], provenance()["onnxruntime"], threads],
        ]
        return laboratory.notebook.record(Times, facts, lambda: find(trials, alone=alone))

    def find(trials: Mapping[str, Trial], *, alone: bool) -> Times:
        members = []
        for done, encoder in enumerate(() if alone else encoders, 1):
            encoder.encode(sentences[:_WARM_UP])
            members.append(_best_time(partial(encoder.encode, sentences)))
            laboratory.progress("cost", done, len(encoders))
        vectors = [view[sample] for view in laboratory.evaluation]
        combining = {label: _best_time(laboratory.combining(trial, vectors)) for label, trial in trials.items()}
        n = len(sentences)
        return Times(n, tuple(seconds / n for seconds in members), {key: value / n for key, value in combining.items()})

    trials = _trials(laboratory, metas, methods, corpus)
    # Weights that are found change with the code that finds them; encoders are not timed again for that.
    own = {label: trial for label, trial in trials.items() if isinstance(trial.method, Auto)}
    times = timed({label: trial for label, trial in trials.items() if label not in own}, alone=False)
    return replace(times, combining=times.combining | timed(own, alone=True).combining) if own else times


def costs(
    times: Times,
    singles: Sequence[Scored],
    metas: Sequence[Scored],
    ablations: Sequence[Ablation],
    names: Sequence[str],
) -> tuple[Cost, ...]:
    """Of members, of meta-embeddings, and of meta-embeddings without a member."""
    whole = sum(times.members)
    found = []
    for one, seconds in zip(singles, times.members, strict=True):
        system = one.system
        found.append(Cost(system.label, 1e3 * seconds, 0.0, system.dim, system.score(DEV), system.score(MEAN)))
    for one in metas:
        system, combining = one.system, times.combining[one.system.label]
        total = 1e3 * (_encoding(one.method, times.members) + combining)
        found.append(Cost(system.label, total, 1e3 * combining, system.dim, system.score(DEV), system.score(MEAN)))
    saved = dict(zip(names, times.members, strict=True))
    for ablation in ablations:
        if ablation.without:
            label = _without(ablation.method, ablation.without)
            combining = times.combining[label]
            total = 1e3 * (whole - saved[ablation.without] + combining)
            found.append(Cost(label, total, 1e3 * combining, ablation.dim, ablation.score, None))
    return tuple(found)


def _encoding(method: Method | None, members: Sequence[float]) -> float:
    """The time of the members that are encoded: those of weight 0 are not."""
    weights = getattr(method, "weights", "equal")
    counted = [1.0] * len(members) if isinstance(weights, str) else weights
    return sum(seconds for seconds, weight in zip(members, counted, strict=True) if weight)


def _trials(
    laboratory: Laboratory, metas: Sequence[Scored], methods: Sequence[Method], corpus: str
) -> Mapping[str, Trial]:
    everyone = laboratory.everyone
    trials = {one.system.label: Trial(one.method, everyone, one.system.corpus) for one in metas}
    if len(everyone) > 2:
        for j, encoder in enumerate(laboratory.ensemble.encoders):
            members = tuple(k for k in everyone if k != j)
            trials |= {_without(method.name, encoder.spec.name): Trial(method, members, corpus) for method in methods}
    return trials


def _without(method: str, member: str) -> str:
    return f"meta:{method} without {member}"


def _best_time(call: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
