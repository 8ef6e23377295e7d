"""Requests of many clients gathered into batches for one model.

Nothing waits while the model has nothing to do and a client is alone. While a batch is being encoded, what arrives
gathers by itself. Between two batches there is a short, bounded wait for the clients of the last one to come back,
since few large batches cost less than many small ones. Where the model can be run by several threads, a second batch is
begun beside the first once a whole one waits: cores that are done with one, or were kept from it by requests and
replies, go on with the other.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import FloatArray
from ensembed.errors import EncoderError
from ensembed.serve.settings import Settings
from ensembed.serve.worker import Worker

if TYPE_CHECKING:
    from ensembed.serve.metrics import Metrics

Encode = Callable[[list[str]], NDArray[Any]]
_LONGEST_RETRY = 60


class QueueFullError(Exception):
    """Too many texts are waiting.

    Attributes:
        seconds: when to come back.
    """

    def __init__(self, seconds: int) -> None:
        super().__init__(f"come back in {seconds} s")
        self.seconds = seconds


class Job:
    """The texts of one request: handed out to batches from the first on, done when all rows are there."""

    __slots__ = ("done", "given", "kind", "left", "rows", "texts")

    def __init__(self, kind: str, texts: Sequence[str], done: asyncio.Future[None]) -> None:
        self.kind = kind
        self.texts = texts
        self.rows: list[FloatArray] = [_NOTHING] * len(texts)
        self.given = 0
        self.left = len(texts)
        self.done = done

    @property
    def waiting(self) -> int:
        """How many of its texts are in no batch yet."""
        return len(self.texts) - self.given


Part = tuple[Job, int, int]  # the texts start:stop of a job
_NOTHING: FloatArray = np.empty(0, np.float32)


class Batcher:
    """Queues jobs and runs the model on parts of them.

    Args:
        functions: what can be asked for, by kind; texts of different kinds are never in one batch.
        settings: how large and how long.
        metrics: told of batches.
        lanes: how many batches may be encoded at once, each in a thread of its own.
    """

    def __init__(
        self, functions: Mapping[str, Encode], settings: Settings, metrics: Metrics | None = None, lanes: int = 1
    ) -> None:
        self._functions = functions
        self._settings = settings
        self._metrics = metrics
        self._lanes = lanes
        self._queue: deque[Job] = deque()
        self._workers: list[Worker] = []
        self._free: list[Worker] = []
        self._running: dict[asyncio.Task[None], float] = {}
        self._loop: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._enough: tuple[int, asyncio.Future[None]] | None = None
        self._alive = 0
        self._expected = 1
        self._idle_since = -math.inf
        self._per_text = 0.0
        self.queued = 0

    @property
    def busy_seconds(self) -> float:
        """How long the model has been at the batch that it began first."""
        return time.monotonic() - min(self._running.values()) if self._running else 0.0

    def submit(self, kind: str, texts: Sequence[str]) -> Job:
        """Queue texts; await the job's `done`, then read its `rows`.

        Raises:
            QueueFullError: there is no room. A request larger than the whole queue has room in an empty one.
        """
        if self.queued and self.queued + len(texts) > self._settings.queue_texts:
            raise QueueFullError(min(max(math.ceil(self.queued * self._per_text), 1), _LONGEST_RETRY))
        if self._loop is None:
            self._workers = [Worker(f"ensembed-model-{lane}") for lane in range(self._lanes)]
            self._free = list(self._workers)
            self._wake = asyncio.Event()  # belongs to the loop that runs now
            self._loop = asyncio.get_running_loop().create_task(self._run())
        job = Job(kind, texts, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        self.queued += len(texts)
        self._alive += 1
        self._expected = max(self._expected, self._alive)
        if self._worthwhile:
            self._wake.set()
        if self._enough is not None and len(self._queue) >= self._enough[0]:
            _open(self._enough[1])
        return job

    def abandon(self, job: Job) -> None:
        """Nobody waits for that job any more: what of it is still queued will not be encoded."""
        if not job.done.done():
            job.done.cancel()
            self._alive -= 1
            self.queued -= job.waiting

    async def close(self, seconds: float) -> None:
        """Finish what was submitted, within so many seconds, and end."""
        deadline = time.monotonic() + seconds
        while self._alive and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        if self._loop is not None:
            tasks = [self._loop, *self._running]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._loop = None
        for worker in self._workers:
            worker.close()

    @property
    def _worthwhile(self) -> bool:
        """Whether to begin a batch now: anything will do for a model at rest, a whole one beside another."""
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
                task.add_done_callback(self._ended)

    async def _encode(self, worker: Worker, parts: list[Part]) -> None:
        began = time.monotonic()
        kind, texts = parts[0][0].kind, [list(job.texts[start:stop]) for job, start, stop in parts]
        results: Sequence[FloatArray | Exception]
        try:
            results = await worker.run(encode_parts, self._functions[kind], parts, texts)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next batch must go on
            results = [error] * len(parts)
        finally:
            self._free.append(worker)
        self._idle_since = time.monotonic()
        self._learn(parts, self._idle_since - began)
        for part, result in zip(parts, results, strict=True):
            self._deliver(part, result)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._wake.set()

    async def _gather(self) -> None:
        """Wait for the others of a moment ago, if there were any."""
        wait = self._settings.wait_ms / 1000
        target = min(self._expected, self._settings.batch_requests)
        company = len(self._queue) < target and self.queued < self._settings.batch_texts
        if not company or time.monotonic() - self._idle_since > wait:
            return
        loop = asyncio.get_running_loop()
        enough: asyncio.Future[None] = loop.create_future()
        self._enough = (target, enough)
        timer = loop.call_later(wait, _open, enough)
        try:
            await enough
        finally:
            timer.cancel()
            self._enough = None

    def _take(self) -> list[Part]:
        """The next batch: of the kind of the oldest job, an equal share of every job, what is left from the oldest on.

        Jobs that are not exhausted go to the end of the queue, so that small requests are not held up by large ones.
        """
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
        given = []
        for job in jobs:
            given.append(min(share, job.waiting, room))
            room -= given[-1]
        parts = []
        for job, count in zip(jobs, given, strict=True):
            more = min(room, job.waiting - count)
            room -= more
            if count + more:
                parts.append((job, job.given, job.given + count + more))
                job.given += count + more
                self.queued -= count + more
            if job.waiting:
                self._queue.append(job)
        return parts

    def _deliver(self, part: Part, result: FloatArray | Exception) -> None:
        job, start, stop = part
        if job.done.done():  # abandoned, or failed in an earlier batch
            return
        if isinstance(result, Exception):
            self._alive -= 1
            self.queued -= job.waiting
            job.done.set_exception(result)
            return
        job.rows[start:stop] = list(result)
        job.left -= stop - start
        if not job.left:
            self._alive -= 1
            job.done.set_result(None)

    def _learn(self, parts: Sequence[Part], seconds: float) -> None:
        texts = sum(stop - start for _, start, stop in parts)
        each = seconds / texts / max(len(self._running), 1)  # those beside it had their share of the time
        self._per_text = 0.8 * (self._per_text or each) + 0.2 * each
        if self._metrics is not None:
            self._metrics.batch(len(parts), texts, seconds)


def _open(gate: asyncio.Future[None]) -> None:
    if not gate.done():
        gate.set_result(None)


def encode_parts(function: Encode, parts: Sequence[Part], texts: Sequence[list[str]]) -> list[FloatArray | Exception]:
    """Rows for the texts of each part, or what went wrong with it; runs in the worker.

    When a batch fails, its parts are tried one by one: a text that the model cannot take must not fail its neighbours.
    """
    try:
        rows = _checked(function, [text for some in texts for text in some])
    except Exception as error:  # noqa: BLE001 - a model may raise anything; the requests are told
        if len(parts) == 1:
            return [error]
    else:
        ends = np.cumsum([len(some) for some in texts])[:-1]
        return list(np.split(rows, ends))
    results: list[FloatArray | Exception] = []
    for (job, _, _), some in zip(parts, texts, strict=True):
        if job.done.done():  # its client has gone, or did not want to wait so long
            results.append(_NOTHING)
            continue
        try:
            results.append(_checked(function, some))
        except Exception as error:  # noqa: BLE001 - as above
            results.append(error)
    return results


def _checked(function: Encode, texts: list[str]) -> FloatArray:
    rows = np.asarray(function(texts), np.float32)
    if rows.ndim != 2 or len(rows) != len(texts):
        raise EncoderError(f"the model returned an array of shape {rows.shape} for {len(texts)} texts")
    if not np.isfinite(rows).all():
        raise EncoderError("the model returned NaN or Inf")
    return rows
