"""A segment: rows that were written together and never change.

Its files are `vectors` (float32, length one), `keys` (the rows' numbers in the order of adding, which compaction
keeps), `ids` (hash and row, sorted by hash), `records` (a line of JSON a row: id, text, metadata), `places` (where each
line begins, and its checksum), and `codes` and `scales` where the index searches short codes first.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import DamagedIndexError
from ensembed.search.codes import CODES, encode_rows
from ensembed.search.manifest import WAY_OUT, FileFacts, Manifest, SegmentFacts
from ensembed.search.storage import check_bytes, map_bytes, map_npy, write_blocks, write_npy

# Rows that are copied at a time.
_STRETCH = 8192


@dataclass(frozen=True)
class Part:
    """Rows on their way into a segment: new ones, or what is left of an old segment."""

    vectors: NDArray[np.float32]
    keys: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    lines: Sequence[bytes]


def id_hashes(ids: Sequence[str]) -> NDArray[np.uint64]:
    """A number [n] for every id, by which it is looked for."""
    digests = b"".join(hashlib.blake2b(one.encode(), digest_size=8).digest() for one in ids)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def record_line(id_: str, text: str, metadata: Mapping[str, Any]) -> bytes:
    """A row as a line of JSON; ValueError or TypeError where the metadata is no JSON."""
    record: dict[str, Any] = {"id": id_, "text": text}
    if metadata:
        record["metadata"] = dict(metadata)
    return json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def write_segment(
    folder: Path, number: int, manifest: Manifest, count: int, parts: Callable[[], Iterable[Part]]
) -> SegmentFacts:
    """Write the files of a segment of `count` rows; no manifest names them yet.

    Args:
        folder: of the index.
        number: of the segment.
        manifest: whose settings and dimensions count.
        count: rows in all parts together.
        parts: the rows; asked for once for every file, so that they need not be in memory together.
    """
    name, dim, dtype = f"{number:06d}", manifest.spec.dim, manifest.settings.dtype

    def path(what: str, ending: str = "npy") -> Path:
        return folder / f"{name}.{what}.{ending}"

    keys = np.concatenate([part.keys for part in parts()])
    hashes = np.concatenate([part.hashes for part in parts()])
    order = np.argsort(hashes, kind="stable")
    files = {
        "vectors": write_npy(path("vectors"), (count, dim), "<f4", (part.vectors for part in parts())),
        "keys": write_npy(path("keys"), (count,), "<i8", [keys]),
        "ids": write_npy(path("ids"), (count, 2), "<u8", [np.stack([hashes[order], order.astype(np.uint64)], axis=1)]),
    }
    places = np.zeros((count + 1, 2), np.int64)

    def lines() -> Iterator[bytes]:
        row = end = 0
        for part in parts():
            for line in part.lines:
                places[row] = end, zlib.crc32(line)
                row, end = row + 1, end + len(line)
                yield line
        places[row] = end, 0

    files["records"] = write_blocks(path("records", "jsonl"), lines())
    files["places"] = write_npy(path("places"), (count + 1, 2), "<i8", [places])
    if dtype != "float32":
        of = CODES[dtype]
        codes = (encode_rows(part.vectors, dtype)[0] for part in parts())
        files["codes"] = write_npy(path("codes"), (count, of.width(dim)), of.dtype, codes)
        scales = (encode_rows(part.vectors, dtype)[1] for part in parts())
        files["scales"] = write_npy(path("scales"), (count,), "<f4", scales)
    return SegmentFacts(name, count, files, None, count)


class Segment:
    """A segment that is open: everything is memory-mapped."""

    def __init__(self, folder: Path, facts: SegmentFacts, manifest: Manifest) -> None:
        rows, dim, dtype = facts.rows, manifest.spec.dim, manifest.settings.dtype
        self.facts = facts
        self.rows = rows
        self._folder = folder
        self.vectors: NDArray[np.float32] = map_npy(folder, facts.files["vectors"], (rows, dim), "<f4")
        self.keys: NDArray[np.int64] = map_npy(folder, facts.files["keys"], (rows,), "<i8")
        self._ids = map_npy(folder, facts.files["ids"], (rows, 2), "<u8")
        self._places = map_npy(folder, facts.files["places"], (rows + 1, 2), "<i8")
        self._records = map_bytes(folder, facts.files["records"])
        self.codes: NDArray[Any] | None = None
        if dtype != "float32":
            of = CODES[dtype]
            self.codes = map_npy(folder, facts.files["codes"], (rows, of.width(dim)), of.dtype)
            self.scales: NDArray[np.float32] = map_npy(folder, facts.files["scales"], (rows,), "<f4")
        self.dead: NDArray[np.int64] = np.zeros(0, np.int64)
        if facts.deleted is not None:
            check_bytes(folder, facts.deleted)  # small, and a row that comes back from the dead is no small thing
            self.dead = map_npy(folder, facts.deleted, (rows - facts.live,), "<i8")
            if not ((self.dead >= 0) & (self.dead < rows)).all():
                raise self._damaged("deleted rows that are not there")
        self.live = np.ones(rows, bool)
        self.live[self.dead] = False

    def line(self, row: int) -> bytes:
        """A row's line of JSON, checked."""
        begin, checksum = self._places[row].tolist()
        end = int(self._places[row + 1, 0])
        if not 0 <= begin < end <= len(self._records):
            raise self._damaged(f"row {row} has no place in it")
        line = self._records[begin:end].tobytes()
        if zlib.crc32(line) != checksum:
            raise self._damaged(f"the checksum of row {row} does not fit")
        return line

    def record(self, row: int) -> dict[str, Any]:
        """A row's id, text and metadata."""
        found: dict[str, Any] = json.loads(self.line(row))
        return found

    def find(self, ids: Sequence[str], hashes: NDArray[np.uint64]) -> dict[str, int]:
        """The rows of those of these ids that are here and not deleted."""
        column = self._ids[:, 0]
        first = np.searchsorted(column, hashes, "left")
        last = np.searchsorted(column, hashes, "right")
        found = {}
        for i in np.flatnonzero(last > first).tolist():
            for row in self._ids[first[i] : last[i], 1].tolist():
                if row < self.rows and self.live[row] and self.record(row)["id"] == ids[i]:
                    found[ids[i]] = row
        return found

    def with_deleted(self, rows: NDArray[np.int64], generation: int) -> SegmentFacts:
        """Write down that these rows are deleted too; no manifest knows it yet."""
        dead = np.union1d(self.dead, rows)
        path = self._folder / f"{self.facts.name}.deleted-{generation:06d}.npy"
        file = write_npy(path, dead.shape, "<i8", [dead])
        return SegmentFacts(self.facts.name, self.rows, self.facts.files, file, self.rows - len(dead))

    def parts(self) -> Iterator[Part]:
        """What is not deleted, in stretches."""
        hashes = np.empty(self.rows, np.uint64)
        hashes[self._ids[:, 1].astype(np.int64)] = self._ids[:, 0]
        alive = np.flatnonzero(self.live)
        for start in range(0, len(alive), _STRETCH):
            rows = alive[start : start + _STRETCH]
            yield Part(self.vectors[rows], self.keys[rows], hashes[rows], _Lines(self, rows))

    def check(self) -> None:
        """Read every byte and compare the hashes."""
        for file in (*self.facts.files.values(), *([self.facts.deleted] if self.facts.deleted else [])):
            check_bytes(self._folder, file)

    def _damaged(self, why: str) -> DamagedIndexError:
        file: FileFacts = self.facts.files["records"]
        return DamagedIndexError(f"{self._folder / file.name} is damaged: {why}; {WAY_OUT}")


class _Lines(Sequence[bytes]):
    """The lines of some rows, read when they are asked for: three of four files of a copy do not want them."""

    def __init__(self, segment: Segment, rows: NDArray[np.int64]) -> None:
        self._segment = segment
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: Any) -> Any:  # noqa: ANN401 - what Sequence wants; only numbers are asked for
        return self._segment.line(int(self._rows[i]))
