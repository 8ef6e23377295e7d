"""Reading the body of a request: bounded in size, in time and in what it holds, before anything is parsed."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from ensembed.serve.outline import check_outline
from ensembed.serve.replies import ApiError, busy, closing
from ensembed.serve.settings import Settings

_LET_GO_SECONDS = 1.0


class Bodies:
    """Reads bodies; knows how much is held of those that are still coming in.

    Args:
        settings: the limits.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._held = 0

    async def read(self, request: Request, param: str = "input", items: int | None = None) -> bytes:
        """The whole body, which is worth parsing.

        Args:
            request: whose body it is.
            param: the field with the texts.
            items: the most texts, where they are fewer than `max_items`.

        Raises:
            ApiError: it is too large, too slow, not said to be JSON, or packed, or holds too much.
            ClientDisconnect: the client has gone.
        """
        body = await self._received(request)
        most = self._settings.max_items if items is None else min(items, self._settings.max_items)
        check_outline(body, param, most, self._settings.max_characters)
        return body

    async def _received(self, request: Request) -> bytes:
        try:
            self._check_head(request)
        except ApiError as error:
            if error.status == 413:
                await let_go(request)
            raise
        chunks: list[bytes] = []
        size = 0
        try:
            async for chunk in _within(request, self._settings.body_seconds):
                size += len(chunk)
                self._held += len(chunk)
                chunks.append(chunk)
                if size > self._settings.max_body_bytes:  # sent in chunks, without a length
                    chunks.clear()
                    await let_go(request)
                    raise self._too_large()
                if self._held > self._settings.held_bytes and self._held > size:
                    raise busy("too many bodies are being received: come back later", 1)
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        finally:
            self._held -= size

    def _check_head(self, request: Request) -> None:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":  # also keeps out forms of web pages, which cannot send this without asking
            raise closing(415, "send JSON, with the header Content-Type: application/json", code="not_json")
        if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise closing(415, "send the body as it is, without Content-Encoding", code="packed_body")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 18 or int(length) > self._settings.max_body_bytes):
            raise self._too_large()

    def _too_large(self) -> ApiError:
        return closing(
            413,
            f"the body is larger than {self._settings.max_body_bytes} bytes: send fewer texts at a time",
            code="body_too_large",
        )


async def let_go(request: Request) -> None:
    """Read on for a moment and keep nothing: a connection closed on a client that still sends loses it the reply."""
    with suppress(ApiError):
        async for _ in _within(request, _LET_GO_SECONDS):
            pass


class _within:  # noqa: N801 - reads like a function
    """The chunks of a body, all of them within so many seconds."""

    def __init__(self, request: Request, seconds: float) -> None:
        self._receive = request.receive
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._more = True

    def __aiter__(self) -> _within:
        return self

    async def __anext__(self) -> bytes:
        if not self._more:
            raise StopAsyncIteration
        try:
            message = await self._next()
        except asyncio.TimeoutError:
            raise closing(408, "the body took too long to arrive", code="slow_body") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        self._more = message.get("more_body", False)
        chunk: bytes = message.get("body", b"")
        return chunk

    async def _next(self) -> Message:
        if sys.version_info >= (3, 11):  # a task less, for every request
            async with asyncio.timeout_at(self._deadline):
                return await self._receive()
        return await asyncio.wait_for(self._receive(), self._deadline - asyncio.get_running_loop().time())
