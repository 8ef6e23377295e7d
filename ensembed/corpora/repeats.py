"""Which rows are equal, found by sorting, in little memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Rows compared at a time when repetitions are looked for: bounds the copies, which would be of the whole corpus.
_BLOCK = 1 << 16


def group(digests: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The order [n] that brings equal rows [n, 2] together, and where [n] in it another group starts."""
    order = np.lexsort(digests.T)
    starts = np.ones(len(order), bool)
    for begin in range(1, len(order), _BLOCK):
        ordered = digests[order[begin - 1 : begin + _BLOCK]]
        starts[begin : begin + _BLOCK] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return order, starts


def first_rows(order: NDArray[np.int64], starts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For every row the first equal row [n]; the sort is stable, so a group starts with its first row."""
    leaders = order[starts]
    group = np.cumsum(starts)
    first = np.empty(len(order), np.int64)
    for begin in range(0, len(order), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        first[order[block]] = leaders[group[block] - 1]
    return first
