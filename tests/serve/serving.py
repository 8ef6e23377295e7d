"""Servers in processes of their own, and raw clients for them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

CHILD = Path(__file__).parent / "served_child.py"
# A limit for what hangs, not for what is slow: other tests may run beside.
BOUND = 120.0


@dataclass
class Running:
    """A server that runs."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def connect(self, timeout: float = BOUND) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def stop(self) -> int:
        """SIGTERM, then the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(BOUND)

    @property
    def logged(self) -> str:
        return self.log.read_text(encoding="utf-8")


@contextmanager
def serving(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    """A server with these arguments of `served_child.py`, up and ready; it is ended whatever happens."""
    log = folder / "serve.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, str(CHILD), *arguments],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            env={**os.environ, **(env or {})},
        )
    try:
        running = Running(_address(process, log), process, log)
        _await_ready(running)
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(BOUND)
        if process.stdin is not None:
            process.stdin.close()


def odd(folder: Path, **settings: Any) -> Any:  # noqa: ANN401 - a context
    """A server of the odd encoder."""
    return serving(folder, "odd", json.dumps(settings))


def until(true: Callable[[], bool]) -> None:
    """Wait for something."""
    deadline = time.monotonic() + BOUND
    while not true():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def metric(server: Running, name: str) -> float:
    """Return the value of a metric in /metrics; 0 if it is not there yet."""
    lines = httpx.get(f"{server.url}/metrics", timeout=BOUND).text.splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), 0.0)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + BOUND
    while time.monotonic() < deadline:
        found = re.search(r"at (http://\S+)", log.read_text(encoding="utf-8"))
        if found:
            return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.02)
    raise AssertionError(f"the server did not start: {log.read_text(encoding='utf-8')}")


def _await_ready(running: Running) -> None:
    deadline = time.monotonic() + BOUND
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{running.url}/ready", timeout=BOUND).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.02)
    raise AssertionError(f"the server is not ready: {running.logged}")


def request_bytes(body: bytes, path: str = "/v1/embeddings", *headers: str) -> bytes:
    """A POST as it goes over the wire."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def asking(text: str | list[str], model: str = "odd") -> bytes:
    """The body of a request for embeddings."""
    return json.dumps({"input": text, "model": model}).encode()


def status_of(connection: socket.socket) -> int:
    """The status of the reply; 0 where the server closed the connection instead."""
    data = b""
    try:
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return 0
            data += more
    except ConnectionResetError:
        return 0
    return int(data.split()[1])
