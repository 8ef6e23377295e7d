"""The view store: a folder of views `<root>/<corpus key>/<encoder key>/`, and one view of it.

Shards are `.npy` files named by first row and hash, and renamed into place when whole; `manifest.json` comes last. An
interrupted view that is finished later has the same bytes. `<root>/training/` keeps what is being trained on views.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.errors import CorruptViewError, StoreBusyError, StoreError
from ensembed.support.atomic_files import disk_error, make_folder
from ensembed.support.machine import available_cores, cache_dir
from ensembed.support.progress import Progress, Schedule, part_of, silent
from ensembed.views.view_folder import (
    MANIFEST,
    REPAIR,
    Manifest,
    Repeats,
    ViewFiles,
    is_whole,
    load_shard,
    read_manifest,
    shard_size,
)


class View:
    """One encoder's vectors of one corpus, read as needed: `view[a:b]` is a float32 array [b - a, d].

    Opening checks the size of every shard; reading rows checks every byte of their shards, `damaged` of all.
    """

    def __init__(self, folder: Path, part: tuple[Manifest, int, int] | None = None) -> None:
        """Open a folder; a part of a view is its manifest with some of the shards, and its rows in these."""
        self.folder, self._part = folder, part
        self.manifest = read_manifest(folder) if part is None else part[0]
        self._start, stop = (0, self.manifest.rows) if part is None else part[1:]
        self.shape = (stop - self._start, self.manifest.spec.dim)
        self.dtype = np.dtype(np.float32)
        self.ndim = 2
        # The last shard may be shorter.
        starts = range(0, self.manifest.rows, self.manifest.shard_rows)
        sizes = [min(self.manifest.shard_rows, self.manifest.rows - start) for start in starts]
        for name, rows in zip(self.manifest.shards, sizes, strict=True) if part is None else ():
            expected = shard_size(rows, self.shape[1])
            try:
                size = (folder / name).stat().st_size
            except FileNotFoundError:
                raise CorruptViewError(f"{folder / name} is missing; {REPAIR}") from None
            except OSError as error:
                raise CorruptViewError(f"{folder / name} cannot be read: {error}; {REPAIR}") from error
            if size != expected:
                raise CorruptViewError(f"{folder / name} has {size} bytes instead of {expected}; {REPAIR}")
        self._load: Callable[[int], FloatArray] = lambda k: load_shard(
            folder / self.manifest.shards[k], sizes[k], self.shape[1]
        )
        self._shard = lru_cache(maxsize=2)(self._load)

    @property
    def spec(self) -> EncoderSpec:
        """The encoder that made the vectors."""
        return self.manifest.spec

    def __len__(self) -> int:
        return self.shape[0]

    def __reduce__(self) -> tuple[type[View], tuple[Path, tuple[Manifest, int, int] | None]]:
        # Another process opens the same folder; on another machine, a folder that both share.
        return View, (self.folder.absolute(), self._part)

    def stretch(self, start: int, stop: int) -> View:
        """Return the rows from start up to stop, which are small to send to another process: it reads them itself."""
        start, stop, size = self._start + start, self._start + stop, self.manifest.shard_rows
        shards = slice(start // size, -(-stop // size))
        first = shards.start * size
        rows = min(shards.stop * size, self.manifest.rows) - first
        manifest = replace(self.manifest, rows=rows, shards=self.manifest.shards[shards])
        return View(self.folder, (manifest, start - first, stop - first))

    def __getitem__(self, rows: slice) -> FloatArray:
        """Return rows [m, d]; inside one shard they are not copied."""
        if not isinstance(rows, slice):  # a TypeError, because an IndexError would end `for row in view` in silence
            raise TypeError(f"a view is read in slices, view[a:b]; for {rows!r} use np.asarray(view)")
        if rows.step not in (None, 1):
            raise IndexError("a view is read in slices: the step must be 1")
        start, stop, _ = rows.indices(self.shape[0])
        start, stop = self._start + start, self._start + max(start, stop)
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
            start = k * size - self._start
            whole[max(start, 0) : start + size] = self._load(k)[max(-start, 0) : len(whole) - start]

        # Checking bytes lets other threads run. Each shard is copied and dropped: at most one per core is in memory.
        with ThreadPoolExecutor(available_cores()) as pool:
            for _ in pool.map(fill, range(len(self.manifest.shards))):
                pass
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def damaged(self, *, progress: Progress = silent) -> list[str]:
        """Return the names of the shards whose bytes are not those that were written."""
        bad = []
        for k, name in enumerate(self.manifest.shards):
            if not is_whole(self.folder / name):
                bad.append(name)
            progress(f"verify {self.spec.name}", k + 1, len(self.manifest.shards))
        return bad


class ViewStore:
    """A folder of views.

    Args:
        root: the folder; by default `views` in the cache.
        shard_rows: rows per shard of new views: the most that an interruption can lose. A view that was begun with
            another value keeps its own.
        wait: seconds to wait for another process that writes the same view before giving up.

    Example:
        >>> import tempfile
        >>> from ensembed.corpora.corpus import ListCorpus
        >>> from ensembed.encoders.demo_encoder import DemoEncoder
        >>> store = ViewStore(tempfile.mkdtemp())
        >>> store.embed(ListCorpus(["one sentence", "another"]), DemoEncoder(dim=8)).shape
        (2, 8)
    """

    def __init__(self, root: str | Path | None = None, *, shard_rows: int = 4096, wait: float = 0.0) -> None:
        if not isinstance(shard_rows, int | np.integer) or shard_rows < 1:
            raise StoreError(f"shard_rows must be a whole number of at least 1, not {shard_rows!r}")
        if not (isinstance(wait, int | float | np.number) and wait >= 0):
            raise StoreError(f"wait must be a number of seconds from 0 on, not {wait!r}")
        self.root = Path(root) if root is not None else cache_dir() / "views"
        self._shard_rows = int(shard_rows)  # JSON does not know integers of numpy
        self._wait = wait

    def folder(self, corpus: Corpus, spec: EncoderSpec) -> Path:
        """Return the folder of this encoder's view of this corpus."""
        return self.root / corpus.key / spec.key

    def view(self, corpus: Corpus, spec: EncoderSpec) -> View:
        """Return the complete view, or raise a MissingError."""
        return View(self.folder(corpus, spec))

    def embed(self, corpus: Corpus, encoder: Encoder, *, verify: bool = False, progress: Progress = silent) -> View:
        """Fill the view from where the last run left it and return it; see `embed_all`."""
        return self.embed_all(corpus, [encoder], verify=verify, progress=progress)[0]

    def embed_all(
        self, corpus: Corpus, encoders: Sequence[Encoder], *, verify: bool = False, progress: Progress = silent
    ) -> list[View]:
        """Fill the views of several encoders, shard by shard, while the corpus is read once.

        Args:
            corpus: the sentences; each distinct one is encoded once.
            encoders: the encoders.
            verify: check a view that is complete too: read every shard, and encode the damaged ones again.
            progress: receives the number of rows that are done.

        Raises:
            StoreBusyError: another process is writing this view.
            StoreError: the disk is full or not writable. What was written stays.
        """
        with self.unfinished(corpus, encoders, verify=verify) as views:
            writers = [_Writer(files, corpus, encoder, progress) for files, encoder in views]
            # Views that were begun with other shard sizes need other blocks of sentences.
            for size in sorted({writer.files.shard_rows for writer in writers}):
                _fill([writer for writer in writers if writer.files.shard_rows == size], corpus, size, progress)
        return [View(self.folder(corpus, encoder.spec)) for encoder in encoders]

    @contextmanager
    def unfinished(
        self, corpus: Corpus, encoders: Sequence[Encoder], *, verify: bool = False
    ) -> Iterator[list[tuple[ViewFiles, Encoder]]]:
        """Yield the views that have to be filled, each once and locked for this process until the end of the block.

        Args:
            corpus: the sentences.
            encoders: the encoders.
            verify: include those that are complete.

        Raises:
            StoreBusyError: another process is writing one of them.
            StoreError: the store is not writable, or the vectors of an encoder are not to be kept.
        """
        for encoder in encoders:
            if not encoder.cacheable:
                raise StoreError(f"the vectors of {encoder.spec.name!r} are not always the same: they are not kept")
        views = []
        with ExitStack() as locks:
            # Each view once, and in the same order in all processes: otherwise two could wait for each other forever.
            for folder, encoder in sorted({self.folder(corpus, e.spec): e for e in encoders}.items()):
                manifest = folder / MANIFEST
                if verify or not os.path.exists(manifest):  # noqa: PTH110 - False where it may not be looked at
                    locks.enter_context(self._locked(folder, "writing the view"))
                    # Another process may have finished the view while we waited for the lock.
                    if verify or not manifest.exists():
                        views.append((ViewFiles.of(folder, corpus, encoder.spec, self._shard_rows), encoder))
            yield views

    @contextmanager
    def training(self, key: str) -> Iterator[Path]:
        """Yield the folder in which the training of that key is kept, for one process at a time.

        Raises:
            StoreBusyError: another process has it.
            StoreError: the store is not writable.
        """
        folder = self.root / "training" / key
        with self._locked(folder, "training in"):
            yield folder

    @contextmanager
    def _locked(self, folder: Path, doing: str) -> Iterator[None]:
        """Make a folder and hold its write lock, which the system releases when a process dies."""
        path = self.root / "locks" / f"{folder.parent.name}-{folder.name}.lock"
        lock = FileLock(path)
        try:
            make_folder(path.parent)
            make_folder(folder)
            lock.acquire(timeout=self._wait)
        except Timeout:
            raise StoreBusyError(
                f"another process is {doing} {folder}; wait for it (`wait`, --wait), or choose another store"
            ) from None
        except OSError as error:
            raise StoreError(
                f"cannot write in the view store {self.root}: {disk_error(error, path)}; set its rights, or name "
                "another folder: --store FOLDER (ViewStore(FOLDER)), or ENSEMBED_CACHE"
            ) from error
        try:
            yield
        finally:
            lock.release()


def _fill(writers: Sequence[_Writer], corpus: Corpus, shard_rows: int, progress: Progress) -> None:
    """Read the corpus once and let every writer encode the blocks of sentences that its view lacks."""
    schedule = Schedule()
    sentences = iter(corpus)
    starts = range(0, len(corpus), shard_rows)
    last = max((start for writer in writers for start in starts if start not in writer.names), default=-1)
    for start in range(0, last + 1, shard_rows):
        texts = list(itertools.islice(sentences, shard_rows))
        for writer in writers:
            if start in writer.names:
                progress(writer.encoder.spec.name, start + len(texts), len(corpus))
        jobs = [partial(writer.write, start, texts) for writer in writers if start not in writer.names]
        schedule.run(jobs, shard_rows, progress)
    for writer in writers:
        writer.files.finish(writer.names)


class _Writer:
    """Fills the folder of one view, a shard at a time; the caller holds its lock."""

    def __init__(self, files: ViewFiles, corpus: Corpus, encoder: Encoder, progress: Progress) -> None:
        self.files = files
        self.encoder = encoder
        self.names = files.find(progress)
        self._corpus = corpus

    def write(self, start: int, texts: list[str], progress: Progress) -> None:
        """Encode the sentences from row `start` on, each distinct one once, and write their shard."""
        spec, rows = self.encoder.spec, len(self._corpus)
        repeats = Repeats.among(self._corpus.index.first_rows[start : start + len(texts)], start)
        fresh = repeats.fresh(len(texts))
        shard = np.empty((len(texts), spec.dim), np.float32)
        shard[fresh] = self.encoder.encode(
            [texts[i] for i in fresh.tolist()], progress=part_of(progress, spec.name, start, rows)
        )
        self.files.copy_repeats(shard, start, repeats, lambda first: self.files.folder / self.names[first])
        self._corpus.check_unchanged()
        self.names[start] = self.files.write(start, shard)
        progress(spec.name, start + len(texts), rows)
