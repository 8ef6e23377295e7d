"""How members' cosines of near sentences agree: which members are mute, which are copies, and their weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
LARGEST_WEIGHT = 0.7
"""The largest weight that agreement gives another member, as if the cosines of both had the same spread."""
SPREAD = 0.2
"""The spread of the best member's cosines over sentences near and far, in parts of the way from the cosine of unrelated
sentences to 1. Chosen on STS-B dev; over the pairs of STS-B it is 0.25 to 0.3."""
BELOW = 0.2
"""The weight by agreement falls by e to this power for every unit that a member stands below the best."""
EQUAL = 1.5
"""A member that stands as high as the best counts the same; e to this power times less for every unit below."""
LEAST_WEIGHT = 0.005
"""Members of less weight are left out: they change nothing, but encoding with them costs the same."""
# Cosines in memory at a time: 32 MB.
_COSINES = 1 << 23
_PAIRS = 4096
# Random pairs of every query.
_RANDOM = 5
# A spread of cosines below this is rounding.
_LEAST_SPREAD = 1e-7


@dataclass(frozen=True, eq=False)
class NearPairs:
    """Pairs of sentences that are near under some member.

    Attributes:
        pairs: [p, 2] row numbers, the smaller first, each pair once.
        owner: [p] the first query, by place, that has the pair: pairs of a query are not independent.
        near: the number of pairs that are near, which come first; the others are random.
    """

    pairs: Pairs
    owner: NDArray[np.int64]
    near: int


@dataclass(frozen=True, eq=False)
class Near:
    """The neighbours [q, k] of query rows [q], of n rows, under each member that tells sentences apart."""

    queries: NDArray[np.int64]
    neighbours: dict[int, NDArray[np.int64]]
    n: int


def near_pairs(near: Near, members: Iterable[int], rng: np.random.Generator | None = None) -> NearPairs:
    """Return the pairs of queries and their neighbours, and random pairs if there is a generator for them.

    Args:
        near: the neighbours of the queries.
        members: those under which pairs are near.
        rng: draws, for each query, as many random pairs as it has neighbours of one member: text has near and far ones.
    """
    queries, n = near.queries, near.n
    places = np.arange(len(queries))[:, None]
    # Row, row and query as one number: sorted, a pair's first query comes first, in whatever order the members are.
    keys = []
    for rows in map(near.neighbours.__getitem__, members):
        low, high = np.minimum(queries[:, None], rows), np.maximum(queries[:, None], rows)
        keys.append(((low * n + high) * len(queries) + places).ravel())
    numbers, owner = np.divmod(np.unique(np.concatenate(keys)), len(queries))
    first = np.r_[True, numbers[1:] != numbers[:-1]]
    near_rows, owner = np.stack(np.divmod(numbers[first], n), axis=1), owner[first]
    if rng is None:
        return NearPairs(near_rows, owner, len(owner))
    others = np.tile(np.arange(len(queries)), _RANDOM)
    random = np.stack([rng.integers(0, n, len(others)), queries[others]], axis=1)
    distinct = random[:, 0] != random[:, 1]
    owners = np.concatenate([owner, others[distinct]])
    return NearPairs(np.vstack([near_rows, random[distinct]]), owners, len(owner))


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


def dependence(X: Matrix64, lexical: Lexical, pairs: NearPairs) -> tuple[float, float]:
    """Return how far a member's cosines depend on words and on lengths.

    Args:
        X: [n, d] its vectors, of length one.
        lexical: the sentences.
        pairs: those that are near under the member, and random ones.

    Returns:
        The correlation of its cosines with those of the words, and by which part the lengths of near sentences differ
        less than those of random ones.
    """
    both = np.vstack([cosines([X], pairs.pairs), lexical.cosines(pairs.pairs)])
    [r], _ = correlations(both, np.zeros(len(pairs.pairs), np.int64), np.ones((1, 1)))
    gaps = np.abs(np.subtract(*lexical.lengths[pairs.pairs].T))
    random = gaps[pairs.near :].mean()
    return float(r[0, 1]), float(1 - gaps[: pairs.near].mean() / random) if random > 0 else 0.0


def weight_factors(best: int, standing: Matrix64, r: Matrix64, spread: Matrix64, level: float) -> Matrix64:
    """Return the factors [J, 3] whose products are the weights of the members' cosines, all 1 for the best.

    - Trust is the larger of two. One is by agreement: if errors were independent, and the best member's cosines
      correlated with the truth by a, another's would correlate with it by r / a, and a / (1 - a^2) is the weight of a
      cosine of spread 1 in the best sum; it falls slowly with standing, and is at most `LARGEST_WEIGHT`. The other is
      1 for a member that stands as high as the best, and falls fast: members that cannot be told apart count the same,
      which risks the smallest loss.
    - Own: members with the same errors share a weight; what two of them say beyond the best counts once.
    - Spread: a member whose cosines lie close together needs a larger factor.

    Agreement and spread are those over pairs whose cosines are spread as in text with near and far sentences
    (`SPREAD`), by the regression of a member's cosines on the best one's, which does not depend on the range (Thorndike
    1949, case 2).

    Args:
        best: the place of the best member.
        standing: [J] how far the best stands above each member (`ensembed.reliability.sufficiency.standing_parts`).
        r: [J, J] how the members' cosines correlate over pairs that are near under the best.
        spread: [J] the standard deviation of these cosines.
        level: the mean cosine of unrelated sentences under the best member.

    Example:
        >>> r = np.array([[1.0, 0.8, 0.3, 0.0], [0.8, 1.0, 0.24, 0.0], [0.3, 0.24, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
        >>> spread = np.array([0.2, 0.2, 0.1, 0.2])
        >>> weight_factors(0, np.array([0.0, 0.2, 3.0, 8.0]), r, spread, 0.0).prod(axis=1).round(3)
        array([1.   , 0.741, 0.04 , 0.   ])
    """
    if spread[best] <= 0:
        return np.repeat(np.where(np.arange(len(spread)) == best, 1.0, 0.0)[:, None], 3, axis=1)
    wider = max(1.0, SPREAD * (1.0 - level) / float(spread[best]))
    with_best = np.clip(r[best], -1.0, 1.0)
    grown = np.sqrt(1 + np.square(with_best) * (wider**2 - 1))
    truth = np.minimum(np.maximum(with_best * wider / grown, 0.0) / TRUST, LARGEST_TRUST)
    odds = (truth / (1 - np.square(truth))) / (TRUST / (1 - TRUST**2))
    below = np.maximum(standing, 0.0)
    trust = np.maximum(np.minimum(odds, LARGEST_WEIGHT) * np.exp(-BELOW * below), np.exp(-EQUAL * below))
    trust = np.where(trust < LEAST_WEIGHT, 0.0, trust)
    # How many members say what a member says beyond the best, the member itself included.
    left = np.sqrt(np.maximum(1 - np.square(with_best), np.finfo(float).eps))
    partial = np.clip((r - np.outer(with_best, with_best)) / np.outer(left, left), 0.0, 1.0)
    partial[best] = partial[:, best] = 0.0
    np.fill_diagonal(partial, 1.0)
    narrow = np.where(spread > 0, spread[best] * wider / np.where(spread > 0, spread * grown, 1.0), 0.0)
    factors = np.stack([trust, 1 / np.square(partial).sum(axis=1), narrow], axis=1)
    factors[best] = 1.0
    return factors


@dataclass(frozen=True, eq=False)
class Roles:
    """Which members are used.

    Attributes:
        live: the members that are not mute.
        copies: for each of all members the first that says the same.
        known: whether anything tells which member to trust.
        distinct: the live members that are no copies of another.
        place: for each of all members its place, or that of the one it copies, in `distinct`; behind the last for a
            mute one.
    """

    live: list[int]
    copies: list[int]
    known: bool
    distinct: list[int]
    place: list[int]

    def for_all(self, values: Matrix64, axes: int = 1) -> Matrix64:
        """Return values of the distinct members [..., D] as those of all members [..., J], 0 for mute ones.

        With 2 `axes` they are values of pairs of members [..., D, D].
        """
        values = np.pad(values, [*[(0, 0)] * (values.ndim - axes), *[(0, 1)] * axes])
        return values[..., self.place] if axes == 1 else values[..., self.place, :][..., self.place]


def near_sentences(vectors: Sequence[Matrix64], queries: NDArray[np.int64], k: int, progress: Progress) -> Near:
    """Return the k nearest rows of the rows `queries` under every member that tells sentences apart.

    They are nearest by the cosine of centred rows.

    Raises:
        ViewError: no member tells sentences apart.
    """
    varied = [j for j, X in enumerate(vectors) if np.square(X - X.mean(axis=0)).sum(axis=1).mean() > _LEAST_VARIANCE]
    if not varied:
        raise ViewError(f"none of the {len(vectors)} views tells any two of {len(vectors[0])} sentences apart")
    neighbours = {j: np.empty((len(queries), k), np.int64) for j in varied}
    for done, (j, rows) in enumerate(neighbours.items(), 1):
        centred = vectors[j] - vectors[j].mean(axis=0)
        centred /= np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), np.finfo(float).tiny)
        Z = centred.astype(np.float32)
        size = max(1, _COSINES // len(Z))
        for start in range(0, len(queries), size):
            block = queries[start : start + size]
            S = Z[block] @ Z.T
            S[np.arange(len(block)), block] = -np.inf
            rows[start : start + size] = np.argpartition(-S, k - 1, axis=1)[:, :k]
        progress("near sentences", done, len(varied))
    return Near(queries, neighbours, len(vectors[0]))


def roles_of(near: Near, vectors: Sequence[Matrix64], lexical: Lexical | None, rng: np.random.Generator) -> Roles:
    """Return which members are mute and which are copies.

    Copies are recognised by near pairs. Mute members need random pairs as well: on near pairs alone weak members seem
    to disagree.
    """
    varied = list(near.neighbours)
    size, q = len(varied), len(near.queries)
    pairs = near_pairs(near, varied)
    others = np.stack([rng.integers(0, near.n, len(pairs.pairs)), near.queries[pairs.owner]], axis=1)
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
    distinct = [j for j in live if copies[j] == j]
    place = [distinct.index(copies[j]) if j in live else len(distinct) for j in range(len(vectors))]
    return Roles(live, copies, known, distinct, place)
