"""How members' cosines of near sentences agree: which members are mute, which are copies, and their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from ensembed.errors import ViewError
from ensembed.reliability.lexical import Lexical
from ensembed.support.progress import Progress

Matrix64 = NDArray[np.float64]
Pairs = NDArray[np.int64]

MUTE = 0.1
"""Members that agree less than this with all others, and with the words, over near and random pairs, are mute."""
SAME = 0.99
"""Members that agree more than this are copies."""

# Rows of length one that vary less than this, squared, are all the same but for rounding.
_LEAST_VARIANCE = 1e-10
TRUST = 0.95
"""The assumed correlation of the best member's cosines with the truth. Chosen on STS-B dev; 0.97 does as well."""
LARGEST_TRUST = 0.985
"""The largest assumed correlation of any other member's."""
LARGEST_WEIGHT = 0.5
"""The largest weight of another member beside the best, as if the cosines of both had the same spread."""
LEAST_WEIGHT = 0.005
"""Members of less weight are left out: they change nothing, and encoding costs the same."""
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
        owner: [p] the first query, by place, that has the pair: pairs of a query are not independent.
    """

    pairs: Pairs
    owner: NDArray[np.int64]


def nearest(X: Matrix64, queries: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return the k nearest rows [q, k] of the rows `queries` [q] of a view [n, d], by the cosine of centred rows."""
    centred = X - X.mean(axis=0)
    centred /= np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), np.finfo(float).tiny)
    Z = centred.astype(np.float32)
    neighbours = np.empty((len(queries), k), np.int64)
    size = max(1, _COSINES // len(Z))
    for start in range(0, len(queries), size):
        block = queries[start : start + size]
        S = Z[block] @ Z.T
        S[np.arange(len(block)), block] = -np.inf
        neighbours[start : start + size] = np.argpartition(-S, k - 1, axis=1)[:, :k]
    return neighbours


def near_pairs(near: Sequence[NDArray[np.int64]], queries: NDArray[np.int64], n: int) -> NearPairs:
    """Return the union of several members' neighbours [q, k] of the same queries [q] among n rows."""
    places = np.arange(len(queries))[:, None]
    # Row, row and query as one number: sorted, a pair's first query comes first, in whatever order the members are.
    keys = []
    for rows in near:
        low, high = np.minimum(queries[:, None], rows), np.maximum(queries[:, None], rows)
        keys.append(((low * n + high) * len(queries) + places).ravel())
    numbers, owner = np.divmod(np.unique(np.concatenate(keys)), len(queries))
    first = np.r_[True, numbers[1:] != numbers[:-1]]
    return NearPairs(np.stack(np.divmod(numbers[first], n), axis=1), owner[first])


def cosines(views: Sequence[Matrix64], pairs: Pairs) -> Matrix64:
    """Return the cosines [J, p] of pairs [p, 2] under each view [n, d_j] of rows of length one."""
    result = np.empty((len(views), len(pairs)))
    for start in range(0, len(pairs), _PAIRS):
        block = pairs[start : start + _PAIRS]
        for j, X in enumerate(views):
            result[j, start : start + _PAIRS] = np.einsum("ij,ij->i", X[block[:, 0]], X[block[:, 1]])
    return result


def correlations(C: Matrix64, owner: NDArray[np.int64], counts: Matrix64) -> tuple[Matrix64, Matrix64]:
    """Return correlation [b, J, J] and standard deviation [b, J] of cosines C [J, p] in b bootstrap samples.

    Args:
        C: the members' cosines of pairs.
        owner: [p] the query that a pair belongs to.
        counts: [b, q] how often each query counts.
    """
    J, q = len(C), counts.shape[1]
    C = C - C.mean(axis=1, keepdims=True)  # reduces rounding errors
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


def weights(best: int, r: Matrix64, spread: Matrix64, level: float, R: Matrix64) -> Matrix64:
    """Return the weights [J] of the members' cosines, 1 for the best.

    If errors were independent, and the best member's cosines correlated with the truth by a, another's would correlate
    with it by r / a, r being their agreement; and a / (1 - a^2) is the weight of a cosine of spread 1 in the best sum.

    - Agreement is that over pairs whose cosines are spread as in text with near and far sentences (`SPREAD`), by the
      regression of a member's cosines on the best one's, which does not depend on the range (Thorndike 1949, case 2).
    - No other counts more than `LARGEST_WEIGHT`; a member that knows less of the best than the best of it counts less.
    - Members that err alike share: what two of them say beyond the best counts once.
    - A member whose cosines lie close together needs a larger factor: all are divided by their spread.

    Args:
        best: the place of the best member.
        r: [J, J] how the members' cosines correlate over pairs that are near under the best.
        spread: [J] the standard deviation of these cosines.
        level: the mean cosine of unrelated sentences under the best member.
        R: [J, J] the part of member j that member i predicts.

    Example:
        >>> r = np.array([[1.0, 0.8, 0.3, 0.0], [0.8, 1.0, 0.24, 0.0], [0.3, 0.24, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
        >>> R = np.ones((4, 4))
        >>> R[:, 0] = [1.0, 0.9, 0.5, 1.0]
        >>> weights(0, r, np.array([0.2, 0.2, 0.1, 0.2]), 0.0, R).round(3)
        array([1.   , 0.241, 0.018, 0.   ])
    """
    if spread[best] <= 0:
        return np.where(np.arange(len(spread)) == best, 1.0, 0.0)
    wider = max(1.0, SPREAD * (1.0 - level) / float(spread[best]))
    own = np.clip(r[best], -1.0, 1.0)
    grown = np.sqrt(1 + np.square(own) * (wider**2 - 1))
    trust = np.minimum(np.maximum(own * wider / grown, 0.0) / TRUST, LARGEST_TRUST)
    odds = (trust / (1 - np.square(trust))) / (TRUST / (1 - TRUST**2))
    # How much of the best a member predicts, in parts of what the best predicts of it.
    of_best, by_best = np.maximum(R[:, best], 0.0), np.maximum(R[best], 0.0)
    known = of_best / np.maximum(np.maximum(of_best, by_best), np.finfo(float).tiny)
    weight = np.minimum(LARGEST_WEIGHT, odds) * np.square(known)
    # How many members, each included itself, say what a member says beyond the best.
    left = np.sqrt(np.maximum(1 - np.square(own), np.finfo(float).eps))
    partial = np.clip((r - np.outer(own, own)) / np.outer(left, left), 0.0, 1.0)
    partial[best] = partial[:, best] = 0.0
    np.fill_diagonal(partial, 1.0)
    weight = np.where(weight < LEAST_WEIGHT, 0.0, weight / np.square(partial).sum(axis=1))
    weight[best] = 1.0
    return np.where(spread > 0, weight * spread[best] * wider / np.where(spread > 0, spread * grown, 1.0), 0.0)


@dataclass(frozen=True, eq=False)
class Near:
    """The neighbours [q, k] of query rows [q] under each member that tells sentences apart."""

    queries: NDArray[np.int64]
    neighbours: dict[int, NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Roles:
    """Which members are used.

    Attributes:
        live: the members that are not mute.
        copies: for each of all members the first that says the same.
        known: whether anything tells which member to trust.
    """

    live: list[int]
    copies: list[int]
    known: bool


def near_sentences(vectors: Sequence[Matrix64], queries: NDArray[np.int64], k: int, progress: Progress) -> Near:
    """Return the k neighbours of the rows `queries` under every member that tells sentences apart.

    Raises:
        ViewError: none does.
    """
    varied = [j for j, X in enumerate(vectors) if np.square(X - X.mean(axis=0)).sum(axis=1).mean() > _LEAST_VARIANCE]
    if not varied:
        raise ViewError(f"none of the {len(vectors)} views tells any two of {len(vectors[0])} sentences apart")
    neighbours = {}
    for j in varied:
        neighbours[j] = nearest(vectors[j], queries, k)
        progress("near sentences", len(neighbours), len(varied))
    return Near(queries, neighbours)


def roles_of(near: Near, vectors: Sequence[Matrix64], lexical: Lexical | None, rng: np.random.Generator) -> Roles:
    """Return which members are mute and which are copies.

    Copies show in near pairs. Mute members need random pairs, too: on near ones alone weak members seem to disagree.
    """
    varied = list(near.neighbours)
    n, size, q = len(vectors[0]), len(varied), len(near.queries)
    pairs = near_pairs(list(near.neighbours.values()), near.queries, n)
    others = np.stack([rng.integers(0, n, len(pairs.pairs)), near.queries[pairs.owner]], axis=1)
    mixed = np.vstack([pairs.pairs, others[others[:, 0] != others[:, 1]]])
    owner = np.concatenate([pairs.owner, pairs.owner[others[:, 0] != others[:, 1]]])
    C = cosines([vectors[j] for j in varied], mixed)
    [same], _ = correlations(C[:, : len(pairs.pairs)], pairs.owner, np.ones((1, q)))
    first: list[int] = []
    for k in range(size):
        # The first of a chain of copies.
        like = next((i for i in range(k) if same[i, k] > SAME), None)
        first.append(k if like is None else first[like])
    if lexical is not None:
        C = np.vstack([C, lexical.cosines(mixed)])
    [r], _ = correlations(C, owner, np.ones((1, q)))
    # A member that agrees with the words, or with a member that does, is not mute; the words are the last row.
    _, group = connected_components(r > MUTE, directed=False)
    heard = group[:size] == group[-1] if lexical is not None else np.zeros(size, bool)
    known = bool(heard.any()) or size == 1
    if not known:
        # Otherwise the largest group of agreeing members is used. A copy confirms nothing and does not count.
        voices = np.bincount([group[k] for k in range(size) if first[k] == k], minlength=int(group.max()) + 1)
        known = voices.max() > 1 and np.count_nonzero(voices == voices.max()) == 1
        heard = group[:size] == voices.argmax()
    # Where nothing tells which member to trust, all are used.
    live = [j for j, used in zip(varied, heard, strict=True) if used or not known or size == 1]
    copies = list(range(len(vectors)))
    for k, j in enumerate(varied):
        if j in live:
            copies[j] = varied[first[k]]
    return Roles(live, copies, known)
