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
LEAST_WEIGHT = 0.005
"""Members that would count less are left out: they change nothing, and encoding costs the same."""
SPREAD = 0.2
"""The spread of the best member's cosines over sentences near and far, in parts of the way from the cosine of unrelated
sentences to 1. Chosen on STS-B dev; over the pairs of STS-B it is 0.25 to 0.3."""

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


def weights(best: int, r: Matrix64, spread: Matrix64, level: float, known: Matrix64) -> Matrix64:
    """What members' cosines count [J], 1 for the best.

    If errors were independent, and the best member's cosines correlated with the truth by a, another's would correlate
    with it by r / a, r being how the two agree; and a / (1 - a^2) is what a cosine of spread 1 counts in the best sum.

    - Agreement is that over pairs whose best cosines are spread as widely as in text with near and far sentences
      (`SPREAD`). A corpus that has no near sentences shows it over a narrow range only; what is beyond follows from the
      regression of a member's cosines on the best one's, which does not depend on the range (Thorndike 1949, case 2).
    - Errors are not quite independent, so that no other counts more than `LARGEST_WEIGHT`, and a member that knows less
      of the best than the best of it counts less than it agrees.
    - Members that err alike share: what two of them say beyond the best counts once.
    - A member whose cosines lie close together needs a larger factor: all are divided by their spread.

    Args:
        best: the place of the best member.
        r: [J, J] how the members' cosines correlate over pairs that are near under the best.
        spread: [J] the standard deviation of these cosines.
        level: the best member's cosine of unrelated sentences.
        known: [J] how much of the best a member predicts, in parts of what the best predicts of it.

    Example:
        >>> r = np.array([[1.0, 0.8, 0.3, 0.0], [0.8, 1.0, 0.24, 0.0], [0.3, 0.24, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
        >>> weights(0, r, np.array([0.2, 0.2, 0.1, 0.2]), 0.0, np.array([1.0, 0.9, 0.5, 1.0])).round(3)
        array([1.   , 0.24 , 0.018, 0.   ])
    """
    if spread[best] <= 0:
        return np.where(np.arange(len(spread)) == best, 1.0, 0.0)
    wider = max(1.0, SPREAD * (1.0 - level) / float(spread[best]))
    own = np.clip(r[best], -1.0, 1.0)
    grown = np.sqrt(1 + np.square(own) * (wider**2 - 1))
    trust = np.minimum(np.maximum(own * wider / grown, 0.0) / TRUST, LARGEST_TRUST)
    found = np.minimum(LARGEST_WEIGHT, _odds(trust) / _odds(np.array(TRUST))) * np.square(known)
    found = np.where(found < LEAST_WEIGHT, 0.0, found / _company(best, r))
    found[best] = 1.0
    return np.where(spread > 0, found * spread[best] * wider / np.where(spread > 0, spread * grown, 1.0), 0.0)


def _company(best: int, r: Matrix64) -> Matrix64:
    """How many members [J] say what a member says beyond the best, itself among them."""
    own = np.clip(r[best], -1.0, 1.0)
    left = np.sqrt(np.maximum(1 - np.square(own), np.finfo(float).eps))
    partial = np.clip((r - np.outer(own, own)) / np.outer(left, left), 0.0, 1.0)
    partial[best] = partial[:, best] = 0.0
    np.fill_diagonal(partial, 1.0)
    return np.asarray(np.square(partial).sum(axis=1))


def _odds(trust: Matrix64) -> Matrix64:
    return np.asarray(trust / (1 - np.square(trust)))
