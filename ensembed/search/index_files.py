"""The files of an index: `index.json` names all others, which never change; replacing it makes a change."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import SavedSpec, UntrustedName
from ensembed.errors import DamagedIndexError, InputError, SearchIndexError
from ensembed.support.atomic_files import new_file
from ensembed.support.checks import sha256_of
from ensembed.support.version import __version__

FORMAT_VERSION = 1
MANIFEST = "index.json"
WAY_OUT = "restore it from a copy, or build the index again"

Kind: TypeAlias = Literal["auto", "exact", "hnsw"]
Codes: TypeAlias = Literal["float32", "int8", "binary"]

# Candidates for every wanted hit. Candidates from short codes or a graph are scored again from the float32 rows.
RESCORE: Mapping[str, int] = {"float32": 1, "int8": 4, "binary": 16}


@dataclass(frozen=True)
class FileFacts:
    """The name of a file in the folder of the index, its size in bytes and its hash."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class SegmentFacts:
    """A segment: rows that were written together and never change."""

    name: str  # the first part of the names of its files
    rows: int  # including deleted ones
    files: Mapping[str, FileFacts]  # by content ("vectors", "records", ...)
    deleted: FileFacts | None  # the numbers of the deleted rows
    live: int  # number of rows that are not deleted

    def all_files(self) -> list[FileFacts]:
        """Return every file of the segment."""
        return [*self.files.values(), *([self.deleted] if self.deleted else [])]


@dataclass(frozen=True)
class GraphFacts:
    """The HNSW graph, of the rows with a key below `upto` that existed when it was built."""

    file: FileFacts
    rows: int
    upto: int


@dataclass(frozen=True)
class Settings:
    """How an index searches, as `Index.create` describes it; fixed when it is created."""

    kind: Kind = "auto"
    dtype: Codes = "float32"
    rescore: int = 1
    graph_rows: int = 250_000

    def __post_init__(self) -> None:
        for name, choices in (("kind", get_args(Kind)), ("dtype", get_args(Codes))):
            if (value := getattr(self, name)) not in choices:
                raise InputError(f"{name} is one of {', '.join(choices)}, not {value!r}")
        for name in ("rescore", "graph_rows"):
            if type(value := getattr(self, name)) is not int or value < 1:
                raise InputError(f"{name} is a whole number from 1 on, not {value!r}")

    def changed(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of an index that is made again: `changes`, and the others as they were."""
        before = asdict(self)
        if changes.get("dtype", self.dtype) != self.dtype:
            del before["rescore"]  # each dtype has its own default
        return before | dict(changes)

    def check_same(self, wanted: Mapping[str, Any], folder: Path) -> None:
        """Raise a SearchIndexError if the index in the folder has other settings than the wanted ones."""
        for name, value in wanted.items():
            if (before := getattr(self, name)) != value:
                option = f"--{name.replace('_', '-')}"
                way_out = f"leave out {option}, or make another index in a new folder"
                raise SearchIndexError(f"{folder} was made with {option} {before}, which stays, not {value}: {way_out}")


@dataclass(frozen=True)
class Manifest:
    """Everything about an index except the rows; saved as `index.json`."""

    settings: Settings
    spec: SavedSpec  # of the model
    source: UntrustedName | None  # the folder or name from which the model can be opened again; None for an object
    fingerprint: FileFacts  # the model's vectors of the probe sentences
    segments: tuple[SegmentFacts, ...] = ()
    graph: GraphFacts | None = None
    next_segment: int = 1  # the number of the next file; never used twice, because readers may have old files open
    next_key: int = 0  # the key of the next row; never used twice either
    # By the hash of an imported file: how many of its records were read, and whether that was all of them.
    imports: Mapping[str, tuple[int, bool]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of rows that are not deleted."""
        return sum(segment.live for segment in self.segments)

    def files(self) -> list[FileFacts]:
        """Return every file except `index.json`."""
        rows = [file for segment in self.segments for file in segment.all_files()]
        return [self.fingerprint, *rows, *([self.graph.file] if self.graph else [])]

    def to_bytes(self) -> bytes:
        """Return the content of `index.json`, with a hash of itself."""
        facts = {
            "format": FORMAT_VERSION,
            "ensembed": __version__,
            "settings": asdict(self.settings),
            "model": {
                "source": self.source and self.source.text,
                "spec": self.spec.to_json(),
                "fingerprint": asdict(self.fingerprint),
            },
            "segments": [asdict(segment) for segment in self.segments],
            "graph": asdict(self.graph) if self.graph else None,
            "next_segment": self.next_segment,
            "next_key": self.next_key,
            "imports": {key: list(value) for key, value in self.imports.items()},
        }
        return json.dumps(facts | {"sha256": _json_hash(facts)}, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Manifest:
        """Build the manifest from the content of `index.json`."""
        model, graph = facts["model"], facts["graph"]
        source = model["source"]
        if not isinstance(source, str | None):
            raise TypeError(f"the source of the model is {source!r}")
        segments = []
        for segment in facts["segments"]:
            files = {content: FileFacts(**file) for content, file in segment["files"].items()}
            deleted = FileFacts(**segment["deleted"]) if segment["deleted"] else None
            segments.append(SegmentFacts(**segment | {"files": files, "deleted": deleted}))
        return cls(
            Settings(**facts["settings"]),
            SavedSpec.from_json(model["spec"]),
            None if source is None else UntrustedName(source),
            FileFacts(**model["fingerprint"]),
            tuple(segments),
            GraphFacts(**graph | {"file": FileFacts(**graph["file"])}) if graph else None,
            facts["next_segment"],
            facts["next_key"],
            {key: (rows, complete) for key, (rows, complete) in facts["imports"].items()},
        )


def read_manifest(folder: Path) -> Manifest:
    """Read `index.json`; raise a SearchIndexError if there is none, a DamagedIndexError if it is damaged."""
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        problem = f"there is no {MANIFEST} in it; make one with ensembed index"
        raise SearchIndexError(f"{folder} is not a search index: {problem}") from None
    except OSError as error:
        raise SearchIndexError(f"{path} cannot be read: {error}") from error
    try:
        facts = json.loads(data)
        intact = facts.pop("sha256") == _json_hash(facts)
        if intact and facts["format"] != FORMAT_VERSION:
            reads = f"ensembed {__version__} reads {FORMAT_VERSION}: upgrade ensembed"
            raise SearchIndexError(f"{folder} has index format {facts['format']!r}; {reads}")
        manifest = Manifest.from_json(facts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedIndexError(f"{path} is damaged: {error!r}; {WAY_OUT}") from error
    if not intact:
        raise DamagedIndexError(f"{path} is damaged: its checksum does not fit; {WAY_OUT}")
    return manifest


def _json_hash(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def write_blocks(path: Path, blocks: Iterable[bytes]) -> FileFacts:
    """Write a file block by block. Its name is synced when `index.json`, which names it, is replaced."""
    with new_file(path, sync_name=False) as temporary, temporary.open("wb") as file:
        file.writelines(blocks)
    return facts_of(path)


def write_npy(path: Path, shape: tuple[int, ...], dtype: str, blocks: Iterable[NDArray[Any]]) -> FileFacts:
    """Write an `.npy` file of this shape from blocks of its rows."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": shape})
    rows = (np.ascontiguousarray(block, dtype).tobytes() for block in blocks)
    return write_blocks(path, itertools.chain([header.getvalue()], rows))


def facts_of(path: Path) -> FileFacts:
    """Read a file completely and return its size and hash."""
    return FileFacts(path.name, path.stat().st_size, sha256_of(path))


def check_bytes(folder: Path, facts: FileFacts) -> None:
    """Read a file completely and compare its hash."""
    path = folder / facts.name
    try:
        intact = facts_of(path) == facts
    except FileNotFoundError:
        raise DamagedIndexError(f"{path} is gone; {WAY_OUT}") from None
    except OSError as error:
        raise DamagedIndexError(f"{path} cannot be read: {error}; {WAY_OUT}") from error
    if not intact:
        raise DamagedIndexError(f"{path} is damaged: its checksum does not fit; {WAY_OUT}")


def map_npy(folder: Path, facts: FileFacts, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Map an `.npy` file into memory, after checking its size, shape and type."""
    path = _check_size(folder, facts)
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DamagedIndexError(f"{path} is damaged: {error}; {WAY_OUT}") from error
    if array.shape != shape or array.dtype != np.dtype(dtype):
        problem = f"it holds {array.dtype} {array.shape} instead of {dtype} {shape}"
        raise DamagedIndexError(f"{path} is damaged: {problem}; {WAY_OUT}")
    # A plain array over the same memory map: slicing np.memmap costs more than the product of a small block.
    return np.asarray(array)


def map_bytes(folder: Path, facts: FileFacts) -> NDArray[np.uint8]:
    """Map the bytes of a file into memory."""
    return np.asarray(np.memmap(_check_size(folder, facts), np.uint8, mode="r"))


def _check_size(folder: Path, facts: FileFacts) -> Path:
    """Return the path of a file that has its size; only `check_bytes` can tell that it was not changed."""
    path = folder / facts.name
    size = path.stat().st_size
    if size != facts.size:
        raise DamagedIndexError(f"{path} is damaged: it has {size} bytes instead of {facts.size}; {WAY_OUT}")
    return path
