"""How sure a figure is: bootstrap intervals, and a paired test of a meta-embedding against a member.

Every system is scored on the same draws, and a pair that is in several data sets is drawn as often in each of them. A
resample is held as counts, how often each pair was drawn, and both correlations are those of the repeated rows: no
approximation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError
from ensembed.paper.draws import counts, pair_keys
from ensembed.paper.findings import DEV, MEAN, METRICS, Comparison, Interval, Metric, mean_score
from ensembed.sts.datasets import Dataset
from ensembed.sts.protocol import Protocol, Score, aggregate
from ensembed.support.progress import Progress, part_of, silent

Array: TypeAlias = NDArray[np.float64]
Predictions: TypeAlias = Mapping[str, Sequence[Array]]
"""By data set: one array of cosines per part, in the order of `Dataset.parts`."""

ALPHA = 0.05
"""A difference counts where its p, after Holm's correction, is below this."""

_PERCENTILES = (2.5, 97.5)
# Drawn pairs at a time: a few arrays of this many float64 stay within a core's cache.
_BLOCK = 1 << 15
# Predictions that differ by less than this share of their size are constant, as in `ensembed.sts.protocol`.
_ROUNDING = 1e-13


@dataclass(frozen=True, eq=False)
class Resampled:
    """The scores of every system on the same resamples; `resample` makes it.

    Attributes:
        points: by system and data set (and `mean`), the score on the data as they are.
        scores: by system and data set (and `mean`), Pearson and Spearman [resamples, 2].

    Example:
        >>> from ensembed.sts import Pairs
        >>> gold = np.arange(50.0)
        >>> dataset = Dataset.of(Pairs("toy", tuple(map(str, range(50))), ("b",) * 50, gold))
        >>> noise = np.random.default_rng(0).normal(size=50)
        >>> systems = {"single:a": {"toy": [gold + 40 * noise]}, "meta:b": {"toy": [gold + 10 * noise]}}
        >>> resampled = resample(systems, [dataset], "mean", resamples=500)
        >>> resampled.points["meta:b"]["toy"].pearson > resampled.interval("meta:b", "toy").low.pearson
        True
        >>> [test.p_holm < 0.05 for test in resampled.comparisons(["meta:b"], ["single:a"])]
        [True, True, True, True]
    """

    points: Mapping[str, Mapping[str, Score]]
    scores: Mapping[str, Mapping[str, Array]]

    def interval(self, label: str, dataset: str) -> Interval:
        """The percentile interval of a system's score on a data set, or `mean`.

        Raises:
            InputError: there is no such system or data set.
        """
        if dataset not in self._of(label):
            raise InputError(f"{label} was not resampled on {dataset!r}, only on {', '.join(self._of(label))}")
        low, high = np.percentile(self._of(label)[dataset], _PERCENTILES, axis=0).tolist()
        return Interval(label, dataset, Score(*low), Score(*high))

    def comparisons(self, metas: Sequence[str], members: Sequence[str]) -> tuple[Comparison, ...]:
        """Every meta-embedding against the best member, on each test set and on their mean, by Pearson and by Spearman.

        The best member is the one with the highest score on that data set by that metric: the hardest to beat.
        STS-B dev is left out: hyper-parameters were chosen there.

        Raises:
            InputError: there is no system of that name, no member, or so few resamples that no difference could count.
        """
        if not members:
            raise InputError("a comparison needs at least one member to compare with")
        resamples = min(len(self._of(label)[dataset]) for label in (*metas, *members) for dataset in self._of(label))
        if (least := 2 * len(metas) / (resamples + 1)) >= ALPHA:
            raise InputError(
                f"{resamples} resamples are too few to compare {len(metas)} meta-embeddings: no p could fall below "
                f"{least:.2g} after Holm's correction, and {ALPHA:g} is needed; take at least "
                f"{round(2 * len(metas) / ALPHA)}"
            )
        datasets = [dataset for dataset in self.scores[members[0]] if dataset != DEV]
        return tuple(
            comparison
            for dataset in datasets
            for metric in METRICS
            for comparison in self._compared(metas, members, dataset, metric)
        )

    def _compared(
        self, metas: Sequence[str], members: Sequence[str], dataset: str, metric: Metric
    ) -> Iterator[Comparison]:
        points = {label: getattr(self.points[label][dataset], metric) for label in (*metas, *members)}
        member = max(members, key=lambda label: points[label])
        m = METRICS.index(metric)
        differences = [self.scores[label][dataset][:, m] - self.scores[member][dataset][:, m] for label in metas]
        p_values = [paired_p(difference) for difference in differences]
        for label, difference, p, p_holm in zip(metas, differences, p_values, holm(p_values), strict=True):
            low, high = np.percentile(difference, _PERCENTILES).tolist()
            yield Comparison(label, member, dataset, metric, points[label] - points[member], low, high, p, p_holm)

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
    """Score every system on the same resamples of the data sets (Efron and Tibshirani 1993, chapters 6 and 13).

    How often a pair is drawn depends on the seed and its two sentences alone (`ensembed.paper.draws`), so a
    system's figures depend neither on other systems nor on other data sets, and data sets that share pairs vary
    together, as they do. Sub-testsets keep the weights that the protocol gives them on the data as they are. Constant
    predictions score 0, as everywhere. Where all drawn gold scores of a sub-testset (or of a data set, for `all`) are
    the same, or none is drawn, there is no correlation, and its pairs are drawn again in this resample, there alone;
    that happens to tiny ones only.

    Args:
        systems: the cosines of every system, by label.
        datasets: what they are the cosines of. Those other than STS-B dev make the `mean`.
        protocol: how sub-testsets become a score.
        resamples: how many.
        seed: of the draws.
        progress: hears of drawn pairs.

    Raises:
        DatasetError: a correlation is undefined on the data as they are: fewer than two pairs, or constant gold.
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
        given = [predictions[dataset.name] for predictions in systems.values()]
        result = np.zeros((len(systems), resamples, len(METRICS)))
        _add_up(result, given, dataset, protocol, seed, part_of(progress, "bootstrap", done, total))
        done += resamples * len(dataset)
        for label, one in zip(systems, result, strict=True):
            scores[label][dataset.name] = one
    if tests := [name for name in names if name != DEV]:
        for label in systems:
            points[label][MEAN] = mean_score([points[label][name] for name in tests])
            scores[label][MEAN] = np.mean([scores[label][name] for name in tests], axis=0)
    return Resampled(points, scores)


def paired_p(differences: Array) -> float:
    """Two-sided p of no difference, from the differences on each resample.

    It is twice the share of resamples on the rarer side of 0, with one more resample counted on that side, so that it
    is never 0 (Davison and Hinkley 1997, chapter 4). But for that one it is below 0.05 where the 95% interval of the
    differences leaves out 0, so the two tell the same story.

    Example:
        >>> paired_p(np.array([0.1] * 99))
        0.02
        >>> paired_p(np.zeros(99))
        1.0
    """
    rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (rarer + 1) / (len(differences) + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction (1979) for the number of tests.

    Example:
        >>> holm([0.01, 0.5, 0.02])
        [0.03, 0.5, 0.04]
    """
    order = np.argsort(p_values, kind="stable")
    steps = np.asarray(p_values, np.float64)[order] * np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(p) for p in corrected]


def _add_up(
    result: Array, given: Sequence[Sequence[Array]], dataset: Dataset, protocol: Protocol, seed: int, progress: Progress
) -> None:
    """Add the scores of every system to zeros [systems, resamples, 2], pool by pool: all parts at once, or each."""
    places = range(len(dataset.parts))
    pools = [list(places)] if protocol == "all" else [[j] for j in places]
    sizes = [sum(len(dataset.parts[j]) for j in pool) for pool in pools]
    weights = np.array([1 if protocol == "mean" else size for size in sizes], np.float64)
    resamples, done = result.shape[1], 0
    for pool, size, weight in zip(pools, sizes, weights / weights.sum(), strict=True):
        parts = [dataset.parts[j] for j in pool]
        keys, gold = pair_keys(parts, seed), _Column(np.concatenate([part.scores for part in parts]))
        columns = [_Column(np.concatenate([predictions[j] for j in pool])) for predictions in given]
        step = max(1, _BLOCK // size)
        for start in range(0, resamples, step):
            rows = np.arange(start, min(start + step, resamples))
            drawn = _draw(keys, gold, rows)
            result[:, rows] += weight * _correlations(drawn, gold, columns)
            done += drawn.size
            progress("", done, None)


def _draw(keys: NDArray[np.uint64], gold: _Column, rows: NDArray[np.int64]) -> Array:
    """How often each pair is drawn in these resamples [rows, n], again where the drawn gold scores do not differ.

    Both the lowest and the highest score are drawn in 40% of the attempts at least.
    """
    drawn, attempt = counts(keys, rows, 0), 0
    while (bad := gold.constant(drawn)).any():
        attempt += 1
        drawn[bad] = counts(keys, rows[bad], attempt)
    return drawn


class _Column:
    """Gold scores or predictions [n], and what has to be known about their order once."""

    def __init__(self, values: Array) -> None:
        # A power of two is exact, and keeps squares from vanishing or overflowing.
        self.values = np.ldexp(values, -np.frexp(np.abs(values).max())[1])
        self.order = np.argsort(self.values, kind="stable")
        self.sorted = self.values[self.order]
        _, self.group, sizes = np.unique(self.values, return_inverse=True, return_counts=True)
        self.ends = np.cumsum(sizes) - 1

    def constant(self, counts: Array) -> NDArray[np.bool_]:
        """Whether all drawn values are the same but for rounding, or there are none [rows]."""
        drawn = counts[:, self.order] > 0
        low, high = self.sorted[drawn.argmax(axis=1)], self.sorted[::-1][drawn[:, ::-1].argmax(axis=1)]
        constant: NDArray[np.bool_] = high - low <= _ROUNDING * np.maximum(np.abs(low), np.abs(high))
        return constant | ~drawn.any(axis=1)

    def deviations(self, counts: Array, totals: Array) -> Array:
        """The values less the mean of those drawn [rows, n]."""
        # Not `counts @ values`: BLAS adds up in an order that may differ between two equal systems.
        means = np.einsum("ij,j->i", counts, self.values) / totals
        deviations: Array = self.values - means[:, None]
        return deviations

    def ranks(self, counts: Array, totals: Array) -> Array:
        """The ranks among the drawn values less their mean, equal values sharing their average [rows, n]."""
        up_to = np.cumsum(counts[:, self.order], axis=1)[:, self.ends]  # how many are not above each distinct value
        ties = np.diff(up_to, axis=1, prepend=0.0)
        # The average rank among t ties, the last of rank u, is u - (t - 1) / 2, and the mean of all n is (n + 1) / 2.
        ranks: Array = (up_to - (ties + totals[:, None]) / 2)[:, self.group]
        return ranks


def _correlations(counts: Array, gold: _Column, predictions: Sequence[_Column]) -> Array:
    """Pearson and Spearman of every prediction with the gold scores, on every resample [systems, rows, 2]."""
    totals = counts.sum(axis=1)
    targets = [
        counts * _over(y, _lengths(counts, y)[:, None])
        for y in (gold.deviations(counts, totals), gold.ranks(counts, totals))
    ]
    result = np.empty((len(predictions), len(counts), len(METRICS)))
    for column, out in zip(predictions, result, strict=True):
        for m, x in enumerate((column.deviations(counts, totals), column.ranks(counts, totals))):
            out[:, m] = _over(np.einsum("ij,ij->i", x, targets[m]), _lengths(counts, x))
        out[column.constant(counts)] = 0.0
    return np.clip(result, -1.0, 1.0)  # rounding may have left 1.0000000000000002


def _lengths(counts: Array, x: Array) -> Array:
    """The length of each row of x with every column repeated as often as it was drawn."""
    lengths: Array = np.sqrt(np.einsum("ij,ij,ij->i", counts, x, x))
    return lengths


def _over(x: Array, lengths: Array) -> Array:
    """Quotients; 0 where a length is 0, which is where differences are too small for their squares."""
    return np.divide(x, lengths, out=np.zeros_like(x), where=lengths > 0)
