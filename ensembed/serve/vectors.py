"""Rows for texts: from the cache, or from the model by way of the batcher, for as long as the client is there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.requests import ClientDisconnect, Request

from ensembed.encoders.base import FloatArray
from ensembed.serve.batching import Batcher, QueueFullError
from ensembed.serve.cache import Recent
from ensembed.serve.metrics import Metrics
from ensembed.serve.outline import too_long
from ensembed.serve.quiet_log import log, where
from ensembed.serve.replies import ApiError, busy
from ensembed.serve.served import VECTORS, Served
from ensembed.serve.settings import Settings


class Vectors:
    """What the endpoints ask for rows.

    Args:
        served: the model.
        settings: the limits.
        metrics: told of failures.
    """

    def __init__(self, served: Served, settings: Settings, metrics: Metrics) -> None:
        self.batcher = Batcher(served.functions(), settings, metrics, lanes=2 if served.model.concurrent else 1)
        # Vectors that lack a member which was down must not be kept as if they were whole.
        self.recent = Recent(settings.cache_bytes if served.model.cacheable else 0)
        self._settings = settings
        self._metrics = metrics

    async def rows(self, kind: str, texts: Sequence[str], request: Request | None = None) -> list[FloatArray]:
        """A row per text.

        Args:
            kind: `VECTORS` or `VIEWS`.
            texts: checked by `check_texts`.
            request: whose client is watched: when it goes away, what is still queued is not encoded.

        Raises:
            ApiError: too much is waiting, the model failed, or it took too long.
            ClientDisconnect: the client has gone.
        """
        found = [self.recent.get(kind, text) for text in texts]
        missing = [i for i, row in enumerate(found) if row is None]
        if missing:
            new = await self._encoded(kind, [texts[i] for i in missing], request)
            for i, row in zip(missing, new, strict=True):
                self.recent.put(kind, texts[i], row)
                found[i] = row
        return [row for row in found if row is not None]

    async def _encoded(self, kind: str, texts: list[str], request: Request | None) -> list[FloatArray]:
        try:
            job = self.batcher.submit(kind, texts)
        except QueueFullError as full:
            message = f"too many texts are waiting: come back in {full.seconds} s"
            raise busy(message, full.seconds) from None
        gone = None if request is None else asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait(
                {job.done} if gone is None else {job.done, gone},
                timeout=self._settings.request_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not job.done.done():
                if gone is not None and gone.done():
                    self._metrics.abandoned()
                    raise ClientDisconnect
                raise ApiError(
                    504,
                    f"the model took longer than {self._settings.request_seconds:g} s: send fewer texts at a time",
                    code="timeout",
                )
            self._raise_failure(job.done.exception())
            return job.rows
        finally:
            self.batcher.abandon(job)
            if gone is not None:
                gone.cancel()

    def _raise_failure(self, error: BaseException | None) -> None:
        if error is None:
            return
        self._metrics.failed()
        log.error("the model failed a request: %s", where(error))
        raise ApiError(500, "the model failed on this request; the server's log says where", code="model_failed")

    async def probe(self) -> bool:
        """Whether the model gives vectors."""
        try:
            await self.rows(VECTORS, ["ready"])
        except ApiError:
            return False
        return True


def check_texts(texts: Sequence[str], settings: Settings, param: str, most: int | None = None) -> None:
    """Refuse too many texts, and texts that are too long.

    Raises:
        ApiError: which is said without quoting any.
    """
    limit = settings.max_items if most is None else min(most, settings.max_items)
    if len(texts) > limit:
        message = f"{param} holds {len(texts)} texts, at most {limit} are taken: send them in several requests"
        raise ApiError(400, message, param=param, code="too_many_texts")
    for i, text in enumerate(texts):
        if len(text) > settings.max_characters:
            raise too_long(param, i, len(text), settings.max_characters)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
