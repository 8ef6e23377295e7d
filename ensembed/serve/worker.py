"""The thread that runs the model."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """One thread that does what it is given, one thing after the other.

    It is a daemon, unlike those of an executor: a model that hangs must not keep the process from ending.
    """

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:  # noqa: ANN401 - whatever it takes
        """Do that; the future belongs to the running event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            try:
                result = function(*arguments)
            except BaseException as error:  # noqa: BLE001 - it is raised where the future is awaited
                # What would end a thread must not end the only one there is, nor the event loop.
                failure = error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
                _tell(loop, _fail, future, failure)
            else:
                _tell(loop, _finish, future, result)

        self._work.put(work)
        return future

    def close(self) -> None:
        """End the thread when it has done what it was given."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


def _tell(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - whatever it takes
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:  # the loop was closed meanwhile: nobody waits any more
        return


def _finish(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
