"""What a worker of the cluster does: it encodes shards of one view, or fills the rows that were left open."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder, FloatArray
from ensembed.engines.ray.worker_opening import Source
from ensembed.engines.ray.worker_reading import Reader
from ensembed.engines.ray.worker_results import Result, peak_memory, worker_name
from ensembed.engines.ray.worker_tries import BlockError, DiedError, Tries
from ensembed.errors import EnsembedError, StoreError
from ensembed.views.view_folder import Listing, Repeats, ViewFiles

if TYPE_CHECKING:
    import pyarrow as pa

# A folder is listed again when the last listing took less than this part of the time since.
_LISTING_SHARE = 0.02


@dataclass(frozen=True)
class Work:
    """What all blocks of a view share.

    Attributes:
        job: the number of the view in this run, for the results.
        files: the view's folder.
        corpus: a reference to the corpus in the object store.
        source: how to come by the encoder.
        attempts: how often to try a shard that the encoder fails on.
    """

    job: int
    files: ViewFiles
    corpus: Any
    source: Source
    attempts: int


class ShardEncoder:
    """An actor that holds one loaded encoder, and takes a table with one row per shard.

    Whatever goes wrong is returned as a result, so that the driver can tell what it is; only the death of the process
    is left to Ray.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._files = work.files
        self._encoder: Encoder | None = None
        self._tries = Tries(work.files.pending, work.attempts)
        self._listed = self._listing_took = 0.0

    def __call__(self, block: pa.Table) -> Iterator[pa.Table]:
        """One result per shard, as soon as it is there."""
        for row in block.to_pylist():
            yield self._result(row).to_table()

    def _result(self, row: dict[str, Any]) -> Result:
        start = row["start"]
        result = Result(self._work.job, start, self._files.stop(start) - start)
        began = time.perf_counter()
        try:
            with self._tries.one_more(start):
                self._shard(result, repeats_of(row))
        except EnsembedError as error:
            result.fail(error, everywhere=not isinstance(error, BlockError))
            result.died = isinstance(error, DiedError)
        _close(result, began)
        return result

    def _shard(self, result: Result, repeats: Repeats) -> None:
        start = result.start
        if self._encoder is None:
            self._open()
        # An earlier attempt may have written it before it was lost.
        if path := self._finished.whole(start):
            result.name = path.name
            return
        if path := self._pending.whole(start):
            shard = self._files.load(path, start).copy()
            result.pending = True
        else:
            shard = self._encoded(result, repeats)
            result.pending = False
        if self._known(repeats, start):
            self._files.copy_repeats(shard, start, repeats, self._path)
            result.name = self._finished.names[start] = self._files.write(start, shard)
            result.pending = False
        elif not result.pending:
            shard[repeats.rows] = 0
            self._pending.names[start] = self._files.keep_pending(start, shard)
            result.pending = True

    def _open(self) -> None:
        import ray

        self._corpus: Corpus = ray.get(self._work.corpus)
        self._reader = Reader(self._corpus, self._files.rows)
        if not self._files.folder.is_dir():
            raise StoreError(
                f"the node {socket.gethostname()} does not see the view's folder {self._files.folder}: the view store "
                "(`store`, --store) must be on a path that all nodes share"
            )
        self._look()
        self._encoder = self._work.source.open()  # last: it says that all is open

    def _look(self) -> None:
        began = time.perf_counter()
        self._finished = Listing(self._files, self._files.folder)
        self._pending = Listing(self._files, self._files.pending)
        self._listed = time.perf_counter()
        self._listing_took = self._listed - began

    def _encoded(self, result: Result, repeats: Repeats) -> FloatArray:
        """The shard [m, d] with the rows of new sentences; the local engine encodes exactly the same list."""
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
                    where = _culprit(encode, new)
                    row = "" if where is None else f" (row {result.start + int(fresh[where])})"
                    raise BlockError(f"{error}{row}") from error
        self._corpus.check_rows(result.start, result.start + result.rows)
        return shard

    def _known(self, repeats: Repeats, start: int) -> bool:
        """Whether the shards that hold the first occurrences are there, as far as this worker knows."""
        needed = {self._files.origin(row) for row in repeats.elsewhere(start)}

        def missing() -> bool:
            return any(self._finished.path(k) is None and self._pending.path(k) is None for k in needed)

        if missing() and self._listing_took < _LISTING_SHARE * (time.perf_counter() - self._listed):
            self._look()
        return not missing()

    def _path(self, start: int) -> Path:
        return path_of(start, self._finished, self._pending)


def fill(block: pa.Table, work: Work) -> Iterator[pa.Table]:
    """A task that gives the open rows of pending shards their vectors, which are all there now."""
    files = work.files
    finished, pending = Listing(files, files.folder), Listing(files, files.pending)
    for row in block.to_pylist():
        start, repeats = row["start"], repeats_of(row)
        result = Result(work.job, start, files.stop(start) - start)
        began = time.perf_counter()
        try:
            needed = {files.origin(origin) for origin in repeats.elsewhere(start)}
            if path := finished.whole(start):
                result.name = path.name
            elif all(finished.path(k) or pending.path(k) for k in needed) and (path := pending.whole(start)):
                shard = files.load(path, start).copy()
                files.copy_repeats(shard, start, repeats, lambda k: path_of(k, finished, pending))
                result.name = files.write(start, shard)
            else:
                result.pending = True
        except EnsembedError as error:
            result.fail(error, everywhere=True)
        _close(result, began)
        yield result.to_table()


def _close(result: Result, began: float) -> None:
    """Note what the shard took."""
    result.seconds = time.perf_counter() - began
    result.worker = worker_name()
    result.memory = peak_memory()


def path_of(start: int, finished: Listing, pending: Listing) -> Path:
    """Where the shard that begins at a row is: one that is complete if there is one."""
    path = finished.path(start) or pending.path(start)
    if path is None:
        raise StoreError(f"the shard of row {start} is gone; run again")
    return path


def repeats_of(row: dict[str, Any]) -> Repeats:
    """The repeats that a row of a block carries."""
    return Repeats(np.frombuffer(row["rows"], np.int32).astype(np.int64), np.frombuffer(row["origins"], np.int64))


def _culprit(encode: Callable[[list[str]], FloatArray], sentences: list[str]) -> int | None:
    """The number of a sentence that the encoder fails on by itself, or None where it is not the sentence's fault."""
    first, last = 0, len(sentences)
    while last - first > 1:
        middle = (first + last) // 2
        if _fails(encode, sentences[first:middle]):
            last = middle
        elif _fails(encode, sentences[middle:last]):
            first = middle
        else:
            return None
    # One that fails on everything, a server that is down, say, fails on its neighbour too.
    others = sentences[first - 1 : first] or sentences[last : last + 1]
    return None if others and _fails(encode, others) else first


def _fails(encode: Callable[[list[str]], FloatArray], sentences: list[str]) -> bool:
    try:
        encode(sentences)
    except EnsembedError:
        return True
    return False
