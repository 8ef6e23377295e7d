"""Who is listened to: which members say something, and which say the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from ensembed.errors import ViewError
from ensembed.reliability.agreement import correlations, cosines, near_pairs, nearest
from ensembed.reliability.lexical import Lexical
from ensembed.support.progress import Progress

Matrix64 = NDArray[np.float64]

MUTE = 0.1
"""Members that agree less than this with all others, and with the words, over near and random pairs, say nothing."""
SAME = 0.99
"""Members that agree more than this say the same."""

# Rows of length one that vary less than this, squared, are all the same but for rounding.
_LEAST_VARIANCE = 1e-10


@dataclass(frozen=True, eq=False)
class Near:
    """The neighbours [q, k] of query rows [q] under each member that tells sentences apart."""

    queries: NDArray[np.int64]
    found: dict[int, NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Roles:
    """Who is listened to.

    Attributes:
        live: the members that say something.
        copies: for each of all members the first that says the same.
        known: whether anything tells which to believe.
    """

    live: list[int]
    copies: list[int]
    known: bool


def near_sentences(vectors: Sequence[Matrix64], queries: NDArray[np.int64], k: int, progress: Progress) -> Near:
    """The k neighbours of the rows `queries` under every member that tells sentences apart.

    Raises:
        ViewError: none does.
    """
    varied = [j for j, X in enumerate(vectors) if np.square(X - X.mean(axis=0)).sum(axis=1).mean() > _LEAST_VARIANCE]
    if not varied:
        raise ViewError(f"none of the {len(vectors)} views tells any two of {len(vectors[0])} sentences apart")
    found = {}
    for j in varied:
        found[j] = nearest(vectors[j], queries, k)
        progress("near sentences", len(found), len(varied))
    return Near(queries, found)


def roles_of(near: Near, vectors: Sequence[Matrix64], lexical: Lexical | None, rng: np.random.Generator) -> Roles:
    """Find out who says something, and who says the same.

    Who says the same as another is seen among near pairs. Who says something is seen with as many random pairs beside
    them: pairs that are there because one member errs are low for the others, so that weak members seem to disagree.
    """
    varied = list(near.found)
    n, size, q = len(vectors[0]), len(varied), len(near.queries)
    pairs = near_pairs(list(near.found.values()), near.queries, n)
    others = np.stack([rng.integers(0, n, len(pairs.pairs)), near.queries[pairs.owner]], axis=1)
    mixed = np.vstack([pairs.pairs, others[others[:, 0] != others[:, 1]]])
    owner = np.concatenate([pairs.owner, pairs.owner[others[:, 0] != others[:, 1]]])
    C = cosines([vectors[j] for j in varied], mixed)
    [same], _ = correlations(C[:, : len(pairs.pairs)], pairs.owner, np.ones((1, q)))
    first: list[int] = []
    for k in range(size):
        # The first of a chain, where each says the same as the next.
        like = next((i for i in range(k) if same[i, k] > SAME), None)
        first.append(k if like is None else first[like])
    if lexical is not None:
        C = np.vstack([C, lexical.cosines(mixed)])
    [r], _ = correlations(C, owner, np.ones((1, q)))
    # Who agrees with the words, or with somebody who does, says something; the words are the last row.
    _, group = connected_components(r > MUTE, directed=False)
    heard = group[:size] == group[-1] if lexical is not None else np.zeros(size, bool)
    known = bool(heard.any()) or size == 1
    if not known:
        # Else those say something who agree with the most others. A copy is no other: it confirms nothing.
        voices = np.bincount([group[k] for k in range(size) if first[k] == k], minlength=int(group.max()) + 1)
        known = voices.max() > 1 and np.count_nonzero(voices == voices.max()) == 1
        heard = group[:size] == voices.argmax()
    # A member that neither another nor the words confirm is no more to be believed than any other.
    live = [j for j, one in zip(varied, heard, strict=True) if one or not known or size == 1]
    copies = list(range(len(vectors)))
    for k, j in enumerate(varied):
        if j in live:
            copies[j] = varied[first[k]]
    return Roles(live, copies, known)
