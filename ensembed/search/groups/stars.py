"""Groups that do not chain: every row is near the one that stands for its group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import FloatArray
from ensembed.support.progress import Progress, silent

# Rows and columns of a tile of cosines: 16 MB, large enough for BLAS to be at its best.
_TILE = 2048


def star_groups(
    U: FloatArray, threshold: float, *, progress: Progress = silent
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Put every row of U [m, d], all of length one or zero, into a group around a row that stands for it.

    The rows are gone through in their order. One that no earlier representative is near becomes a representative
    itself; any other belongs to the representative that is nearest to it, earlier or later. So no two representatives
    have a cosine of the threshold or more, and every other row has one with its own. Connected components would promise
    neither: sentences that are alike two by two make chains whose ends have nothing in common.

    Exact, in tiles of cosines: memory for two tiles beside the rows, whatever their number; time for the product of the
    rows with the representatives.

    Returns:
        For every row the row that stands for it [m] (for itself, if it is alone), and the cosine with that [m].

    Example:
        >>> U = np.array([[1, 0], [0.8, 0.6], [0.26, 0.966]], np.float32)  # along the chain: 0.80 and 0.79
        >>> star_groups(U, 0.75)[0]
        array([0, 0, 2])
    """
    leads = _representatives(U, threshold, progress)
    of = np.arange(len(U))
    cosine = np.ones(len(U), np.float32)
    others, leaders = np.flatnonzero(~leads), np.flatnonzero(leads)
    for start in range(0, len(others), _TILE):
        rows = others[start : start + _TILE]
        of[rows], cosine[rows] = _nearest(U, rows, leaders)
        progress("groups", start + len(rows), len(others))
    return of, cosine


def _representatives(U: FloatArray, threshold: float, progress: Progress) -> NDArray[np.bool_]:
    """Which rows [m] stand for a group: those that are near none of the representatives before them."""
    leads = np.zeros(len(U), bool)
    for start in range(0, len(U), _TILE):
        free = np.arange(start, min(start + _TILE, len(U)))
        for earlier in range(0, start, _TILE):
            leaders = earlier + np.flatnonzero(leads[earlier : earlier + _TILE])
            if len(leaders) and len(free):
                free = free[(U[free] @ U[leaders].T).max(axis=1) < threshold]
        near = np.triu(U[free] @ U[free].T >= threshold, 1)
        taken = np.zeros(len(free), bool)
        for i in np.flatnonzero(near.any(axis=1)):  # most rows are near none: they need no look
            if not taken[i]:
                taken |= near[i]
        leads[free[~taken]] = True
        progress("duplicates", min(start + _TILE, len(U)), len(U))
    return leads


def _nearest(
    U: FloatArray, rows: NDArray[np.int64], leaders: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The nearest leader of each row, the first of equally near ones, and the cosine with it."""
    own = U[rows]
    best = np.full(len(rows), -np.inf, np.float32)
    of = np.empty(len(rows), np.int64)
    for start in range(0, len(leaders), _TILE):
        some = leaders[start : start + _TILE]
        C = own @ U[some].T
        column = C.argmax(axis=1)
        value = C[np.arange(len(rows)), column]
        better = value > best
        best[better], of[better] = value[better], some[column[better]]
    return of, np.minimum(best, 1)  # rounding alone makes a cosine larger than one
