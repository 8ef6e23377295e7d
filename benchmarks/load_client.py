"""Clients of an embeddings server, in a process of their own: requests a second, how long each takes, how many fail.

    python -m benchmarks.load_client PORT CLIENTS SECONDS TEXTS.json VECTORS.npy MODEL

Bare HTTP over asyncio's streams: a client library would take more of the machine than the server that is measured.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Load:
    """Clients that ask for one sentence after the other, each on one connection."""

    def __init__(self, port: int, texts: list[str], vectors: NDArray[np.float32], model: str) -> None:
        self._port, self._texts, self._vectors, self._model = port, texts, vectors, model
        self._next = 0
        self.seconds: list[float] = []
        self._replies: list[tuple[int, int, bytes]] = []

    async def run(self, clients: int, seconds: float) -> float:
        """All clients at once; the time until the last reply."""
        start = time.perf_counter()
        await asyncio.gather(*(self._client(start + seconds) for _ in range(clients)))
        return time.perf_counter() - start

    async def _client(self, end: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            while time.perf_counter() < end:
                row = self._next % len(self._texts)
                self._next += 1
                began = time.perf_counter()
                status, reply = await self._ask(reader, writer, self._texts[row])
                self.seconds.append(time.perf_counter() - began)
                self._replies.append((row, status, reply))  # looked at later: the cores are the server's now
        finally:
            writer.close()

    @property
    def failed(self) -> int:
        """Requests that were refused."""
        return sum(status != 200 for _, status, _ in self._replies)

    @property
    def wrong(self) -> int:
        """Replies whose vector is not the sentence's own."""
        good = [(row, reply) for row, status, reply in self._replies if status == 200]
        return sum(not np.allclose(_vector(reply), self._vectors[row], atol=1e-4) for row, reply in good)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str) -> tuple[int, bytes]:
        body = json.dumps({"model": self._model, "input": text, "encoding_format": "base64"}).encode()
        head = "POST /v1/embeddings HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
        return int(lines[0].split()[1]), await reader.readexactly(length)


def _vector(reply: bytes) -> NDArray[np.float32]:
    return np.frombuffer(base64.b64decode(json.loads(reply)["data"][0]["embedding"]), np.float32)


def main(port: int, clients: int, seconds: float, texts: Path, vectors: Path, model: str) -> dict[str, Any]:
    """Warm up for a moment, then measure."""
    sentences, expected = json.loads(texts.read_text()), np.load(vectors)
    asyncio.run(Load(port, sentences[::-1], expected[::-1], model).run(clients, 1.0))
    load = Load(port, sentences, expected, model)
    used = time.process_time()
    took = asyncio.run(load.run(clients, seconds))
    used = time.process_time() - used
    p50, p99 = np.percentile(load.seconds, [50, 99])
    return {
        "clients": clients,
        "requests": len(load.seconds),
        "requests/s": len(load.seconds) / took,
        "p50_ms": 1e3 * p50,
        "p99_ms": 1e3 * p99,
        "client_cpu": used / took,
        "failed": load.failed,
        "wrong": load.wrong,
    }


if __name__ == "__main__":
    port, clients, seconds, texts, vectors, model = sys.argv[1:]
    print(json.dumps(main(int(port), int(clients), float(seconds), Path(texts), Path(vectors), model)))
