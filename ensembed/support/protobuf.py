"""Protobuf messages by hand, as ONNX and SentencePiece have them: a reader that skips weights, and a small writer."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import TypeAlias

Data: TypeAlias = bytes | mmap.mmap
# A field of a message: an integer, a float of 32 bits or, of what has a length, the start and the end of its bytes.
Value: TypeAlias = int | float | tuple[int, int]


def read_fields(data: Data, at: int, end: int) -> Iterator[tuple[int, Value]]:
    """Yield the number and the value of each field of the message in `data[at:end]`; 64-bit numbers are left out.

    Raises:
        ValueError: the bytes are no message.
    """
    while at < end:
        tag, at = _read_varint(data, at, end)
        number, wire_type = tag >> 3, tag & 7
        if number == 0 or wire_type not in (0, 1, 2, 5):
            raise ValueError(f"field {number} of wire type {wire_type}, byte {at}")
        if wire_type == 0:
            value, at = _read_varint(data, at, end)
            yield number, value
            continue
        length, at = _read_varint(data, at, end) if wire_type == 2 else (8 if wire_type == 1 else 4, at)
        if length > end - at:
            raise ValueError(f"it ends within field {number}, byte {at}")
        if wire_type == 2:
            yield number, (at, at + length)
        elif wire_type == 5:
            yield number, float(struct.unpack("<f", data[at : at + 4])[0])
        at += length


def _read_varint(data: Data, at: int, end: int) -> tuple[int, int]:
    """Return an integer of seven bits a byte, the lowest first, and the place behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if at == end:
            raise ValueError(f"it ends within a number, byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError(f"a number is too long, byte {at}")


def message(*fields: tuple[int, int | float | str | bytes]) -> bytes:
    """Return the message with these numbers and values, in this order; a message within it is given as its bytes.

    Example:
        >>> message((1, 300), (2, "ab")).hex()
        '08ac0212026162'
    """
    parts = list[bytes]()
    for number, value in fields:
        if isinstance(value, int):
            parts += [_varint(number << 3), _varint(value)]
        elif isinstance(value, float):
            parts += [_varint(number << 3 | 5), struct.pack("<f", value)]
        else:
            content = value.encode() if isinstance(value, str) else value
            parts += [_varint(number << 3 | 2), _varint(len(content)), content]
    return b"".join(parts)


def _varint(value: int) -> bytes:
    """Return an integer of at least 0, or one of 64 bits with a sign, as seven bits a byte."""
    value &= (1 << 64) - 1
    result = bytearray()
    while value > 127:
        result.append(value & 127 | 128)
        value >>= 7
    result.append(value)
    return bytes(result)
