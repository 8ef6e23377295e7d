"""Scores of weighted concatenations on tasks, out of what each member gives: thousands of settings in minutes.

The cosine of a weighted concatenation is the weighted mean of the members' cosines, so that rankings and nearest
centroids need the members' vectors only once. K-means needs them anew; `rough` is faster and takes other seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from ensembed.encoders import open_encoder
from ensembed.encoders.base import FloatArray
from ensembed.numerics.row_matrices import unit_rows
from ensembed.reliability.sufficiency import SoftWhitening
from ensembed.support.extras import import_extra
from ensembed.tasks import Classification, Clustering, Ranking, Task
from ensembed.tasks.class_and_cluster_tasks import SEEDS, class_numbers, v_measure
from ensembed.tasks.pair_tasks import GradedPairs, PairClassification, average_precision
from ensembed.tasks.task import VectorTask
from ensembed.tasks.task_evaluation import text_vectors
from ensembed.views import ViewStore

Part: TypeAlias = tuple[str, bool]
"""A member, and whether it is softly whitened."""
Setting: TypeAlias = Mapping[Part, float]
"""The weights of the members' cosines."""

ROUGH_CLUSTERS = 150
"""Clusters that all runs of k-means make together while settings are searched: the fewer a set has, the more they vary
with the seed, and the cheaper a run is."""
ROUGH_RUNS = 12
ROUGH_DIMENSIONS = 48
"""Leading directions of a member that k-means gets while settings are searched."""


class Mixtures(Protocol):
    """The scores of weighted concatenations on one task."""

    def score(self, setting: Setting) -> float:
        """Return the first figure of the task x 100."""

    def rough(self, setting: Setting) -> float:
        """Return nearly the same, faster."""


class Vectors:
    """The members' vectors of texts, of length one, whitened on request as `Auto` does on a corpus."""

    def __init__(self, members: Sequence[str], store: ViewStore) -> None:
        self.encoders = {name: open_encoder(name) for name in members}
        self.store = store
        self.whitenings: dict[str, SoftWhitening] = {}

    def whiten(self, name: str, X: FloatArray) -> None:
        """Estimate a member's whitening on rows of a corpus."""
        self.whitenings[name] = SoftWhitening.of(unit_rows(X.astype(np.float64)))

    def of(self, part: Part, task: VectorTask, what: str) -> FloatArray:
        """Return the vectors of some of a task's texts."""
        name, whitened = part
        rows = text_vectors(self.encoders[name], task.texts()[what], store=self.store)
        return np.asarray(self.whitenings[name].apply(rows.astype(np.float64)).astype(np.float32)) if whitened else rows

    def parts(self) -> list[Part]:
        """Return every member, plain and whitened."""
        return [(name, whitened) for name in self.encoders for whitened in (False, True)]


class RankMixtures:
    """Rankings of documents."""

    def __init__(self, task: Ranking, vectors: Vectors) -> None:
        self.task = task
        self.scores = {
            part: vectors.of(part, task, "queries") @ vectors.of(part, task, "documents").T for part in vectors.parts()
        }

    def score(self, setting: Setting) -> float:
        """Return nDCG@10 or MAP."""
        scores = sum(weight * self.scores[part] for part, weight in setting.items())
        rankings = [self.task.rank_scores(query, row) for query, row in enumerate(np.asarray(scores))]
        statistic = self.task.measure_rankings(self.task.measures[0], rankings)
        return 100 * float(statistic(np.ones((1, self.task.items)))[0])

    rough = score


class CentroidMixtures:
    """The label of the nearest centroid."""

    def __init__(self, task: Classification, vectors: Vectors) -> None:
        judged, names = task._split, sorted(set(task._learned))
        labels, self.truth = class_numbers(task._learned, names), class_numbers(task._known, names)
        self.products: dict[Part, FloatArray] = {}
        self.sizes: dict[Part, NDArray[np.float64]] = {}
        for part in vectors.parts():
            rows = vectors.of(part, task, "texts")
            learned = vectors.of(part, task, "train") if task.train else rows[~judged]
            sums = np.zeros((len(names), rows.shape[1]))
            np.add.at(sums, labels, learned)
            self.products[part] = rows[judged] @ sums.T.astype(np.float32)
            self.sizes[part] = np.square(sums).sum(axis=1)

    def score(self, setting: Setting) -> float:
        """Return the accuracy."""
        products: Any = sum(weight * self.products[part] for part, weight in setting.items())
        sizes: Any = sum(weight * self.sizes[part] for part, weight in setting.items())
        return 100 * float(np.mean((products / np.sqrt(sizes)).argmax(axis=1) == self.truth))

    rough = score


class ClusterMixtures:
    """Clusters by k-means with the true number of them."""

    def __init__(self, task: Clustering, vectors: Vectors) -> None:
        self.task, self.vectors = task, vectors
        self.classes = class_numbers(task.labels, sorted(set(task.labels)))

    def score(self, setting: Setting, seeds: Sequence[int] = SEEDS) -> float:
        """Return the V-measure, exactly as the task does."""
        return self._cluster({part: self.vectors.of(part, self.task, "texts") for part in setting}, setting, seeds)

    def rough(self, setting: Setting) -> float:
        """Return the V-measure in the members' leading directions."""
        runs = max(1, ROUGH_CLUSTERS // (int(self.classes.max()) + 1))
        # Other seeds than those of the final figures.
        return self._cluster(self.leading, setting, range(100, 100 + min(runs, ROUGH_RUNS)))

    @cached_property
    def leading(self) -> dict[Part, FloatArray]:
        """The vectors in their leading directions."""
        rows = {part: self.vectors.of(part, self.task, "texts") for part in self.vectors.parts()}
        return {
            part: X @ np.linalg.eigh(X.T @ X)[1][:, -ROUGH_DIMENSIONS:].astype(np.float32) for part, X in rows.items()
        }

    def _cluster(self, rows: Mapping[Part, FloatArray], setting: Setting, seeds: Sequence[int]) -> float:
        learn = import_extra("sklearn.cluster", "cluster", "scoring clusters")
        total = sum(setting.values())
        X = np.hstack([np.float32(np.sqrt(weight / total)) * rows[part] for part, weight in setting.items()])
        number, ones = int(self.classes.max()) + 1, np.ones((1, len(X)))
        parts = [learn.KMeans(number, n_init=1, random_state=seed).fit(X).labels_ for seed in seeds]
        return 100 * float(np.mean([v_measure(self.classes, part)(ones)[0] for part in parts]))


class PairMixtures:
    """Pairs by their cosine."""

    def __init__(self, task: PairClassification | GradedPairs, vectors: Vectors) -> None:
        self.task = task
        self.cosines: dict[Part, NDArray[np.float64]] = {}
        for part in vectors.parts():
            self.cosines[part] = task.cosines({"texts": vectors.of(part, task, "texts")})

    def score(self, setting: Setting) -> float:
        """Return the average precision, or Spearman's rho."""
        cosines: Any = sum(weight * self.cosines[part] for part, weight in setting.items())
        gold = self.task.pairs.scores
        if isinstance(self.task, PairClassification):
            return 100 * float(average_precision(cosines, gold)(np.ones((1, len(gold))))[0])
        return 100 * float(spearmanr(cosines, gold).statistic)

    rough = score


def mixtures(task: Task, vectors: Vectors) -> Mixtures:
    """Return the scores of weighted concatenations on a task."""
    if isinstance(task, Ranking):
        return RankMixtures(task, vectors)
    if isinstance(task, Classification):
        return CentroidMixtures(task, vectors)
    if isinstance(task, Clustering):
        return ClusterMixtures(task, vectors)
    assert isinstance(task, (PairClassification, GradedPairs))  # noqa: S101 - for the type checker
    return PairMixtures(task, vectors)
