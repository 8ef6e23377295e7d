"""Shutdown: accepted requests are answered."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx
from serving import BOUND, Running, asking, metric, odd, request_bytes, status_of, until

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
    await asyncio.to_thread(until, lambda: len(answered) > 100)
    server.process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(asyncio.gather(*clients), BOUND)
    return await asyncio.to_thread(server.process.wait, BOUND)


def test_every_accepted_request_is_answered_under_load(tmp_path: Path) -> None:
    with odd(tmp_path, seconds=0.03) as server:
        answered: list[int] = []
        before = _answered_so_far(server)
        assert asyncio.run(_load(server, answered)) == 0
        (line,) = [line for line in server.logged.splitlines() if line.startswith("stopped after")]
        accepted = int(line.split()[2]) - before
        replies = server.logged.count("POST /v1/embeddings 200")
        assert accepted == replies == len(answered)


def _answered_so_far(server: Running) -> int:
    """Requests other than those of the load: /ready, until it was, and this one."""
    metrics = httpx.get(f"{server.url}/metrics", timeout=BOUND).text
    lines = [line for line in metrics.splitlines() if line.startswith("ensembed_requests_total")]
    return round(sum(float(line.split()[-1]) for line in lines)) + 1


def test_shutdown_finishes_running_and_queued_requests_and_ignores_idle_clients(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with (
        odd(tmp_path, gate=str(gate), header_seconds=BOUND) as server,
        server.connect() as connection,
        server.connect() as later,
        server.connect(),
    ):
        gate.touch()
        connection.sendall(request_bytes(asking("is encoded")))
        until(lambda: metric(server, 'ensembed_cache_lookups{result="miss"}') >= 2)  # that one, and the server's own
        until(lambda: metric(server, "ensembed_queued_texts") == 0)
        later.sendall(request_bytes(asking("waits in the queue")))
        until(lambda: metric(server, "ensembed_queued_texts") == 1)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: not _listens(server))
        gate.unlink()
        assert status_of(connection) == 200
        assert status_of(later) == 200
        assert server.process.wait(BOUND) == 0


def _listens(server: Running) -> bool:
    try:
        server.connect().close()
    except OSError:
        return False
    return True


def test_draining_server_is_not_ready_but_answers_until_a_second_signal(tmp_path: Path) -> None:
    with odd(tmp_path, drain_seconds=600) as server, httpx.Client(base_url=server.url, timeout=BOUND) as client:
        assert client.get("/ready").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        until(lambda: client.get("/ready").status_code == 503)
        assert client.get("/ready").json()["error"]["code"] == "not_ready"
        assert client.post("/v1/embeddings", content=asking("late"), headers=_JSON).status_code == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(BOUND) == 0


def test_draining_ends_by_itself(tmp_path: Path) -> None:
    with odd(tmp_path, drain_seconds=0.2) as server:
        assert server.stop() == 0
        assert "stopping in 0.2 s" in server.logged


def test_process_ends_though_the_model_hangs_in_a_thread_pool_of_its_own(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with odd(tmp_path, gate=str(gate), pool=True, shutdown_seconds=1) as server, server.connect() as connection:
        gate.touch()
        connection.sendall(request_bytes(asking("hangs")))
        until(lambda: metric(server, 'ensembed_cache_lookups{result="miss"}') >= 2)  # that one, and the server's own
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 1
        assert "the process ends without it" in server.logged
