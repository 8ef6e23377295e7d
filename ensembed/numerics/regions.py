"""Regions of a space of directions: spherical k-means, with a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError

_ITERATIONS = 20  # regions need not be perfect


def find_regions(X: NDArray[Any], count: int, seed: int = 0) -> NDArray[np.float64]:
    """Return the centres [count, d], of length one, of regions of the rows X [n, d] of length one (spherical k-means).

    Raises:
        InputError: there are fewer rows than regions.
    """
    if not 1 <= count <= len(X):
        raise InputError(f"{len(X)} rows cannot be divided into {count} regions")
    centres = X[np.random.default_rng(seed).choice(len(X), count, replace=False)].astype(np.float64)
    before = None
    for _ in range(_ITERATIONS if count > 1 else 1):
        nearest = nearest_region(X, centres)
        if before is not None and np.array_equal(before, nearest):
            break
        before = nearest
        for k in range(count):
            own = X[nearest == k]
            if len(own):  # a region that lost all rows keeps its centre
                total = own.sum(axis=0, dtype=np.float64)
                centres[k] = total / max(np.linalg.norm(total), 1e-12)
    return centres


def nearest_region(X: NDArray[Any], centres: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number [n] of the region of every row, the one of the largest cosine with its centre."""
    return np.asarray(np.argmax(X @ centres.T.astype(X.dtype), axis=1))
