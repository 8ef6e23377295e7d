"""The encoders and data sets that can be pulled, as data: `catalog.json` pins every file by its SHA-256."""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

from ensembed.errors import MissingError, UnknownEncoderError
from ensembed.support.machine import cache_dir


@dataclass(frozen=True)
class PinnedFile:
    """What a file has to be, whichever source serves it."""

    sha256: str
    size: int


@dataclass(frozen=True)
class NpmSource:
    """An archive of the npm registry; `paths` maps stored names to members, without npm's leading `package/`."""

    package: str
    version: str
    size: int
    paths: Mapping[str, str]

    @property
    def label(self) -> str:
        """How messages name the source; equal labels mean the same download."""
        return f"npm {self.package} {self.version}"


@dataclass(frozen=True)
class PypiSource:
    """A wheel of PyPI; `paths` maps stored names to members.

    `platform` and `python` choose one wheel of a package that has many, so that every machine reads the same archive.
    """

    package: str
    version: str
    size: int
    paths: Mapping[str, str]
    platform: str | None = None
    python: str | None = None

    @property
    def label(self) -> str:
        """How messages name the source; equal labels mean the same download."""
        return f"PyPI {self.package} {self.version}"


@dataclass(frozen=True)
class HubSource:
    """Files of a repository on the Hugging Face hub at one commit; `paths` maps stored names to the files there."""

    repo: str
    revision: str
    size: int
    paths: Mapping[str, str]

    @property
    def label(self) -> str:
        """How messages name the source; equal labels mean the same download."""
        return f"Hugging Face hub {self.repo}@{self.revision[:7]} ({', '.join(self.paths.values())})"


Source: TypeAlias = NpmSource | PypiSource | HubSource


@dataclass(frozen=True)
class CatalogEntry:
    """One encoder or data set.

    Attributes:
        name: what a user calls it.
        title: the model or data, for a person.
        kind: the class of encoder that reads the files ("onnx", "static", "use-lite"), or "dataset".
        dim: the length of a vector; None for a data set.
        licence: the licence of the weights or the data.
        settings: arguments of the encoder.
        files: the files by the name they are stored under.
        sources: where the files can be had, in the order in which to try.
    """

    name: str
    title: str
    kind: str
    dim: int | None
    licence: str
    settings: Mapping[str, Any]
    files: Mapping[str, PinnedFile]
    sources: tuple[Source, ...]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files.values())

    @property
    def revision(self) -> str:
        """A short hash over the hashes of the files: it pins the weights."""
        lines = "".join(f"{name} {file.sha256}\n" for name, file in sorted(self.files.items()))
        return hashlib.sha256(lines.encode()).hexdigest()[:16]


@functools.cache
def catalog() -> Mapping[str, CatalogEntry]:
    """All entries by name, in the order of the file."""
    file = resources.files("ensembed") / "fetch" / "catalog.json"
    return read_catalog(file.read_text(encoding="utf-8"))


def read_catalog(text: str) -> dict[str, CatalogEntry]:
    """The entries of a catalogue in the format of `catalog.json`."""
    entries = [_entry(data) for data in json.loads(text)]
    return {entry.name: entry for entry in entries}


def entry(name: str) -> CatalogEntry:
    """The entry of that name.

    Raises:
        UnknownEncoderError: there is none; the message lists close matches and all names.
    """
    entries = catalog()
    if name in entries:
        return entries[name]
    close = difflib.get_close_matches(name, entries)
    hint = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
    raise UnknownEncoderError(f"the catalogue has no {name!r}{hint}; it has: {', '.join(entries)}")


def folder_of(entry: CatalogEntry) -> Path:
    """Where the files of an entry are, or will be once it is pulled."""
    return cache_dir() / ("datasets" if entry.kind == "dataset" else "encoders") / entry.name


def is_pulled(entry: CatalogEntry) -> bool:
    """Whether all files of the entry are there with the right size; a quick look, see `damaged_file`."""
    folder = folder_of(entry)
    return all(_size(folder / name) == file.size for name, file in entry.files.items())


def damaged_file(entry: CatalogEntry) -> str | None:
    """The first file of the entry that is missing or does not have its pinned hash, or None."""
    folder = folder_of(entry)
    for name, file in entry.files.items():
        if _size(folder / name) != file.size or _sha256(folder / name) != file.sha256:
            return name
    return None


def require(name: str) -> Path:
    """The folder with the files of a pulled entry.

    Every byte is checked, which takes about a tenth of a second per hundred megabytes: weights with a flipped bit
    would give vectors that are wrong in silence, and cached for good.

    Raises:
        UnknownEncoderError: the catalogue has no such name.
        MissingError: the entry has not been pulled, or is damaged; the message says what to do.
    """
    wanted = entry(name)
    folder = folder_of(wanted)
    if not is_pulled(wanted):
        raise MissingError(
            f"{name} ({wanted.title}) is not on this machine: {folder} lacks some of its files; "
            f"fetch them with: ensembed pull {name}"
        )
    if bad := damaged_file(wanted):
        raise MissingError(
            f"{folder / bad} is damaged: it has not its pinned hash; repair it with: ensembed pull {name}"
        )
    return folder


def _entry(data: Mapping[str, Any]) -> CatalogEntry:
    files = {name: PinnedFile(**file) for name, file in data["files"].items()}
    size = sum(file.size for file in files.values())
    sources = tuple(_source(source, size) for source in data["sources"])
    return CatalogEntry(**{**data, "files": files, "sources": sources})


def _source(data: Mapping[str, Any], size: int) -> Source:
    facts = {key: value for key, value in data.items() if key != "registry"}
    if data["registry"] == "npm":
        return NpmSource(**facts)
    if data["registry"] == "pypi":
        return PypiSource(**facts)
    return HubSource(**facts, size=size)  # the hub serves the files as they are: their size is the download's


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _sha256(path: Path) -> str | None:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            for chunk in iter(lambda: file.read(1 << 20), b""):
                digest.update(chunk)
    except OSError:
        return None
    return digest.hexdigest()
