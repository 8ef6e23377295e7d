"""Views on disk: what an encoder says about a corpus, in checksummed shards that survive interruption.

A view is a folder `<root>/<corpus key>/<encoder key>/` of real `.npy` files. A shard's name holds its first row and
the hash of its bytes; it is written under a temporary name, synced and renamed, so that a shard that is there is whole.
`manifest.json` comes last and makes the view complete. Nothing in the folder depends on when or in how many runs it
was written, so an interrupted view that is finished later has the same bytes as one written at a stretch.

Beside the views, `<root>/training/` keeps what is trained on them while it is trained.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from ensembed.cores import available_cores
from ensembed.corpus import Corpus
from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.errors import CorruptViewError, MissingError, StoreBusyError, StoreError
from ensembed.files import write_atomically
from ensembed.paths import cache_dir
from ensembed.progress import Progress, part_of, silent
from ensembed.schedule import Schedule
from ensembed.shards import (
    MANIFEST,
    REPAIR,
    Manifest,
    is_whole,
    load_shard,
    shard_bytes,
    shard_name,
    shard_rows_of,
    shard_size,
    shard_start,
)


class View:
    """One encoder's vectors of one corpus, read as needed: `view[a:b]` is a float32 array [b - a, d].

    Opening checks that every shard is there with the right size; reading a stretch checks every byte of its shards;
    `damaged` checks them all.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = _read_manifest(folder)
        self.shape = (self.manifest.rows, self.manifest.spec.dim)
        self.dtype = np.dtype(np.float32)
        self.ndim = 2
        for k, name in enumerate(self.manifest.shards):
            _check_size(folder / name, shard_size(self.manifest.rows_of(k), self.shape[1]))
        self._shard = lru_cache(maxsize=2)(self._load)

    @property
    def spec(self) -> EncoderSpec:
        """The encoder that made the vectors."""
        return self.manifest.spec

    def __len__(self) -> int:
        return self.manifest.rows

    def __getitem__(self, rows: slice) -> FloatArray:
        """A stretch of rows [m, d]; inside one shard it is not copied."""
        if not isinstance(rows, slice):  # a TypeError, because an IndexError would end `for row in view` in silence
            raise TypeError(f"a view is read in stretches, view[a:b]; for {rows!r} use np.asarray(view)")
        if rows.step not in (None, 1):
            raise IndexError("a view is read in stretches: the step must be 1")
        start, stop, _ = rows.indices(len(self))
        stop = max(start, stop)
        size = self.manifest.shard_rows
        parts = [
            self._shard(k)[max(start - k * size, 0) : stop - k * size] for k in range(start // size, -(-stop // size))
        ]
        if not parts:
            return np.empty((0, self.shape[1]), np.float32)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ANN401 - numpy's own
        if copy is False:
            raise ValueError("a view spans several files: an array of it is always a copy")
        whole = np.empty(self.shape, np.float32)
        size = self.manifest.shard_rows

        def fill(k: int) -> None:
            whole[k * size : (k + 1) * size] = self._load(k)

        # Most of the time goes into checking the bytes, which lets other threads run. Each shard goes to its place and
        # is let go, so that no more than one per core is in memory beside the result.
        with ThreadPoolExecutor(available_cores()) as pool:
            for _ in pool.map(fill, range(len(self.manifest.shards))):
                pass
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def damaged(self, *, progress: Progress = silent) -> list[str]:
        """The names of the shards whose bytes are not those that were written."""
        bad = []
        for k, name in enumerate(self.manifest.shards):
            if not is_whole(self.folder / name):
                bad.append(name)
            progress(f"verify {self.spec.name}", k + 1, len(self.manifest.shards))
        return bad

    def _load(self, k: int) -> FloatArray:
        return load_shard(self.folder / self.manifest.shards[k], self.manifest.rows_of(k), self.shape[1])


class ViewStore:
    """A folder of views.

    Args:
        root: the folder; by default `views` in the cache.
        shard_rows: rows per shard of new views: what an interruption can lose at the most. A view that was begun with
            another value keeps its own.
        wait: seconds to wait for another process that writes the same view before giving up.

    Example:
        >>> import tempfile
        >>> from ensembed.corpus import ListCorpus
        >>> from ensembed.encoders.demo import DemoEncoder
        >>> store = ViewStore(tempfile.mkdtemp())
        >>> store.embed(ListCorpus(["one sentence", "another"]), DemoEncoder(dim=8)).shape
        (2, 8)
    """

    def __init__(self, root: str | Path | None = None, *, shard_rows: int = 4096, wait: float = 0.0) -> None:
        if shard_rows < 1:
            raise StoreError(f"shard_rows must be at least 1, not {shard_rows}")
        if wait < 0:
            raise StoreError(f"wait must not be negative, not {wait}")
        self.root = Path(root) if root is not None else cache_dir() / "views"
        self._shard_rows = shard_rows
        self._wait = wait

    def folder(self, corpus: Corpus, spec: EncoderSpec) -> Path:
        """Where this encoder's view of this corpus is kept."""
        return self.root / corpus.key / spec.key

    def view(self, corpus: Corpus, spec: EncoderSpec) -> View:
        """The complete view, or a MissingError."""
        return View(self.folder(corpus, spec))

    def embed(self, corpus: Corpus, encoder: Encoder, *, verify: bool = False, progress: Progress = silent) -> View:
        """Fill the view from where the last run left it and return it; see `embed_all`."""
        return self.embed_all(corpus, [encoder], verify=verify, progress=progress)[0]

    def embed_all(
        self, corpus: Corpus, encoders: Sequence[Encoder], *, verify: bool = False, progress: Progress = silent
    ) -> list[View]:
        """Fill the views of several encoders, shard by shard, one after the other or side by side.

        Args:
            corpus: the sentences; each distinct one is encoded once.
            encoders: the encoders.
            verify: check a view that is complete too: read every shard, and encode the damaged ones again.
            progress: told of rows.

        Raises:
            StoreBusyError: another process is writing this view.
            StoreError: the disk is full or not writable. What was written stays.
        """
        for encoder in encoders:
            if not encoder.cacheable:
                raise StoreError(f"the vectors of {encoder.spec.name!r} are not always the same: they are not kept")
        folders = [self.folder(corpus, encoder.spec) for encoder in encoders]
        with ExitStack() as locks:
            writers = []
            # Each view once, and in one order for all processes: two that wait for each other would stand still.
            for folder, encoder in sorted(dict(zip(folders, encoders, strict=True)).items()):
                if verify or not (folder / MANIFEST).exists():
                    locks.enter_context(self._locked(folder, "writing the view"))
                    # Another process may have finished the view while we waited for the lock.
                    if verify or not (folder / MANIFEST).exists():
                        writers.append(_Writer(folder, self._shard_rows, corpus, encoder, progress))
            schedule = Schedule()
            while jobs := [writer.write_next for writer in writers if not writer.finished]:
                schedule.run(jobs, self._shard_rows, progress)
        return [View(folder) for folder in folders]

    @contextmanager
    def training(self, key: str) -> Iterator[Path]:
        """The folder in which the training of that key is kept, for one process at a time.

        Raises:
            StoreBusyError: another process has it.
            StoreError: the store is not writable.
        """
        folder = self.root / "training" / key
        with self._locked(folder, "training what is kept in"):
            yield folder

    @contextmanager
    def _locked(self, folder: Path, doing: str) -> Iterator[None]:
        """Hold the one write lock of a folder, which is made; the system releases it when a process dies."""
        path = self.root / "locks" / f"{folder.parent.name}-{folder.name}.lock"
        lock = FileLock(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=self._wait)
        except Timeout:
            raise StoreBusyError(
                f"another process is {doing} {folder}; wait for it (`wait`, --wait), or choose another store"
            ) from None
        except OSError as error:
            raise StoreError(f"cannot write in the view store {self.root}: {error}") from error
        try:
            yield
        finally:
            lock.release()


class _Writer:
    """Fills one view's folder, a shard at a time; the caller holds its lock."""

    def __init__(self, folder: Path, shard_rows: int, corpus: Corpus, encoder: Encoder, progress: Progress) -> None:
        self.finished = False
        self._folder = folder
        self._shard_rows = _written_shard_rows(folder, encoder.spec.dim, len(corpus)) or shard_rows
        self._corpus = corpus
        self._encoder = encoder
        self._names = self._found(progress)
        self._missing = self._missing_shards(progress)

    def write_next(self, progress: Progress) -> None:
        """Encode and write the next shard that is missing; after the last one, write the manifest."""
        spec, rows = self._encoder.spec, len(self._corpus)
        found = next(self._missing, None)
        if found is None:
            shards = tuple(self._names[k] for k in range(len(self._names)))
            self._write(MANIFEST, Manifest(self._corpus.key, spec, rows, self._shard_rows, shards).to_bytes())
            self.finished = True
            return
        start, texts = found
        first = self._corpus.index.first_rows[start : start + len(texts)]
        fresh = first == np.arange(start, start + len(texts))
        shard = np.empty((len(texts), spec.dim), np.float32)
        shard[fresh] = self._encoder.encode(
            [text for text, new in zip(texts, fresh, strict=True) if new],
            progress=part_of(progress, spec.name, start, rows),
        )
        self._copy_repeats(shard, start, first)
        self._corpus.check_unchanged()
        data = shard_bytes(shard)
        self._names[start // self._shard_rows] = name = shard_name(start, data)
        self._write(name, data)
        progress(spec.name, start + len(texts), rows)

    def _missing_shards(self, progress: Progress) -> Iterator[tuple[int, list[str]]]:
        """First row and sentences of every shard that is not there yet; those that are there are reported as done."""
        sentences = iter(self._corpus)
        for start in range(0, len(self._corpus), self._shard_rows):
            texts = list(itertools.islice(sentences, self._shard_rows))
            if start // self._shard_rows not in self._names:
                yield start, texts
            else:
                progress(self._encoder.spec.name, start + len(texts), len(self._corpus))

    def _found(self, progress: Progress) -> dict[int, str]:
        """The whole shards that earlier runs left, by number; everything else in the folder is removed.

        Every byte is checked: a damaged row must not be copied into a new shard, whose checksum would then cover it up.
        """
        spec, rows = self._encoder.spec, len(self._corpus)
        found: dict[int, str] = {}
        with self._disk_errors():
            sizes = {path: path.stat().st_size for path in self._folder.iterdir() if path.name != MANIFEST}
        for i, (path, size) in enumerate(sizes.items()):
            start = shard_start(path)
            # A size that does not fit is a truncated file, or a shard of another shard_rows.
            if start is not None and size == self._size_at(start, rows, spec.dim) and is_whole(path):
                found[start // self._shard_rows] = path.name
            progress(f"verify {spec.name}", i + 1, len(sizes))
        kept = set(found.values())
        with self._disk_errors():
            if len(kept) < max(len(sizes), -(-rows // self._shard_rows)):
                # The manifest goes first: a view that is being repaired is incomplete, not damaged.
                (self._folder / MANIFEST).unlink(missing_ok=True)
            for path in sizes:
                if path.name not in kept:
                    path.unlink()
        return found

    def _size_at(self, start: int, rows: int, dim: int) -> int | None:
        """The size of the file of the shard that begins at a row, or None where none does."""
        if start % self._shard_rows or start >= rows:
            return None
        return shard_size(min(self._shard_rows, rows - start), dim)

    def _copy_repeats(self, shard: FloatArray, start: int, first: NDArray[np.int64]) -> None:
        """Give every repeated sentence the vector of its first occurrence, in this shard or an earlier one."""
        origin = first // self._shard_rows
        for k in np.unique(origin).tolist():
            rows = np.flatnonzero(origin == k)
            here = k * self._shard_rows == start
            source = shard if here else load_shard(self._folder / self._names[k], self._shard_rows, shard.shape[1])
            shard[rows] = source[first[rows] - k * self._shard_rows]

    def _write(self, name: str, data: bytes) -> None:
        with self._disk_errors():
            write_atomically(self._folder / name, data)

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"cannot write the view {self._folder}: {error}; the finished shards are kept, run again to go on"
            ) from error


def _read_manifest(folder: Path) -> Manifest:
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
        return _read_manifest(folder).shard_rows
    except (MissingError, CorruptViewError):
        first = [path for path in folder.iterdir() if shard_start(path) == 0 and is_whole(path)]
        found = [shard_rows_of(path, dim) for path in first]
        return found[0] if len(found) == 1 and found[0] < rows else None


def _check_size(path: Path, expected: int) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise CorruptViewError(f"{path} is missing; {REPAIR}") from None
    except OSError as error:
        raise CorruptViewError(f"{path} cannot be read: {error}; {REPAIR}") from error
    if size != expected:
        raise CorruptViewError(f"{path} has {size} bytes instead of {expected}; {REPAIR}")
