"""What a sentence costs, beside what it buys."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ensembed.encoders.base import Encoder
from ensembed.provenance import provenance
from ensembed.sts.protocol import distinct_sentences
from ensembed.sts.reproduce.findings import DEV, MEAN, Ablation, Cost
from ensembed.sts.reproduce.laboratory import Laboratory, Outcome
from ensembed.sts.reproduce.systems import Scored

SENTENCES = 500
"""How many sentences the encoders are timed on: some that are scored, drawn at random."""
_REPEATS = 3
_WARM_UP = 32


@dataclass(frozen=True)
class Times:
    """Seconds per sentence of every member, in the ensemble's order."""

    seconds: tuple[float, ...]


def member_times(laboratory: Laboratory) -> Times:
    """Time every member on the same sentences, in one call, warm; the best of three."""
    texts = distinct_sentences(laboratory.datasets)
    drawn = np.random.default_rng(0).permutation(len(texts))[:SENTENCES]
    sample = [texts[i] for i in drawn]
    encoders = laboratory.ensemble.encoders
    facts = [[encoder.spec.key for encoder in encoders], sample, provenance()["processor"]]

    def find() -> Times:
        seconds = []
        for done, encoder in enumerate(encoders, 1):
            seconds.append(_best_time(encoder, sample) / len(sample))
            laboratory.progress("cost", done, len(encoders))
        return Times(tuple(seconds))

    return laboratory.notebook.record(Times, facts, find)


def costs(
    times: Times,
    singles: Sequence[Scored],
    metas: Sequence[Scored],
    ablations: Sequence[tuple[Ablation, Outcome]],
    names: Sequence[str],
) -> tuple[Cost, ...]:
    """Of members, of meta-embeddings, and of meta-embeddings without a member."""
    whole = sum(times.seconds)
    found = []
    for one, seconds in zip(singles, times.seconds, strict=True):
        system = one.system
        found.append(Cost(system.label, 1e3 * seconds, 0.0, system.dim, system.score(DEV), system.score(MEAN)))
    for one in metas:
        system, combining = one.system, one.outcome.combining
        total = 1e3 * (whole + combining)
        found.append(Cost(system.label, total, 1e3 * combining, system.dim, system.score(DEV), system.score(MEAN)))
    saved = dict(zip(names, times.seconds, strict=True))
    for ablation, outcome in ablations:
        if ablation.without:
            label = f"meta:{ablation.method} without {ablation.without}"
            total = 1e3 * (whole - saved[ablation.without] + outcome.combining)
            found.append(Cost(label, total, 1e3 * outcome.combining, ablation.dim, ablation.score, None))
    return tuple(found)


def _best_time(encoder: Encoder, sample: list[str]) -> float:
    encoder.encode(sample[:_WARM_UP])
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        encoder.encode(sample)
        times.append(time.perf_counter() - start)
    return min(times)
