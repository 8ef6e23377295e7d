"""Bounds on what is read from files: the table of constants, and the functions that enforce them.

A hash proves that a file is whole, not that its author means well. So no size that a file declares is believed before
its bytes are there, and nothing is unpacked or parsed without a bound. docs/reference/limits.md says what each bounds.
"""

from __future__ import annotations

import errno
import gzip
import io
import json
import math
import reprlib
import stat
import typing
from collections.abc import Callable
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from ensembed.errors import InputError

JSON_BYTES = 32 << 20
JSON_DEPTH = 100
JSON_VALUES = 2_000_000
CONFIG_BYTES = 4 << 20
SETTINGS_VALUES = 20_000
RECORD_VALUES = 100_000
TOKENIZER_BYTES = 128 << 20
TOKENIZER_VALUES = 8_000_000
MANIFEST_BYTES = 12 << 20
MIGRATION_BYTES = 512 << 20
STREAMED_VALUE = 16 << 20
GZIP_FREE = 8 << 20
GZIP_RATIO = 100
ARCHIVE_BYTES = 50 * 10**6
ARCHIVE_MEMBERS = 10_000
ARCHIVE_RATIO = 100
SAVED_MODEL_BYTES = 20 * 10**9
SAVED_MODEL_FREE = 100 * 10**6
TAR_HEADER_BYTES = 8 << 20
TENSOR_HEADER_BYTES = 4 << 20
LINE_BYTES = 1 << 20
TEXT_LINE_BYTES = 32 << 20
CELL_CHARACTERS = 64 << 20
WORD_BYTES = 1 << 16
GRAPH_FIELDS = 500_000
LARGEST_DIM = 1 << 20
LARGEST_LENGTH = 1_000_000
PROMPT_CHARACTERS = 32_768
TOKEN_CHARACTERS = 10_000
ARRAY_AXES = 32
TRANSFORMER_LAYERS = 300
TRANSFORMER_EXPERTS = 1000
POSITION_NUMBERS = 1 << 22
SENTENCEPIECE_BYTES = 32 << 20
SENTENCEPIECE_PIECES = 1_000_000
PIECE_CHARACTERS = 128
RULE_BYTES = 256
USE_LITE_PIECES = 4096
PICKLE_OPERATIONS = 30_000_000
PICKLE_CONTAINERS = 100_000
PICKLE_RATIO = 4
PICKLE_NAME_BYTES = 256
API_DIM = 1 << 16
API_NUMBER_BYTES = 64
API_REPLY_BYTES = 1 << 20
API_ERROR_BYTES = 1 << 16
API_FACTS = 100
KEY_FILE_BYTES = 1 << 20


class LimitError(InputError):
    """A file exceeds a bound. Readers turn it, as any ValueError, into an error of their own that names the file."""


def read_json(path: Path, *, most_bytes: int | None = None, most_values: int | None = None) -> Any:  # noqa: ANN401 - whatever the file holds
    """Read a JSON file within the bounds of `parse_json`; an OSError or a ValueError says what is wrong with it."""
    with open_regular(path) as file:
        data = file.read((most_bytes or JSON_BYTES) + 1)
    return parse_json(data, most_bytes=most_bytes, most_values=most_values)


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read; an OSError if it is no regular file: a pipe or a device may have no end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return path.open("rb")


def parse_json(
    data: bytes,
    *,
    most_bytes: int | None = None,
    most_values: int | None = None,
    parse_constant: Callable[[str], Any] | None = None,
    parse_object: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:  # noqa: ANN401 - whatever the text holds
    """Parse JSON in UTF-8 within the bounds; a ValueError says what is wrong, also if it is nested too deeply.

    Args:
        data: the text.
        most_bytes: a bound other than `JSON_BYTES`.
        most_values: a bound other than `JSON_VALUES`.
        parse_constant: as for `json.loads`: what becomes of NaN and Infinity, which JSON does not have.
        parse_object: what becomes of the keys and values of an object; without it the last of equal keys counts.
    """
    if len(data) > (most := most_bytes or JSON_BYTES):
        raise LimitError(f"it has more than {most:,} bytes")
    # A value may take sixty times the memory of its text, so values are counted before they are made.
    openings = data.count(b"[") + data.count(b"{")
    if openings + data.count(b",") > (most := most_values or JSON_VALUES) and count_values(data) > most:
        raise LimitError(f"it has more than {most:,} values")
    problem = f"its lists and objects are nested more than {JSON_DEPTH} levels deep"
    try:
        text = data.decode("utf-8-sig")  # not UTF-16, which was not counted
        value = json.loads(text, parse_constant=parse_constant, object_pairs_hook=parse_object)
    except RecursionError:
        raise LimitError(problem) from None
    level = [value] if openings > JSON_DEPTH else []
    for _ in range(JSON_DEPTH + 1):
        containers = [item for item in level if isinstance(item, dict | list)]
        if not containers:
            return value
        level = [child for item in containers for child in (item.values() if isinstance(item, dict) else item)]
    raise LimitError(problem)


def count_values(data: bytes) -> int:
    """Count the values of JSON without parsing it: each is the first of a list or object, or stands after a comma.

    What is inside of strings does not count.
    """
    # Left to right: of three backslashes before a quote, two are one character.
    data = data.replace(b"\\\\", b"..").replace(b'\\"', b"..").translate(bytes.maketrans(b"[{", b",,"))
    characters = np.frombuffer(data, np.uint8)
    outside = ~np.logical_xor.accumulate(characters == ord('"'))
    return int(np.count_nonzero(outside & (characters == ord(","))))


def check_tensor_header(path: Path) -> None:
    """Raise a ValueError if a safetensors file announces a header that is larger than the bound, or than the file."""
    with open_regular(path) as file:
        size = int.from_bytes(file.read(8), "little")
    if size > min(TENSOR_HEADER_BYTES, path.stat().st_size):
        raise LimitError(f"its header is said to have {size:,} bytes")


def check_shape(shape: object) -> None:
    """Raise a ValueError if a value of JSON is no shape of an array: few whole numbers that are not negative.

    The product of other values may be a text or a list of gigabytes, or a number of a million digits.
    """
    if type(shape) is not list or len(shape) > ARRAY_AXES or not all(type(n) is int and n >= 0 for n in shape):
        raise LimitError(f"a tensor is said to have the shape {reprlib.repr(shape)}")


def read_npy_header(file: typing.IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Read the header of an `.npy` file of numbers: shape, type, and whether the numbers are in the order of columns.

    Raises:
        ValueError: it is no such file, or its header is damaged.
    """
    try:
        version = npy_format.read_magic(file)
        if version != (1, 0):  # others are for arrays of records, and announce headers of gigabytes
            raise ValueError(f"it is of version {version}")
        shape, by_column, dtype = npy_format.read_array_header_1_0(file)
    except (SyntaxError, TokenError, TypeError, RecursionError, MemoryError) as error:  # of numpy's parser
        raise ValueError(f"its header is damaged: {error}") from error
    if dtype.kind not in "fiu" or any(length < 0 for length in shape):
        raise ValueError(f"it holds {dtype}, not plain numbers, or the shape {shape}")
    return shape, dtype, by_column


def map_npy(path: Path) -> NDArray[Any]:
    """Map an `.npy` file of numbers into memory; an OSError or a ValueError says what is wrong with it."""
    with open_regular(path) as file:
        shape, dtype, by_column = read_npy_header(file)
        start, size = file.tell(), path.stat().st_size
    if start + math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"it has {size:,} bytes, which is not {dtype} of shape {shape}")
    if not math.prod(shape):
        return np.empty(shape, dtype)  # nothing can be mapped
    return np.memmap(path, dtype, "r", start, shape, "F" if by_column else "C")


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
            problem = f"it unpacks to more than {self._done:,} bytes, {GZIP_RATIO} times its size"
            raise LimitError(f"{problem}; if that is right, unpack it with gunzip first")
        return count

    def tell(self) -> int:
        """Return the number of bytes that were unpacked."""
        return self._done
