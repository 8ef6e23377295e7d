"""How many clusters there are, without labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ensembed.encoders.base import FloatArray
from ensembed.errors import InputError
from ensembed.search.groups.partition import kmeans_partition
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress, silent

CANDIDATES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of clusters that are tried: a finer choice would be noise."""

LEAST_ROWS = 12
"""Fewer rows have no clusters to speak of."""

# Rows that the candidates are tried on: silhouettes look at all pairs.
_SAMPLE = 2000
# Rows per cluster, on average and at the least.
_PER_CLUSTER = 5


def choose_number(
    U: FloatArray, *, candidates: Sequence[int] = CANDIDATES, seed: int = 0, progress: Progress = silent
) -> tuple[int, dict[int, float]]:
    """The number of clusters of rows U [m, d] of length one, and the silhouette of every number that was tried.

    A row's silhouette is how much nearer it is (by cosine) to its own cluster than to the next one, as a part of the
    larger distance (Rousseeuw 1987). The number with the largest mean over a sample of up to 2,000 rows is taken.

    Raises:
        InputError: there are fewer than 12 rows: say how many clusters you want.
    """
    metrics = import_extra("sklearn.metrics", "cluster", "choosing the number of clusters")
    if len(U) < LEAST_ROWS:
        raise InputError(
            f"{len(U)} distinct sentences are too few to find out how many clusters there are: say so (--clusters)"
        )
    sample = np.sort(np.random.default_rng(seed).choice(len(U), min(len(U), _SAMPLE), replace=False))
    rows = np.asarray(U[sample])
    tried = [k for k in candidates if k * _PER_CLUSTER <= len(rows)] or [2]
    distances = np.maximum(1 - rows @ rows.T, 0)
    np.fill_diagonal(distances, 0)
    scores = {}
    for done, k in enumerate(tried, 1):
        labels = kmeans_partition(rows, k, seed=seed).labels
        if len(np.unique(labels)) > 1:
            scores[k] = float(metrics.silhouette_score(distances, labels, metric="precomputed"))
        progress("clusters", done, len(tried))
    if not scores:
        raise InputError("the sentences cannot be told apart: there is one cluster")
    return max(scores, key=lambda k: scores[k]), scores
