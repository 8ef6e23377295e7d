"""Single pairs: cosine against gold, and the pairs that a meta-embedding puts in a better or a worse place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ensembed.paper.experiments.scored_systems import Scored
from ensembed.paper.findings import Change, Changes, Scatter
from ensembed.sts.datasets import Dataset, Pairs
from ensembed.sts.protocol import ranks

# How many decimals of a cosine a picture needs.
_DECIMALS = 4


def scatters(systems: Sequence[Scored], dataset: Dataset) -> tuple[Scatter, ...]:
    """The cosine and the gold score of every pair of a data set."""
    gold = tuple(np.concatenate([part.scores for part in dataset.parts]).tolist())
    return tuple(
        Scatter(
            one.system.label,
            dataset.name,
            gold,
            tuple(np.concatenate(one.outcome.cosines(dataset.name)).round(_DECIMALS).tolist()),
        )
        for one in systems
    )


def changes(meta: Scored, member: Scored, datasets: Sequence[Dataset], *, count: int = 10, texts: bool) -> Changes:
    """The pairs of these data sets whose place in their sub-testset improved most, and those that got worse most."""
    found = [
        change
        for dataset in datasets
        for part, ours, theirs in zip(
            dataset.parts, meta.outcome.cosines(dataset.name), member.outcome.cosines(dataset.name), strict=True
        )
        for change in _of_part(dataset.name, part, ours, theirs, texts=texts)
    ]
    found.sort(key=lambda change: change.gain)
    better = [change for change in reversed(found[-count:]) if change.gain > 0]
    worse = [change for change in found[:count] if change.gain < 0]
    return Changes(meta.system.label, member.system.label, tuple(better), tuple(worse))


def _of_part(
    dataset: str, part: Pairs, ours: NDArray[np.float64], theirs: NDArray[np.float64], *, texts: bool
) -> list[Change]:
    gold, meta, member = (_places(values) for values in (part.scores, ours, theirs))
    gain = np.abs(member - gold) - np.abs(meta - gold)
    return [
        Change(
            dataset,
            part.name,
            i,
            float(part.scores[i]),
            float(gold[i]),
            float(member[i]),
            float(meta[i]),
            float(gain[i]),
            (part.sentences1[i], part.sentences2[i]) if texts else None,
        )
        for i in range(len(part))
    ]


def _places(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The place [n] of each value among all of them, from 0 for the least to 1; equal ones share theirs."""
    places: NDArray[np.float64] = (ranks(values) - 1) / max(len(values) - 1, 1)
    return places
