"""Clients that flood, dawdle, send rubbish or go away; the others must not notice."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import time
from collections.abc import Iterator

import httpx
import pytest
from serving import Running, asking, odd, request_bytes, status_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    settings = {"body_seconds": 0.5, "header_seconds": 0.5, "max_body_bytes": 200_000, "max_items": 100}
    with odd(tmp_path_factory.mktemp("abuse"), **settings) as running:
        yield running


def well(server: Running) -> None:
    """The server still answers, and rightly."""
    reply = httpx.post(f"{server.url}/v1/embeddings", content=asking("fine"), headers=_JSON, timeout=20)
    assert reply.status_code == 200
    assert reply.json()["data"][0]["embedding"] == [4.0, float(sum(map(ord, "fine")) % 1009), 1.0, 0.0]
    assert server.process.poll() is None


_JSON = {"Content-Type": "application/json"}


def test_a_flood_gets_429_with_retry_after_and_nobody_is_lost(tmp_path_factory: pytest.TempPathFactory) -> None:
    async def flood(url: str) -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(limits=limits, timeout=60) as client:
            bodies = [asking([f"{i}-{j}" for j in range(4)]) for i in range(150)]
            posts = (client.post(f"{url}/v1/embeddings", content=body, headers=_JSON) for body in bodies)
            return await asyncio.gather(*posts)

    folder = tmp_path_factory.mktemp("flood")
    with odd(folder, seconds=0.05, queue_texts=64, batch_texts=16) as server:
        replies = asyncio.run(flood(server.url))
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


def test_a_slow_body_times_out(server: Running) -> None:
    whole = request_bytes(asking("slow"))
    with server.connect() as connection:
        start = time.monotonic()
        connection.sendall(whole[:-5])
        assert status_of(connection) == 408
        assert time.monotonic() - start < 10
    well(server)


def test_bytes_that_trickle_in_do_not_prolong_it(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(request_bytes(asking("x" * 5000))[:300])
        connection.settimeout(0.1)
        deadline = time.monotonic() + 10
        status = b""
        while not status and time.monotonic() < deadline:
            try:
                connection.sendall(b"x")
                status = connection.recv(100)
            except TimeoutError:
                continue
        assert b"408" in status


@pytest.mark.parametrize("head", [b"", b"POST /v1/embeddings HTTP/1.1\r\nHost: local"])
def test_a_slow_head_is_cut_off(server: Running, head: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(head)
        assert status_of(connection) == 0
    well(server)


def test_a_slow_head_after_a_good_request_is_cut_off_too(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(request_bytes(asking("one")))
        assert status_of(connection) == 200
        connection.sendall(b"GET /health HTTP/1.1\r\nX-Slow: ")
        connection.settimeout(10)
        while connection.recv(65536):  # what is left of the first reply, then the end
            pass


def test_a_head_without_end_is_cut_off(server: Running) -> None:
    with server.connect() as connection, pytest.raises(OSError):  # noqa: PT012 - which of them fails is a race
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        for _ in range(2000):
            connection.sendall(b"X-Junk: " + b"y" * 1000 + b"\r\n")
        assert status_of(connection) == 0
        raise OSError
    well(server)


def test_a_large_body_is_refused_by_its_length_alone(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(
            b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99999999999999\r\n\r\n"
        )
        assert status_of(connection) == 413
    reply = httpx.post(f"{server.url}/v1/embeddings", content=asking("x" * 300_000), headers=_JSON)
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")
    well(server)


def test_a_large_body_in_chunks_is_refused_while_it_comes(server: Running) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"input": "'
        for _ in range(300):
            yield b"x" * 1000

    reply = httpx.post(f"{server.url}/v1/embeddings", content=chunks(), headers=_JSON)
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")

    def small() -> Iterator[bytes]:
        for byte in asking("fine"):
            yield bytes([byte])

    assert httpx.post(f"{server.url}/v1/embeddings", content=small(), headers=_JSON).status_code == 200
    well(server)


def test_rubbish_is_refused(server: Running) -> None:
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


def test_clients_that_go_away_cost_the_others_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    with odd(tmp_path_factory.mktemp("gone"), seconds=0.05, batch_texts=4, queue_texts=400) as server:
        for i in range(60):
            with server.connect() as connection:
                connection.sendall(request_bytes(asking([f"gone {i} {j}" for j in range(4)])))
                if i % 2:  # with a reset instead of a polite end
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        start = time.monotonic()
        well(server)
        # 240 texts at 80 a second would take 3 s
        assert time.monotonic() - start < 2
        metrics = httpx.get(f"{server.url}/metrics").text
        encoded = next(line for line in metrics.splitlines() if line.startswith("ensembed_batch_texts_sum"))
        assert float(encoded.split()[1]) < 200
        assert "ensembed_queued_texts 0.0" in metrics
        assert "gone" not in server.logged


def test_a_model_that_hangs_times_out_and_is_not_ready(tmp_path_factory: pytest.TempPathFactory) -> None:
    with odd(tmp_path_factory.mktemp("hangs"), request_seconds=0.5) as server:
        reply = httpx.post(f"{server.url}/v1/embeddings", content=asking("hang"), headers=_JSON, timeout=20)
        assert (reply.status_code, reply.json()["error"]["code"]) == (504, "timeout")
        assert httpx.get(f"{server.url}/ready").status_code == 503
        assert httpx.get(f"{server.url}/health").status_code == 200
