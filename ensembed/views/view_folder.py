"""The folder of a view while it is filled: what is there, what is missing, and how a shard comes into it.

Whoever fills a view holds its lock (`ViewStore.unfinished`). It may let other processes write: a shard is there whole
or not at all, whoever wrote it. A shard whose repeated sentences stand in shards that are not there yet may be kept in
`<root>/pending/<corpus key>/<encoder key>/` meanwhile, with the rows of those sentences left open.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import EncoderSpec, FloatArray
from ensembed.errors import CorruptViewError, MissingError, StoreError
from ensembed.support.atomic_files import write_atomically
from ensembed.support.progress import Progress
from ensembed.views.shards import (
    MANIFEST,
    Manifest,
    is_whole,
    load_shard,
    shard_bytes,
    shard_name,
    shard_rows_of,
    shard_size,
    shard_start,
)


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
        """Those of a shard, from its stretch of `CorpusIndex.first_rows`."""
        rows = np.flatnonzero(first_rows != np.arange(start, start + len(first_rows)))
        return cls(rows, first_rows[rows])

    def fresh(self, count: int) -> NDArray[np.int64]:
        """The other rows of a shard of `count` rows: those to encode."""
        return np.delete(np.arange(count), self.rows)

    def elsewhere(self, start: int) -> list[int]:
        """The other shards' rows that are needed to fill a shard that begins at `start`."""
        return [int(row) for row in np.unique(self.origins[self.origins < start])]


@dataclass(frozen=True)
class ViewFiles:
    """A view's folder and what is to be in it; another process can be sent it.

    Attributes:
        folder: the view's, absolute, so that it is the same one in another process.
        corpus: the key of the corpus.
        spec: the encoder.
        rows: of the whole view.
        shard_rows: rows per shard; the last one may be shorter.
    """

    folder: Path
    corpus: str
    spec: EncoderSpec
    rows: int
    shard_rows: int

    @classmethod
    def of(cls, folder: Path, corpus: Corpus, spec: EncoderSpec, shard_rows: int) -> ViewFiles:
        """The files of a view; one that was begun with another `shard_rows` keeps its own."""
        rows = len(corpus)
        written = _written_shard_rows(folder, spec.dim, rows)
        return cls(folder.absolute(), corpus.key, spec, rows, written or shard_rows)

    @property
    def pending(self) -> Path:
        """Where shards with open rows are kept."""
        return self.folder.parent.parent / "pending" / self.folder.parent.name / self.folder.name

    def stop(self, start: int) -> int:
        """The row behind the shard that begins at `start`."""
        return min(start + self.shard_rows, self.rows)

    def origin(self, row: int) -> int:
        """The first row of the shard that holds a row."""
        return row - row % self.shard_rows

    def find(self, progress: Progress) -> dict[int, str]:
        """The whole shards that earlier runs left, by first row; everything else in the folder is removed.

        Every byte is checked: a damaged row must not be copied into a new shard, whose checksum would then cover it up.
        """
        found: dict[int, str] = {}
        with self.disk_errors():
            sizes = {path: path.stat().st_size for path in self.folder.iterdir() if path.name != MANIFEST}
        for i, (path, size) in enumerate(sizes.items()):
            start = shard_start(path)
            # A size that does not fit is a truncated file, or a shard of another shard_rows.
            if start is not None and size == self.size_at(start) and is_whole(path):
                found[start] = path.name
            progress(f"verify {self.spec.name}", i + 1, len(sizes))
        with self.disk_errors():
            if len(found) < max(len(sizes), -(-self.rows // self.shard_rows)):
                # The manifest goes first: a view that is being repaired is incomplete, not damaged.
                (self.folder / MANIFEST).unlink(missing_ok=True)
            self._remove_others(found)
        return found

    def load(self, path: Path, start: int) -> FloatArray:
        """A shard [m, d] of this view, finished or pending, every byte checked."""
        return load_shard(path, self.stop(start) - start, self.spec.dim)

    def copy_repeats(self, shard: FloatArray, start: int, repeats: Repeats, path: Callable[[int], Path]) -> None:
        """Give every repeated sentence the vector of its first occurrence, in this shard or an earlier one.

        Args:
            shard: [m, d], changed in place; all other rows are there.
            start: its first row.
            repeats: its repeated sentences.
            path: says in which file the shard with that first row is.
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
        """Write a shard with open rows and return its name."""
        with self.disk_errors():
            self.pending.mkdir(parents=True, exist_ok=True)
        return self._write(self.pending, start, shard)

    def clear_pending(self) -> None:
        """Remove what earlier runs left pending that is no whole shard of this view, or one of other `shard_rows`."""
        with self.disk_errors():
            for path in self.pending.iterdir() if self.pending.is_dir() else ():
                start = shard_start(path)
                if start is None or not self.is_whole(path, start):
                    path.unlink(missing_ok=True)

    def finish(self, names: Mapping[int, str]) -> None:
        """Make the view complete: these shards, by first row, and nothing else."""
        shards = tuple(names[start] for start in range(0, self.rows, self.shard_rows))
        manifest = Manifest(self.corpus, self.spec, self.rows, self.shard_rows, shards)
        with self.disk_errors():
            self._remove_others(names)
            # Before the manifest: nobody looks for them once the view is complete.
            if self.pending.exists():
                # Not the folder of the corpus, empty as it may be: a worker may be about to use it for another view.
                shutil.rmtree(self.pending)
            write_atomically(self.folder / MANIFEST, manifest.to_bytes())

    @contextmanager
    def disk_errors(self) -> Iterator[None]:
        """Make an error of the disk a StoreError."""
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"cannot write the view {self.folder}: {error}; the finished shards are kept, run again to go on"
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
                path.unlink(missing_ok=True)

    def size_at(self, start: int) -> int | None:
        """The size of the file of the shard that begins at a row, or None where none does."""
        if start % self.shard_rows or start >= self.rows:
            return None
        return shard_size(self.stop(start) - start, self.spec.dim)

    def is_whole(self, path: Path, start: int) -> bool:
        """Whether a file is the shard of this view that begins at a row, and every byte of it is right."""
        try:
            return path.stat().st_size == self.size_at(start) and is_whole(path)
        except OSError:
            return False


class Listing:
    """The whole shards of a folder as a worker knows them: those that were there when it looked, and its own.

    Other workers write to the folder, too, so it may look again; not all the time, because a listing takes long where
    a folder has many files and is far away.
    """

    def __init__(self, files: ViewFiles, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self.names: dict[int, str] = {}
        self.look()

    def look(self) -> None:
        """List the folder."""
        try:
            paths = list(self._folder.iterdir())
        except FileNotFoundError:  # nothing is pending
            return
        for path in paths:
            if (start := shard_start(path)) is not None and start not in self.names:
                self.names[start] = path.name

    def path(self, start: int) -> Path | None:
        """Where the shard that begins at a row is, or None."""
        return self._folder / self.names[start] if start in self.names else None

    def whole(self, start: int) -> Path | None:
        """The same, if every byte of it is right."""
        path = self.path(start)
        if path is None:
            return None
        if self._files.is_whole(path, start):
            return path
        del self.names[start]
        return None


def read_manifest(folder: Path) -> Manifest:
    """What a complete view holds, or a MissingError."""
    try:
        data = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise MissingError(f"the view {folder} is not complete; fill it with `ensembed embed`") from None
    except OSError as error:
        raise StoreError(f"cannot read the view {folder}: {error}") from error
    return Manifest.from_bytes(data, folder / MANIFEST)


def _written_shard_rows(folder: Path, dim: int, rows: int) -> int | None:
    """The rows per shard of a view that is there already, complete or not, or None where nothing tells.

    A first shard tells unless it is the only one of its view: that one may be shorter than the others would be.
    """
    try:
        return read_manifest(folder).shard_rows
    except (MissingError, CorruptViewError):
        first = [path for path in folder.iterdir() if shard_start(path) == 0 and is_whole(path)]
        found = [shard_rows_of(path, dim) for path in first]
        return found[0] if len(found) == 1 and found[0] < rows else None
