"""Texts with labels: how well clusters match the labels, and how well simple classifiers learn them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import shorten
from ensembed.encoders.base import FloatArray
from ensembed.errors import DatasetError, InputError
from ensembed.numerics.row_matrices import unit_rows
from ensembed.search.groups import choose_number, kmeans_partition
from ensembed.search.groups.clusters import LEAST_ROWS
from ensembed.support.extras import import_extra
from ensembed.tasks.task import Array, Statistic, Texts, VectorTask, mean_of

NEIGHBOURS = 5
"""Neighbours that vote."""

PROBE_TEXTS = 32
"""Texts of each label that the logistic probe learns from."""

SEEDS = (0, 1, 2)
"""Seeds of k-means; the V-measure is the mean over them."""

_EXTRA = ("cluster", "scoring clusters and classes")


@dataclass(frozen=True, eq=False)
class _LabelTask(VectorTask):
    """Texts with labels."""

    name: str
    labelled: tuple[str, ...]
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.labelled) != len(self.labels):
            raise DatasetError(f"{self.name}: {len(self.labelled)} texts and {len(self.labels)} labels")
        if len(set(self.labels)) < 2:
            raise DatasetError(f"{self.name}: at least two different labels are needed")

    def gold(self) -> Any:  # noqa: ANN401 - see `Task`
        """Return the labels."""
        return self.labels


class Clustering(_LabelTask):
    """Texts whose clusters should be their labels: the V-measure (Rosenberg and Hirschberg 2007).

    `v-measure` is of k-means with the true number of clusters, the mean over `SEEDS`. `own` is of `ensembed cluster`,
    which finds the number of clusters itself; fewer than 12 texts do not have it.
    """

    kind: ClassVar[str] = "clustering"
    measures: ClassVar[tuple[str, ...]] = ("v-measure", "own")

    @property
    def items(self) -> int:
        """The number of texts."""
        return len(self.labelled)

    def texts(self) -> Mapping[str, Texts]:
        """Return the texts."""
        return {"texts": Texts("text", self.labelled)}

    def statistics(self, measures: Sequence[str], vectors: Mapping[str, FloatArray]) -> dict[str, Statistic]:
        """Return `statistic` of several measures, without `own` if the texts are too few to choose a number."""
        few = len(self.labelled) < LEAST_ROWS
        return super().statistics([name for name in measures if not (few and name == "own")], vectors)

    def statistic(self, measure: str, vectors: Mapping[str, FloatArray]) -> Statistic:
        """Return the V-measure of either partition."""
        U = vectors["texts"]
        learn = import_extra("sklearn.cluster", *_EXTRA)
        classes = class_numbers(self.labels, sorted(set(self.labels)))
        if measure == "own":
            if len(U) < LEAST_ROWS:
                raise DatasetError(f"{self.name}: {len(U)} texts are too few for clusters: take {LEAST_ROWS} or more")
            try:
                return v_measure(classes, kmeans_partition(U, choose_number(U)[0]).labels)
            except InputError as error:
                raise DatasetError(f"{self.name}: its texts cannot be clustered: {error}") from error
        number = int(classes.max()) + 1
        parts = [learn.KMeans(number, n_init=1, random_state=seed).fit(U).labels_ for seed in SEEDS]
        statistics = [v_measure(classes, part) for part in parts]
        return lambda counts: np.mean([statistic(counts) for statistic in statistics], axis=0)


@dataclass(frozen=True, eq=False)
class Classification(_LabelTask):
    """Texts whose label is predicted from other texts with labels; the figures are accuracies.

    `centroid` is the label whose mean vector has the largest cosine, `knn` the majority among the nearest `NEIGHBOURS`,
    `logistic` a logistic regression that learns from at most `PROBE_TEXTS` texts of each label.

    Attributes:
        train, train_labels: the texts to learn from; without them every second text of each label is learned from,
            and the others are judged.
    """

    train: tuple[str, ...] = ()
    train_labels: tuple[str, ...] = ()

    kind: ClassVar[str] = "classification"
    measures: ClassVar[tuple[str, ...]] = ("centroid", "knn", "logistic")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.train) != len(self.train_labels):
            raise DatasetError(f"{self.name}: {len(self.train)} texts to learn from, {len(self.train_labels)} labels")
        if unknown := set(self._known) - set(self._learned):
            raise DatasetError(f"{self.name}: no text to learn from has the label {shorten(min(unknown))}")
        if not self.items:
            raise DatasetError(f"{self.name}: no label has two texts, one to learn from and one to judge")

    @property
    def _split(self) -> NDArray[np.bool_]:
        """Which of the texts are judged [n]: all, or every second of each label."""
        if self.train:
            return np.ones(len(self.labels), bool)
        seen: dict[str, int] = {}
        judged = []
        for label in self.labels:
            seen[label] = seen.get(label, -1) + 1
            judged.append(seen[label] % 2 == 1)
        return np.array(judged)

    @property
    def _known(self) -> list[str]:
        return list(compress(self.labels, self._split))

    @property
    def _learned(self) -> list[str]:
        return list(self.train_labels if self.train else compress(self.labels, ~self._split))

    @property
    def items(self) -> int:
        """The number of judged texts."""
        return int(self._split.sum())

    def texts(self) -> Mapping[str, Texts]:
        """Return the texts, and those to learn from if they are apart."""
        texts = {"texts": Texts("text", self.labelled)}
        return texts | {"train": Texts("text", self.train)} if self.train else texts

    def gold(self) -> Any:  # noqa: ANN401 - see `Task`
        """Return the labels."""
        return [self.labels, self.train_labels]

    def statistic(self, measure: str, vectors: Mapping[str, FloatArray]) -> Statistic:
        """Return the accuracy of one of the classifiers."""
        judged = self._split
        X = vectors["texts"][judged]
        learned = vectors["train"] if self.train else vectors["texts"][~judged]
        names = sorted(set(self._learned))
        labels, truth = class_numbers(self._learned, names), class_numbers(self._known, names)
        classify = {"centroid": nearest_centroid, "knn": nearest_neighbours, "logistic": logistic_probe}[measure]
        return mean_of(classify(learned, labels, X) == truth)


def class_numbers(labels: Sequence[str], names: Sequence[str]) -> NDArray[np.int64]:
    """Return the place of each label among the names.

    An array of texts would not do: each of its items takes as much memory as the longest.
    """
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[label] for label in labels], np.int64)


def nearest_centroid(T: FloatArray, labels: NDArray[np.int64], X: FloatArray) -> NDArray[np.int64]:
    """Return for each row of X the label whose mean of unit rows T has the largest cosine."""
    sums = np.zeros((int(labels.max()) + 1, T.shape[1]))
    np.add.at(sums, labels, T)
    return np.asarray((X @ unit_rows(sums).astype(np.float32).T).argmax(axis=1))


def nearest_neighbours(
    T: FloatArray, labels: NDArray[np.int64], X: FloatArray, *, k: int = NEIGHBOURS
) -> NDArray[np.int64]:
    """Return for each row of X the most frequent label among its k nearest rows of T; the nearer label of equals."""
    learn = import_extra("sklearn.neighbors", *_EXTRA)
    k = min(k, len(T))
    # The votes of nearer neighbours count a little more, which decides between equal numbers of votes only.
    votes = 1 + 0.5 ** np.arange(k) / (k + 1)
    settings = {"weights": lambda distances: np.tile(votes, (len(distances), 1)), "algorithm": "brute"}
    knn = learn.KNeighborsClassifier(k, metric="cosine", **settings).fit(T, labels)
    return np.asarray(knn.predict(X))


def logistic_probe(T: FloatArray, labels: NDArray[np.int64], X: FloatArray) -> NDArray[np.int64]:
    """Return the predictions of a logistic regression on the first `PROBE_TEXTS` rows T of each label."""
    learn = import_extra("sklearn.linear_model", *_EXTRA)
    chosen = np.concatenate([np.flatnonzero(labels == label)[:PROBE_TEXTS] for label in np.unique(labels)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it stopped after max_iter, which is as good for a probe
        probe = learn.LogisticRegression(C=10.0, max_iter=200).fit(T[chosen], labels[chosen])
    return np.asarray(probe.predict(X))


def v_measure(classes: Sequence[int] | NDArray[np.int64], clusters: NDArray[np.int64]) -> Statistic:
    """Return the V-measure of clusters [n] against classes [n], the harmonic mean of homogeneity and completeness."""
    classes = np.unique(classes, return_inverse=True)[1]
    clusters = np.unique(clusters, return_inverse=True)[1]
    rows, columns = int(classes.max()) + 1, int(clusters.max()) + 1
    cell = classes * columns + clusters

    def statistic(counts: Array) -> Array:
        values = np.empty(len(counts))
        for i, own in enumerate(counts):
            table: Array = np.bincount(cell, own, rows * columns).astype(np.float64).reshape(rows, columns)
            both, of_classes, of_clusters = (_entropy(t) for t in (table.ravel(), table.sum(1), table.sum(0)))
            shared = of_classes + of_clusters - both  # the mutual information
            # One class or one cluster has no entropy: all is then homogeneous, or complete.
            homogeneity = shared / of_classes if of_classes > 0 else 1.0
            completeness = shared / of_clusters if of_clusters > 0 else 1.0
            total = homogeneity + completeness
            values[i] = 2 * homogeneity * completeness / total if total > 0 else 0.0
        return values

    return statistic


def _entropy(counts: Array) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
