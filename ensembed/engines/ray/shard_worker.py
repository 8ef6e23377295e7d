"""What a worker of the cluster does: it encodes shards of one view, or fills the rows that were left open.

Every worker process imports this module before anything else, so it must load neither scipy nor the methods.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ensembed import errors
from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder, FloatArray
from ensembed.engines.ray.worker_encoder import Source
from ensembed.errors import EncoderError, EnsembedError, StoreError
from ensembed.support.machine import limit_threads
from ensembed.views.view_folder import Repeats, ViewFiles, shard_start

if TYPE_CHECKING:
    import pyarrow as pa

# A folder is listed again when the last listing took less than this part of the time since then.
_LISTING_SHARE = 0.02


class BlockError(EncoderError):
    """The encoder fails on this block; other blocks may work."""


class DiedError(BlockError):
    """Processes die on this block."""


@dataclass
class Result:
    """What became of one shard of view number `job`; `everywhere` is whether an error stops the whole run."""

    job: int
    start: int
    rows: int
    name: str = ""
    pending: bool = False
    read_seconds: float = 0.0
    memory: int = 0
    worker: str = ""
    kind: str = ""
    error: str = ""
    everywhere: bool = False
    died: bool = False

    def fail(self, error: EnsembedError, *, everywhere: bool) -> None:
        """Note an error."""
        self.kind, self.error, self.everywhere = type(error).__name__, str(error), everywhere
        self.died = isinstance(error, DiedError)

    @property
    def exception(self) -> EnsembedError:
        """The error again, in another process."""
        exception: EnsembedError = getattr(errors, self.kind, EncoderError)(self.error)
        return exception

    def to_table(self) -> pa.Table:
        """Return a table of one row, with the worker's name and memory."""
        import pyarrow as pa

        usage = Usage.of_this_process()
        self.worker, self.memory = usage.worker, usage.memory
        return pa.table({key: [value] for key, value in dataclasses.asdict(self).items()})

    @classmethod
    def of_table(cls, table: pa.Table) -> list[Result]:
        """Return the results of a table of any number of rows."""
        return [cls(**row) for row in table.to_pylist()]


@dataclass(frozen=True)
class Usage:
    """Name of a worker (machine and process number) and its peak memory in bytes."""

    worker: str
    memory: int

    @classmethod
    def of_this_process(cls) -> Usage:
        """Return the usage of the process that calls it."""
        return cls(f"{socket.gethostname()}:{os.getpid()}", peak_memory())

    @staticmethod
    def total(usages: Sequence[Usage]) -> tuple[int, int]:
        """Return the number of workers, and the memory of the largest."""
        return len({usage.worker for usage in usages}), max((usage.memory for usage in usages), default=0)


def peak_memory() -> int:
    """Return the peak memory of this process in bytes; 0 where the system does not say."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@dataclass(frozen=True)
class Work:
    """What all blocks of view number `job` share; `corpus` is a reference to the corpus in the object store."""

    job: int
    files: ViewFiles
    corpus: Any
    source: Source
    attempts: int


class ShardEncoder:
    """An actor with one loaded encoder, which takes a table of one row per shard; errors are returned as results."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._files = work.files
        self._encoder: Encoder | None = None

    def __call__(self, block: pa.Table) -> Iterator[pa.Table]:
        """Yield one result per shard, as soon as it is finished."""
        for row in block.to_pylist():
            start, repeats = row["start"], _repeats(row)
            result = Result(self._work.job, start, self._files.stop(start) - start)
            try:
                with counted_try(self._files.pending, self._work.attempts, start):
                    if self._encoder is None:
                        self._open()
                    self._shards.write(result, repeats, partial(self._encoded, result, repeats))
            except EnsembedError as error:
                result.fail(error, everywhere=not isinstance(error, BlockError))
            yield result.to_table()

    def _open(self) -> None:
        import ray

        self._corpus: Corpus = ray.get(self._work.corpus)
        self._reader = Reader(self._corpus, self._files.rows)
        if not self._files.folder.is_dir():
            raise StoreError(
                f"the node {socket.gethostname()} does not see the view's folder {self._files.folder}: the view store "
                "(`store`, --store) must be on a path that all nodes share"
            )
        self._shards = KnownShards(self._files)
        limit_threads(self._work.source.threads)
        self._encoder = self._work.source.open()  # last: it marks that everything is open

    def _encoded(self, result: Result, repeats: Repeats) -> FloatArray:
        """Return the shard [m, d] with the rows of new sentences; the local engine encodes exactly the same list."""
        assert self._encoder is not None  # noqa: S101 - `_open` comes first
        began = time.perf_counter()
        texts = self._reader.texts(result.start, result.start + result.rows)
        result.read_seconds = time.perf_counter() - began
        fresh = repeats.fresh(len(texts))
        shard = np.empty((len(texts), self._files.spec.dim), np.float32)
        new = texts if len(fresh) == len(texts) else [texts[i] for i in fresh.tolist()]
        encode = partial(self._work.source.encode, self._encoder)
        for attempt in range(self._work.attempts):
            try:
                shard[fresh] = encode(new)
                break
            except EnsembedError as error:
                if attempt + 1 == self._work.attempts:
                    culprit = _culprit(encode, new)
                    row = "" if culprit is None else f" (row {result.start + int(fresh[culprit])})"
                    raise BlockError(f"{error}{row}") from error
        self._corpus.check_rows(result.start, result.start + result.rows)
        return shard


def fill(block: pa.Table, work: Work) -> Iterator[pa.Table]:
    """In a task: give the open rows of pending shards their vectors, which all exist now."""
    shards = KnownShards(work.files)
    for row in block.to_pylist():
        result = Result(work.job, row["start"], work.files.stop(row["start"]) - row["start"])
        try:
            shards.write(result, _repeats(row))
        except EnsembedError as error:
            result.fail(error, everywhere=True)
        yield result.to_table()


class KnownShards:
    """The shards of a view as a worker knows them: those of its last listing, which is slow, and its own."""

    def __init__(self, files: ViewFiles) -> None:
        self._files = files
        self._look()

    def write(self, result: Result, repeats: Repeats, encoded: Callable[[], FloatArray] | None = None) -> None:
        """Write a shard: finished, or pending as long as the vectors of sentences that it repeats are missing.

        `encoded` makes its other rows, where no earlier attempt has written them.
        """
        start = result.start
        if path := self._whole(self._finished, start):
            result.name = path.name
            return
        result.pending = True
        if path := self._whole(self._pending, start):
            shard = self._files.load(path, start).copy()
        elif encoded is not None:
            shard = encoded()
        else:
            return
        if self._has_origins(repeats, start):
            self._files.copy_repeats(shard, start, repeats, self._path)
            result.name = self._files.write(start, shard)
            result.pending = False
            self._finished[start] = self._files.folder / result.name
        elif path is None:
            shard[repeats.rows] = 0
            self._pending[start] = self._files.pending / self._files.keep_pending(start, shard)

    def _look(self) -> None:
        began = time.perf_counter()
        self._finished, self._pending = _listed(self._files.folder), _listed(self._files.pending)
        self._looked = time.perf_counter()
        self._look_took = self._looked - began

    def _whole(self, paths: dict[int, Path], start: int) -> Path | None:
        """Return the file of the shard that begins at a row if every byte of it is right, or None."""
        if start in paths and not self._files.is_whole(paths[start], start):
            del paths[start]
        return paths.get(start)

    def _has_origins(self, repeats: Repeats, start: int) -> bool:
        """Return whether the shards that hold the first occurrences of repeated sentences exist, as far as is known."""
        needed = {self._files.origin(row) for row in repeats.elsewhere(start)}
        if needed <= self._finished.keys() | self._pending.keys():
            return True
        if self._look_took >= _LISTING_SHARE * (time.perf_counter() - self._looked):
            return False
        self._look()  # which may lack what an earlier one had: folders on a network are not listed all at once
        return needed <= self._finished.keys() | self._pending.keys()

    def _path(self, start: int) -> Path:
        """Return the file of the shard that begins at a row, the finished one if there is one."""
        return self._finished.get(start) or self._pending[start]


def _listed(folder: Path) -> dict[int, Path]:
    """Return the files of the shards in a folder by their first rows."""
    try:
        paths = list(folder.iterdir())
    except FileNotFoundError:  # nothing is pending
        return {}
    return {start: path for path in paths if (start := shard_start(path)) is not None}


def _repeats(row: dict[str, Any]) -> Repeats:
    """Return the repeats that a row of a block carries."""
    return Repeats(np.frombuffer(row["rows"], np.int32).astype(np.int64), np.frombuffer(row["origins"], np.int64))


def _culprit(encode: Callable[[list[str]], FloatArray], sentences: list[str]) -> int | None:
    """Return the number of a sentence that the encoder fails on by itself, or None if no sentence is the reason."""
    first, last = 0, len(sentences)
    while last - first > 1:
        middle = (first + last) // 2
        if _fails(encode, sentences[first:middle]):
            last = middle
        elif _fails(encode, sentences[middle:last]):
            first = middle
        else:
            return None
    # An encoder that fails on everything, for instance a server that is down, fails on the neighbour too.
    others = sentences[first - 1 : first] or sentences[last : last + 1]
    return None if others and _fails(encode, others) else first


def _fails(encode: Callable[[list[str]], FloatArray], sentences: list[str]) -> bool:
    try:
        encode(sentences)
    except EnsembedError:
        return True
    return False


class Reader:
    """Read the sentences of ranges of rows in any order: by reading on or starting again, whichever took less time."""

    def __init__(self, corpus: Corpus, rows: int) -> None:
        self._corpus, self._rows = corpus, rows
        self._sentences: Iterator[str] = iter(())
        self._at = -1
        self._row_seconds = self._start_seconds = 0.0

    def texts(self, start: int, stop: int) -> list[str]:
        """Return the sentences of the rows from start up to stop; a CorpusError if there are no longer as many."""
        ahead = start - self._at
        if self._at >= 0 and ahead >= 0 and ahead * self._row_seconds <= self._start_seconds:
            next(itertools.islice(self._sentences, ahead, ahead), None)  # reads them and drops them
            texts: list[str] = []
        else:
            began = time.perf_counter()
            self._sentences = self._corpus.stretch(start, self._rows)
            texts = list(itertools.islice(self._sentences, 1))
            self._start_seconds = time.perf_counter() - began
        began = time.perf_counter()
        texts += itertools.islice(self._sentences, stop - start - len(texts))
        self._row_seconds = (time.perf_counter() - began) / (stop - start)
        self._at = stop
        return texts


@contextmanager
def counted_try(folder: Path, most: int, start: int) -> Iterator[None]:
    """Begin the shard of that first row; a DiedError if it was begun `most` times and never ended.

    The tries are marks in a folder: a process that dies cannot report it. Without them, a sentence that kills its
    process would be tried for ever.
    """
    marks = [folder / f"try-{start:09d}-{k}" for k in range(most)]
    if not any(_create(mark) for mark in marks):
        raise DiedError(
            f"its process died each of the {most} times that it was tried (a crash, no memory left, or nodes that went "
            "away); the cluster's logs say more"
        )
    try:
        yield
    finally:  # an exception is an end, too
        for mark in marks:
            mark.unlink(missing_ok=True)


def _create(mark: Path) -> bool:
    """Return whether the mark could be created; another process may have created it."""
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    except OSError as error:
        raise StoreError(f"cannot write in the view store: {error}; what is finished is kept, run again") from error
    return True
