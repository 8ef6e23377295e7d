"""Mutations of files, as data: a recipe of steps that can be written down, applied again and made shorter.

A step is a list: the name of an operation, a target, and arguments of JSON. A target is a file, or a part of one:
`words.json.gz|gzip` is what a gzip file holds, `model.safetensors|tensors` the JSON header of its tensors,
`rows.jsonl|line:3` a line, `model.zip|zip:a/b` a member.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any, TypeAlias

from fuzz.operations import APPLY, OPERATIONS


class Kind(str, Enum):
    """What can be in the place of a file."""

    MISSING = "missing"
    FOLDER = "folder"
    LOOP = "loop"  # a link to itself
    PIPE = "pipe"  # which nobody writes to
    ZEROS = "zeros"  # a link to a device that never ends
    OUTSIDE = "outside"  # a link to a file outside of the artefact


Files: TypeAlias = dict[str, "bytes | Kind"]
"""An artefact: its files by their paths."""
Step: TypeAlias = list[Any]


@dataclass
class Recipe:
    """What is done to an artefact: the steps, and whether its hashes are made right afterwards."""

    steps: list[Step]
    repair: bool = False

    def shorter(self) -> Iterator[Recipe]:
        """Yield recipes that do less."""
        for i in range(len(self.steps)):
            if len(self.steps) > 1:
                yield Recipe(self.steps[:i] + self.steps[i + 1 :], self.repair)
        if self.repair:
            yield Recipe(self.steps, False)


# --- Parts of files ---------------------------------------------------------------------------------------------------


def edit(data: bytes, layers: list[str], change: Callable[[bytes], bytes]) -> bytes:
    """Return a file after a change of a part of it; the file itself if it has no such part."""
    if not layers:
        return change(data)
    kind, _, name = layers[0].partition(":")
    try:
        return _LAYERS[kind](data, name, lambda part: edit(part, layers[1:], change))
    except (
        ValueError,
        TypeError,
        AttributeError,
        OSError,
        EOFError,
        LookupError,
        struct.error,
        zlib.error,
        zipfile.BadZipFile,
        tarfile.TarError,
        RecursionError,
        MemoryError,
        RuntimeError,  # a member with a password, or a way of packing that zipfile does not know
    ):
        return data


def _gzip(data: bytes, _: str, change: Callable[[bytes], bytes]) -> bytes:
    return gzip.compress(change(gzip.decompress(data)), 1, mtime=0)


def _tensors(data: bytes, _: str, change: Callable[[bytes], bytes]) -> bytes:
    end = 8 + struct.unpack("<Q", data[:8])[0]
    header = change(data[8:end])
    return struct.pack("<Q", len(header)) + header + data[end:]


def _line(data: bytes, number: str, change: Callable[[bytes], bytes]) -> bytes:
    lines = data.splitlines(keepends=True)
    end = b"\n" if lines[int(number)].endswith(b"\n") else b""
    lines[int(number)] = change(lines[int(number)].removesuffix(b"\n")) + end
    return b"".join(lines)


def _zip(data: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: (info, archive.read(info)) for info in archive.infolist()}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, content in members.values():
            archive.writestr(info, change(content) if info.filename == name else content)
    return out.getvalue()


def _tar(data: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive, tarfile.open(fileobj=out, mode="w") as new:
        for info in archive:
            stream = archive.extractfile(info)
            content = stream.read() if stream else b""
            content = change(content) if info.name == name else content
            info.size = len(content)
            new.addfile(info, io.BytesIO(content))
    return out.getvalue()


def _string(data: bytes, path: str, change: Callable[[bytes], bytes]) -> bytes:
    """A JSON text that is a string in a JSON text."""
    document = json.loads(data)
    *above, last = path.split("/")
    place = document
    for key in above:
        place = place[key]
    place[last] = change(place[last].encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
    return json.dumps(document).encode()


_NO_HASH = (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError, struct.error)
_LAYERS: dict[str, Callable[[bytes, str, Callable[[bytes], bytes]], bytes]] = {
    "gzip": _gzip,
    "tensors": _tensors,
    "line": _line,
    "zip": _zip,
    "tar": _tar,
    "string": _string,
}


# Operations by the ending of a file, and the parts in which it is mutated, too.
_ENDINGS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    ".json": (("json", "json", "json", "bytes"), ()),
    ".npy": (("npy", "bytes"), ()),
    ".safetensors": (("bytes",), ("tensors",)),
    ".jsonl": (("text", "bytes"), ("line:0", "line:1", "line:2")),
    ".txt": (("text", "bytes"), ()),
    ".csv": (("text", "bytes"), ()),
    ".tsv": (("text", "bytes"), ()),
    ".gz": (("gzip", "bytes"), ("gzip",)),
    ".tgz": (("gzip", "bytes"), ("gzip",)),
    ".tar": (("tar", "tar", "bytes"), ()),
    ".zip": (("zip", "bytes"), ()),
    ".npz": (("zip", "bytes"), ()),
    ".onnx": (("proto", "proto", "proto", "bytes"), ()),
    ".pb": (("proto", "proto", "proto", "bytes"), ()),
}


@dataclass(frozen=True)
class Target:
    """A file or a part of one, and the groups of operations that fit it."""

    place: str
    groups: tuple[str, ...]


def targets(files: Files, more: Mapping[str, tuple[str, ...]]) -> list[Target]:
    """Return what can be mutated in an artefact: files, parts of files by their endings, and `more` parts."""
    found: list[Target] = []
    for name in files:
        found += _targets(name, name)
    return found + [Target(place, groups) for place, groups in more.items()]


def _targets(place: str, name: str) -> Iterator[Target]:
    ending = next((end for end in _ENDINGS if name.endswith(end)), None)
    groups, layers = _ENDINGS[ending] if ending else (("bytes",), ())
    yield Target(place, groups)
    for layer in layers:
        if layer == "gzip":
            inner = name.removesuffix(ending or "") + (".tar" if ending == ".tgz" or name.endswith(".tar.gz") else "")
            yield from _targets(f"{place}|gzip", inner.replace(".tar.tar", ".tar"))
        else:
            yield Target(f"{place}|{layer}", ("json", "json", "bytes"))


# --- Recipes ----------------------------------------------------------------------------------------------------------


@dataclass
class Mutator:
    """Chooses recipes for an artefact."""

    files: Files
    more: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kinds: tuple[Kind, ...] = tuple(Kind)

    def __post_init__(self) -> None:
        self._targets = targets(self.files, self.more)

    def choose(self, seed: str) -> Recipe:
        """Return the recipe of a seed."""
        rng = Random(seed)  # noqa: S311 - it has to be the same every time
        steps = [self._step(rng) for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3)))]
        return Recipe(steps, rng.random() < 0.5)

    def _step(self, rng: Random) -> Step:
        if rng.random() < 0.04:
            return ["kind", rng.choice(list(self.files)), rng.choice(self.kinds).value]
        if rng.random() < 0.02:
            return ["swap", rng.choice(list(self.files)), rng.choice(list(self.files))]
        target = rng.choice(self._targets)
        name, *layers = target.place.split("|")
        data = b""

        def look(part: bytes) -> bytes:
            nonlocal data
            data = part
            return part

        content = self.files[name]
        if isinstance(content, bytes):
            edit(content, layers, look)
        group = OPERATIONS[rng.choice(target.groups)]
        operation = rng.choice(list(group))
        return [operation, target.place, *group[operation][1](rng, data)]


def apply(files: Files, recipe: Recipe, repair: Callable[[Files], None] | None) -> Files:
    """Return an artefact after the steps of a recipe."""
    changed = dict(files)
    for operation, place, *arguments in recipe.steps:
        name, *layers = place.split("|")
        if name not in changed:
            continue
        content = changed[name]
        if operation == "kind":
            changed[name] = Kind(arguments[0])
        elif operation == "swap":
            changed[name], changed[arguments[0]] = changed.get(arguments[0], b""), content
        elif isinstance(content, bytes):
            changed[name] = edit(content, layers, lambda part, o=operation, a=arguments: APPLY[o](part, *a))  # type: ignore[misc]
    if recipe.repair and repair is not None:
        with contextlib.suppress(*_NO_HASH):  # what is damaged too much has no hash
            repair(changed)
    return changed
