"""The folder of a view while it is filled: which shards exist, which are missing, and how a shard is added.

The process that fills a view holds its lock (`ViewStore.unfinished`); others may write whole shards for it. A shard
that repeats sentences of missing shards may wait in `<root>/pending/<corpus key>/<encoder key>/`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus, shorten
from ensembed.encoders.base import EncoderSpec, FloatArray
from ensembed.errors import CorruptViewError, MissingError, StoreError
from ensembed.support.atomic_files import make_folder, npy_header, sync, write_atomically
from ensembed.support.file_limits import JSON_DEPTH, LARGEST_DIM, MANIFEST_BYTES
from ensembed.support.progress import Progress


@dataclass(frozen=True)
class Repeats:
    """The rows of one shard whose sentence was seen before.

    Attributes:
        rows: [r] counted from the shard's first row.
        origins: [r] the row of the view that holds the same sentence first.
    """

    rows: NDArray[np.int64]
    origins: NDArray[np.int64]

    @classmethod
    def among(cls, first_rows: NDArray[np.int64], start: int) -> Repeats:
        """Return the repeats of a shard, from its slice of `CorpusIndex.first_rows`."""
        rows = np.flatnonzero(first_rows != np.arange(start, start + len(first_rows)))
        return cls(rows, first_rows[rows])

    def fresh(self, count: int) -> NDArray[np.int64]:
        """Return the other rows of a shard of `count` rows: those to encode."""
        return np.delete(np.arange(count), self.rows)

    def elsewhere(self, start: int) -> list[int]:
        """Return the rows of other shards that are needed to fill a shard that begins at `start`."""
        return [int(row) for row in np.unique(self.origins[self.origins < start])]


@dataclass(frozen=True)
class ViewFiles:
    """The folder of a view and what belongs in it; it can be sent to another process.

    Attributes:
        folder: the folder, absolute, so that it is the same in another process.
        corpus: the key of the corpus.
        spec: the encoder.
        rows: rows of the whole view.
        shard_rows: rows per shard; the last one may be shorter.
    """

    folder: Path
    corpus: str
    spec: EncoderSpec
    rows: int
    shard_rows: int

    @classmethod
    def of(cls, folder: Path, corpus: Corpus, spec: EncoderSpec, shard_rows: int) -> ViewFiles:
        """Return the files of a view; one that was begun with another `shard_rows` keeps its own."""
        rows = len(corpus)
        written = _written_shard_rows(folder, spec.dim, rows)
        files = cls(folder.absolute(), corpus.key, spec, rows, written or shard_rows)
        # In a store from an unknown source, a link may point to a folder of the user's, where nothing may be changed.
        for place in (files.folder, files.pending):
            if place.is_symlink():
                raise StoreError(
                    f"{place} is a link, not the folder of a view: remove the link, or choose another store"
                )
        if rows > files.shard_rows * (most := MANIFEST_BYTES // _NAME_BYTES):  # its manifest could not be read
            way_out = f"take more rows per shard (`shard_rows`, --shard-rows), and remove {folder} if it was begun"
            raise StoreError(f"{rows:,} rows are more than {most:,} shards of {files.shard_rows}: {way_out}")
        return files

    @property
    def pending(self) -> Path:
        """The folder of shards some of whose rows are not filled yet."""
        return self.folder.parent.parent / "pending" / self.folder.parent.name / self.folder.name

    def stop(self, start: int) -> int:
        """Return the row after the last one of the shard that begins at `start`."""
        return min(start + self.shard_rows, self.rows)

    def origin(self, row: int) -> int:
        """Return the first row of the shard that holds a row."""
        return row - row % self.shard_rows

    def find(self, progress: Progress) -> dict[int, str]:
        """Return the whole shards of earlier runs by first row, every byte checked; remove other files of ours."""
        names: dict[int, str] = {}
        with self.disk_errors():
            ours = [path for path in self.folder.iterdir() if _OWN_NAMES.fullmatch(path.name)]
        paths = [path for path in ours if path.name != MANIFEST]
        for i, path in enumerate(paths):
            start = shard_start(path)
            if start is not None and self.is_whole(path, start):
                names[start] = path.name
            progress(f"verify {self.spec.name}", i + 1, len(paths))
        with self.disk_errors():
            manifest = self.folder / MANIFEST
            incomplete = len(names) < max(len(paths), -(-self.rows // self.shard_rows)) or not manifest.is_file()
            if incomplete and os.path.lexists(manifest):
                # The manifest goes first: a view that is being repaired is incomplete, not damaged.
                _remove(manifest)
                sync(self.folder)
            self._remove_others(names)
        return names

    def load(self, path: Path, start: int) -> FloatArray:
        """Return a shard [m, d] of this view, finished or pending, every byte checked."""
        return load_shard(path, self.stop(start) - start, self.spec.dim)

    def copy_repeats(self, shard: FloatArray, start: int, repeats: Repeats, path: Callable[[int], Path]) -> None:
        """Give every repeated sentence the vector of its first occurrence, in this shard or an earlier one.

        Args:
            shard: [m, d], changed in place; all other rows are filled already.
            start: its first row.
            repeats: its repeated sentences.
            path: returns the file of the shard with that first row.
        """
        origin = repeats.origins - repeats.origins % self.shard_rows
        for first in np.unique(origin).tolist():
            here = origin == first
            source = shard if first == start else self.load(path(first), first)
            shard[repeats.rows[here]] = source[repeats.origins[here] - first]

    def write(self, start: int, shard: FloatArray) -> str:
        """Write a finished shard and return its name."""
        return self._write(self.folder, start, shard)

    def keep_pending(self, start: int, shard: FloatArray) -> str:
        """Write a shard some of whose rows are not filled yet, and return its name."""
        with self.disk_errors():
            make_folder(self.pending)
        return self._write(self.pending, start, shard)

    def clear_pending(self) -> None:
        """Remove pending files that are no whole shard of this view, or that have another `shard_rows`."""
        with self.disk_errors():
            for path in self.pending.iterdir() if self.pending.is_dir() else ():
                start = shard_start(path)
                if start is None or not self.is_whole(path, start):
                    _remove(path)

    def finish(self, names: Mapping[int, str]) -> None:
        """Make the view complete: these shards, by first row, and no others."""
        shards = tuple(names[start] for start in range(0, self.rows, self.shard_rows))
        manifest = Manifest(self.corpus, self.spec, self.rows, self.shard_rows, shards)
        with self.disk_errors():
            self._remove_others(names)
            # Pending shards are removed before the manifest is written: afterwards no run would look for them.
            if self.pending.exists():
                # The folder of the corpus stays: a worker may be about to use it for another view.
                shutil.rmtree(self.pending)
            write_atomically(self.folder / MANIFEST, manifest.to_bytes())

    @contextmanager
    def disk_errors(self) -> Iterator[None]:
        """Turn an error of the disk into a StoreError."""
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"cannot write the view {self.folder}: {error}; the finished shards are kept; run again to continue"
            ) from error

    def _write(self, folder: Path, start: int, shard: FloatArray) -> str:
        data = shard_bytes(shard)
        name = shard_name(start, data)
        with self.disk_errors():
            write_atomically(folder / name, data)
        return name

    def _remove_others(self, names: Mapping[int, str]) -> None:
        kept = {MANIFEST, *names.values()}
        for path in self.folder.iterdir():
            if path.name not in kept:
                _remove(path)

    def is_whole(self, path: Path, start: int) -> bool:
        """Return whether a file is the shard of this view that begins at a row, and every byte of it is right."""
        if start % self.shard_rows or start >= self.rows:  # it is a shard of another shard_rows
            return False
        try:
            return path.stat().st_size == shard_size(self.stop(start) - start, self.spec.dim) and is_whole(path)
        except OSError:
            return False


def read_manifest(folder: Path) -> Manifest:
    """Return what a complete view holds, or raise a MissingError."""
    try:
        if (folder / MANIFEST).is_fifo():
            raise OSError("it is a pipe")  # noqa: TRY301 - reported as what else cannot be read
        with (folder / MANIFEST).open("rb") as file:
            data = file.read(MANIFEST_BYTES)
    except FileNotFoundError:
        raise MissingError(f"the view {folder} is not complete; fill it with `ensembed embed`") from None
    except (PermissionError, NotADirectoryError) as error:
        raise StoreError(f"cannot read the view {folder}: {error}") from error
    except OSError as error:  # it became a folder, or a link to itself
        raise CorruptViewError(f"{folder / MANIFEST} cannot be read: {error}; {REPAIR}") from error
    return Manifest.from_bytes(data, folder / MANIFEST)


def _written_shard_rows(folder: Path, dim: int, rows: int) -> int | None:
    """Return the rows per shard of a view begun before, or None: a shard that is the only one may be a short one."""
    try:
        return read_manifest(folder).shard_rows
    except (MissingError, CorruptViewError):
        first = [path for path in folder.iterdir() if shard_start(path) == 0 and is_whole(path)]
        size = first[0].stat().st_size if len(first) == 1 else 0
        written = max(size - shard_size(0, dim), 0) // (4 * dim)
        return written if shard_size(written, dim) == size and written < rows else None


FORMAT_VERSION = 1
MANIFEST = "manifest.json"
REPAIR = "run `ensembed embed --verify` to encode the damaged part again"
_SHARD_NAME = re.compile(r"shard-(\d{9,})-([0-9a-f]{32})\.npy")
_NAME_BYTES = 64  # of a shard in the manifest
# What may be removed: our files, what a killed process left of one, and the marks of a cluster's workers.
_OWN_NAMES = re.compile(rf"\.?({_SHARD_NAME.pattern}|{re.escape(MANIFEST)}|try-\d{{9,}}-\d+)((\.[0-9a-f]{{8}})?\.tmp)?")


@dataclass(frozen=True)
class Manifest:
    """What a complete view holds; `spec` is kept so that a person can tell what a folder is."""

    corpus: str
    spec: EncoderSpec
    rows: int
    shard_rows: int
    shards: tuple[str, ...]

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
        # Parsed values take many times the memory of their text. A shard's name has over 50 bytes; all else is short.
        if data.count(b"[") + data.count(b"{") > JSON_DEPTH or data.count(b",") > 1000 + len(data) // 50:
            raise CorruptViewError(f"{path} is damaged: it holds more than the names of shards; {REPAIR}")
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
            fits = type(manifest.rows) is type(manifest.shard_rows) is type(spec.dim) is int
            fits = fits and manifest.rows > 0 and manifest.shard_rows > 0 and 0 < spec.dim <= LARGEST_DIM
            fits = fits and len(manifest.shards) == -(-manifest.rows // manifest.shard_rows)
            written = manifest.to_bytes()
            # A name must not lead out of the folder, and no shard may be listed twice.
            fits = fits and all(
                _SHARD_NAME.fullmatch(name) and name.startswith(f"shard-{k * manifest.shard_rows:09d}-")
                for k, name in enumerate(manifest.shards)
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptViewError(f"{path} is damaged: {error!r}; {REPAIR}") from error
        if written != data:
            raise CorruptViewError(f"{path} is damaged: its checksum does not fit; {REPAIR}")
        if not fits:
            shards = f"{len(manifest.shards)} shards of {manifest.shard_rows} rows for {manifest.rows} rows"
            shards += f" of {spec.dim} numbers, {shorten(manifest.shards)}"
            raise CorruptViewError(f"{path} is damaged: it names {shards}; {REPAIR}")
        return manifest


def shard_bytes(shard: FloatArray) -> bytes:
    """Return the content of the `.npy` file of an array [rows, d]."""
    return npy_header(shard.shape) + np.ascontiguousarray(shard, "<f4").tobytes()


def shard_size(rows: int, dim: int) -> int:
    """Return the size of a shard's file in bytes."""
    return len(npy_header((rows, dim))) + 4 * rows * dim


def shard_name(start: int, data: bytes) -> str:
    """Return the file name of the shard that begins with row `start`: the row and the hash of the content."""
    return f"shard-{start:09d}-{checksum(data)}.npy"


def shard_start(path: Path) -> int | None:
    """Return the first row, from a shard's file name; None for any other file."""
    match = _SHARD_NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def is_whole(path: Path) -> bool:
    """Return whether a shard exists, can be read and has the bytes that its name promises."""
    try:
        return path.is_file() and path.name.endswith(f"-{checksum(path.read_bytes())}.npy")
    except OSError:
        return False


def _remove(path: Path) -> None:
    """Remove a file that has a name of ours, or a folder in place of one; leave any other."""
    if not _OWN_NAMES.fullmatch(path.name):
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def load_shard(path: Path, rows: int, dim: int) -> FloatArray:
    """Return the shard, checked, or raise a CorruptViewError. It is not mapped: a later truncation would crash us."""
    header = npy_header((rows, dim))
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
