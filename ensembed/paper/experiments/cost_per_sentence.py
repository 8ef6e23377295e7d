"""What a sentence costs in milliseconds, beside its scores."""

from __future__ import annotations

import timeit
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
    sentences = [texts[i] for i in sample]
    encoders = laboratory.ensemble.encoders

    def recorded(trials: Mapping[str, Trial], *, with_encoders: bool) -> Times:
        keys, facts_of = [encoder.spec.key for encoder in encoders], laboratory.facts
        machine = [provenance()["processor"], provenance()["onnxruntime"], threads]
        facts = [keys, {label: facts_of(trial) for label, trial in trials.items()}, sentences, machine]
        return laboratory.notebook.record(Times, facts, lambda: timed(trials, with_encoders=with_encoders))

    def timed(trials: Mapping[str, Trial], *, with_encoders: bool) -> Times:
        members = []
        for done, encoder in enumerate(encoders if with_encoders else (), 1):
            encoder.encode(sentences[:_WARM_UP])
            members.append(_seconds(partial(encoder.encode, sentences)) / len(sentences))
            laboratory.progress("cost", done, len(encoders))
        vectors = [view[sample] for view in laboratory.evaluation]
        combining = {
            label: _seconds(laboratory.combining(trial, vectors)) / len(sentences) for label, trial in trials.items()
        }
        return Times(len(sentences), tuple(members), combining)

    trials = _trials(laboratory, metas, methods, corpus)
    # Estimated weights change with the code that estimates them; encoders are not timed again for that.
    own = {label: trial for label, trial in trials.items() if isinstance(trial.method, Auto)}
    rest = {label: trial for label, trial in trials.items() if label not in own}
    times = recorded(rest, with_encoders=True)
    combining = recorded(own, with_encoders=False).combining if own else {}
    return replace(times, combining=times.combining | combining)


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
