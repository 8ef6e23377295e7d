"""A thread for the model, or for the index."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerThread:
    """One thread that calls functions one after the other.

    It is a daemon, unlike the threads of an executor: a model that hangs must not keep the process from ending.
    """

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
