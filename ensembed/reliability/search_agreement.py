"""How good a map between encoders is, measured without labels on sentences that it was not fitted on.

A map is judged by search. The truth is what the wanted model finds if all texts are embedded with it. The figures say
how much of that is found in translated texts, and how much by the old model with its own vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError
from ensembed.numerics.row_matrices import unit_rows

Array = NDArray[Any]

NEAREST = 10
"""Hits per query that are compared."""
LEAST_ROWS = 200
"""With fewer sentences the figures of a map are not reliable."""
_QUERIES = 1000  # more do not make the intervals narrower: the texts that are searched limit them
_BOOTSTRAP = 500
_INTERVAL = (2.5, 97.5)
_POOLS = (8, 4, 2, 1)  # parts of the texts, by which the fall with the size of an index is measured


@dataclass(frozen=True)
class Estimate:
    """A mean over queries and its bootstrap interval of 95%."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Figure:
    """How much of what the wanted model finds another way to search finds.

    Attributes:
        recall_1: how often the first hit is the same.
        recall_10: the part of the ten nearest that is among its own ten nearest.
        mrr: the mean of 1 / (the rank that it gives the true first hit).
        itself: how often a sentence, as a query, finds its own text first; a map that confuses texts fails here.
        correlation: Pearson's r between its cosines and the true ones, over all pairs of query and text.
        rows: the number of texts that were searched.
        falls: the change of `recall_10` when the number of texts doubles.
    """

    recall_1: Estimate
    recall_10: Estimate
    mrr: Estimate
    itself: Estimate
    correlation: Estimate
    rows: int
    falls: float

    def expected(self, rows: int) -> float:
        """Return the recall@10 to expect among so many texts: a straight line in the logarithm of their number."""
        doublings = np.log2(max(rows, NEAREST) / self.rows)
        return float(np.clip(self.recall_10.value + self.falls * doublings, 0.0, 1.0))

    def to_json(self) -> dict[str, Any]:
        """Return plain data for `from_json`, rounded to the digits that are significant."""
        facts: dict[str, Any] = {}
        for name, value in asdict(self).items():
            facts[name] = {key: round(number, 4) for key, number in value.items()} if isinstance(value, dict) else value
        return facts | {"falls": round(self.falls, 5)}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Figure:
        """Return the figure that `to_json` wrote."""
        estimates = ("recall_1", "recall_10", "mrr", "itself", "correlation")
        numbers = {name: Estimate(**{key: float(value) for key, value in facts[name].items()}) for name in estimates}
        return cls(**numbers, rows=int(facts["rows"]), falls=float(facts["falls"]))


@dataclass(frozen=True, eq=False)
class Trial:
    """The wanted model's own vectors of sentences, by which other ways to search the same sentences are judged.

    Attributes:
        rows: [n, d] the wanted model's vectors of the sentences, of length one.
        queries: the numbers of the sentences that are searched for.
        truth: [queries, 10] the nearest of the other sentences.
        cosines: [queries, n] of the wanted model.
    """

    rows: Array
    queries: NDArray[np.int64]
    truth: NDArray[np.int64]
    cosines: Array

    @classmethod
    def of(cls, rows: Array, queries: NDArray[np.int64] | None = None, seed: int = 0) -> Trial:
        """Return the trial on these rows; by default a random part of them are the queries.

        Raises:
            InputError: there are too few sentences.
        """
        if len(rows) < LEAST_ROWS:
            raise InputError(f"{len(rows)} sentences are too few to measure a map on: it takes {LEAST_ROWS}")
        if queries is None:
            count = min(_QUERIES, len(rows))
            queries = np.sort(np.random.default_rng(seed).choice(len(rows), count, replace=False))
        rows = unit_rows(rows).astype(np.float32, copy=False)
        cosines = rows[queries] @ rows.T
        return cls(rows, queries, nearest(_without_self(cosines, queries), NEAREST), cosines)

    def half(self, which: int) -> Trial:
        """Return every second query, from the first or the second on: to choose on one half and show the other."""
        part = slice(which, None, 2)
        return Trial(self.rows, self.queries[part], self.truth[part], self.cosines[part])

    def recall(self, texts: Array, queries: Array | None = None) -> float:
        """Return the recall@10 of searching these vectors of all texts, by default with the wanted model's queries."""
        return float(_overlap(nearest(self._scores(texts, queries), NEAREST), self.truth).mean())

    def figure(self, texts: Array, queries: Array | None = None, seed: int = 0) -> Figure:
        """Return all figures of a way to search: its vectors [n, d'] of the texts, and of the queries, if they differ.

        Args:
            texts: the vectors of all sentences.
            queries: the vectors of all sentences as queries; by default those of the wanted model.
            seed: seed of the bootstrap.
        """
        scores = self._scores(texts, queries, keep_self=True)
        own = scores[np.arange(len(scores)), self.queries]
        itself = (scores >= own[:, None]).sum(axis=1) == 1
        correlation = _correlation(scores, self.cosines, self.queries, seed)
        scores = _without_self(scores, self.queries)
        hits = nearest(scores, NEAREST)
        first = np.take_along_axis(scores, self.truth[:, :1], axis=1)
        ranks = (scores > first).sum(axis=1) + 1
        measures = {
            "recall_1": hits[:, 0] == self.truth[:, 0],
            "recall_10": _overlap(hits, self.truth),
            "mrr": 1 / ranks,
            "itself": itself,
        }
        estimates = {name: _bootstrapped(values.astype(np.float64), seed) for name, values in measures.items()}
        return Figure(**estimates, correlation=correlation, rows=len(self.rows), falls=self._falls(scores, seed))

    def _scores(self, texts: Array, queries: Array | None, keep_self: bool = False) -> Array:
        texts = unit_rows(texts).astype(np.float32, copy=False)
        asked = self.rows[self.queries] if queries is None else unit_rows(queries[self.queries]).astype(np.float32)
        scores = asked @ texts.T
        return scores if keep_self else _without_self(scores, self.queries)

    def _falls(self, scores: Array, seed: int) -> float:
        """Return the slope of recall@10 over the logarithm of the number of texts."""
        chance = np.random.default_rng(seed)
        true, sizes, recalls = _without_self(self.cosines, self.queries), [], []
        for part in _POOLS:
            count = len(self.rows) // part
            if count < 5 * NEAREST:
                continue
            texts = np.sort(chance.choice(len(self.rows), count, replace=False))
            hits, wanted = nearest(scores[:, texts], NEAREST), nearest(true[:, texts], NEAREST)
            sizes.append(np.log2(count))
            recalls.append(_overlap(hits, wanted).mean())
        return float(min(np.polyfit(sizes, recalls, 1)[0], 0.0)) if len(sizes) > 1 else 0.0


def nearest(scores: Array, count: int) -> NDArray[np.int64]:
    """Return the numbers [q, count] of the largest scores [q, n], the largest first."""
    best = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
    return np.take_along_axis(best, order, axis=1)


def _without_self(scores: Array, queries: NDArray[np.int64]) -> Array:
    scores = scores.copy()
    scores[np.arange(len(queries)), queries] = -np.inf
    return scores


def _overlap(hits: NDArray[np.int64], truth: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the part [q] of the true hits that are among the hits."""
    return np.asarray((hits[:, :, None] == truth[:, None, :]).any(axis=1).mean(axis=1))


def _bootstrapped(values: NDArray[np.float64], seed: int) -> Estimate:
    chance = np.random.default_rng(seed)
    means = values[chance.integers(len(values), size=(_BOOTSTRAP, len(values)))].mean(axis=1)
    low, high = np.percentile(means, _INTERVAL)
    return Estimate(float(values.mean()), float(low), float(high))


def _correlation(scores: Array, cosines: Array, queries: NDArray[np.int64], seed: int) -> Estimate:
    """Return Pearson's r of the cosines of the same query, pooled over the queries, which the bootstrap draws."""
    scores, true = (values - values.mean(axis=1, keepdims=True) for values in (scores, cosines))
    for values in (scores, true):
        values[np.arange(len(queries)), queries] = 0.0
    sums = np.stack([(scores * true).sum(axis=1), np.square(scores).sum(axis=1), np.square(true).sum(axis=1)])
    drawn = np.random.default_rng(seed).integers(len(scores), size=(_BOOTSTRAP, len(scores)))

    def pearson(products: Array, squares: Array, true_squares: Array) -> Array:
        return np.asarray(products / np.sqrt(np.maximum(squares * true_squares, 1e-30)))

    low, high = np.percentile(pearson(*sums[:, drawn].sum(axis=2, dtype=np.float64)), _INTERVAL)
    return Estimate(float(pearson(*sums.sum(axis=1, dtype=np.float64))), float(low), float(high))
