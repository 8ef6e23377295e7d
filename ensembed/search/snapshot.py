"""An index as it was when it was opened: what is searched. It does not change, whatever is written beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import DamagedIndexError
from ensembed.search.codes import differing_bits, encode_rows
from ensembed.search.manifest import WAY_OUT, Manifest, read_manifest
from ensembed.search.segment import Segment, id_hashes

FloatArray = NDArray[np.float32]

# Rows that are compared at a time, so that a block and its scores stay in the processor's cache or near it.
_BLOCK = 16384
# Scores that are in memory at a time: queries times rows.
_SCORES = 1 << 24
# A product of float32 rows is off by less than this; what is nearer to the last hit than that is scored again.
_ROUNDING = 1e-5


class Snapshot:
    """The segments of one manifest, open.

    A row's place is its number among all rows, deleted ones too; places are in the order of adding.
    """

    def __init__(self, folder: Path, manifest: Manifest, known: Mapping[str, Segment]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.segments = tuple(
            one if (one := known.get(facts.name)) and one.facts == facts else Segment(folder, facts, manifest)
            for facts in manifest.segments
        )
        self.starts = np.cumsum([0, *(segment.rows for segment in self.segments)])

    def __len__(self) -> int:
        return self.manifest.rows

    @cached_property
    def live(self) -> NDArray[np.bool_]:
        """For every place [n] whether the row is not deleted."""
        return np.concatenate([np.zeros(0, bool), *(segment.live for segment in self.segments)])

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """The key of every place [n], ascending."""
        return np.concatenate([np.zeros(0, np.int64), *(segment.keys for segment in self.segments)])

    def record(self, place: int) -> dict[str, Any]:
        """The id, text and metadata of a row."""
        segment, row = self._at(place)
        return segment.record(row)

    def vectors(self, places: NDArray[np.int64]) -> FloatArray:
        """The rows [m, d] at ascending places."""
        parts = [np.zeros((0, self.manifest.spec.dim), np.float32)]
        for segment, start in zip(self.segments, self.starts, strict=False):
            lo, hi = np.searchsorted(places, [start, start + segment.rows])
            if hi > lo:
                parts.append(segment.vectors[places[lo:hi] - start])
        return np.concatenate(parts)

    def find(self, ids: Sequence[str]) -> dict[str, int]:
        """The places of those of these ids that are there."""
        hashes = id_hashes(ids)
        found = {}
        for segment, start in zip(self.segments, self.starts, strict=False):
            found.update({id_: int(start) + row for id_, row in segment.find(ids, hashes).items()})
        return found

    def exact(self, queries: FloatArray, k: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """For every query [q, d] the places and cosines of its k nearest rows, compared with all of them."""
        for query, scores in self._scored(queries, 0):
            yield self.rescored(query, self._candidates(scores, k, 0), k)

    def candidates(self, queries: FloatArray, count: int, first: int = 0) -> Iterator[NDArray[np.int64]]:
        """For every query the places, from `first` on, that the index's codes take for its `count` nearest."""
        for _, scores in self._scored(queries, first, self.manifest.settings.dtype != "float32"):
            yield self._candidates(scores, count, first)

    def rescored(
        self, query: FloatArray, places: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The k best of these ascending places and their cosines, best first, among equals the row that came first.

        Every row is computed with alone and in double precision: its cosine does not depend on what stands beside it,
        so that equal rows are equal.
        """
        wide = query.astype(np.float64)
        cosines = np.empty(len(places))
        for start in range(0, len(places), _BLOCK):
            rows = self.vectors(places[start : start + _BLOCK]).astype(np.float64)
            cosines[start : start + _BLOCK] = np.einsum("ij,j->i", rows, wide)
        if not np.isfinite(cosines).all():
            raise DamagedIndexError(
                f"{self.folder} is damaged: some of its vectors are not finite; ensembed index --verify says which file"
            )
        cosines = np.clip(cosines, -1, 1)
        order = np.lexsort((places, -cosines))[:k]
        return places[order], cosines[order]

    def _scored(self, queries: FloatArray, first: int, coded: bool = False) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Every query with its scores [n - first]; a deleted row has -inf."""
        total = int(self.starts[-1]) - first
        step = max(1, _SCORES // max(1, total))
        for start in range(0, len(queries), step):
            some = queries[start : start + step]
            scores = np.empty((len(some), total), np.float32)
            for segment, begin in zip(self.segments, self.starts, strict=False):
                for lo in range(max(0, first - int(begin)), segment.rows, _BLOCK):
                    hi = min(lo + _BLOCK, segment.rows)
                    at = slice(int(begin) + lo - first, int(begin) + hi - first)
                    scores[:, at] = self._block(segment, lo, hi, some, coded)
            scores[:, ~self.live[first:]] = -np.inf
            yield from zip(some, scores, strict=True)

    def _block(self, segment: Segment, lo: int, hi: int, queries: FloatArray, coded: bool) -> FloatArray:
        if not coded or segment.codes is None:
            return np.asarray(queries @ segment.vectors[lo:hi].T)
        codes = segment.codes[lo:hi]
        if self.manifest.settings.dtype == "int8":
            return np.asarray((queries @ codes.astype(np.float32).T) * segment.scales[lo:hi])
        wanted = encode_rows(queries, "binary")[0]
        return np.stack([-differing_bits(codes, one) for one in wanted])

    def _candidates(self, scores: FloatArray, count: int, first: int) -> NDArray[np.int64]:
        alive = self.live[first:]
        if count < len(scores):
            least = np.partition(scores, len(scores) - count)[len(scores) - count]
            alive = alive & (scores >= least - _ROUNDING)
        return np.flatnonzero(alive) + first

    def _at(self, place: int) -> tuple[Segment, int]:
        k = int(np.searchsorted(self.starts, place, "right")) - 1
        return self.segments[k], place - int(self.starts[k])


def open_snapshot(folder: Path, before: Snapshot | None = None) -> Snapshot:
    """What the folder holds now; segments that are open already, and have not changed, are not opened again."""
    known = {segment.facts.name: segment for segment in before.segments} if before else {}
    manifest = read_manifest(folder)
    while True:
        try:
            return Snapshot(folder, manifest, known)
        except FileNotFoundError as error:
            # A writer may have replaced the manifest, and removed what only the old one names, in between.
            old, manifest = manifest, read_manifest(folder)
            if manifest == old:
                raise DamagedIndexError(f"{error.filename} is gone; {WAY_OUT}") from None
