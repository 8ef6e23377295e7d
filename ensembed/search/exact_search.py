"""Search by comparing a query with every row, or with every row's short code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import FloatArray
from ensembed.errors import DamagedIndexError
from ensembed.search.segments import Segment, Snapshot, encode_rows

# The places of the hits of a query, best first, and their cosines.
Ranking: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float64]]

_BLOCK = 16384  # rows that are compared at a time: a block and its scores stay in the processor's cache or near it
_SCORES = 1 << 24  # scores (queries times rows) that are in memory at a time
_ROUNDING = 1e-5  # above the rounding error of a product of float32 rows; rows this close to the last hit count


def search_all_rows(snapshot: Snapshot, queries: FloatArray, k: int) -> Iterator[Ranking]:
    """Yield the k nearest rows of every query [q, d]."""
    count = k * (1 if snapshot.manifest.settings.dtype == "float32" else snapshot.manifest.settings.rescore)
    for query, places in zip(queries, find_candidates(snapshot, queries, count), strict=True):
        yield rank(snapshot, query, places, k)


def find_candidates(snapshot: Snapshot, queries: FloatArray, count: int, first: int = 0) -> Iterator[NDArray[np.int64]]:
    """Yield the places from `first` on of the `count` nearest rows of every query, and of rows as near as the last."""
    total = int(snapshot.starts[-1]) - first
    live = snapshot.live[first:]
    step = max(1, _SCORES // max(1, total))
    for start in range(0, len(queries), step):
        for scores in _scores(snapshot, queries[start : start + step], first, total):
            scores[~live] = -np.inf
            chosen = live
            if count < total:
                least = np.partition(scores, total - count)[total - count]
                chosen = live & (scores >= least - _ROUNDING)
            yield np.flatnonzero(chosen) + first


def rank(snapshot: Snapshot, query: FloatArray, places: NDArray[np.int64], k: int) -> Ranking:
    """Return the k best of these ascending places, best first; equal rows have equal cosines and keep their order."""
    wide = query.astype(np.float64)
    cosines = np.empty(len(places))  # of each row alone and in double precision: they do not depend on other rows
    for start in range(0, len(places), _BLOCK):
        rows = snapshot.vectors(places[start : start + _BLOCK]).astype(np.float64)
        cosines[start : start + _BLOCK] = np.einsum("ij,j->i", rows, wide)
    if not np.isfinite(cosines).all():
        problem = "some of its vectors are not finite; `ensembed index --verify` says which file"
        raise DamagedIndexError(f"{snapshot.folder} is damaged: {problem}")
    cosines = np.clip(cosines, -1, 1)
    order = np.lexsort((places, -cosines))[:k]
    return places[order], cosines[order]


def _scores(snapshot: Snapshot, queries: FloatArray, first: int, total: int) -> FloatArray:
    """Return the scores [q, n - first] of all rows from place `first` on."""
    scores = np.empty((len(queries), total), np.float32)
    for segment, begin in zip(snapshot.segments, snapshot.starts.tolist(), strict=False):
        for lo in range(max(0, first - begin), segment.rows, _BLOCK):
            hi = min(lo + _BLOCK, segment.rows)
            block = _block_scores(segment, slice(lo, hi), queries, snapshot.manifest.settings.dtype)
            scores[:, begin + lo - first : begin + hi - first] = block
    return scores


def _block_scores(segment: Segment, rows: slice, queries: FloatArray, dtype: str) -> FloatArray:
    if dtype == "float32":
        return np.asarray(queries @ segment.vectors[rows].T)
    if dtype == "int8":
        return np.asarray((queries @ segment.codes[rows].astype(np.float32).T) * segment.scales[rows])
    scores = np.zeros((len(queries), rows.stop - rows.start), np.float32)
    for own, query in zip(scores, encode_rows(queries, "binary")[0], strict=True):
        for codes, word in zip(segment.codes[rows].T, query, strict=True):
            own -= _bit_count(codes ^ word)  # minus the number of bits that differ
    return scores


if hasattr(np, "bitwise_count"):
    _bit_count: Callable[[NDArray[np.uint64]], NDArray[np.uint8]] = np.bitwise_count
else:  # numpy 1.26
    _BITS = np.array([value.bit_count() for value in range(1 << 16)], np.uint8)

    def _bit_count(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
        parts = np.ascontiguousarray(words).view(np.uint16).reshape(len(words), 4)
        return np.asarray(_BITS[parts].sum(axis=1, dtype=np.uint8))
