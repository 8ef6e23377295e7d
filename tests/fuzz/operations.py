"""Operations that change bytes, text, JSON, arrays, archives and protobuf messages.

Each is a function of the content and of arguments, with a function that chooses such arguments at random. The arguments
are JSON, so that a step can be written down.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from random import Random
from typing import Any, TypeAlias

from fuzz.hostile_values import (
    DTYPES,
    FIELDS,
    MEMBERS,
    NUMBERS,
    SHAPES,
    TAR_SIZES,
    TAR_TYPES,
    TEXTS,
    VALUES,
    Text,
    spelled,
)

Choose: TypeAlias = Callable[[Random, bytes], list[Any]]

# --- Bytes ------------------------------------------------------------------------------------------------------------


def _flip(data: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(data)
    if changed:
        changed[at % len(changed)] ^= 1 << bit
    return bytes(changed)


def _number(data: bytes, at: int, width: int, value: int) -> bytes:
    if len(data) < width:
        return data
    at %= len(data) - width + 1
    return data[:at] + (value % (1 << 8 * width)).to_bytes(width, "little") + data[at + width :]


def _fill(data: bytes, at: int, count: int, byte: int) -> bytes:
    return data[:at] + bytes([byte]) * len(data[at : at + count]) + data[at + count :]


def _move(data: bytes, at: int, count: int, to: int) -> bytes:
    part, rest = data[at : at + count], data[:at] + data[at + count :]
    return rest[:to] + part + rest[to:]


def _place(rng: Random, data: bytes) -> int:
    """Return a place in some bytes, often near one of the ends, where headers and footers are."""
    near = rng.choice((0, 0, 0, len(data) - 1))
    return (
        max(0, near - rng.randrange(64) if near else rng.randrange(min(len(data), 160) or 1))
        if rng.random() < 0.5
        else (rng.randrange(len(data) or 1))
    )


def _some(rng: Random, data: bytes) -> int:
    return rng.choice((1, 2, 4, 8, 16, 64, 512, len(data) // 4 + 1, len(data)))


_BYTES: dict[str, tuple[Callable[..., bytes], Choose]] = {
    "flip": (_flip, lambda rng, data: [_place(rng, data), rng.randrange(8)]),
    "number": (_number, lambda rng, data: [_place(rng, data), rng.choice((1, 2, 4, 8)), rng.choice(NUMBERS)]),
    "fill": (_fill, lambda rng, data: [_place(rng, data), _some(rng, data), rng.choice((0, 32, 255))]),
    "cut": (lambda data, at: data[:at], lambda rng, data: [_place(rng, data)]),
    "drop": (
        lambda data, at, count: data[:at] + data[at + count :],
        lambda rng, data: [_place(rng, data), _some(rng, data)],
    ),
    "repeat": (
        lambda data, at, count, times: data[: at + count] + data[at : at + count] * times + data[at + count :],
        lambda rng, data: [
            _place(rng, data),
            (n := _some(rng, data)),
            rng.choice((1, 2, max(1, min(10**6, 50_000 // max(n, 1))))),
        ],
    ),
    "move": (_move, lambda rng, data: [_place(rng, data), _some(rng, data), _place(rng, data)]),
    "insert": (
        lambda data, at, text: data[:at] + spelled(text) + data[at:],
        lambda rng, data: [_place(rng, data), rng.choice(TEXTS)],
    ),
    "append": (lambda data, text: data + spelled(text), lambda rng, _: [rng.choice(TEXTS)]),
    "replace": (lambda _, text: spelled(text), lambda rng, _: [rng.choice(TEXTS)]),
}


# --- Text: lines and fields -------------------------------------------------------------------------------------------


def _lines(data: bytes, at: int, text: Text | None, times: int) -> bytes:
    """Put a line in the place of another one, which it repeats if it is None."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    at %= len(lines)
    line = lines[at] if text is None else spelled(text) + b"\n"
    return b"".join([*lines[:at], *([line] * times), *lines[at + 1 :]])


def _field(data: bytes, at: int, text: Text) -> bytes:
    """Put a text in the place of a word, a number or a cell."""
    places = [match.span() for match in re.finditer(rb"[^\s,]+", data)]
    if not places:
        return data
    start, end = places[at % len(places)]
    return data[:start] + spelled(text) + data[end:]


_LINES: dict[str, tuple[Callable[..., bytes], Choose]] = {
    "line": (
        _lines,
        lambda rng, _: [rng.randrange(1000), rng.choice((None, None, *TEXTS)), rng.choice((0, 1, 1, 2, 3))],
    ),
    "field": (_field, lambda rng, _: [rng.randrange(10_000), rng.choice(FIELDS)]),
}


# --- JSON -------------------------------------------------------------------------------------------------------------

_RAW = "\ue000raw\ue000"


def _paths(value: Any, path: list[Any] | None = None) -> Iterator[list[Any]]:  # noqa: ANN401 - whatever JSON holds
    path = path or []
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:40]) if isinstance(value, list) else ()
    for key, item in items:
        yield from _paths(item, [*path, key])


@lru_cache(maxsize=64)
def _all_paths(data: bytes) -> list[list[Any]]:
    """Return the paths in a JSON text: most inputs begin from the same few files."""
    return list(_paths(json.loads(data)))


def _json(data: bytes, path: list[Any], action: str, text: Text) -> bytes:
    """Change a JSON text at a path: set its value, drop it, say it twice, or give it another key."""
    try:
        document = json.loads(data)
        if not path:
            return spelled(text)
        place = document
        for key in path[:-1]:
            place = place[key]
        old = place[path[-1]]
        if not isinstance(place, (dict, list)):
            return data
    except (ValueError, LookupError, TypeError, RecursionError):
        return data
    key, raw = path[-1], spelled(text).decode("utf-8", "surrogateescape")
    if action == "set":
        place[key] = _RAW
    elif action == "drop":
        del place[key]
    elif isinstance(place, list):
        place.insert(key, old)
    elif action == "twice":  # JSON may have a key twice
        place[_RAW + "key"] = old
    else:
        place[raw.strip('"')] = place.pop(key)
    written = json.dumps(document).replace(json.dumps(_RAW), raw).replace(json.dumps(_RAW + "key"), json.dumps(key))
    return written.encode("utf-8", "surrogateescape")


def _choose_json(rng: Random, data: bytes) -> list[Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return [[], "set", rng.choice(VALUES)]
    path = list(rng.choice(_all_paths(data)))
    value: Any = document
    for key in path:
        value = value[key]
    action = rng.choice(("set", "set", "set", "set", "drop", "twice", "key"))
    near: list[Text] = []
    if isinstance(value, (int, float)):
        near = [
            json.dumps(number)
            for number in (value + 1, value - 1, -value, value * 2, value / 2, bool(value), str(value))
        ]
    elif isinstance(value, str):
        near = [json.dumps(value + "x"), json.dumps(value[1:]), json.dumps(value.upper()), json.dumps([value])]
    elif isinstance(value, list):
        near = [
            json.dumps(value[::-1]),
            json.dumps(value[1:]),
            json.dumps([*value, *value[:3]]),
            json.dumps({"a": value}),
        ]
    elif isinstance(value, dict):
        near = [json.dumps(list(value)), json.dumps(list(value.values())), json.dumps({**value, "other": 1})]
    return [path, action, rng.choice(near) if near and rng.random() < 0.4 else rng.choice(VALUES)]


# --- Arrays -----------------------------------------------------------------------------------------------------------


def _npy(data: bytes, dtype: str, order: str, shape: str, version: int) -> bytes:
    """Write another header in front of the same numbers; "" keeps what is there."""
    match = re.match(rb"\x93NUMPY..(..)", data, re.DOTALL)
    if not match:
        return data
    end = 10 + int.from_bytes(match[1], "little")
    header = data[10:end].decode("latin-1")
    for name, value in (("descr", dtype), ("fortran_order", order), ("shape", shape)):
        if value:
            header = re.sub(rf"'{name}': ('[^']*'|\([^)]*\)|\w+)", lambda _, n=name, v=value: f"'{n}': {v}", header)  # type: ignore[misc]
    body = header.rstrip().encode("latin-1")
    body += b" " * max(0, end - 11 - len(body)) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(body) % 65536) + body + data[end:]


def _choose_npy(rng: Random, data: bytes) -> list[Any]:
    match = re.search(rb"'shape': \(([^)]*)\)", data[:300])
    numbers = [int(n) for n in re.findall(rb"\d+", match[1])] if match else []
    near = [tuple(numbers[::-1]), tuple(n + 1 for n in numbers), tuple(n * 2 for n in numbers), tuple(numbers[:-1])]
    shape = rng.choice(("", *SHAPES, *map(repr, near)))
    return [rng.choice(("", "", *DTYPES)), rng.choice(("", "", "True", "1")), shape, rng.choice((1, 1, 1, 2, 3, 9))]


# --- Archives ---------------------------------------------------------------------------------------------------------

_TAR_FIELDS = {
    "name": (0, 100),
    "mode": (100, 8),
    "size": (124, 12),
    "type": (156, 1),
    "link": (157, 100),
    "magic": (257, 8),
}


def _tar_header(data: bytes, number: int, name: str, value: str) -> bytes:
    """Set a field in a header of a tar archive, and make its checksum right."""
    at, starts = 0, []
    while data[at : at + 512].strip(b"\0"):
        starts.append(at)
        try:
            at += 512 + -(-int(data[at + 124 : at + 136].strip(b"\0 ") or b"0", 8) // 512) * 512
        except ValueError:
            break
    if not starts:
        return data
    start = starts[number % len(starts)]
    header = bytearray(data[start : start + 512].ljust(512, b"\0"))
    offset, width = _TAR_FIELDS[name]
    header[offset : offset + width] = value.encode("utf-8", "surrogateescape")[:width].ljust(width, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return data[:start] + bytes(header) + data[start + 512 :]


def _choose_tar(rng: Random, _: bytes) -> list[Any]:
    name = rng.choice(list(_TAR_FIELDS))
    choices = {
        "size": TAR_SIZES,
        "type": TAR_TYPES,
        "mode": TAR_SIZES,
        "magic": ["ustar  ", "ustar\x0000", "x"],
    }
    return [rng.randrange(9), name, rng.choice(choices.get(name, MEMBERS))]


def _tar_insert(data: bytes, name: str, kind: str, size: int, text: Text) -> bytes:
    """Put a member in front, which says that it has `size` bytes."""
    info = tarfile.TarInfo(name.replace("\0", "")[:99] or "x")
    info.type, info.linkname = kind.encode(), "../outside/secret"
    content = spelled(text)
    info.size = len(content) if size < 0 else size
    try:
        header = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    except (ValueError, UnicodeError):
        return data
    return header + content + b"\0" * (-len(content) % 512) + data


_ZIP_HEADERS = {"PK\x03\x04": (4, 6, 8, 14, 18, 22, 26, 28), "PK\x01\x02": (8, 10, 16, 20, 24, 28, 30, 32, 38, 42)}
_ZIP_HEADERS |= {"PK\x05\x06": (4, 8, 10, 12, 16, 20)}


def _zip_header(data: bytes, signature: str, number: int, offset: int, value: int) -> bytes:
    """Set a field in a header of a zip archive: flags, method, sizes, offsets."""
    starts = [match.start() for match in re.finditer(re.escape(signature.encode()), data)]
    if not starts:
        return data
    at = starts[number % len(starts)] + offset
    return data[:at] + (value % 2**16).to_bytes(2, "little") + data[at + 2 :]


def _choose_zip(rng: Random, _: bytes) -> list[Any]:
    signature = rng.choice(list(_ZIP_HEADERS))
    value = rng.choice((0, 1, 8, 9, 12, 14, 93, 99, 0x800, 0xA1FF, 65535, rng.randrange(65536)))
    return [signature, rng.randrange(9), rng.choice(_ZIP_HEADERS[signature]) + rng.choice((0, 0, 2)), value]


def _zip_name(data: bytes, number: int, name: str, attributes: int) -> bytes:
    """Give a member another name, or make it a link; the archive is written again."""
    out = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
            for i, info in enumerate(old.infolist()):
                content = old.read(info)
                if i == number:
                    info.filename, info.external_attr = name.encode("utf-8", "replace").decode() or "x", attributes
                new.writestr(info, content)
    except (zipfile.BadZipFile, ValueError, OSError, RuntimeError, EOFError, zlib.error):
        return data
    return out.getvalue()


@lru_cache(maxsize=8)
def _packed(unit: str, count: int) -> bytes:
    return gzip.compress(unit.encode() * count, 1, mtime=0)


# --- Protobuf ---------------------------------------------------------------------------------------------------------

_Field: TypeAlias = tuple[int, int, "int | bytes"]


def _varint(value: int) -> bytes:
    value %= 1 << 64
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("no number")


def _read_message(data: bytes) -> list[_Field]:
    at, fields = 0, list[_Field]()
    while at < len(data):
        tag, at = _read_varint(data, at)
        wire = tag & 7
        if tag >> 3 == 0 or wire not in (0, 1, 2, 5):
            raise ValueError("no message")
        if wire == 0:
            value, at = _read_varint(data, at)
            fields.append((tag >> 3, wire, value))
            continue
        size, at = _read_varint(data, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
        if size > len(data) - at:
            raise ValueError("no message")
        fields.append((tag >> 3, wire, data[at : at + size]))
        at += size
    return fields


def _write_message(fields: list[_Field]) -> bytes:
    parts = []
    for number, wire, value in fields:
        parts.append(_varint(number << 3 | wire))
        if isinstance(value, int):
            parts.append(_varint(value))
        else:
            parts.append((_varint(len(value)) if wire == 2 else b"") + value)
    return b"".join(parts)


def _proto(data: bytes, path: list[int], action: str, value: Any) -> bytes:  # noqa: ANN401 - whatever the action takes
    """Change a field of a protobuf message, found by its places in the messages around it; lengths are made right."""
    try:
        fields = _read_message(data)
        number, wire, old = fields[path[0]]
    except (ValueError, IndexError):
        return data
    if len(path) > 1 and isinstance(old, bytes):
        fields[path[0]] = (number, wire, _proto(old, path[1:], action, value))
    elif action == "drop":
        del fields[path[0]]
    elif action == "twice":
        fields.insert(path[0], fields[path[0]])
    elif action == "number":
        fields[path[0]] = (value, wire, old)
    elif isinstance(old, int):
        fields[path[0]] = (number, wire, value if isinstance(value, int) else old ^ 1)
    else:
        fields[path[0]] = (
            number,
            wire,
            spelled(value) if isinstance(value, (str, list)) else _number(old, 0, 4, value),
        )
    return _write_message(fields)


def _choose_proto(rng: Random, data: bytes) -> list[Any]:
    path: list[int] = []
    while True:
        try:
            fields = _read_message(data)
        except (ValueError, IndexError):
            break
        if not fields:
            break
        path.append(rng.randrange(len(fields)))
        inner = fields[path[-1]][2]
        if isinstance(inner, int) or len(inner) < 2 or rng.random() < 0.1:
            break
        data = inner
    action = rng.choice(("set", "set", "set", "drop", "twice", "number"))
    number = rng.choice((*range(30), *NUMBERS))
    return [path or [0], action, number if action == "number" or rng.random() < 0.6 else rng.choice(FIELDS)]


_Operation: TypeAlias = tuple[Callable[..., bytes], Choose]
OPERATIONS: dict[str, dict[str, _Operation]] = {
    "bytes": _BYTES,
    "text": _LINES,
    "json": {"json": (_json, _choose_json)},
    "npy": {"npy": (_npy, _choose_npy)},
    "tar": {
        "tar": (_tar_header, _choose_tar),
        "member": (
            _tar_insert,
            lambda rng, _: [
                rng.choice([*MEMBERS, "a/file.txt"]),
                rng.choice(TAR_TYPES),
                rng.choice((-1, -1, 0, 10, 10**6, 8**11 - 1)),
                rng.choice(TEXTS),
            ],
        ),
    },
    "zip": {
        "zip": (_zip_header, _choose_zip),
        "name": (
            _zip_name,
            lambda rng, _: [rng.randrange(4), rng.choice(MEMBERS), rng.choice((0, 0xA1ED << 16, 0x41ED << 16))],
        ),
    },
    "gzip": {
        "members": (
            lambda data, unit, count, copies: data + _packed(unit, count) * copies,
            lambda rng, _: [
                *rng.choice(
                    (("\0", 50_000), ("a", 50_000), (" ", 50_000), ("a b\n", 200), ("[]", 50_000), ("1 ", 50_000))
                ),
                rng.choice((1, 3, 20, 200, 400)),
            ],
        )
    },
    "proto": {"proto": (_proto, _choose_proto)},
}
APPLY = {name: apply for group in OPERATIONS.values() for name, (apply, _) in group.items()}
