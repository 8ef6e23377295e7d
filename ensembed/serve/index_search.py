"""Searches of an index, in a thread of their own, so that a large index delays neither the model nor other clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ensembed.encoders.base import FloatArray
from ensembed.errors import EnsembedError
from ensembed.serve.api_errors import ApiError, busy, log, where
from ensembed.serve.served_model import IndexCard
from ensembed.serve.settings import Settings
from ensembed.serve.worker_thread import WorkerThread

if TYPE_CHECKING:
    from ensembed.search import Hit

_MOST_WAITING = 64


class SupportsSearch(Protocol):
    """What the server needs of an index; `ensembed.search.Index` has it."""

    def __len__(self) -> int:
        """Return the number of texts."""

    def search(self, queries: Any, k: int = 10) -> Sequence[Sequence[Hit]]:  # noqa: ANN401 - texts or vectors
        """Return the k nearest texts of each query."""


class IndexSearch:
    """Searches an index. If it has a method `refresh`, what other processes write to it is found, too."""

    def __init__(self, index: SupportsSearch, settings: Settings) -> None:
        self._index = index
        self._seconds = settings.request_seconds
        self._thread: WorkerThread | None = None
        self._waiting = 0
        self._warned = 0.0

    def facts(self) -> IndexCard:
        """Describe the index, but not its folder: clients should not know the folders of this machine."""
        known = getattr(self._index, "facts", {})
        return {"texts": len(self._index), "kind": known.get("kind"), "dtype": known.get("dtype")}

    async def nearest(self, query: FloatArray, k: int) -> Sequence[Hit]:
        """Return the k nearest texts of a query [1, d]."""
        if self._waiting >= _MOST_WAITING:
            raise busy("too many searches are waiting", 1)
        self._thread = self._thread or WorkerThread("ensembed-search")
        self._waiting += 1
        work = self._thread.run(self._run, query, k)
        work.add_done_callback(self._count_done)
        try:
            return await asyncio.wait_for(asyncio.shield(work), self._seconds)
        except asyncio.TimeoutError:
            raise ApiError(504, f"the search took longer than {self._seconds:g} s", code="timeout") from None
        except Exception as error:  # noqa: BLE001 - an index may raise anything
            log.error("the index failed a request: %s", where(error))
            raise ApiError(500, "the index failed; the server's log says where", code="index_failed") from None

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    def _count_done(self, work: asyncio.Future[Sequence[Hit]]) -> None:
        self._waiting -= 1
        if not work.cancelled():
            work.exception()  # marks it as seen: asyncio would log it if the client did not wait

    def _run(self, query: FloatArray, k: int) -> Sequence[Hit]:
        refresh = getattr(self._index, "refresh", None)
        if refresh is not None:
            try:
                refresh()
            except (EnsembedError, OSError) as error:  # what was opened can still be searched
                if time.monotonic() - self._warned > 60:
                    self._warned = time.monotonic()
                    log.warning("the index cannot be read again: %s", where(error))
        (hits,) = self._index.search(query, k)
        return hits
