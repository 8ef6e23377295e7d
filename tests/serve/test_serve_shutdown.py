"""The end of a server: what it accepted is answered."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import httpx
from serving import Running, asking, odd, request_bytes, status_of

_JSON = {"Content-Type": "application/json"}


async def _client(server: Running, number: int, answered: list[int]) -> None:
    """Ask until the server is gone; a reply that has begun must be whole and right."""
    for i in range(10_000):
        text = f"client {number} text {i}"
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        except OSError:
            return
        try:
            writer.write(request_bytes(asking(text)))
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()
        assert b" 200 " in head, head
        answered.append(i)


async def _load(server: Running, answered: list[int]) -> int:
    clients = [asyncio.ensure_future(_client(server, number, answered)) for number in range(16)]
    await asyncio.sleep(0.7)
    server.process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(asyncio.gather(*clients), 60)
    return await asyncio.to_thread(server.process.wait, 60)


def test_under_load_everything_accepted_is_answered(tmp_path: Path) -> None:
    with odd(tmp_path, seconds=0.03) as server:
        answered: list[int] = []
        before = _answered_so_far(server)
        assert asyncio.run(_load(server, answered)) == 0
        assert len(answered) > 16
        (line,) = [line for line in server.logged.splitlines() if line.startswith("stopped after")]
        accepted = int(line.split()[2]) - before
        replies = server.logged.count("POST /v1/embeddings 200")
        assert accepted == replies == len(answered)


def _answered_so_far(server: Running) -> int:
    """Requests other than those of the load: /ready, until it was, and this one."""
    metrics = httpx.get(f"{server.url}/metrics").text
    lines = [line for line in metrics.splitlines() if line.startswith("ensembed_requests_total")]
    return round(sum(float(line.split()[-1]) for line in lines)) + 1


def test_what_is_encoded_or_queued_is_finished_and_idle_clients_do_not_hold_it_up(tmp_path: Path) -> None:
    with (
        odd(tmp_path, seconds=0.8) as server,
        server.connect() as connection,
        server.connect() as later,
        server.connect(),
    ):
        connection.sendall(request_bytes(asking("first")))
        time.sleep(0.1)
        later.sendall(request_bytes(asking("waits in the queue")))
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        assert status_of(connection) == 200
        assert status_of(later) == 200
        assert server.process.wait(20) == 0


def test_draining_says_so_first_and_answers_on(tmp_path: Path) -> None:
    with odd(tmp_path, drain_seconds=1.5) as server, httpx.Client(base_url=server.url, timeout=20) as client:
        assert client.get("/ready").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 1.2
        while client.get("/ready").status_code == 200 and time.monotonic() < deadline:
            time.sleep(0.01)
        reply = client.get("/ready")
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "not_ready")
        assert client.post("/v1/embeddings", content=asking("late"), headers=_JSON).status_code == 200
        assert server.process.wait(20) == 0
