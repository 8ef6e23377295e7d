"""Rows for texts: from the cache of recent texts, or from the model through the batcher."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from starlette.requests import ClientDisconnect, Request

from ensembed.encoders.base import FloatArray
from ensembed.serve.api_errors import ApiError, log, where
from ensembed.serve.batching import Batcher
from ensembed.serve.metrics import Metrics
from ensembed.serve.served_model import VECTORS, VIEWS, ServedModel
from ensembed.serve.settings import Settings

# Bytes of an entry of the cache besides its numbers: a key, an array's header, a place in the order. Measured.
_OVERHEAD = 400


class RecentRows:
    """A cache of rows of `limit` bytes that forgets the row that was not used for the longest time.

    Texts are known by a keyed hash: no text outlives its request, and no client can choose two texts that collide.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._secret = os.urandom(16)
        self._rows: OrderedDict[bytes, FloatArray] = OrderedDict()
        self.size = 0
        self.hits = 0
        self.misses = 0

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
        return blake2b(text.encode(), digest_size=16, key=self._secret, person=kind.encode()).digest()


class Vectors:
    """Gives rows to the endpoints."""

    def __init__(self, served: ServedModel, settings: Settings, metrics: Metrics) -> None:
        functions = {VECTORS: served.vectors, VIEWS: served.views}
        self.batcher = Batcher(functions, settings, metrics, lanes=2 if served.model.concurrent else 1)
        # A model that continues without a member gives incomplete vectors, which must not be kept.
        self.recent = RecentRows(settings.cache_bytes if served.model.cacheable else 0)
        self._settings = settings
        self._metrics = metrics

    async def rows(self, kind: str, texts: Sequence[str], request: Request | None = None) -> list[FloatArray]:
        """Return a row of a kind (`VECTORS` or `VIEWS`) per text.

        When the client of the request goes away, texts that are still queued are not encoded.
        """
        rows = [self.recent.get(kind, text) for text in texts]
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
