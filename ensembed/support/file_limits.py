"""Bounds on what is read from files: the table of constants, and the functions that enforce them.

A hash proves that a file is whole, not that its author means well. So no size that a file declares is believed before
its bytes are there, and nothing is unpacked or parsed without a bound. `docs/limits.md` prints the table.
"""

from __future__ import annotations

import gzip
import io
import json
import stat
from pathlib import Path
from typing import Any, BinaryIO

from ensembed.errors import InputError

JSON_BYTES = 32 << 20
JSON_DEPTH = 100
JSON_VALUES = 2_000_000
CONFIG_BYTES = 4 << 20
MANIFEST_BYTES = 12 << 20
STREAMED_VALUE = 16 << 20
GZIP_FREE = 8 << 20
GZIP_RATIO = 100
ARCHIVE_BYTES = 50 * 10**6
ARCHIVE_MEMBERS = 10_000
ARCHIVE_RATIO = 100
SAVED_MODEL_BYTES = 20 * 10**9
SAVED_MODEL_FREE = 100 * 10**6
TAR_HEADER_BYTES = 1 << 20
TENSOR_HEADER_BYTES = 4 << 20
LINE_BYTES = 1 << 20
WORD_BYTES = 1 << 16
LARGEST_DIM = 1 << 20
LARGEST_LENGTH = 1_000_000

# What each constant bounds, in the words of the documentation.
MEANINGS = {
    "JSON_BYTES": "bytes of a JSON file, or of a row in a search index",
    "JSON_DEPTH": "levels of lists and objects within each other in JSON",
    "JSON_VALUES": "values in a JSON file, by its commas and opening brackets",
    "CONFIG_BYTES": "bytes of the `config.json` of a saved model",
    "MANIFEST_BYTES": "bytes of the `manifest.json` of a view",
    "STREAMED_VALUE": "characters of one value in a JSON file of word vectors, which is read piece by piece",
    "GZIP_FREE": "bytes that any gzipped file of word vectors may unpack to",
    "GZIP_RATIO": "bytes that every byte of a gzipped file of word vectors may unpack to, beyond `GZIP_FREE`",
    "ARCHIVE_BYTES": "bytes that an archive may unpack to if its hash is not known beforehand",
    "ARCHIVE_MEMBERS": "members of an archive",
    "ARCHIVE_RATIO": "bytes that every byte of an archive of a SavedModel, or of a zipped pickle, may unpack to",
    "SAVED_MODEL_BYTES": "bytes that an archive of a SavedModel may unpack to",
    "SAVED_MODEL_FREE": "bytes that an archive of a SavedModel may unpack to, however small it is",
    "TAR_HEADER_BYTES": "bytes of a header in a tar archive: a long name, or PAX records",
    "TENSOR_HEADER_BYTES": "bytes of the header of a safetensors file",
    "LINE_BYTES": "bytes of a line in a text of word vectors",
    "WORD_BYTES": "bytes of a word in a binary file of word vectors",
    "LARGEST_DIM": "dimensions of a vector where no tensor shows how many there are",
    "LARGEST_LENGTH": "tokens that a transformer is said to take",
}


class LimitError(InputError):
    """A file exceeds a bound. Readers turn it, as any ValueError, into an error of their own that names the file."""


def read_json(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    """Read a JSON file within the bounds; an OSError or a ValueError says what is wrong with it."""
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe may have no end
        raise OSError(f"{path} is no regular file")
    with path.open("rb") as file:
        return parse_json(file.read(JSON_BYTES + 1))


def parse_json(data: bytes) -> Any:  # noqa: ANN401 - whatever the text holds
    """Parse JSON within the bounds; a ValueError says what is wrong with it, also if it is nested too deeply."""
    if len(data) > JSON_BYTES:
        raise LimitError(f"it has more than {JSON_BYTES:,} bytes")
    # A value may take sixty times the memory of its text, so values are counted before they are made.
    if data.count(b",") + data.count(b"[") + data.count(b"{") > JSON_VALUES:
        raise LimitError(f"it has more than {JSON_VALUES:,} values")
    problem = f"its lists and objects are nested more than {JSON_DEPTH} levels deep"
    try:
        value = json.loads(data)
    except RecursionError:
        raise LimitError(problem) from None
    level = [value]
    for _ in range(JSON_DEPTH + 1):
        containers = [item for item in level if isinstance(item, dict | list)]
        if not containers:
            return value
        level = [child for item in containers for child in (item.values() if isinstance(item, dict) else item)]
    raise LimitError(problem)


def check_tensor_header(path: Path) -> None:
    """Raise a ValueError if a safetensors file announces a header that is larger than the bound, or than the file."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if size > min(TENSOR_HEADER_BYTES, path.stat().st_size):
        raise LimitError(f"its header is said to have {size:,} bytes")


class UnpackedGzip(io.RawIOBase):
    """The content of a gzip file; a LimitError if it is much larger than the file: a bomb holds terabytes of zeros."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed, self._stream, self._done = packed, gzip.GzipFile(fileobj=packed), 0

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - of the base class
        """Fill the buffer and return the number of bytes."""
        count = self._stream.readinto(buffer)
        self._done += count
        if self._done > GZIP_FREE + GZIP_RATIO * self._packed.tell():
            raise LimitError(f"it unpacks to more than {self._done:,} bytes, {GZIP_RATIO} times its size")
        return count
