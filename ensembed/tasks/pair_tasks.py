"""Pairs of texts with a verdict (the same or not) or with a grade of their likeness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ensembed.encoders.base import FloatArray
from ensembed.errors import DatasetError
from ensembed.paper.experiments.bootstrap import Column, correlations
from ensembed.sts.datasets import Dataset, Pairs
from ensembed.sts.protocol import distinct_sentences, predict
from ensembed.tasks.task import Array, Statistic, Texts, VectorTask


@dataclass(frozen=True, eq=False)
class _PairTask(VectorTask):
    """Pairs whose cosine is compared with their gold score."""

    pairs: Pairs

    @property
    def name(self) -> str:  # type: ignore[override] # the pairs know it
        """Name in tables."""
        return self.pairs.name

    @property
    def items(self) -> int:
        """The number of pairs."""
        return len(self.pairs)

    def texts(self) -> Mapping[str, Texts]:
        """Return every distinct text once."""
        return {"texts": Texts("text", tuple(distinct_sentences([Dataset.of(self.pairs)])))}

    def gold(self) -> Any:  # noqa: ANN401 - see `Task`
        """Return the pairs and their scores."""
        return [self.pairs.sentences1, self.pairs.sentences2, self.pairs.scores.tolist()]

    def cosines(self, vectors: Mapping[str, FloatArray]) -> Array:
        """Return the cosine of each pair [n]."""
        [[cosines]] = predict(lambda _texts: vectors["texts"], [Dataset.of(self.pairs)])
        return cosines


@dataclass(frozen=True, eq=False)
class PairClassification(_PairTask):
    """Pairs that say the same (1) or do not (0): the average precision of their cosines."""

    kind: ClassVar[str] = "pair classification"
    measures: ClassVar[tuple[str, ...]] = ("ap",)

    def __post_init__(self) -> None:
        if set(self.pairs.scores.tolist()) != {0.0, 1.0}:
            raise DatasetError(f"{self.name}: pair classification needs pairs of both classes, 0 and 1")

    def statistic(self, measure: str, vectors: Mapping[str, FloatArray]) -> Statistic:  # noqa: ARG002 - there is one
        """Return the average precision."""
        return average_precision(self.cosines(vectors), self.pairs.scores)


@dataclass(frozen=True, eq=False)
class GradedPairs(_PairTask):
    """Pairs with grades of their likeness: the correlations of their cosines with the grades."""

    kind: ClassVar[str] = "graded pairs"
    measures: ClassVar[tuple[str, ...]] = ("spearman", "pearson")

    def __post_init__(self) -> None:
        if len(set(self.pairs.scores.tolist())) < 2:
            raise DatasetError(f"{self.name}: all gold scores are the same, so no correlation with them is defined")

    def statistic(self, measure: str, vectors: Mapping[str, FloatArray]) -> Statistic:
        """Return Spearman's rho or Pearson's r."""
        gold, predicted = Column(self.pairs.scores), Column(self.cosines(vectors))
        place = ("pearson", "spearman").index(measure)
        return lambda counts: correlations(counts, gold, [predicted])[0, :, place]


def pair_task(pairs: Pairs) -> PairClassification | GradedPairs:
    """Return the task of pairs: classification if every score is 0 or 1, else correlation with the grades."""
    return PairClassification(pairs) if set(pairs.scores.tolist()) <= {0.0, 1.0} else GradedPairs(pairs)


def average_precision(scores: Array, positive: Array) -> Statistic:
    """Return the average precision of scores [n] whose items are 1 (positive) or 0.

    It is the sum of the precision at each threshold, weighted with the recall that the threshold adds; equal scores are
    one threshold, as in scikit-learn. Without positive items it is 0.
    """
    order = np.argsort(-scores, kind="stable")
    ranked, is_positive = scores[order], positive[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])

    def statistic(counts: Array) -> Array:
        counts = counts[:, order]
        new_hits = np.add.reduceat(counts * is_positive, starts, axis=1)
        hits = np.cumsum(new_hits, axis=1)
        seen = np.cumsum(np.add.reduceat(counts, starts, axis=1), axis=1)
        precision = np.divide(hits, seen, out=np.zeros_like(hits), where=seen > 0)
        total = hits[:, -1]
        result: Array = np.divide((precision * new_hits).sum(axis=1), total, out=np.zeros_like(total), where=total > 0)
        return result

    return statistic
