"""How sure a figure is: bootstrap intervals, and a paired test of a meta-embedding against a member.

Every system is scored on the same resamples (Efron and Tibshirani 1993, chapters 6 and 13). A resample is held as
counts, how often each pair was drawn, and both correlations are exactly those of the repeated rows.

The data sets share pairs (the STS Benchmark is drawn from the others), so a pair is drawn as often in one as in all:
its counts are a hash of the seed, its two sentences and the number of the resample. They are Poisson(1), independent
of each other (Hanley and MacGibbon 2006, "Creating non-parametric bootstrap samples using Poisson frequencies").
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError
from ensembed.paper.findings import DEV, MEAN, METRICS, Comparison, Interval, Metric, mean_score
from ensembed.sts.datasets import Dataset, Pairs
from ensembed.sts.protocol import ROUNDING, Protocol, Score, aggregate
from ensembed.support.progress import Progress, part_of, silent

Array: TypeAlias = NDArray[np.float64]
Predictions: TypeAlias = Mapping[str, Sequence[Array]]  # by data set: an array of cosines per part

ALPHA = 0.05  # a difference counts where its p, after Holm's correction, is below this
PERCENTILES = (2.5, 97.5)
# Drawn pairs at a time: a few arrays of this many float64 stay within a core's cache.
_BLOCK = 1 << 15
# P(count <= k), up to where nothing is left of 1 in float64.
_POISSON = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(18)])
# The constants of SplitMix64 (Steele, Lea and Flood 2014).
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))
# A further attempt begins this far along a pair's stream; no run has so many resamples.
_ATTEMPT = 1 << 32


@dataclass(frozen=True, eq=False)
class Resampled:
    """The scores of every system on the same resamples, by system and data set (and `mean`); `resample` makes it."""

    points: Mapping[str, Mapping[str, Score]]  # on the data themselves
    scores: Mapping[str, Mapping[str, Array]]  # Pearson and Spearman [resamples, 2]

    def interval(self, label: str, dataset: str) -> Interval:
        """Return the percentile interval of a system's score on a data set, or `mean`."""
        if dataset not in self._of(label):
            raise InputError(f"{label} was not resampled on {dataset!r}, only on {', '.join(self._of(label))}")
        low, high = np.percentile(self._of(label)[dataset], PERCENTILES, axis=0).tolist()
        return Interval(label, dataset, Score(*low), Score(*high))

    def comparisons(self, metas: Sequence[str], members: Sequence[str]) -> tuple[Comparison, ...]:
        """Compare every meta-embedding with the best member of each test set (and the mean) by each metric.

        STS-B dev is left out: hyper-parameters were chosen there.
        """
        if not members:
            raise InputError("a comparison needs at least one member to compare with")
        resamples = min(len(self._of(label)[dataset]) for label in (*metas, *members) for dataset in self._of(label))
        if (least := 2 * len(metas) / (resamples + 1)) >= ALPHA:
            why = f"no p could fall below {least:.2g} after Holm's correction, and {ALPHA:g} is needed"
            few = f"{resamples} resamples are too few to compare {len(metas)} meta-embeddings"
            raise InputError(f"{few}: {why}; take at least {round(2 * len(metas) / ALPHA)}")
        cells = [(dataset, metric) for dataset in self.scores[members[0]] if dataset != DEV for metric in METRICS]
        return tuple(comparison for cell in cells for comparison in self._compared(metas, members, *cell))

    def _compared(
        self, metas: Sequence[str], members: Sequence[str], dataset: str, metric: Metric
    ) -> Iterator[Comparison]:
        labels, m = (*metas, *members), METRICS.index(metric)
        points = {label: getattr(self.points[label][dataset], metric) for label in labels}
        resampled = {label: self.scores[label][dataset][:, m] for label in labels}
        for label, member, *figures in paired_tests(points, resampled, metas, members):
            yield Comparison(label, member, dataset, metric, *figures)

    def _of(self, label: str) -> Mapping[str, Array]:
        if label not in self.scores:
            raise InputError(f"there is no system {label!r} among those resampled: {', '.join(self.scores)}")
        return self.scores[label]


def resample(
    systems: Mapping[str, Predictions],
    datasets: Sequence[Dataset],
    protocol: Protocol,
    *,
    resamples: int = 2000,
    seed: int = 0,
    progress: Progress = silent,
) -> Resampled:
    """Score every system on the same resamples of the data sets.

    A system's figures depend neither on other systems nor on other data sets. Constant predictions score 0. Where the
    drawn gold scores of a sub-testset (or of a data set, for `all`) do not differ, its pairs are drawn again.

    Args:
        systems: the cosines of every system, by label.
        datasets: what they are the cosines of; those other than STS-B dev make the `mean`.
        protocol: how sub-testsets become a score; they keep its weights.
        resamples: how many resamples.
        seed: seed of the draws.
        progress: receives the number of pairs drawn.

    Raises:
        DatasetError: a correlation is undefined on the data themselves: fewer than two pairs, or constant gold.
        InputError: the predictions do not fit the data sets, or a parameter is out of range.
    """
    if resamples < 1 or seed < 0:
        raise InputError(f"resamples must be at least 1 and the seed at least 0, not {resamples} and {seed}")
    names = [dataset.name for dataset in datasets]
    if len(set(names)) < len(names) or MEAN in names:
        raise InputError(f"data sets need names of their own, other than {MEAN!r}, not {', '.join(names)}")
    for label, predictions in systems.items():
        if absent := set(names) - set(predictions):
            raise InputError(f"{label} has no predictions for {', '.join(sorted(absent))}")
    # Before the draws, as this checks everything about the data, too.
    points = {
        label: {dataset.name: aggregate(predictions[dataset.name], dataset, protocol) for dataset in datasets}
        for label, predictions in systems.items()
    }
    scores: dict[str, dict[str, Array]] = {label: {} for label in systems}
    done, total = 0, resamples * sum(len(dataset) for dataset in datasets)
    for dataset in datasets:
        predicted = [predictions[dataset.name] for predictions in systems.values()]
        result = np.zeros((len(systems), resamples, len(METRICS)))
        _add_up(result, predicted, dataset, protocol, seed, part_of(progress, "bootstrap", done, total))
        done += resamples * len(dataset)
        for label, of_system in zip(systems, result, strict=True):
            scores[label][dataset.name] = of_system
    if tests := [name for name in names if name != DEV]:
        for label in systems:
            points[label][MEAN] = mean_score([points[label][name] for name in tests])
            scores[label][MEAN] = np.mean([scores[label][name] for name in tests], axis=0)
    return Resampled(points, scores)


def paired_tests(
    points: Mapping[str, float], resampled: Mapping[str, Array], metas: Sequence[str], members: Sequence[str]
) -> Iterator[tuple[str, str, float, float, float, float, float]]:
    """Compare every meta-embedding with the best member, by their scores on the data and on the same resamples.

    Yield its label, the member's, the difference, the ends of its interval, p, and p by Holm's correction.
    """
    member = max(members, key=lambda label: points[label])
    differences = [resampled[label] - resampled[member] for label in metas]
    p_values = [paired_p(difference) for difference in differences]
    for label, difference, p, p_holm in zip(metas, differences, p_values, holm(p_values), strict=True):
        low, high = np.percentile(difference, PERCENTILES).tolist()
        yield label, member, points[label] - points[member], low, high, p, p_holm


def paired_p(differences: Array) -> float:
    """Return the two-sided p of no difference, from the differences on each resample.

    It is twice the share of resamples on the rarer side of 0, with one more resample counted on that side, so that it
    is never 0 (Davison and Hinkley 1997, chapter 4).
    """
    rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (rarer + 1) / (len(differences) + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down correction (1979) for the number of tests."""
    order = np.argsort(p_values, kind="stable")
    steps = np.asarray(p_values, np.float64)[order] * np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(p) for p in corrected]


def pair_keys(parts: Iterable[Pairs], seed: int) -> NDArray[np.uint64]:
    """Return a number for each pair [n], the same wherever its two sentences stand together, in either order."""
    keys = []
    for pair in (pair for part in parts for pair in zip(part.sentences1, part.sentences2, strict=True)):
        # surrogatepass: any text that could be read has a key.
        texts = [text.encode("utf-8", "surrogatepass") for text in (str(seed), *sorted(pair))]
        facts = b"".join(len(text).to_bytes(8, "big") + text for text in texts)
        keys.append(int.from_bytes(hashlib.blake2b(facts, digest_size=8).digest(), "big"))
    return np.array(keys, np.uint64)


def counts(keys: NDArray[np.uint64], resamples: Sequence[int] | NDArray[np.int64], attempt: int) -> Array:
    """Return how often each pair is drawn in these resamples [resamples, n]; another attempt draws again."""
    steps = np.asarray(resamples, np.uint64) + np.uint64(attempt * _ATTEMPT)
    uniforms = (stream(keys, steps) >> np.uint64(11)) * 2.0**-53
    drawn: Array = np.searchsorted(_POISSON, uniforms, side="right").astype(np.float64)
    return drawn


def stream(keys: NDArray[np.uint64], steps: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the numbers at these steps, from 0, of SplitMix64 begun at each key [steps, keys]."""
    state = keys + ((steps + np.uint64(1)) * _GAMMA)[:, None]  # everything is modulo 2**64
    for shift, factor in _MIX:
        state = (state ^ (state >> np.uint64(shift))) * factor
    mixed: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return mixed


def _add_up(
    result: Array,
    predicted: Sequence[Sequence[Array]],
    dataset: Dataset,
    protocol: Protocol,
    seed: int,
    progress: Progress,
) -> None:
    """Add the scores of every system to zeros [systems, resamples, 2], pool by pool: all parts at once, or each."""
    places = range(len(dataset.parts))
    pools = [list(places)] if protocol == "all" else [[j] for j in places]
    sizes = [sum(len(dataset.parts[j]) for j in pool) for pool in pools]
    weights = np.array([1 if protocol == "mean" else size for size in sizes], np.float64)
    resamples, done = result.shape[1], 0
    for pool, size, weight in zip(pools, sizes, weights / weights.sum(), strict=True):
        parts = [dataset.parts[j] for j in pool]
        keys, gold = pair_keys(parts, seed), Column(np.concatenate([part.scores for part in parts]))
        columns = [Column(np.concatenate([cosines[j] for j in pool])) for cosines in predicted]
        step = max(1, _BLOCK // size)
        for start in range(0, resamples, step):
            rows = np.arange(start, min(start + step, resamples))
            drawn = _draw(keys, gold, rows)
            result[:, rows] += weight * correlations(drawn, gold, columns)
            done += drawn.size
            progress("", done, None)


def _draw(keys: NDArray[np.uint64], gold: Column, rows: NDArray[np.int64]) -> Array:
    """Return how often each pair is drawn in these resamples [rows, n]; again where the gold scores do not differ."""
    drawn, attempt = counts(keys, rows, 0), 0
    while (bad := gold.constant(drawn)).any():
        attempt += 1
        drawn[bad] = counts(keys, rows[bad], attempt)
    return drawn


class Column:
    """Gold scores or predictions [n], with their order, which is computed once."""

    def __init__(self, values: Array) -> None:
        # A power of two is exact, and keeps squares from vanishing or overflowing.
        self.values = np.ldexp(values, -np.frexp(np.abs(values).max())[1])
        self.order = np.argsort(self.values, kind="stable")
        self.sorted = self.values[self.order]
        _, self.group, sizes = np.unique(self.values, return_inverse=True, return_counts=True)
        self.ends = np.cumsum(sizes) - 1

    def constant(self, counts: Array) -> NDArray[np.bool_]:
        """Return whether all drawn values are the same but for rounding, or there are none [rows]."""
        drawn = counts[:, self.order] > 0
        low, high = self.sorted[drawn.argmax(axis=1)], self.sorted[::-1][drawn[:, ::-1].argmax(axis=1)]
        constant: NDArray[np.bool_] = high - low <= ROUNDING * np.maximum(np.abs(low), np.abs(high))
        return constant | ~drawn.any(axis=1)

    def deviations(self, counts: Array, totals: Array) -> tuple[Array, Array]:
        """Return the values, and their ranks (equal ones share the average), less the mean of those drawn [rows, n]."""
        # Not `counts @ values`: BLAS adds up in an order that may differ between two equal systems.
        means = np.einsum("ij,j->i", counts, self.values) / totals
        up_to = np.cumsum(counts[:, self.order], axis=1)[:, self.ends]  # how many are not above each distinct value
        ties = np.diff(up_to, axis=1, prepend=0.0)
        # The average rank among t ties, the last of rank u, is u - (t - 1) / 2, and the mean of all n is (n + 1) / 2.
        return self.values - means[:, None], (up_to - (ties + totals[:, None]) / 2)[:, self.group]


def correlations(counts: Array, gold: Column, predictions: Sequence[Column]) -> Array:
    """Return Pearson and Spearman of every prediction with the gold scores, on every resample [systems, rows, 2]."""
    totals = counts.sum(axis=1)
    targets = [counts * _over(y, _lengths(counts, y)[:, None]) for y in gold.deviations(counts, totals)]
    result = np.empty((len(predictions), len(counts), len(METRICS)))
    for column, out in zip(predictions, result, strict=True):
        for m, x in enumerate(column.deviations(counts, totals)):
            out[:, m] = _over(np.einsum("ij,ij->i", x, targets[m]), _lengths(counts, x))
        out[column.constant(counts)] = 0.0
    return np.clip(result, -1.0, 1.0)  # rounding may have left 1.0000000000000002


def _lengths(counts: Array, x: Array) -> Array:
    """Return the length of each row of x with every column repeated as often as it was drawn."""
    lengths: Array = np.sqrt(np.einsum("ij,ij,ij->i", counts, x, x))
    return lengths


def _over(x: Array, lengths: Array) -> Array:
    """Divide; return 0 where a length is 0, which is where differences are too small for their squares."""
    return np.divide(x, lengths, out=np.zeros_like(x), where=lengths > 0)
