"""Rows for texts, from a cache of recent texts or from the model.

Requests that arrive while the model works form its next batch, which waits a moment for the clients of the last one.
"""

from __future__ import annotations

import asyncio
import math
import os
import queue
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect, Request

from ensembed.encoders.base import FloatArray
from ensembed.errors import EncoderError
from ensembed.serve.access import Metrics
from ensembed.serve.api_errors import ApiError, busy, log, where
from ensembed.serve.served_model import DOCUMENTS, QUERIES, VECTORS, VIEWS, ServedModel
from ensembed.serve.settings import Settings

T = TypeVar("T")
Encode = Callable[[list[str]], NDArray[Any]]
_LONGEST_RETRY = 60
_LOOKUPS_AT_ONCE = 256  # in the cache, before other requests get their turn
_NO_ROW: FloatArray = np.empty(0, np.float32)
_DOWN = 2  # requests that lack a member each for itself, before its own failure and not their texts is the reason
_OVERHEAD = 400  # bytes of an entry of the cache besides its numbers: a key, an array's header, a place. Measured.


class WorkerThread:
    """One thread that calls functions in turn: a daemon, because a model that hangs must not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def run(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:  # noqa: ANN401 - any arguments
        """Call a function in the thread; the future belongs to the running event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            try:
                result = function(*arguments)
            except BaseException as error:  # noqa: BLE001 - it is raised where the future is awaited
                # SystemExit must end neither this thread nor the event loop.
                failure = error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
                settle(future.set_exception, failure)
            else:
                settle(future.set_result, result)

        def settle(method: Callable[[Any], None], outcome: object) -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
                loop.call_soon_threadsafe(lambda: None if future.done() else method(outcome))

        self._calls.put(call)
        return future

    def close(self) -> None:
        """End the thread after the calls that it has been given."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


class Job:
    """The texts of one request. Batches take them from the first on; the job is done when all rows are there."""

    def __init__(self, kind: str, texts: Sequence[str], done: asyncio.Future[None]) -> None:
        self.kind, self.texts, self.done = kind, texts, done
        self.rows: list[FloatArray] = [_NO_ROW] * len(texts)
        self.taken, self.unencoded = 0, len(texts)
        self.memory = sum(map(sys.getsizeof, texts))

    @property
    def waiting(self) -> int:
        """The number of its texts that no batch has taken yet."""
        return len(self.texts) - self.taken


Part = tuple[Job, int, int]  # the texts start:stop of a job
Absent = Callable[[FloatArray], set[int]]  # the places of members that rows lack


class Batcher:
    """Queues jobs and encodes parts of them, up to `lanes` batches at once; a batch has texts of one kind only."""

    def __init__(
        self,
        functions: Mapping[str, Encode],
        settings: Settings,
        metrics: Metrics,
        lanes: int = 1,
        absent: Absent = lambda _rows: set(),
    ) -> None:
        self._functions, self._settings, self._metrics, self._lanes = functions, settings, metrics, lanes
        self._absent, self._down = absent, set[int]()
        self._queue: deque[Job] = deque()
        self._threads: list[WorkerThread] = []
        self._free: list[WorkerThread] = []
        self._running: dict[asyncio.Task[None], float] = {}
        self._loop: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._enough: tuple[int, asyncio.Event] | None = None
        self._alive, self._expected, self.queued, self._memory = 0, 1, 0, 0
        self._idle_since, self._per_text = -math.inf, 0.0

    @property
    def busy_seconds(self) -> float:
        """How long the oldest running batch has been running."""
        return time.monotonic() - min(self._running.values()) if self._running else 0.0

    def submit(self, kind: str, texts: Sequence[str]) -> Job:
        """Queue texts; await the job's `done`, then read its `rows`. An empty queue takes any number of texts."""
        room = self._settings.queue_texts
        if len(texts) > self._settings.batch_texts:
            room -= room // 4  # the rest is for small requests, so that large ones cannot keep them out
        job = Job(kind, texts, asyncio.get_running_loop().create_future())
        full = self.queued + len(texts) > room or self._memory + job.memory > self._settings.held_bytes
        if self.queued and full:
            seconds = min(max(math.ceil(self.queued * self._per_text), 1), _LONGEST_RETRY)
            raise busy("too many texts are waiting", seconds)
        if self._loop is None:
            self._threads = [WorkerThread(f"ensembed-model-{lane}") for lane in range(self._lanes)]
            self._free = list(self._threads)
            self._wake = asyncio.Event()  # belongs to the loop that runs now
            self._loop = asyncio.get_running_loop().create_task(self._run())
        self._queue.append(job)
        self.queued += len(texts)
        self._memory += job.memory
        self._alive += 1
        self._expected = max(self._expected, self._alive)
        if self._worthwhile:
            self._wake.set()
        if self._enough is not None and len(self._queue) >= self._enough[0]:
            self._enough[1].set()
        return job

    def abandon(self, job: Job) -> None:
        """Drop a job that nobody waits for: its queued texts will not be encoded."""
        if not job.done.done():
            job.done.cancel()
            self._leave(job)

    def _leave(self, job: Job) -> None:
        """Keep nothing of a job that is done, failed or abandoned."""
        self._alive -= 1
        self._memory -= job.memory
        self.queued -= job.waiting
        with suppress(ValueError):
            self._queue.remove(job)

    async def close(self, seconds: float) -> None:
        """Finish what was submitted, within that time, and end the threads."""
        deadline = time.monotonic() + seconds
        while self._alive and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        if self._loop is not None:
            tasks = [self._loop, *self._running]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._loop = None
        for thread in self._threads:
            thread.close()

    @property
    def _worthwhile(self) -> bool:
        """Whether to start a batch now: any batch if the model is free, only a whole one beside another."""
        if not self._running:
            return bool(self._queue)
        whole = len(self._queue) >= self._settings.batch_requests or self.queued >= self._settings.batch_texts
        return whole and bool(self._free)

    async def _run(self) -> None:
        while True:
            while not self._worthwhile:
                self._wake.clear()
                await self._wake.wait()
            if not self._running:
                await self._gather()
            parts = self._take()
            if parts:
                self._expected = max(self._alive, 1)
                task = asyncio.get_running_loop().create_task(self._encode(self._free.pop(), parts))
                self._running[task] = time.monotonic()
                task.add_done_callback(self._finish_task)

    async def _encode(self, thread: WorkerThread, parts: list[Part]) -> None:
        start = time.monotonic()
        kind, texts = parts[0][0].kind, [list(job.texts[first:last]) for job, first, last in parts]
        results: Sequence[FloatArray | Exception]
        try:
            results = await thread.run(self._encode_parts, self._functions[kind], parts, texts)
        except Exception as error:  # noqa: BLE001 - the next batch must run whatever happened
            results = [error] * len(parts)
        finally:
            self._free.append(thread)
        self._idle_since = time.monotonic()
        seconds, count = self._idle_since - start, sum(map(len, texts))
        each = seconds / count / max(len(self._running), 1)  # batches beside it shared the time
        self._per_text = 0.8 * (self._per_text or each) + 0.2 * each
        self._metrics.count_batch(len(parts), count, seconds)
        for part, result in zip(parts, results, strict=True):
            self._deliver(part, result)

    def _finish_task(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._wake.set()

    async def _gather(self) -> None:
        """Wait for other clients that were there a moment ago."""
        wait = self._settings.wait_ms / 1000
        target = min(self._expected, self._settings.batch_requests)
        incomplete = len(self._queue) < target and self.queued < self._settings.batch_texts
        if not incomplete or time.monotonic() - self._idle_since > wait:
            return
        self._enough = (target, asyncio.Event())
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._enough[1].wait(), wait)
        self._enough = None

    def _take(self) -> list[Part]:
        """Take the next batch: jobs of the oldest one's kind, an equal share of each, then the rest by age."""
        jobs: list[Job] = []
        others: list[Job] = []
        while self._queue and len(jobs) < self._settings.batch_requests:
            job = self._queue.popleft()
            if not job.done.done():
                (jobs if not jobs or job.kind == jobs[0].kind else others).append(job)
        self._queue.extendleft(reversed(others))
        if not jobs:
            return []
        room = self._settings.batch_texts
        share = max(room // len(jobs), 1)
        counts = []
        for job in jobs:
            counts.append(min(share, job.waiting, room))
            room -= counts[-1]
        parts = []
        for job, count in zip(jobs, counts, strict=True):
            more = min(room, job.waiting - count)
            room -= more
            if count + more:
                parts.append((job, job.taken, job.taken + count + more))
                job.taken += count + more
                self.queued -= count + more
            if job.waiting:  # at the end, so that large requests do not delay small ones
                self._queue.append(job)
        return parts

    def _deliver(self, part: Part, result: FloatArray | Exception) -> None:
        job, start, stop = part
        if job.done.done():  # abandoned, or failed in an earlier batch
            return
        if isinstance(result, Exception):
            self._leave(job)
            job.done.set_exception(result)
            return
        job.rows[start:stop] = list(result)
        job.unencoded -= stop - start
        if not job.unencoded:
            self._leave(job)
            job.done.set_result(None)

    def _encode_parts(
        self, function: Encode, parts: Sequence[Part], texts: Sequence[list[str]]
    ) -> Sequence[FloatArray | Exception]:
        """Return the rows of each part, or its error. If a batch fails, its parts are tried one by one.

        They are tried, too, if the rows lack a member: one text may be the reason. Once several parts have lacked it
        alone, it counts as down, and the others keep the rows of the batch.
        """
        rows: list[FloatArray] = []
        suspects: set[int] = set()
        try:
            whole = _encode_checked(function, [text for part in texts for text in part])
            rows = list(np.split(whole, np.cumsum([len(part) for part in texts])[:-1]))
            self._down &= self._absent(whole)  # the others have answered
            suspects = self._absent(whole) - self._down
            if len(parts) == 1 or not suspects:
                return rows
        except Exception as error:  # noqa: BLE001 - a model may raise anything
            if len(parts) == 1:
                return [error]
        results: list[FloatArray | Exception] = []
        lacking = 0
        for (job, _, _), part in zip(parts, texts, strict=True):
            if job.done.done():  # it has lost its client, or timed out
                results.append(_NO_ROW)
                continue
            try:
                results.append(alone := _encode_checked(function, part))
            except Exception as error:  # noqa: BLE001 - as above
                results.append(error)
                continue
            lacking += bool(suspects) and suspects <= self._absent(alone)
            if lacking == _DOWN:
                self._down |= suspects
                return results + rows[len(results) :]
        return results


def _encode_checked(function: Encode, texts: list[str]) -> FloatArray:
    rows = np.asarray(function(texts), np.float32)
    if rows.ndim != 2 or len(rows) != len(texts):
        raise EncoderError(f"the model returned an array of shape {rows.shape} for {len(texts)} texts")
    if not np.isfinite(rows).all():
        raise EncoderError("the model returned NaN or Inf")
    return rows


class RecentRows:
    """A cache of rows of `limit` bytes that forgets the row that was not used for the longest time."""

    def __init__(self, limit: int) -> None:
        self._limit, self._secret = limit, os.urandom(16)
        self._rows: OrderedDict[bytes, FloatArray] = OrderedDict()
        self.size = self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, kind: str, text: str) -> FloatArray | None:
        """Return the row of that kind for a text, or None."""
        if not self._limit:
            return None
        key = self._key(kind, text)
        row = self._rows.get(key)
        if row is None:
            self.misses += 1
            return None
        self.hits += 1
        self._rows.move_to_end(key)
        return row

    def put(self, kind: str, text: str, row: FloatArray) -> None:
        """Keep a row, and forget old ones if there is no room."""
        size = row.nbytes + _OVERHEAD
        if size > self._limit:
            return
        key = self._key(kind, text)
        if key in self._rows:
            self._rows.move_to_end(key)
            return
        kept = row.copy()  # a row of a batch would keep the whole batch in memory
        kept.flags.writeable = False
        self._rows[key] = kept
        self.size += size
        while self.size > self._limit:
            _, old = self._rows.popitem(last=False)
            self.size -= old.nbytes + _OVERHEAD

    def _key(self, kind: str, text: str) -> bytes:
        # A keyed hash: no text outlives its request, and no client can choose two texts that collide.
        return blake2b(text.encode(), digest_size=16, key=self._secret, person=kind.encode()).digest()


class Vectors:
    """Gives rows to the endpoints."""

    def __init__(self, served: ServedModel, settings: Settings, metrics: Metrics) -> None:
        functions = {kind: partial(served.rows, kind) for kind in (VECTORS, VIEWS, QUERIES, DOCUMENTS)}
        lanes = 2 if served.model.concurrent else 1
        self.batcher = Batcher(functions, settings, metrics, lanes=lanes, absent=served.absent)
        # A model that continues without a member gives incomplete vectors, which must not be kept.
        self.recent = RecentRows(settings.cache_bytes if served.model.cacheable else 0)
        self._settings, self._metrics = settings, metrics

    async def rows(self, kind: str, texts: Sequence[str], request: Request | None = None) -> list[FloatArray]:
        """Return a row of a kind per text; texts still queued when the request's client goes away are not encoded."""
        rows: list[FloatArray | None] = []
        for start in range(0, len(texts), _LOOKUPS_AT_ONCE):
            rows += [self.recent.get(kind, text) for text in texts[start : start + _LOOKUPS_AT_ONCE]]
            await asyncio.sleep(0)
        missing = [i for i, row in enumerate(rows) if row is None]
        if missing:
            encoded = await self._encode(kind, [texts[i] for i in missing], request)
            for i, row in zip(missing, encoded, strict=True):
                self.recent.put(kind, texts[i], row)
                rows[i] = row
        return [row for row in rows if row is not None]

    async def _encode(self, kind: str, texts: list[str], request: Request | None) -> list[FloatArray]:
        job = self.batcher.submit(kind, texts)
        gone = asyncio.ensure_future(_disconnected(request))
        seconds = self._settings.request_seconds
        try:
            await asyncio.wait({job.done, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not job.done.done():
                if gone.done():
                    self._metrics.abandoned.inc()
                    raise ClientDisconnect
                message = f"the model took longer than {seconds:g} s: send fewer texts at a time"
                raise ApiError(504, message, code="timeout")
            error = job.done.exception()
            if error is not None:
                self._metrics.failures.inc()
                log.error("the model failed a request: %s", where(error))
                message = "the model failed on this request; the server's log says where"
                raise ApiError(500, message, code="model_failed")
            return job.rows
        finally:
            self.batcher.abandon(job)
            gone.cancel()


async def _disconnected(request: Request | None) -> None:
    """Wait until the client goes away."""
    if request is None:
        await asyncio.Event().wait()
    else:
        while (await request.receive())["type"] != "http.disconnect":
            pass
