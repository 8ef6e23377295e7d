"""How similar texts are under each member and under the model, and where the members disagree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from typing_extensions import TypedDict

from ensembed.numerics.row_matrices import unit_rows

_MOST_PAIRS = 50
_DIGITS = 6


class MemberMatrix(TypedDict):
    """The cosines under one member."""

    name: str
    matrix: list[list[float]]


class Disagreement(TypedDict):
    """A pair of texts that members rank differently."""

    first: int
    second: int
    spread: float
    difference: float
    highest: str | None
    lowest: str | None


class SimilarityReply(TypedDict):
    """The cosines of the texts."""

    members: list[MemberMatrix]
    missing: list[str]
    meta: list[list[float]]
    disagreement: list[Disagreement]


def compare_texts(names: Sequence[str], views: Sequence[NDArray[Any] | None], meta: NDArray[Any]) -> SimilarityReply:
    """Return the cosines of n texts from the members' views [n, d_j] (None if one is down) and the model's [n, d]."""
    matrices = {name: _cosines(view) for name, view in zip(names, views, strict=True) if view is not None}
    return {
        "members": [{"name": name, "matrix": _rounded(matrix)} for name, matrix in matrices.items()],
        "missing": [name for name in names if name not in matrices],
        "meta": _rounded(_cosines(meta)),
        "disagreement": _disagreement(list(matrices), list(matrices.values())),
    }


def _cosines(X: NDArray[Any]) -> NDArray[np.float64]:
    """Return cosines that are exactly symmetric and within [-1, 1]."""
    Z = unit_rows(X.astype(np.float64))
    C = np.clip(Z @ Z.T, -1.0, 1.0)
    return np.asarray((C + C.T) / 2)


def _disagreement(names: Sequence[str], matrices: Sequence[NDArray[np.float64]]) -> list[Disagreement]:
    """Return the pairs of texts that members see most differently, those first.

    Members' cosines are not on one scale: 0.8 is little for some and much for others. So the pairs are ranked under
    each member, from 0 for the least similar to 1 for the most similar, and a pair's `spread` is its largest rank less
    its smallest. A single pair has no rank: its spread is 0, and the names follow the cosines. If nothing differs, no
    member is named.
    """
    if len(matrices) < 2 or len(matrices[0]) < 2:
        return []
    first, second = np.triu_indices(len(matrices[0]), 1)
    cosines = np.array([matrix[first, second] for matrix in matrices])
    ranks = (rankdata(cosines, axis=1) - 1) / max(len(first) - 1, 1)
    spread, difference = np.ptp(ranks, axis=0), np.ptp(cosines, axis=0)
    order = np.lexsort((-difference, -spread))[:_MOST_PAIRS]
    judged = ranks if len(first) > 1 else cosines
    differs = np.round(np.ptp(judged, axis=0), _DIGITS) > 0
    return [
        {
            "first": int(first[pair]),
            "second": int(second[pair]),
            "spread": round(float(spread[pair]), _DIGITS),
            "difference": round(float(difference[pair]), _DIGITS),
            "highest": names[int(judged[:, pair].argmax())] if differs[pair] else None,
            "lowest": names[int(judged[:, pair].argmin())] if differs[pair] else None,
        }
        for pair in order
    ]


def _rounded(matrix: NDArray[np.float64]) -> list[list[float]]:
    rows: list[list[float]] = np.round(matrix, _DIGITS).tolist()
    return rows
