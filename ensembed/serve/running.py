"""Running the application: a socket, uvicorn, and an end that finishes what was accepted."""

from __future__ import annotations

import ipaddress
import math
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI

from ensembed.errors import InputError
from ensembed.serve.connections import bounded
from ensembed.serve.quiet_log import log
from ensembed.serve.settings import Settings

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to that address; port 0 takes a free one.

    Raises:
        InputError: the address is not one of this machine, or taken.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another --port or --host"
        ) from error
    return bound


def address_of(bound: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: FastAPI, bound: socket.socket, settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; then accept nothing new, finish what was accepted, and return how many it was."""
    config = uvicorn.Config(
        app,
        http=bounded(settings),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # it would log whatever is in a URL
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_seconds),
    )
    server = _Server(config, app, settings.drain_seconds)
    with _quiet_end(), _quick_turns():
        server.run(sockets=[bound])
    return server.server_state.total_requests


class _Server(uvicorn.Server):
    """When told to stop it says so at /ready first, and goes on a while for those who have not seen it yet."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, drain_seconds: float) -> None:
        super().__init__(config)
        self._endpoints = app.state.endpoints
        self._drain = drain_seconds
        self._stop_at = math.inf

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins the end; another one hurries it."""
        first = not self._endpoints.stopping
        self._endpoints.stopping = True
        if first and self._drain:
            self._stop_at = time.monotonic() + self._drain
            log.info("stopping in %g s", self._drain)
            self._captured_signals.append(sig)
            return
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop."""
        return await super().on_tick(counter) or time.monotonic() >= self._stop_at


@contextmanager
def _quick_turns() -> Iterator[None]:
    """Threads take turns ten times as often: the model's must not wait while replies are written (3% at saturation)."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(before / 10)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def _quiet_end() -> Iterator[None]:
    """Uvicorn sends itself the signal again when it has finished; SIGTERM then means that all went well."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
