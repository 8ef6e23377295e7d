"""Searches of an index, in a thread of their own: a large index must not hold up the model or the other clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from ensembed.encoders.base import FloatArray
from ensembed.errors import EnsembedError
from ensembed.serve.quiet_log import log, where
from ensembed.serve.replies import ApiError, busy
from ensembed.serve.served import Hit, SupportsSearch
from ensembed.serve.settings import Settings
from ensembed.serve.worker import Worker

_WAITING = 64


class Searches:
    """Asks the index.

    Args:
        index: what is searched. Where it has `refresh`, what other processes write is seen.
        settings: how long a search may take.
    """

    def __init__(self, index: SupportsSearch, settings: Settings) -> None:
        self._index = index
        self._seconds = settings.request_seconds
        self._worker: Worker | None = None
        self._waiting = 0
        self._warned = 0.0

    async def nearest(self, query: FloatArray, k: int) -> Sequence[Hit]:
        """The k nearest of a query [1, d].

        Raises:
            ApiError: too many are waiting, the index failed, or it took too long.
        """
        if self._waiting >= _WAITING:
            raise busy("too many searches are waiting: come back in 1 s", 1)
        self._worker = self._worker or Worker("ensembed-search")
        self._waiting += 1
        work = self._worker.run(self._search, query, k)
        work.add_done_callback(self._done)
        try:
            return await asyncio.wait_for(asyncio.shield(work), self._seconds)
        except asyncio.TimeoutError:
            raise ApiError(504, f"the search took longer than {self._seconds:g} s", code="timeout") from None
        except ApiError:
            raise
        except Exception as error:  # noqa: BLE001 - an index may raise anything
            log.error("the index failed a request: %s", where(error))
            raise ApiError(500, "the index failed; the server's log says where", code="index_failed") from None

    def close(self) -> None:
        """End the thread."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _done(self, work: asyncio.Future[Sequence[Hit]]) -> None:
        self._waiting -= 1
        if not work.cancelled():
            work.exception()  # so that nobody complains where the client did not wait for it

    def _search(self, query: FloatArray, k: int) -> Sequence[Hit]:
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
