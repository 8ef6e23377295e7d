"""Replies that clients do not read: the server's memory is limited, and other clients are answered."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import numpy as np
import pytest
from serving import BOUND, Running, metric, odd, request_bytes, serving, until
from starlette.types import Scope
from uvicorn import Config
from uvicorn.server import ServerState

from ensembed.encoders import open_encoder
from ensembed.serve import Settings
from ensembed.serve.api_errors import ApiError
from ensembed.serve.app import in_turn
from ensembed.serve.limits import ReplyBudget, limited_protocol

_JSON = {"Content-Type": "application/json"}
_MODEL = "demo?dim=768"
_TEXTS = [f"text {i}" for i in range(2048)]
_LARGE = json.dumps({"input": _TEXTS, "model": "demo"}).encode()  # its reply has 30 MB


def memory_mb(server: Running) -> float:
    """The largest memory that the server has had."""
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


def used_seconds(server: Running) -> float:
    """The time of a processor that the server has used: other tests that run beside do not change it."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("replies")
    with serving(folder, "cli", _MODEL, "--name", "demo", "--port", "0", "--threads", "1", "--quiet") as running:
        yield running


def test_large_reply_in_parts_has_the_right_vectors(server: Running) -> None:
    expected = open_encoder(_MODEL).encode(_TEXTS)
    for packed, dim in ((False, 768), (True, 768), (False, 5)):
        body = {"input": _TEXTS, "model": "demo", "encoding_format": "base64" if packed else "float", "dimensions": dim}
        reply = httpx.post(f"{server.url}/v1/embeddings", json=body, timeout=BOUND)
        assert reply.headers["transfer-encoding"] == "chunked"
        facts = reply.json()
        assert [item["index"] for item in facts["data"]] == list(range(len(_TEXTS)))
        assert facts["usage"]["total_tokens"] == 2 * len(_TEXTS)
        if not packed:
            vectors = np.array([item["embedding"] for item in facts["data"]])
            np.testing.assert_allclose(vectors, expected[:, :dim], atol=1e-6)
    assert metric(server, "ensembed_reply_bytes") == 0


def test_client_of_http_1_0_gets_a_large_reply_with_a_length(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(request_bytes(_LARGE).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        with connection.makefile("rb") as stream:
            head, _, body = stream.read().partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(body) in head
    assert b"chunked" not in head
    assert len(json.loads(body)["data"]) == len(_TEXTS)


def test_clients_that_do_not_read_take_little_memory_and_delay_nobody(server: Running) -> None:
    assert httpx.post(f"{server.url}/v1/embeddings", content=_LARGE, headers=_JSON, timeout=BOUND).status_code == 200
    with ExitStack() as stack, httpx.Client(base_url=server.url, timeout=BOUND) as client:
        for _ in range(30):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # the kernel should not read for it
            connection.settimeout(BOUND)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(request_bytes(_LARGE))
        slowest, end = 0.0, time.monotonic() + 5
        while time.monotonic() < end:
            start = used_seconds(server)
            assert client.get("/health").status_code == 200
            slowest = max(slowest, used_seconds(server) - start)
            time.sleep(0.05)
        small = {"input": "a small one", "model": "demo"}
        assert client.post("/v1/embeddings", json=small).status_code == 200
        assert memory_mb(server) < 500
        assert slowest < 1
    until(lambda: metric(server, "ensembed_reply_bytes") == 0)


def test_replies_beyond_the_budget_get_503_until_others_are_read_or_dropped(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(50_000)]
    body = json.dumps({"input": texts, "model": "odd"}).encode()
    limits = {"max_items": 50_000, "queue_texts": 50_000, "batch_texts": 50_000, "reply_bytes": 1_000_000}
    with odd(tmp_path, **limits, read_seconds=1) as server, socket.socket() as idle:
        url = f"{server.url}/v1/embeddings"
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.connect(("127.0.0.1", server.port))
        idle.sendall(request_bytes(body))
        until(lambda: metric(server, "ensembed_reply_bytes") == 800_000)
        refused = httpx.post(url, content=body, headers=_JSON, timeout=BOUND)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "replies_full")
        assert refused.headers["retry-after"] == "1"
        assert httpx.post(url, json={"input": "small", "model": "odd"}, timeout=BOUND).status_code == 200
        until(lambda: metric(server, "ensembed_reply_bytes") == 0)  # it was dropped: it read nothing for a second
        assert httpx.post(url, content=body, headers=_JSON, timeout=BOUND).status_code == 200
        idle.settimeout(BOUND)
        with suppress(ConnectionResetError):
            while idle.recv(1 << 20):
                pass


def test_budget_takes_small_replies_and_one_of_any_size() -> None:
    budget, first, second = ReplyBudget(1 << 20), _scope(), _scope()
    budget.reserve(first, 5 << 20)
    budget.reserve(second, 1000)
    with pytest.raises(ApiError) as refused:
        budget.reserve(second, 1 << 20)
    assert (refused.value.status, budget.held) == (503, (5 << 20) + 1000)
    budget.release(first)
    budget.release(first)
    budget.reserve(second, 1 << 20)
    budget.release(second)
    assert budget.held == 0


def test_large_replies_make_one_part_in_a_turn_of_the_loop() -> None:
    ticks, made = 0, Counter[int]()

    def parts() -> Iterator[bytes]:
        for _ in range(20):
            made[ticks] += 1
            yield b"part"

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def read(turn: asyncio.Lock) -> None:
        assert [part async for part in in_turn(parts(), turn)] == [b"part"] * 20

    async def read_ten() -> None:
        turn, ticking = asyncio.Lock(), asyncio.ensure_future(tick())
        await asyncio.gather(*(read(turn) for _ in range(10)))
        ticking.cancel()

    asyncio.run(read_ten())
    assert (made.total(), max(made.values())) == (200, 1)


class _Loop:
    """A loop of events whose clock the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Mock] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, function: Callable[[], None]) -> Mock:
        timer = Mock(at=self.now + delay, function=function)
        timer.cancel = lambda: self.timers.remove(timer) if timer in self.timers else None
        self.timers.append(timer)
        return timer

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for timer in [timer for timer in self.timers if timer.at <= self.now]:
            timer.cancel()
            timer.function()


def _connection(settings: Settings) -> tuple[Any, _Loop, Mock]:
    """A connection of the server, its loop and the transport under it."""
    loop, transport = _Loop(), Mock()
    transport.is_closing = lambda: transport.close.called
    transport.get_extra_info = lambda _: None
    protocol: Any = limited_protocol(settings)
    connection = protocol(Config(Mock(), log_config=None), ServerState(), {}, loop)
    connection.connection_made(transport)
    return connection, loop, transport


@pytest.mark.parametrize(("rate", "parts"), [(150_000, 500), (100_000, 500), (90_000, 288), (10_000, 3)])
def test_client_must_read_at_the_least_rate_beyond_the_time_for_one_part(rate: int, parts: int) -> None:
    connection, loop, transport = _connection(Settings(header_seconds=1e6, read_seconds=33.05, least_rate=100_000))
    read = 0
    while read < 500:
        connection.transport.write(bytes(100_000))
        connection.pause_writing()
        loop.wait(100_000 / rate)
        if transport.abort.called:
            break
        connection.resume_writing()
        read += 1
    assert read == parts


def test_fast_client_does_not_save_up_time_for_reading_nothing() -> None:
    connection, loop, transport = _connection(Settings(header_seconds=1e6, read_seconds=30, least_rate=100_000))
    connection.transport.write(bytes(100_000_000))
    for seconds in (1, 29.9):
        connection.pause_writing()
        loop.wait(seconds)
        connection.resume_writing()
    assert not transport.abort.called
    connection.pause_writing()
    loop.wait(0.2)
    assert transport.abort.called


@pytest.mark.parametrize("event", ["timeout_keep_alive_handler", "on_response_complete"])
def test_client_that_never_reads_the_end_of_its_last_reply_is_dropped(event: str) -> None:
    connection, loop, transport = _connection(Settings(header_seconds=1e6, read_seconds=30))
    if event == "on_response_complete":
        transport.close()  # as uvicorn does first, unless the connection is kept
    getattr(connection, event)()
    assert transport.close.called  # which waits until everything is sent
    loop.wait(29)
    assert not transport.abort.called
    loop.wait(2)
    assert transport.abort.called
    connection.connection_lost(None)
    assert not [timer for timer in loop.timers if timer.function is transport.abort]


def _scope() -> Scope:
    return {"type": "http"}
