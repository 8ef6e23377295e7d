"""The files of an index: `index.json` names all others, which never change; replacing it makes a change."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import math
import re
import stat
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import SavedSpec, UntrustedName
from ensembed.errors import DamagedIndexError, InputError, SearchIndexError
from ensembed.models.saved_model import is_model
from ensembed.support.atomic_files import new_file, npy_header
from ensembed.support.checks import did_you_mean, sha256_of
from ensembed.support.file_limits import LARGEST_DIM, read_json
from ensembed.support.version import __version__

FORMAT_VERSION = 2
"""The newest format: 2 adds translated rows. An index without any is written as format 1, which 0.1 reads."""
MANIFEST = "index.json"
NUMBER = "[0-9]{6,}"  # of a segment or a graph, in the names of its files
WAY_OUT = "restore it from a copy, or build the index again"

Kind: TypeAlias = Literal["auto", "exact", "hnsw"]
Codes: TypeAlias = Literal["float32", "int8", "binary"]

# Candidates for every wanted hit. Candidates from short codes or a graph are scored again from the float32 rows.
RESCORE: Mapping[str, int] = {"float32": 1, "int8": 4, "binary": 16}

_BLOCK = 1 << 16  # bytes with a checksum of their own: a graph's candidates are single rows, far from each other


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

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> SegmentFacts:
        """Build it from its part of `index.json`."""
        files = {content: FileFacts(**file) for content, file in facts["files"].items()}
        deleted = FileFacts(**facts["deleted"]) if facts["deleted"] else None
        return cls(**{**facts, "files": files, "deleted": deleted})

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
class TranslatedFacts:
    """Rows whose vectors were translated from another model's, not embedded by the model of the index.

    Attributes:
        ranges: the file with the keys of the rows: [m, 2] first keys, and the keys behind the last ones.
        count: m.
        familiar: the file with the mean and the centres of the sample that the map was fitted on: [k, d].
        centres: k.
        limits: the two limits of `Familiarity`.
        source: the name of the model whose vectors were translated; it is shown, never opened.
        recall: what a search finds of the ten nearest at most, and what was promised (`Verdict`).
    """

    ranges: FileFacts
    count: int
    familiar: FileFacts
    centres: int
    limits: tuple[float, float]
    source: str
    recall: tuple[float, float]

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> TranslatedFacts:
        """Build it from the content of `index.json`."""
        files = {name: FileFacts(**facts[name]) for name in ("ranges", "familiar")}
        pairs = {name: tuple(facts[name]) for name in ("limits", "recall")}
        for name, pair in pairs.items():
            if len(pair) != 2 or not all(type(number) is float and math.isfinite(number) for number in pair):
                raise ValueError(f"{name} of translated rows are {pair}")
        if type(facts["centres"]) is not int or facts["centres"] < 2:  # the mean, and a centre at least
            raise ValueError(f"the centres of translated rows are {facts['centres']!r}")
        if not isinstance(facts["source"], str):
            raise TypeError(f"the source of translated rows is {facts['source']!r}")
        return cls(**{**facts, **files, **pairs})


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
                option = f"{name} (--{name.replace('_', '-')})"
                way_out = f"leave out {option}, or make another index in a new folder"
                raise SearchIndexError(f"{folder} was made with {name} {before}, which stays, not {value}: {way_out}")


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
    # By the hash of an imported file: how many of its records were read, and whether that was all of them. While it is
    # imported there is an entry for what was deleted before, which begins with the hash, too (`delete_before`).
    imports: Mapping[str, tuple[int, bool]] = field(default_factory=dict)
    translated: TranslatedFacts | None = None  # rows that were translated from another model's

    @property
    def rows(self) -> int:
        """The number of rows that are not deleted."""
        return sum(segment.live for segment in self.segments)

    def files(self) -> list[FileFacts]:
        """Return every file except `index.json`."""
        rows = [file for segment in self.segments for file in segment.all_files()]
        translated = [self.translated.ranges, self.translated.familiar] if self.translated else []
        return [self.fingerprint, *rows, *([self.graph.file] if self.graph else []), *translated]

    def check(self) -> None:
        """Raise a ValueError if a count, or the name of a file, is none that an index writes.

        So nothing outside the folder is opened, written or deleted, whoever wrote `index.json`.
        """
        counts = [self.next_segment, self.next_key, *(file.size for file in self.files())]
        counts += [records for records, _ in self.imports.values()]
        names = [(self.fingerprint.name, f"fingerprint(-{NUMBER})?.npy")]
        for segment in self.segments:
            counts += [segment.rows, segment.live, segment.rows - segment.live]
            endings = {content: "jsonl" if content == "records" else "npy" for content in segment.files}
            names += [(segment.name, NUMBER), *((content, "[a-z]+") for content in segment.files)]
            names += [(file.name, f"{NUMBER}.{name}.{endings[name]}") for name, file in segment.files.items()]
            names += [(segment.deleted.name, f"{NUMBER}.deleted-{NUMBER}.npy")] if segment.deleted else []
        if self.graph:
            counts += [self.graph.rows, self.graph.upto]
            names += [(self.graph.file.name, f"graph-{NUMBER}.usearch")]
        if self.translated:
            counts += [self.translated.count, self.translated.centres]
            names += [(self.translated.ranges.name, f"translated-{NUMBER}.npy")]
            names += [(self.translated.familiar.name, f"familiar-{NUMBER}.npy")]
        for count in counts:
            if type(count) is not int or not 0 <= count < 1 << 62:
                raise ValueError(f"it has {count!r} where a count should be")
        for file in self.files():
            names.append((file.sha256, "[0-9a-f]*"))
        for name, pattern in names:
            if not re.fullmatch(pattern.replace(".", r"\."), name):
                raise ValueError(f"it names {name!r}, which is no file of an index")
        if type(self.spec.dim) is not int or not 0 < self.spec.dim <= LARGEST_DIM:
            raise ValueError(f"it has vectors of {self.spec.dim!r} dimensions")

    def to_bytes(self) -> bytes:
        """Return the content of `index.json`, with a hash of itself."""
        facts = {
            "format": FORMAT_VERSION if self.translated else 1,
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
        if self.translated:
            facts["translated"] = json.loads(json.dumps(asdict(self.translated)))
        return json.dumps(facts | {"sha256": json_hash(facts)}, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Manifest:
        """Build the manifest from the content of `index.json`."""
        model, graph = facts["model"], facts["graph"]
        source = model["source"]
        if not isinstance(source, str | None):
            raise TypeError(f"the source of the model is {source!r}")
        segments = [SegmentFacts.from_json(segment) for segment in facts["segments"]]
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
            TranslatedFacts.from_json(facts["translated"]) if facts.get("translated") else None,
        )


def read_manifest(folder: Path) -> Manifest:
    """Read `index.json`; raise a SearchIndexError if there is none, a DamagedIndexError if it is damaged."""
    path = folder / MANIFEST
    try:
        facts = read_json(path)
        intact = facts.pop("sha256") == json_hash(facts)
        if intact and facts["format"] not in range(1, FORMAT_VERSION + 1):
            reads = f"ensembed {__version__} reads 1 to {FORMAT_VERSION}: upgrade ensembed"
            raise SearchIndexError(f"{folder} has index format {facts['format']!r}; {reads}")
        manifest = Manifest.from_json(facts)
        manifest.check()
    except PermissionError as error:
        raise SearchIndexError(f"{path} cannot be read: {error}") from error
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            hint = did_you_mean(folder, MANIFEST)
            place, model = ("my-index", folder) if is_model(folder) else (folder, "MODEL")
            problem = f"there is no {MANIFEST} in it; make one: `ensembed index {place} FILE --model {model}`"
            raise SearchIndexError(f"{folder} is not a search index{hint}: {problem}") from None
        raise DamagedIndexError(f"{path} cannot be read: {error}; {WAY_OUT}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedIndexError(f"{path} is damaged: {error!r}; {WAY_OUT}") from error
    if not intact:
        raise DamagedIndexError(f"{path} is damaged: its checksum does not fit; {WAY_OUT}")
    return manifest


def json_hash(facts: Mapping[str, Any]) -> str:
    """Return the hash of plain JSON, however it is laid out."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def write_blocks(path: Path, blocks: Iterable[bytes]) -> FileFacts:
    """Write a file block by block. Its name is synced when `index.json`, which names it, is replaced."""
    digest, size = hashlib.sha256(), 0
    with new_file(path, sync_name=False) as temporary, temporary.open("wb") as file:
        for block in blocks:
            file.write(block)
            digest.update(block)
            size += len(block)
    return FileFacts(path.name, size, digest.hexdigest())


def write_npy(path: Path, shape: tuple[int, ...], dtype: str, blocks: Iterable[NDArray[Any]]) -> FileFacts:
    """Write an `.npy` file of this shape from blocks of its rows."""
    rows = (np.ascontiguousarray(block, dtype).tobytes() for block in blocks)
    return write_blocks(path, itertools.chain([npy_header(shape, dtype)], rows))


def facts_of(path: Path) -> FileFacts:
    """Read a file completely and return its size and hash."""
    return FileFacts(path.name, path.stat().st_size, sha256_of(path))


def check_bytes(folder: Path, facts: FileFacts) -> None:
    """Read a file completely and compare its hash."""
    path = folder / facts.name
    try:
        with open_file(folder, facts):
            intact = facts_of(path) == facts
    except FileNotFoundError:
        raise DamagedIndexError(f"{path} is gone; {WAY_OUT}") from None
    except OSError as error:
        raise DamagedIndexError(f"{path} cannot be read: {error}; {WAY_OUT}") from error
    if not intact:
        raise damaged(path, "its checksum does not fit")


def map_npy(folder: Path, facts: FileFacts, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Map an `.npy` file into memory, after comparing its size and its header with what was written."""
    header = npy_header(shape, dtype)
    with open_file(folder, facts) as file:
        # numpy's own parser raises errors of many kinds for a damaged header, and takes a zip file for an archive.
        size = len(header) + math.prod(shape) * np.dtype(dtype).itemsize
        if file.read(len(header)) != header or facts.size != size:
            raise damaged(folder / facts.name, f"it does not hold {dtype} {shape}")
        # A plain array over the same memory map: slicing np.memmap costs more than the product of a small block.
        return np.asarray(np.memmap(file, np.dtype(dtype), "r", len(header), shape))


def map_bytes(folder: Path, facts: FileFacts) -> NDArray[np.uint8]:
    """Map the bytes of a file into memory."""
    with open_file(folder, facts) as file:
        return np.asarray(np.memmap(file, np.uint8, "r")) if facts.size else np.zeros(0, np.uint8)


def open_file(folder: Path, facts: FileFacts) -> BinaryIO:
    """Open a file that has its size; only its checksums can tell that it was not changed.

    A DamagedIndexError says what is wrong with it; a FileNotFoundError, that a writer may have replaced it.
    """
    path = folder / facts.name
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise damaged(path, "it is no regular file")
        if status.st_size != facts.size:
            raise damaged(path, f"it has {status.st_size} bytes instead of {facts.size}")
        return path.open("rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedIndexError(f"{path} cannot be read: {error}; {WAY_OUT}") from error


def damaged(path: Path, problem: str) -> DamagedIndexError:
    """Return the error for a file whose content is not what was written."""
    return DamagedIndexError(f"{path} is damaged: {problem}; {WAY_OUT}")


class CheckedArray:
    """A mapped `.npy` file. A block of it is compared with its checksum when rows in it are first read.

    The checksum is CRC-32, which finds every error of one or two bits and all but one in 2^32 of the others. Each block
    is read once for this while the index is open. Indexes of version 0.1 have no checksums of blocks (`sums` is None):
    there only `check_bytes` finds a change.
    """

    def __init__(self, path: Path, array: NDArray[Any], sums: NDArray[np.uint32] | None) -> None:
        self._path, self._array = path, array
        self._sums = np.zeros(0, np.uint32) if sums is None else sums
        self._unread = np.ones(len(self._sums), bool)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> NDArray[Any]:
        """Return rows, by a slice or by their numbers."""
        if self._unread.any():
            self._check(rows)
        selected: NDArray[Any] = self._array[rows]
        return selected

    def _check(self, rows: slice | NDArray[np.int64]) -> None:
        width = self._array[:1].nbytes
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self._array))
            first, last = np.array([start]), np.array([stop])
        else:
            first, last = rows, rows + 1
        steps = np.zeros(len(self._unread) + 1, np.int64)  # 1 where rows begin, -1 behind the blocks in which they end
        np.add.at(steps, first * width // _BLOCK, 1)
        np.add.at(steps, -(-last * width // _BLOCK), -1)
        content = self._array.reshape(-1).view(np.uint8).data
        for block in np.flatnonzero(self._unread & (np.cumsum(steps[:-1]) > 0)).tolist():
            if zlib.crc32(content[block * _BLOCK : (block + 1) * _BLOCK]) != self._sums[block]:
                raise damaged(self._path, f"the checksum of its block {block} does not fit")
            self._unread[block] = False


def count_blocks(shape: tuple[int, ...], dtype: str) -> int:
    """Return how many checksums the data of an `.npy` file has."""
    return -(-math.prod(shape) * np.dtype(dtype).itemsize // _BLOCK)


class BlockSums:
    """The checksums of the blocks of data that comes in pieces."""

    def __init__(self) -> None:
        self._sums: list[int] = []
        self._rest = b""

    def add(self, data: bytes) -> bytes:
        """Take the next piece, and return it."""
        whole = self._rest + data if self._rest else data
        end = len(whole) // _BLOCK * _BLOCK
        view = memoryview(whole)
        self._sums += [zlib.crc32(view[start : start + _BLOCK]) for start in range(0, end, _BLOCK)]
        self._rest = bytes(view[end:])
        return data

    def result(self) -> NDArray[np.uint32]:
        """Return the checksums of all blocks."""
        return np.array(self._sums + ([zlib.crc32(self._rest)] if self._rest else []), np.uint32)
