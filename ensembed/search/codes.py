"""Short codes for rows: int8 (a quarter of float32) and sign bits (a thirty-second), and how they are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LARGEST = 127


@dataclass(frozen=True)
class CodeKind:
    """How a kind of code lies in a file: the type of its numbers, and how many stand for so many dimensions."""

    dtype: str
    width: Callable[[int], int]


CODES: Mapping[str, CodeKind] = {
    "int8": CodeKind("|i1", lambda dim: dim),
    # Whole words of 64 bits: they are compared a word at a time. The bits behind the last dimension are all zero.
    "binary": CodeKind("<u8", lambda dim: -(-dim // 64)),
}


def encode_rows(rows: NDArray[np.float32], dtype: str) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """The codes of rows [n, d], and what [n] a product with them is multiplied by to be a cosine.

    An int8 row has a scale of its own: its largest entry becomes 127. A bit is set where an entry is positive.
    """
    if dtype == "int8":
        largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
        codes = np.rint(rows * (_LARGEST / np.where(largest == 0, 1, largest))).astype(np.int8)
        lengths = np.sqrt(np.einsum("ij,ij->i", codes, codes, dtype=np.float64))
        return codes, (1 / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    padded = np.zeros((len(rows), CODES["binary"].width(rows.shape[1]) * 64), bool)
    padded[:, : rows.shape[1]] = rows > 0
    return np.packbits(padded, axis=1).view("<u8"), np.ones(len(rows), np.float32)


def differing_bits(codes: NDArray[np.uint64], query: NDArray[np.uint64]) -> NDArray[np.float32]:
    """In how many bits each code [n, w] differs from the query's [w]."""
    total = np.zeros(len(codes), np.float32)
    for word in range(codes.shape[1]):
        total += _bit_count(codes[:, word] ^ query[word])
    return total


if hasattr(np, "bitwise_count"):
    _bit_count: Callable[[NDArray[np.uint64]], NDArray[np.uint8]] = np.bitwise_count
else:  # numpy 1.26
    _BITS = np.array([value.bit_count() for value in range(1 << 16)], np.uint8)

    def _bit_count(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
        parts = np.ascontiguousarray(words).view(np.uint16).reshape(len(words), 4)
        return np.asarray(_BITS[parts].sum(axis=1, dtype=np.uint8))
