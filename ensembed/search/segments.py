"""The rows of an index: segments, which never change, and a snapshot, which is the segments of one manifest.

The files of a segment are `vectors` (float32, length one), `keys` (the rows' numbers in the order of adding, which
compaction keeps), `ids` (hash and row, sorted by hash), `records` (a line of JSON per row), `places` (where each line
begins, and its checksum), `codes` and `scales` if short codes are compared first, `blocks` (the checksums of the blocks
of the others, except `records`), and the list of deleted rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import shorten
from ensembed.encoders.base import FloatArray
from ensembed.errors import DamagedIndexError
from ensembed.search import index_files
from ensembed.search.index_files import (
    MANIFEST,
    WAY_OUT,
    BlockSums,
    CheckedArray,
    FileFacts,
    Manifest,
    SegmentFacts,
    check_bytes,
    map_npy,
    read_manifest,
)
from ensembed.support.atomic_files import npy_header
from ensembed.support.file_limits import LimitError, parse_json
from ensembed.support.progress import Progress, silent

Layout: TypeAlias = tuple[str, tuple[int, ...]]  # the type of the numbers, and the shape
_COPIED_ROWS = 8192  # rows that are copied at a time
_DELETED_PART = 1 / 3  # a segment is compacted when this part of its rows is deleted
_FAN = 8  # so many small segments of about one size are merged into one: every row is copied only a few times
SEGMENT_ROWS = 1 << 18  # segments of so many rows are not merged with others
# File names that only an index uses: the folder may also hold files of the user.
_OWN_NAMES = re.compile(
    r"\.?(\d{6,}\.(vectors|keys|ids|records|places|codes|scales|blocks|deleted-\d+)\.(npy|jsonl)|graph-\d+\.usearch"
    r"|fingerprint(-\d+)?\.npy|(translated|familiar)-\d+\.npy|index\.json)(\.[0-9a-f]{8}\.tmp)?"
    r"|\.migration\.(json|safetensors)\.[0-9a-f]{8}\.tmp"  # not the files themselves: a migration may go on
)


@dataclass(frozen=True)
class RowBatch:
    """Rows to be written to a segment: new rows, or some of the remaining rows of an old segment."""

    vectors: FloatArray
    keys: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    lines: Iterable[bytes]


def id_hashes(ids: Sequence[str]) -> NDArray[np.uint64]:
    """Return a hash [n] of every id, by which it is looked up."""
    # No row has an id with a lone surrogate, but one may be looked for.
    digests = b"".join(hashlib.blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=8).digest() for id_ in ids)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def record_line(id_: str, text: str, metadata: Mapping[str, Any]) -> bytes:
    """Return a row as a line of JSON that `Segment.record` reads; ValueError or TypeError if there is none."""
    record = {"id": id_, "text": text} | ({"metadata": dict(metadata)} if metadata else {})
    line = json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    try:
        parse_json(line)
    except LimitError as error:
        raise LimitError(f"the row with the id {shorten(id_)} cannot be kept: {error}; split it") from None
    return line


def read_record(line: bytes) -> dict[str, Any]:
    """Return the id, the text and the metadata, if there are any, of a row's line; a ValueError if it is no record."""
    record = parse_json(line)
    kinds = {name: type(value) for name, value in record.items()} if isinstance(record, dict) else {}
    if kinds not in ({"id": str, "text": str}, {"id": str, "text": str, "metadata": dict}):
        raise ValueError("it has other fields")
    if b"\\u" in line:  # only so can a line have half of a character, which nothing prints or encodes
        json.dumps(record, ensure_ascii=False).encode()
    return dict(record)


def code_layout(dtype: str, dim: int) -> tuple[str, int]:
    """Return the numpy type of a row's code and how many numbers it has. Sign bits are stored in words of 64."""
    return ("|i1", dim) if dtype == "int8" else ("<u8", -(-dim // 64))


def encode_rows(rows: FloatArray, dtype: str) -> tuple[NDArray[Any], FloatArray]:
    """Return the codes (int8, or bits of signs) of rows [n, d], and factors [n] from int8 products to cosines."""
    if dtype == "int8":
        largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
        codes = np.rint(rows * (127 / np.where(largest == 0, 1, largest))).astype(np.int8)
        lengths = np.sqrt(np.einsum("ij,ij->i", codes, codes, dtype=np.float64))
        return codes, (1 / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    padded = np.zeros((len(rows), code_layout("binary", rows.shape[1])[1] * 64), bool)
    padded[:, : rows.shape[1]] = rows > 0
    return np.packbits(padded, axis=1).view("<u8"), np.ones(len(rows), np.float32)


def layouts(manifest: Manifest, rows: int) -> dict[str, Layout]:
    """Return the type and shape of every array of a segment, in the order in which `blocks` has their checksums."""
    dim, dtype = manifest.spec.dim, manifest.settings.dtype
    arrays: dict[str, Layout] = {
        "vectors": ("<f4", (rows, dim)),
        "keys": ("<i8", (rows,)),
        "ids": ("<u8", (rows, 2)),
        "places": ("<i8", (rows + 1, 2)),
    }
    if dtype != "float32":
        code_type, width = code_layout(dtype, dim)
        arrays |= {"codes": (code_type, (rows, width)), "scales": ("<f4", (rows,))}
    return arrays


def write_segment(
    folder: Path, number: int, manifest: Manifest, count: int, batches: Callable[[], Iterable[RowBatch]]
) -> SegmentFacts:
    """Write the files of segment `number`, of `count` rows; `batches` is called for every file, to save memory."""
    name, dtype = f"{number:06d}", manifest.settings.dtype
    keys, hashes = map(np.concatenate, zip(*((batch.keys, batch.hashes) for batch in batches()), strict=True))
    order = np.argsort(hashes, kind="stable")
    places = np.zeros((count + 1, 2), np.int64)

    def lines() -> Iterator[bytes]:
        end = 0
        for row, line in enumerate(itertools.chain.from_iterable(batch.lines for batch in batches())):
            places[row] = end, zlib.crc32(line)
            end += len(line)
            yield line
        places[count] = end, 0

    files = {"records": index_files.write_blocks(folder / f"{name}.records.jsonl", lines())}
    contents: dict[str, Iterable[NDArray[Any]]] = {
        "vectors": (batch.vectors for batch in batches()),
        "keys": [keys],
        "ids": [np.stack([hashes[order], order.astype(np.uint64)], axis=1)],
        "places": [places],
        "codes": (encode_rows(batch.vectors, dtype)[0] for batch in batches()),
        "scales": (encode_rows(batch.vectors, dtype)[1] for batch in batches()),
    }
    files |= write_arrays(folder, name, layouts(manifest, count), contents)
    return SegmentFacts(name, count, files, None, count)


def write_arrays(
    folder: Path, name: str, arrays: Mapping[str, Layout], contents: Mapping[str, Iterable[NDArray[Any]]]
) -> dict[str, FileFacts]:
    """Write the arrays of a segment, each from blocks of its rows, and the checksums of their blocks."""
    files, sums = {}, []
    for content, (numbers, shape) in arrays.items():
        own = BlockSums()
        data = (own.add(np.ascontiguousarray(rows, numbers).tobytes()) for rows in contents[content])
        blocks = itertools.chain([npy_header(shape, numbers)], data)
        files[content] = index_files.write_blocks(folder / f"{name}.{content}.npy", blocks)
        sums.append(own.result())
    every = np.concatenate(sums)
    return files | {"blocks": index_files.write_npy(folder / f"{name}.blocks.npy", every.shape, "<u4", [every])}


class Segment:
    """An open segment; its files are memory-mapped."""

    def __init__(self, folder: Path, facts: SegmentFacts, manifest: Manifest) -> None:
        self.facts = facts
        self.rows = rows = facts.rows
        self._folder = folder

        arrays = self._open_arrays(manifest)
        self.vectors, self.keys = arrays["vectors"], arrays["keys"]
        self.ids, self.places = arrays["ids"], arrays["places"]
        self._records = index_files.map_bytes(folder, facts.files["records"])
        if manifest.settings.dtype != "float32":
            self.codes, self.scales = arrays["codes"], arrays["scales"]
        self.live = np.ones(rows, bool)
        if facts.deleted is not None:
            check_bytes(folder, facts.deleted)  # a small file, and a deleted row must not come back
            deleted = map_npy(folder, facts.deleted, (rows - facts.live,), "<i8")
            if not ((deleted >= 0) & (deleted < rows)).all():
                raise self._damaged("deleted rows that are not there")
            self.live[deleted] = False
            if np.count_nonzero(self.live) != facts.live:
                raise self._damaged("a deleted row twice")

    def _open_arrays(self, manifest: Manifest) -> dict[str, CheckedArray]:
        """Map the arrays, with the checksums of their blocks if they were written."""
        folder, files, arrays = self._folder, self.facts.files, layouts(manifest, self.rows)
        if missing := {*arrays, "records"} - set(files):
            problem = f"segment {self.facts.name} has no {', '.join(sorted(missing))}"
            raise index_files.damaged(folder / MANIFEST, problem)
        sums, begin = None, 0
        if "blocks" in files:
            check_bytes(folder, files["blocks"])  # 4 bytes for every 64 KiB
            total = sum(index_files.count_blocks(shape, dtype) for dtype, shape in arrays.values())
            sums = map_npy(folder, files["blocks"], (total,), "<u4")
        opened = {}
        for content, (dtype, shape) in arrays.items():
            end = begin + index_files.count_blocks(shape, dtype)
            array, own = map_npy(folder, files[content], shape, dtype), None if sums is None else sums[begin:end]
            opened[content] = CheckedArray(folder / files[content].name, array, own)
            begin = end
        return opened

    def line(self, row: int) -> bytes:
        """Return a row's line of JSON, after checking its checksum."""
        (begin, checksum), (end, _) = self.places[row : row + 2].tolist()
        if not 0 <= begin < end <= len(self._records):
            raise self._damaged(f"row {row} has no place in it")
        line = self._records[begin:end].tobytes()
        if zlib.crc32(line) != checksum:
            raise self._damaged(f"the checksum of row {row} does not fit")
        return line

    def record(self, row: int) -> dict[str, Any]:
        """Return the id, the text and the metadata, if there are any, of a row."""
        try:
            return read_record(self.line(row))
        except ValueError as error:
            raise self._damaged(f"row {row} is no record ({error})") from error

    def find(self, ids: Sequence[str], hashes: NDArray[np.uint64]) -> dict[str, int]:
        """Return the rows of those ids that are in this segment and not deleted."""
        known, rows = self.ids[:].T
        first, last = (np.searchsorted(known, hashes, side) for side in ("left", "right"))
        rows_by_id = {}
        for i in np.flatnonzero(last > first).tolist():
            for row in rows[first[i] : last[i]].tolist():
                if row < self.rows and self.live[row] and self.record(row)["id"] == ids[i]:
                    rows_by_id[ids[i]] = row
        return rows_by_id

    def with_deleted(self, rows: NDArray[np.int64], generation: int) -> SegmentFacts:
        """Write a list of deleted rows that includes these; it counts once a manifest names it."""
        deleted = np.union1d(np.flatnonzero(~self.live), rows)
        path = self._folder / f"{self.facts.name}.deleted-{generation:06d}.npy"
        file = index_files.write_npy(path, deleted.shape, "<i8", [deleted])
        return replace(self.facts, deleted=file, live=self.rows - len(deleted))

    def live_batches(self) -> Iterator[RowBatch]:
        """Yield the rows that are not deleted. Lines are read only if the caller wants them."""
        hashes = np.empty(self.rows, np.uint64)
        known, own = self.ids[:].T
        if not np.array_equal(np.sort(own), np.arange(self.rows, dtype=np.uint64)):
            raise index_files.damaged(
                self._folder / self.facts.files["ids"].name, "its rows are not those of the segment"
            )
        hashes[own.astype(np.int64)] = known
        live = np.flatnonzero(self.live)
        for start in range(0, len(live), _COPIED_ROWS):
            rows = live[start : start + _COPIED_ROWS]
            yield RowBatch(self.vectors[rows], self.keys[rows], hashes[rows], map(self.line, rows.tolist()))

    def _damaged(self, reason: str) -> DamagedIndexError:
        return index_files.damaged(self._folder / self.facts.files["records"].name, reason)


class Snapshot:
    """The open segments of one manifest, which never change; a row's place is its number, deleted rows counted."""

    def __init__(self, folder: Path, manifest: Manifest, known: Mapping[str, Segment]) -> None:
        self.folder = folder
        self.manifest = manifest
        old = [known.get(facts.name) for facts in manifest.segments]
        self.segments = tuple(
            segment if segment and segment.facts == facts else Segment(folder, facts, manifest)
            for segment, facts in zip(old, manifest.segments, strict=True)
        )
        self.starts = np.cumsum([0, *(segment.rows for segment in self.segments)])

    def __len__(self) -> int:
        return self.manifest.rows

    @cached_property
    def live(self) -> NDArray[np.bool_]:
        """For every place [n] whether its row is not deleted."""
        return np.concatenate([np.zeros(0, bool), *(segment.live for segment in self.segments)])

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """The key of every place [n], ascending."""
        return np.concatenate([np.zeros(0, np.int64), *(segment.keys[:] for segment in self.segments)])

    def record(self, place: int) -> dict[str, Any]:
        """Return the id, text and metadata of a row."""
        i = int(np.searchsorted(self.starts, place, "right")) - 1
        return self.segments[i].record(place - int(self.starts[i]))

    def vectors(self, places: NDArray[np.int64]) -> FloatArray:
        """Return the rows [m, d] at ascending places."""
        rows = [segment.vectors[own] for segment, own in self._by_segment(places) if len(own)]
        return np.concatenate([np.zeros((0, self.manifest.spec.dim), np.float32), *rows])

    def find(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the places of those ids that are in the index."""
        hashes = id_hashes(ids)
        places = {}
        for segment, start in zip(self.segments, self.starts, strict=False):
            places.update({id_: int(start) + row for id_, row in segment.find(ids, hashes).items()})
        return places

    def with_deleted(self, places: Iterable[int]) -> tuple[SegmentFacts, ...]:
        """Write files that list the rows at these places as deleted, and return the segments that use them."""
        number = self.manifest.next_segment
        segments = self._by_segment(np.array(sorted(places), np.int64))
        return tuple(segment.with_deleted(own, number) if len(own) else segment.facts for segment, own in segments)

    def _by_segment(self, places: NDArray[np.int64]) -> Iterator[tuple[Segment, NDArray[np.int64]]]:
        """Yield every segment with those of its rows that are at these ascending places."""
        for segment, start in zip(self.segments, self.starts, strict=False):
            first, last = np.searchsorted(places, [start, start + segment.rows])
            yield segment, places[first:last] - start


def open_snapshot(folder: Path, before: Snapshot | None = None) -> Snapshot:
    """Open the current state of the folder; segments that are open already and have not changed are used again."""
    known = {segment.facts.name: segment for segment in before.segments} if before else {}
    manifest = read_manifest(folder)
    while True:
        try:
            return Snapshot(folder, manifest, known)
        except (FileNotFoundError, DamagedIndexError) as error:
            # A writer may have replaced the manifest, and removed files that only the old one names, in between.
            old, manifest = manifest, read_manifest(folder)
            if manifest == old and isinstance(error, FileNotFoundError):
                raise DamagedIndexError(f"{error.filename} is gone; {WAY_OUT}") from None
            if manifest == old:
                raise


def remove_unused_files(folder: Path, manifest: Manifest) -> None:
    """Remove files that a dead writer left behind, and files that the manifest no longer names."""
    used = {file.name for file in manifest.files()} | {MANIFEST}
    for path in folder.iterdir():
        if path.name not in used and _OWN_NAMES.fullmatch(path.name):
            # Some systems refuse to remove a file that is open; the next writer removes it. A folder is not ours.
            with contextlib.suppress(PermissionError, FileNotFoundError, IsADirectoryError):
                path.unlink()


def live_batches(segments: Iterable[Segment]) -> Iterator[RowBatch]:
    """Yield the rows of segments that are not deleted."""
    return itertools.chain.from_iterable(segment.live_batches() for segment in segments)


def encode_again(
    snapshot: Snapshot, manifest: Manifest, encode: Callable[[list[str]], FloatArray], progress: Progress = silent
) -> Manifest:
    """Write all rows with new vectors of their texts; return the manifest, of another model, that names them.

    Each batch becomes a segment: merging segments copies vectors, while a larger one would be encoded several times.
    """
    for segment in snapshot.segments:
        if "blocks" not in segment.facts.files:  # of version 0.1: damaged rows must not get a valid checksum
            for file in segment.facts.files.values():
                check_bytes(snapshot.folder, file)
    written: list[SegmentFacts] = []
    done = 0
    for batch in live_batches(snapshot.segments):
        lines = list(batch.lines)
        try:
            texts = [read_record(line)["text"] for line in lines]
        except ValueError as error:
            raise DamagedIndexError(f"{snapshot.folder} has a row that is no record ({error}); {WAY_OUT}") from error
        rows = [replace(batch, lines=lines, vectors=encode(texts))]
        number = manifest.next_segment + len(written)
        written.append(write_segment(snapshot.folder, number, manifest, len(lines), rows.copy))
        done += len(lines)
        progress("index", done, len(snapshot))
    return replace(manifest, segments=tuple(written), next_segment=manifest.next_segment + len(written))


def due_compactions(snapshot: Snapshot) -> list[tuple[int, int]]:
    """Return the ranges (first, end) of segments with many deleted rows; if there are none, of many small ones."""
    segments = [segment.facts for segment in snapshot.segments]
    ranges = [(i, i + 1) for i, facts in enumerate(segments) if facts.rows - facts.live >= _DELETED_PART * facts.rows]
    size = _FAN
    while not ranges and size <= SEGMENT_ROWS:
        small = next((i for i, facts in enumerate(reversed(segments)) if facts.live >= size), len(segments))
        if small >= _FAN:
            ranges = [(len(segments) - small, len(segments))]
        size *= _FAN
    return ranges


def all_compactions(snapshot: Snapshot) -> list[tuple[int, int]]:
    """Return the ranges (first, end) that cover all segments, except single ones that would stay the same."""
    ranges: list[tuple[int, int]] = []
    start = rows = 0
    segments = [segment.facts for segment in snapshot.segments]
    for i, facts in enumerate(segments):
        if rows and rows + facts.live > SEGMENT_ROWS:
            ranges.append((start, i))
            start, rows = i, 0
        rows += facts.live
    ranges.append((start, len(segments)))
    worth_writing = [facts.live < facts.rows or "blocks" not in facts.files for facts in segments]
    return [(lo, hi) for lo, hi in ranges if hi > lo + 1 or any(worth_writing[lo:hi])]


def compact(snapshot: Snapshot, ranges: list[tuple[int, int]], progress: Progress = silent) -> Manifest:
    """Write each range of segments as one segment without deleted rows, and return the manifest that names them."""
    manifest = snapshot.manifest
    number, done = manifest.next_segment, 0
    total = sum(segment.facts.live for lo, hi in ranges for segment in snapshot.segments[lo:hi])
    segments: list[SegmentFacts] = list(manifest.segments)
    for lo, hi in reversed(ranges):  # from the end, so that earlier ranges keep their numbers
        old = snapshot.segments[lo:hi]
        count = sum(segment.facts.live for segment in old)
        new = []
        if count:
            for file in itertools.chain.from_iterable(segment.facts.all_files() for segment in old):
                check_bytes(snapshot.folder, file)  # damaged rows must not get a valid checksum

            new = [write_segment(snapshot.folder, number, manifest, count, partial(live_batches, old))]
            number += 1
        segments[lo:hi] = new
        done += count
        progress("compact", done, total)
    return replace(manifest, segments=tuple(segments), next_segment=number)
