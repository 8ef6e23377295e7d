"""Rows to clusters, with scikit-learn's algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import FloatArray
from ensembed.errors import InputError
from ensembed.numerics.row_matrices import unit_rows
from ensembed.support.checks import check_whole
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress, silent

MOST_DENSITY = 20_000
"""HDBSCAN looks at all pairs of rows: more rows than this take too long."""

# Rows that whole-data k-means sees: below it is exact, above its centres are where the stream begins.
_SAMPLE = 10_000
# Rows of a step of the stream, and of what is assigned at a time.
_BATCH = 4096
# Starts of k-means, of which the better counts.
_STARTS = 2


@dataclass(frozen=True, eq=False)
class Partition:
    """Rows in clusters.

    Attributes:
        labels: [m] the cluster of each row, the largest being 0; -1 for rows that belong to none.
        centres: [k, d] of length one.
        cosine: [m] of each row with the centre of its cluster, or with the nearest one if it belongs to none.
    """

    labels: NDArray[np.int64]
    centres: FloatArray
    cosine: NDArray[np.float32]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows of each cluster [k]."""
        return np.bincount(self.labels[self.labels >= 0], minlength=len(self.centres))


def kmeans_partition(U: FloatArray, clusters: int, *, seed: int = 0, progress: Progress = silent) -> Partition:
    """K-means on rows U [m, d] of length one; the centres are scaled to length one, so that the cosine decides.

    Up to 10,000 rows it is scikit-learn's KMeans, the better of two starts. Of more rows a sample that large is
    clustered in this way, and MiniBatchKMeans takes its centres on through all rows in random order of batches
    (`partial_fit`): memory for a sample and a batch, however many rows there are.

    Raises:
        MissingError: scikit-learn is not installed.
        InputError: there are fewer distinct rows than clusters.
    """
    check_whole("clusters", clusters, 1)
    check_whole("seed", seed, 0)
    learn = _library()
    random = np.random.default_rng(seed)
    sample = np.sort(random.choice(len(U), min(len(U), _SAMPLE), replace=False))
    rows = np.asarray(U[sample])
    if clusters > len(rows) or clusters > len(np.unique(rows, axis=0)):
        raise InputError(f"there are fewer than {clusters} different vectors: ask for fewer clusters")
    progress("k-means", 0, len(U))
    centres = learn.KMeans(clusters, n_init=_STARTS, random_state=seed).fit(rows).cluster_centers_
    if len(U) > len(sample):
        # The sample goes first, so that its centres have the weight of its rows: a file may be sorted, and a batch of
        # one subject must not move them all. Nor is a centre thrown away because a batch has no use for it.
        stream = learn.MiniBatchKMeans(clusters, init=centres, n_init=1, reassignment_ratio=0, random_state=seed)
        stream.partial_fit(rows)
        done = 0
        for start in random.permutation(np.arange(0, len(U), _BATCH)).tolist():
            batch = np.asarray(U[start : start + _BATCH])
            stream.partial_fit(batch)
            done += len(batch)
            progress("k-means", done, len(U))
        centres = stream.cluster_centers_
    progress("k-means", len(U), len(U))
    return _largest_first(U, unit_rows(centres.astype(np.float32)), None)


def density_partition(U: FloatArray, *, least: int = 5, progress: Progress = silent) -> Partition:
    """HDBSCAN on rows U [m, d] of length one: dense regions of `least` rows and more; the rest belongs to none.

    Raises:
        MissingError: scikit-learn is not installed.
        InputError: there are more than 20,000 rows.
    """
    check_whole("least", least, 2)
    if len(U) > MOST_DENSITY:
        raise InputError(f"hdbscan takes at most {MOST_DENSITY} sentences, not {len(U)}: use kmeans")
    if len(U) < 2 * least:
        raise InputError(f"{len(U)} sentences have no two clusters of {least}: ask for smaller ones, or use kmeans")
    learn = _library()
    progress("hdbscan", 0, len(U))
    labels = learn.HDBSCAN(min_cluster_size=least, copy=True).fit(np.asarray(U)).labels_.astype(np.int64)
    progress("hdbscan", len(U), len(U))
    found = int(labels.max()) + 1
    sums = np.zeros((found, U.shape[1]), np.float64)
    np.add.at(sums, labels[labels >= 0], U[labels >= 0])
    return _largest_first(U, unit_rows(sums.astype(np.float32)), labels)


def _largest_first(U: FloatArray, centres: FloatArray, labels: NDArray[np.int64] | None) -> Partition:
    """The partition with its clusters in the order of their sizes; labels of None means by the nearest centre."""
    cosine = np.zeros(len(U), np.float32)
    nearest = np.empty(len(U), np.int64)
    for start in range(0, len(U), _BATCH):
        if not len(centres):
            break
        C = np.asarray(U[start : start + _BATCH]) @ centres.T
        to = slice(start, start + len(C))
        nearest[to] = C.argmax(axis=1)
        own = nearest[to] if labels is None else np.where(labels[to] >= 0, labels[to], nearest[to])
        cosine[to] = C[np.arange(len(C)), own]
    labels = nearest if labels is None else labels
    sizes = np.bincount(labels[labels >= 0], minlength=len(centres))
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]  # after the centres are scaled one may be nearest to nothing
    number = np.full(len(centres) + 1, -1, np.int64)  # the last one is for the label -1
    number[order] = np.arange(len(order))
    return Partition(number[labels], centres[order], np.minimum(cosine, 1))


def _library() -> Any:  # noqa: ANN401 - a module
    return import_extra("sklearn.cluster", "cluster", "clustering")
