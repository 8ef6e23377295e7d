"""How members' cosines of near sentences agree, and the weights that follow.

Of random pairs, which are unrelated, all encoders say so, good or bad. It is among near sentences that they differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix64 = NDArray[np.float64]
Pairs = NDArray[np.int64]

TRUST = 0.95
"""What the best member's cosines are taken to correlate with the truth: no label-free figure shows it.

Chosen on STS-B dev; 0.97 does as well."""
LARGEST_TRUST = 0.985
"""The most that any other member's are taken to."""
LARGEST_WEIGHT = 0.5
"""The most that another member counts beside the best, both as if their cosines were spread alike."""

# Cosines in memory at a time: 32 MB.
_COSINES = 1 << 23
_PAIRS = 4096
# A spread of cosines below this is rounding.
_LEAST_SPREAD = 1e-7


@dataclass(frozen=True, eq=False)
class NearPairs:
    """Pairs of sentences that are near under some member.

    Attributes:
        pairs: [p, 2] row numbers, the smaller first, each pair once.
        owner: [p] the first of the query sentences, by place, that found it: pairs of a query are not independent.
    """

    pairs: Pairs
    owner: NDArray[np.int64]


def nearest(X: Matrix64, queries: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """The k nearest rows [q, k] of the rows `queries` [q] of a view [n, d], by the cosine of centred rows."""
    centred = X - X.mean(axis=0)
    centred /= np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), np.finfo(float).tiny)
    Z = centred.astype(np.float32)
    found = np.empty((len(queries), k), np.int64)
    size = max(1, _COSINES // len(Z))
    for start in range(0, len(queries), size):
        block = queries[start : start + size]
        S = Z[block] @ Z.T
        S[np.arange(len(block)), block] = -np.inf
        found[start : start + size] = np.argpartition(-S, k - 1, axis=1)[:, :k]
    return found


def near_pairs(near: Sequence[NDArray[np.int64]], queries: NDArray[np.int64], n: int) -> NearPairs:
    """The union of several members' neighbours [q, k] of the same queries [q] among n rows."""
    places = np.arange(len(queries))[:, None]
    # Row, row and query as one number: sorted, a pair's first query comes first, in whatever order the members are.
    keys = []
    for found in near:
        low, high = np.minimum(queries[:, None], found), np.maximum(queries[:, None], found)
        keys.append(((low * n + high) * len(queries) + places).ravel())
    numbers, owner = np.divmod(np.unique(np.concatenate(keys)), len(queries))
    first = np.r_[True, numbers[1:] != numbers[:-1]]
    return NearPairs(np.stack(np.divmod(numbers[first], n), axis=1), owner[first])


def cosines(views: Sequence[Matrix64], pairs: Pairs) -> Matrix64:
    """What each view [n, d_j] of rows of length one says about pairs [p, 2]: [J, p]."""
    found = np.empty((len(views), len(pairs)))
    for start in range(0, len(pairs), _PAIRS):
        block = pairs[start : start + _PAIRS]
        for j, X in enumerate(views):
            found[j, start : start + _PAIRS] = np.einsum("ij,ij->i", X[block[:, 0]], X[block[:, 1]])
    return found


def correlations(C: Matrix64, owner: NDArray[np.int64], counts: Matrix64) -> tuple[Matrix64, Matrix64]:
    """Correlation [b, J, J] and standard deviation [b, J] of cosines C [J, p], for b bootstrap samples at once.

    Args:
        C: the members' cosines of pairs.
        owner: [p] the query that a pair belongs to.
        counts: [b, q] how often each query counts.
    """
    J, q = len(C), counts.shape[1]
    C = C - C.mean(axis=1, keepdims=True)  # for the rounding alone
    total = counts @ np.bincount(owner, minlength=q)
    total = np.maximum(total, 1.0)
    mean = counts @ np.stack([np.bincount(owner, c, q) for c in C], axis=1) / total[:, None]
    products = np.stack([np.bincount(owner, C[i] * C[j], q) for i in range(J) for j in range(J)], axis=1)
    S = (counts @ products / total[:, None]).reshape(-1, J, J) - mean[:, :, None] * mean[:, None, :]
    sd = np.sqrt(np.maximum(S[:, np.arange(J), np.arange(J)], 0.0))
    sd = np.where(sd < _LEAST_SPREAD, 0.0, sd)
    scale = sd[:, :, None] * sd[:, None, :]
    r = np.where(scale > 0, S / np.where(scale > 0, scale, 1.0), 0.0)
    r[:, np.arange(J), np.arange(J)] = 1.0
    return np.clip(r, -1.0, 1.0), sd


def weights(best: int, agreement: Matrix64, spread: Matrix64) -> Matrix64:
    """What members' cosines count [J], 1 for the best.

    If errors were independent, and the best member's cosines correlated with the truth by a, another's would correlate
    with it by r / a, r being how the two agree; and a / (1 - a^2) is what a cosine of spread 1 counts in the best sum.
    Errors are not quite independent, so that no other counts more than `LARGEST_WEIGHT`. A member whose cosines lie
    close together needs a larger factor: all are divided by their spread.

    Args:
        best: the place of the best member.
        agreement: [J] of every member with the best.
        spread: [J] the standard deviation of the members' cosines.

    Example:
        >>> weights(0, np.array([1.0, 0.8, 0.3, 0.0]), np.array([0.2, 0.2, 0.1, 0.2])).round(3)
        array([1.   , 0.297, 0.072, 0.   ])
    """
    trust = np.minimum(np.maximum(agreement, 0.0) / TRUST, LARGEST_TRUST)
    found = np.minimum(LARGEST_WEIGHT, _odds(trust) / _odds(np.array(TRUST)))
    found[best] = 1.0
    if spread[best] <= 0:
        return np.asarray(found)
    return np.where(spread > 0, found * spread[best] / np.where(spread > 0, spread, 1.0), 0.0)


def _odds(trust: Matrix64) -> Matrix64:
    return np.asarray(trust / (1 - np.square(trust)))
