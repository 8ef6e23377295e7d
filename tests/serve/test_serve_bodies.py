"""How much is held of bodies that are still coming in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from ensembed.serve import Settings
from ensembed.serve.bodies import Bodies
from ensembed.serve.replies import ApiError


def request(messages: Iterable[dict[str, Any]]) -> Request:
    """A request whose body comes in these messages; after them nothing comes any more."""
    left: Iterator[dict[str, Any]] = iter(messages)

    async def receive() -> dict[str, Any]:
        for message in left:
            return message
        await asyncio.Event().wait()
        return {}

    return Request({"type": "http", "headers": [(b"content-type", b"application/json")]}, receive)


def part(size: int, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": b"x" * size, "more_body": more}


def test_all_clients_together_have_a_limit_and_what_was_held_is_let_go() -> None:
    async def work() -> None:
        bodies = Bodies(Settings(max_body_bytes=100, held_bytes=150, body_seconds=1))
        slow = asyncio.ensure_future(bodies.read(request([part(90)])))
        await asyncio.sleep(0)  # it has its first part now
        with pytest.raises(ApiError) as full:
            await bodies.read(request([part(90, more=False)]))
        assert (full.value.status, full.value.headers["Retry-After"]) == (429, "1")
        assert await bodies.read(request([part(30), part(20, more=False)])) == b"x" * 50
        with pytest.raises(ApiError) as late:
            await slow
        assert late.value.status == 408
        assert await bodies.read(request([part(90, more=False)])) == b"x" * 90

    asyncio.run(work())


def test_a_client_that_goes_away_holds_nothing() -> None:
    async def work() -> None:
        bodies = Bodies(Settings(max_body_bytes=100, held_bytes=100))
        for _ in range(5):
            with pytest.raises(ClientDisconnect):
                await bodies.read(request([part(90), {"type": "http.disconnect"}]))
        assert len(await bodies.read(request([part(50), part(50, more=False)]))) == 100

    asyncio.run(work())
