"""The files of a view: checksummed `.npy` shards and the manifest that makes a view complete."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ensembed.encoders.base import EncoderSpec, FloatArray
from ensembed.errors import CorruptViewError, StoreError
from ensembed.support.npy_files import npy_header

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
REPAIR = "run `ensembed embed` with --verify to encode the damaged part again"
_SHARD_NAME = re.compile(r"shard-(\d{9,})-([0-9a-f]{32})\.npy")


@dataclass(frozen=True)
class Manifest:
    """What a complete view holds; `spec` is kept so that a person can tell what a folder is."""

    corpus: str
    spec: EncoderSpec
    rows: int
    shard_rows: int
    shards: tuple[str, ...]

    def rows_of(self, k: int) -> int:
        """Return the number of rows in shard k: the last one may be shorter."""
        return min(self.shard_rows, self.rows - k * self.shard_rows)

    def to_bytes(self) -> bytes:
        """Return the file's content. There is one spelling only, so that any flipped bit shows."""
        facts = {
            "format": FORMAT_VERSION,
            "corpus": self.corpus,
            "encoder": self.spec.to_json(),
            "rows": self.rows,
            "shard_rows": self.shard_rows,
            "shards": self.shards,
        }
        facts["checksum"] = checksum(json.dumps(facts, sort_keys=True).encode())
        return json.dumps(facts, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, path: Path) -> Manifest:
        """Read what `to_bytes` wrote, or raise a CorruptViewError."""
        try:
            facts = json.loads(data)
            stated = facts.pop("checksum")
            # The checksum is read first, so that a flipped bit does not look like a newer format.
            if checksum(json.dumps(facts, sort_keys=True).encode()) == stated and facts["format"] > FORMAT_VERSION:
                raise StoreError(
                    f"{path} has format {facts['format']}; this ensembed reads {FORMAT_VERSION}: upgrade it"
                )
            spec = EncoderSpec.from_json(facts["encoder"])
            manifest = cls(facts["corpus"], spec, facts["rows"], facts["shard_rows"], tuple(facts["shards"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptViewError(f"{path} is damaged: {error!r}; {REPAIR}") from error
        if manifest.to_bytes() != data:
            raise CorruptViewError(f"{path} is damaged: its checksum does not fit; {REPAIR}")
        return manifest


def shard_bytes(shard: FloatArray) -> bytes:
    """Return the content of the `.npy` file of an array [rows, d]."""
    return npy_header(*shard.shape) + np.ascontiguousarray(shard, "<f4").tobytes()


def shard_size(rows: int, dim: int) -> int:
    """Return the size of a shard's file in bytes."""
    return len(npy_header(rows, dim)) + 4 * rows * dim


def shard_rows_of(path: Path, dim: int) -> int:
    """Return the number of rows in a shard's file, from its size; 0 where no number fits."""
    size = path.stat().st_size
    rows = max(size - shard_size(0, dim), 0) // (4 * dim)
    return rows if shard_size(rows, dim) == size else 0


def shard_name(start: int, data: bytes) -> str:
    """Return the file name of the shard that begins with row `start`.

    It holds the hash of the content, so that a shard needs no entry elsewhere, and the row instead of a number, so
    that a shard of another size is never taken for the wrong rows.
    """
    return f"shard-{start:09d}-{checksum(data)}.npy"


def shard_start(path: Path) -> int | None:
    """Return the first row, from a shard's file name; None for any other file."""
    match = _SHARD_NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def is_whole(path: Path) -> bool:
    """Return whether a shard exists, can be read and has the bytes that its name promises."""
    try:
        return path.name.endswith(f"-{checksum(path.read_bytes())}.npy")
    except OSError:
        return False


def load_shard(path: Path, rows: int, dim: int) -> FloatArray:
    """Return the shard [rows, dim], every byte checked, or raise a CorruptViewError.

    It is read, not mapped: all of it has to be hashed anyway, and a file that is truncated later cannot crash us.
    """
    header = npy_header(rows, dim)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CorruptViewError(f"{path} cannot be read: {error}; {REPAIR}") from error
    if not data.startswith(header) or len(data) != shard_size(rows, dim):
        raise CorruptViewError(f"{path} is not a file of float32 {(rows, dim)}; {REPAIR}")
    if not path.name.endswith(f"-{checksum(data)}.npy"):
        raise CorruptViewError(f"{path} is damaged: its content does not fit its checksum; {REPAIR}")
    return np.frombuffer(data, "<f4", offset=len(header)).reshape(rows, dim)


def checksum(data: bytes) -> str:
    """Return 128 bits of SHA-256 as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()[:32]
