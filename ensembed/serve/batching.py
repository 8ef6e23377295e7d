"""Requests of many clients gathered into batches for one model.

A single client never waits while the model is free. While a batch is encoded, arriving requests form the next one.
Between two batches there is a short, bounded wait for the clients of the last one, because few large batches cost less
than many small ones. If several threads may use the model, a second batch starts beside the first as soon as a whole
one waits, so that no core is idle at the end of a batch.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import FloatArray
from ensembed.errors import EncoderError
from ensembed.serve.api_errors import busy
from ensembed.serve.metrics import Metrics
from ensembed.serve.settings import Settings
from ensembed.serve.worker_thread import WorkerThread

Encode = Callable[[list[str]], NDArray[Any]]
_LONGEST_RETRY = 60
_NO_ROW: FloatArray = np.empty(0, np.float32)


class Job:
    """The texts of one request. Batches take them from the first on; the job is done when all rows are there."""

    __slots__ = ("done", "kind", "rows", "taken", "texts", "unencoded")

    def __init__(self, kind: str, texts: Sequence[str], done: asyncio.Future[None]) -> None:
        self.kind = kind
        self.texts = texts
        self.rows: list[FloatArray] = [_NO_ROW] * len(texts)
        self.taken = 0
        self.unencoded = len(texts)
        self.done = done

    @property
    def waiting(self) -> int:
        """The number of its texts that no batch has taken yet."""
        return len(self.texts) - self.taken


Part = tuple[Job, int, int]  # the texts start:stop of a job


class Batcher:
    """Queues jobs and runs the model on parts of them.

    Texts of different kinds are never in one batch. As many batches as there are `lanes` are encoded at once.
    """

    def __init__(self, functions: Mapping[str, Encode], settings: Settings, metrics: Metrics, lanes: int = 1) -> None:
        self._functions = functions
        self._settings = settings
        self._metrics = metrics
        self._lanes = lanes
        self._queue: deque[Job] = deque()
        self._threads: list[WorkerThread] = []
        self._free: list[WorkerThread] = []
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
        """How long the oldest running batch has been running."""
        return time.monotonic() - min(self._running.values()) if self._running else 0.0

    def submit(self, kind: str, texts: Sequence[str]) -> Job:
        """Queue texts; await the job's `done`, then read its `rows`. An empty queue takes any number of texts."""
        if self.queued and self.queued + len(texts) > self._settings.queue_texts:
            seconds = min(max(math.ceil(self.queued * self._per_text), 1), _LONGEST_RETRY)
            raise busy("too many texts are waiting", seconds)
        if self._loop is None:
            self._threads = [WorkerThread(f"ensembed-model-{lane}") for lane in range(self._lanes)]
            self._free = list(self._threads)
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
            _set(self._enough[1])
        return job

    def abandon(self, job: Job) -> None:
        """Drop a job that nobody waits for: its queued texts will not be encoded."""
        if not job.done.done():
            job.done.cancel()
            self._alive -= 1
            self.queued -= job.waiting

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
            results = await thread.run(encode_parts, self._functions[kind], parts, texts)
        except Exception as error:  # noqa: BLE001 - the next batch must run whatever happened
            results = [error] * len(parts)
        finally:
            self._free.append(thread)
        self._idle_since = time.monotonic()
        self._measure(parts, self._idle_since - start)
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
        loop = asyncio.get_running_loop()
        enough: asyncio.Future[None] = loop.create_future()
        self._enough = (target, enough)
        timer = loop.call_later(wait, _set, enough)
        try:
            await enough
        finally:
            timer.cancel()
            self._enough = None

    def _take(self) -> list[Part]:
        """Take the next batch: jobs of the oldest one's kind, an equal share of each, then the rest from the oldest on.

        Jobs with texts left go to the end of the queue, so that large requests do not delay small ones.
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
        job.unencoded -= stop - start
        if not job.unencoded:
            self._alive -= 1
            job.done.set_result(None)

    def _measure(self, parts: Sequence[Part], seconds: float) -> None:
        texts = sum(stop - start for _, start, stop in parts)
        each = seconds / texts / max(len(self._running), 1)  # batches beside it shared the time
        self._per_text = 0.8 * (self._per_text or each) + 0.2 * each
        self._metrics.count_batch(len(parts), texts, seconds)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def encode_parts(function: Encode, parts: Sequence[Part], texts: Sequence[list[str]]) -> list[FloatArray | Exception]:
    """Return the rows of each part, or its error; runs in the model's thread.

    When a batch fails, its parts are tried one by one: a text that the model cannot encode fails its own request only.
    """
    try:
        rows = _encode_checked(function, [text for part in texts for text in part])
    except Exception as error:  # noqa: BLE001 - a model may raise anything
        if len(parts) == 1:
            return [error]
    else:
        ends = np.cumsum([len(part) for part in texts])[:-1]
        return list(np.split(rows, ends))
    results: list[FloatArray | Exception] = []
    for (job, _, _), part in zip(parts, texts, strict=True):
        if job.done.done():  # its client is gone, or it timed out
            results.append(_NO_ROW)
            continue
        try:
            results.append(_encode_checked(function, part))
        except Exception as error:  # noqa: BLE001 - as above
            results.append(error)
    return results


def _encode_checked(function: Encode, texts: list[str]) -> FloatArray:
    rows = np.asarray(function(texts), np.float32)
    if rows.ndim != 2 or len(rows) != len(texts):
        raise EncoderError(f"the model returned an array of shape {rows.shape} for {len(texts)} texts")
    if not np.isfinite(rows).all():
        raise EncoderError("the model returned NaN or Inf")
    return rows
