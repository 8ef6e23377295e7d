"""Connections that cannot be held open by a client that sends or reads slowly; uvicorn itself waits for ever."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from ensembed.serve.bodies import let_go
from ensembed.serve.quiet_log import log
from ensembed.serve.replies import ApiError, error_reply
from ensembed.serve.settings import Settings

# The most that the head of a request may take.
_HEAD_BYTES = 64 << 10
# How long a client may read nothing of a reply that does not fit in the buffers.
_READ_SECONDS = 30.0

# How long nothing more is said of refused connections.
_WARN_SECONDS = 60.0

_OVERCROWDED = ApiError(
    503,
    "the server has too many connections: come back later",
    code="too_many_connections",
    headers={"Retry-After": "1", "Connection": "close"},
)
_Base: Any = AutoHTTPProtocol  # one of two classes, by what is installed


def bounded(settings: Settings) -> type[asyncio.Protocol]:
    """Uvicorn's protocol with limits on the time and size of a request's head, and on the time a reply is not read.

    A connection beyond the number allowed is told so in the shape of all errors, and closed; those before it go on.
    """
    warned = -math.inf

    class Bounded(_Base):  # type: ignore[misc] # a class of either kind, chosen when it runs
        def connection_made(self, transport: asyncio.Transport) -> None:
            nonlocal warned
            super().connection_made(transport)
            if len(self.connections) > settings.connections:
                if self.loop.time() - warned > _WARN_SECONDS:  # not of every one: there may be thousands
                    warned = self.loop.time()
                    log.warning("more than %d connections: new ones are refused", settings.connections)
                self.app = _refuse
            self._head_bytes = 0
            self._head_timer: asyncio.TimerHandle | None = None
            self._write_timer: asyncio.TimerHandle | None = None
            self._await_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._head_bytes = 0
                self._stop(self._head_timer)
                self._head_timer = None
                return
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES:
                self.transport.abort()
            elif self._head_timer is None:
                self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop(self._head_timer)
            self._stop(self._write_timer)
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._watch_reader(None)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop(self._write_timer)

        def _await_head(self) -> None:
            self._head_timer = self.loop.call_later(settings.header_seconds, self.transport.abort)

        def _watch_reader(self, before: int | None) -> None:
            """Give up on a client that has not read anything for a while."""
            left = self.transport.get_write_buffer_size()
            if before is not None and left >= before:
                self.transport.abort()
            else:
                self._write_timer = self.loop.call_later(_READ_SECONDS, self._watch_reader, left)

        @staticmethod
        def _stop(timer: asyncio.TimerHandle | None) -> None:
            if timer is not None:
                timer.cancel()

    return Bounded


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    with suppress(ClientDisconnect):
        await let_go(Request(scope, receive))
        await error_reply(_OVERCROWDED)(scope, receive, send)
