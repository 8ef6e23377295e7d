"""Clients that flood, are slow, send random bytes or go away: other clients must not notice."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from serving import BOUND, Running, asking, metric, odd, request_bytes, status_of, until

from ensembed.serve.uvicorn_server import RepeatedWarnings


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with odd(tmp_path_factory.mktemp("abuse"), max_body_bytes=200_000, max_items=100) as running:
        yield running


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with odd(tmp_path_factory.mktemp("impatient"), body_seconds=1, header_seconds=1) as running:
        yield running


def post(server: Running, body: bytes | Iterator[bytes]) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/embeddings", content=body, headers=_JSON, timeout=BOUND)


def well(server: Running) -> None:
    """The server still answers, and rightly."""
    reply = post(server, asking("fine"))
    assert reply.status_code == 200
    assert reply.json()["data"][0]["embedding"] == [4.0, float(sum(map(ord, "fine")) % 1009), 1.0, 0.0]
    assert server.process.poll() is None


_JSON = {"Content-Type": "application/json"}


def test_flood_gets_429_with_retry_after_and_no_request_is_lost(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def flood(server: Running) -> list[httpx.Response]:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=200), timeout=BOUND) as client:
            bodies = [asking([f"{i}-{j}" for j in range(4)]) for i in range(150)]
            url = f"{server.url}/v1/embeddings"
            posts = [asyncio.ensure_future(client.post(url, content=body, headers=_JSON)) for body in bodies]
            refused = 'ensembed_requests_total{route="/v1/embeddings",status="429"}'
            await asyncio.to_thread(until, lambda: metric(server, refused) > 0)
            gate.unlink()
            return await asyncio.gather(*posts)

    with odd(tmp_path, gate=str(gate), queue_texts=64, batch_texts=16) as server:
        gate.touch()
        replies = asyncio.run(flood(server))
        refused = [reply for reply in replies if reply.status_code == 429]
        answered = [(i, reply) for i, reply in enumerate(replies) if reply.status_code == 200]
        assert len(refused) + len(answered) == 150
        assert refused
        assert len(answered) >= 16
        assert all(1 <= int(reply.headers["retry-after"]) <= 60 for reply in refused)
        assert {reply.json()["error"]["code"] for reply in refused} == {"queue_full"}
        for i, reply in answered:
            assert [item["embedding"][1] for item in reply.json()["data"]] == [
                float(sum(map(ord, f"{i}-{j}")) % 1009) for j in range(4)
            ]
        well(server)


def test_connections_beyond_the_limit_get_503_and_earlier_ones_continue(tmp_path: Path) -> None:
    with (
        odd(tmp_path, connections=2, header_seconds=BOUND) as server,
        server.connect() as early,
        server.connect() as idle,
    ):
        for text in ("fine", "a large one " * 20_000):  # which is still being sent when it is refused
            reply = post(server, asking(text))
            assert (reply.status_code, reply.json()["error"]["code"]) == (503, "too_many_connections")
            assert (reply.headers["retry-after"], reply.headers["connection"]) == ("1", "close")
        assert server.logged.count("more than 2 connections: new ones are refused") == 1
        early.sendall(request_bytes(asking("was there before")))
        assert status_of(early) == 200
        idle.close()
        until(lambda: httpx.get(f"{server.url}/health", timeout=BOUND).status_code == 200)


def test_slow_body_gets_408(impatient: Running) -> None:
    whole = request_bytes(asking("slow"))
    with impatient.connect() as connection:
        connection.sendall(whole[:-5])
        assert status_of(connection) == 408
    well(impatient)


def test_trickling_bytes_do_not_extend_the_time_for_a_body(impatient: Running) -> None:
    late = 'ensembed_requests_total{route="/v1/embeddings",status="408"}'
    before = metric(impatient, late)
    with impatient.connect() as connection, suppress(ConnectionError):  # what comes after the end is answered so
        connection.sendall(request_bytes(asking("x" * 5000))[:300])
        connection.settimeout(0.1)
        for _ in range(int(BOUND / 0.1)):
            connection.sendall(b"x")
            with suppress(TimeoutError):
                assert b"408" in connection.recv(100)
                break
    until(lambda: metric(impatient, late) == before + 1)


@pytest.mark.parametrize("head", [b"", b"POST /v1/embeddings HTTP/1.1\r\nHost: local"])
def test_connection_with_a_slow_head_is_closed(impatient: Running, head: bytes) -> None:
    with impatient.connect() as connection:
        connection.sendall(head)
        assert status_of(connection) == 0
    well(impatient)


def test_connection_with_a_slow_second_head_is_closed(impatient: Running) -> None:
    with impatient.connect() as connection, suppress(ConnectionError):
        connection.sendall(request_bytes(asking("one")))
        assert status_of(connection) == 200
        connection.sendall(b"GET /health HTTP/1.1\r\nX-Slow: ")
        while connection.recv(65536):  # what is left of the first reply, then the end
            pass


def test_connection_with_an_endless_head_is_closed(server: Running) -> None:
    with server.connect() as connection, pytest.raises(OSError):  # noqa: PT012 - which of them fails is a race
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        for _ in range(2000):
            connection.sendall(b"X-Junk: " + b"y" * 1000 + b"\r\n")
        assert status_of(connection) == 0
        raise OSError
    well(server)


def test_large_body_is_refused_by_its_stated_length(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(
            b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99999999999999\r\n\r\n"
        )
        assert status_of(connection) == 413
    reply = post(server, asking("x" * 300_000))
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")
    well(server)


def test_large_body_in_chunks_is_refused_while_it_arrives(server: Running) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"input": "'
        for _ in range(300):
            yield b"x" * 1000

    reply = post(server, chunks())
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")

    def small() -> Iterator[bytes]:
        for byte in asking("fine"):
            yield bytes([byte])

    assert post(server, small()).status_code == 200
    well(server)


def test_random_bytes_get_400_or_a_closed_connection(server: Running) -> None:
    chance = random.Random(0)  # noqa: S311 - no secret
    for _ in range(40):
        with server.connect() as connection:
            rubbish = chance.randbytes(chance.randint(1, 2000))
            if chance.random() < 0.5:
                rubbish = request_bytes(rubbish)
            try:
                connection.sendall(rubbish)
                connection.shutdown(socket.SHUT_WR)
                assert status_of(connection) in (0, 400)
            except (BrokenPipeError, ConnectionResetError, OSError):
                continue
    for body in (
        b"null",
        b"[]",
        b"1e999",
        b'{"input":' + b"[" * 50_000,
        json.dumps({"input": ["\x00"] * 101}).encode(),
    ):
        with server.connect() as connection:
            connection.sendall(request_bytes(body))
            assert status_of(connection) == 400
    well(server)


def test_texts_of_clients_that_go_away_are_not_encoded(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with odd(tmp_path, gate=str(gate), batch_texts=4, queue_texts=400) as server:
        before = metric(server, "ensembed_batch_texts_sum")
        gate.touch()
        for i in range(60):
            with server.connect() as connection:
                connection.sendall(request_bytes(asking([f"gone {i} {j}" for j in range(4)])))
                if i % 2:  # with a reset instead of a polite end
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Some of those with a reset are gone before the server has read them.
        until(lambda: metric(server, "ensembed_abandoned_total") >= 30 and not metric(server, "ensembed_queued_texts"))
        gate.unlink()
        well(server)
        assert (
            metric(server, "ensembed_batch_texts_sum") - before <= 9
        )  # of 240: the batch at work, and those of `well`
        assert metric(server, "ensembed_queued_texts") == 0
        assert "gone" not in server.logged


def test_hanging_model_gets_504_and_is_not_ready_until_it_continues(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with odd(tmp_path, gate=str(gate), request_seconds=0.5) as server:
        gate.touch()
        reply = post(server, asking("hang"))
        assert (reply.status_code, reply.json()["error"]["code"]) == (504, "timeout")
        until(lambda: httpx.get(f"{server.url}/ready", timeout=BOUND).status_code == 503)
        assert httpx.get(f"{server.url}/health", timeout=BOUND).status_code == 200
        gate.unlink()
        until(lambda: httpx.get(f"{server.url}/ready", timeout=BOUND).status_code == 200)


def test_invalid_requests_are_logged_once_with_a_count(server: Running) -> None:
    for _ in range(20):
        with server.connect() as connection:
            connection.sendall(b"\x00 no HTTP\r\n\r\n")
            assert status_of(connection) == 400
    assert server.logged.count("Invalid HTTP request") == 1
    well(server)


def test_warnings_are_counted_until_the_next_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now, passed = 0.0, []
    monkeypatch.setattr("ensembed.serve.uvicorn_server.time.monotonic", lambda: now)
    repeated = RepeatedWarnings()
    for second in range(0, 130, 10):
        now = float(second)
        for level in (logging.WARNING, logging.ERROR):
            record = logging.LogRecord("uvicorn.error", level, "", 0, "Invalid.", None, None)
            if repeated.filter(record):
                passed.append((second, record.getMessage()))
    warnings = [line for line in passed if line != (line[0], "Invalid.")]
    assert warnings == [(60, "Invalid. (5 more since the last line)"), (120, "Invalid. (5 more since the last line)")]
    assert len(passed) == 13 + 3
