"""Hostile clients of a server on this machine, in a process of their own: how often each kind did what it does.

    python -m benchmarks.soak_hostile PORT SECONDS KEY '{"idle": 200, "no_reader": 10}'

Every kind is bounded, so that the machine has time for the good clients that are measured beside.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

_HOST = "127.0.0.1"
_LARGE = [f"large {i}" for i in range(2048)]
_BODIES = (
    b"",
    b"null",
    b"[1, 2",
    b'{"input": ' + b"[" * 20_000,
    b'{"model": "soak", "input": [1, 2, 3]}',
    b'{"model": "soak", "input": [' + b'"",' * 5000 + b'""]}',
    b'{"model": "absent", "input": "a"}',
    b'{"model": "soak", "input": "' + b"x" * (5 << 20) + b'"}',
    b'{"model": "soak", "input": "a", "dimensions": 1e300}',
)
_SLOW_RATES = (2_000, 50_000, 150_000)  # bytes a second, all below the least rate of the server
_SMALL_BUFFER = 64 << 10  # of the kernel, which would read megabytes for the client otherwise
# What ends a visit: the server may close the connection at any time, or send other than the client waits for.
_ENDS = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.TimeoutError)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def request_bytes(key: str, texts: str | list[str], body: bytes | None = None, encoding: str = "float") -> bytes:
    """Return a request for embeddings as it is sent."""
    facts = {"model": "soak", "input": texts, "encoding_format": encoding}
    body = json.dumps(facts).encode() if body is None else body
    head = f"POST /v1/embeddings HTTP/1.1\r\nHost: {_HOST}\r\nContent-Type: application/json\r\n"
    return f"{head}Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def _connected(port: int, buffer: int = 0) -> AsyncIterator[Streams]:
    connection = socket.socket()
    connection.setblocking(False)
    if buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    try:
        await asyncio.get_running_loop().sock_connect(connection, (_HOST, port))
    except OSError:
        connection.close()
        raise
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


class Hostile:
    """The kinds of hostile clients; each public method but `run` is one visit of one client."""

    def __init__(self, port: int, key: str, seed: int = 0) -> None:
        self._port, self._key, self._chance = port, key, random.Random(seed)  # noqa: S311 - no secret
        self.visits: Counter[str] = Counter()

    async def run(self, seconds: float, crowd: Mapping[str, int]) -> None:
        """Run for that time so many clients of each kind."""
        end = time.monotonic() + seconds
        clients = [self._repeat(kind, getattr(self, kind), end) for kind, count in crowd.items() for _ in range(count)]
        tasks = [asyncio.ensure_future(client) for client in clients]
        await asyncio.wait(tasks, timeout=seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(self, kind: str, visit: Callable[[], Awaitable[None]], end: float) -> None:
        await asyncio.sleep(self._chance.uniform(0, min(10, (end - time.monotonic()) / 10)))
        while time.monotonic() < end:
            self.visits[kind] += 1
            with suppress(*_ENDS):
                await visit()
            await asyncio.sleep(self._chance.uniform(0.05, 0.3))

    async def bad_body(self) -> None:
        """Send a body that the server must refuse."""
        await self._ask(request_bytes(self._key, "", self._chance.choice(_BODIES)))

    async def rubbish(self) -> None:
        """Send what is no HTTP."""
        await self._ask(self._chance.randbytes(self._chance.randint(1, 2000)) + b"\r\n\r\n")

    async def wrong_key(self) -> None:
        """Send a key that the server does not know."""
        await self._ask(request_bytes("not-the-key", "a text"))

    async def cancelled(self) -> None:
        """Reset the connection after the request."""
        async with _connected(self._port) as (_, writer):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.write(request_bytes(self._key, [self._new_text() for _ in range(8)]))
            await asyncio.sleep(self._chance.uniform(0, 0.01))

    async def half_closed(self) -> None:
        """Close the writing side after a whole or half of a request."""
        whole = request_bytes(self._key, "half closed")
        async with _connected(self._port) as (reader, writer):
            writer.write(self._chance.choice([whole, whole[: len(whole) // 2]]))
            writer.write_eof()
            await asyncio.wait_for(reader.read(65536), 15)

    async def pipelined(self) -> None:
        """Send many requests before reading a reply."""
        async with _connected(self._port) as (reader, writer):
            writer.write(request_bytes(self._key, "pipelined") * 20)
            for _ in range(20):
                await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 15)

    async def flood(self) -> None:
        """Ask on many connections at once, then wait a moment."""
        requests = [request_bytes(self._key, [self._new_text() for _ in range(4)]) for _ in range(50)]
        await asyncio.gather(*map(self._ask, requests), return_exceptions=True)
        await asyncio.sleep(5)

    async def slow_writer(self) -> None:
        """Send a head, or the body after it, by the byte until the server gives up."""
        request = request_bytes(self._key, "slow " * 20)
        at_once = self._chance.choice([0, request.index(b"\r\n\r\n") + 4])
        async with _connected(self._port) as (_, writer):
            writer.write(request[:at_once])
            for byte in request[at_once:]:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.2)

    async def slow_reader(self) -> None:
        """Read a large reply slowly: it takes minutes or hours, if the server lets it."""
        rate = self._chance.choice(_SLOW_RATES)
        async with _connected(self._port, _SMALL_BUFFER) as (reader, writer):
            writer.write(request_bytes(self._key, _LARGE))
            while await reader.readexactly(rate // 2):
                await asyncio.sleep(0.5)

    async def no_reader(self) -> None:
        """Ask for a large reply and read nothing."""
        async with _connected(self._port, _SMALL_BUFFER) as (_, writer):
            writer.transport.pause_reading()  # type: ignore[attr-defined] # the transport of a stream has it
            writer.write(request_bytes(self._key, _LARGE))
            await asyncio.sleep(self._chance.uniform(20, 60))

    async def idle(self) -> None:
        """Open a connection and send nothing."""
        async with _connected(self._port) as (reader, _):
            await reader.read(1)

    async def _ask(self, request: bytes) -> None:
        async with _connected(self._port) as (reader, writer):
            writer.write(request)
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 15)

    def _new_text(self) -> str:
        """Return a text that is not in the server's cache, of few words: the demo encoder remembers those."""
        return " ".join(str(self._chance.randrange(100)) for _ in range(8))


if __name__ == "__main__":
    port, seconds, key, crowd = sys.argv[1:]
    hostile = Hostile(int(port), key)
    asyncio.run(hostile.run(float(seconds), json.loads(crowd)))
    print(json.dumps(hostile.visits))
