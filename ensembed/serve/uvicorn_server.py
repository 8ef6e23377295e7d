"""Running the application with uvicorn: a socket, signals, and a shutdown that finishes what was accepted."""

from __future__ import annotations

import ipaddress
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from ensembed.errors import InputError
from ensembed.serve.api_errors import log
from ensembed.serve.limits import limited_protocol
from ensembed.serve.settings import Settings

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_EXIT_SECONDS = 5.0  # for the end of the process, after the time for accepted requests
_REPEAT_SECONDS = 60.0  # at most one line of a warning in this time


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach that address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to that address; port 0 takes a free one."""
    try:
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(*info[:3])
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(info[4])
        except OSError:
            bound.close()
            raise
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"cannot listen on {host}, port {port}: {reason}; choose another `port` (--port) or `host` (--host)"
        ) from error
    return bound


def address_of(bound: socket.socket) -> str:
    """Return the URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: Starlette, bound: socket.socket, settings: Settings, started: Callable[[], None] = lambda: None) -> int:
    """Serve until SIGTERM or SIGINT, finish what was accepted, and return the number of requests.

    `started` is called when the server accepts connections.
    The process should end then: if a thread of the model keeps it alive, it is ended 5 s after `shutdown_seconds`.
    """
    config = uvicorn.Config(
        app,
        http=limited_protocol(settings),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # it would log URLs, which may contain anything
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_seconds),
    )
    server = _Server(config, app, settings, started)
    with _process_state():
        server.run(sockets=[bound])
    return server.server_state.total_requests


class _Server(uvicorn.Server):
    """On a signal, `/ready` says 503 first; the server continues for clients that have not seen it yet."""

    def __init__(self, config: uvicorn.Config, app: Starlette, settings: Settings, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._say_started = started
        self._endpoints, self._drain, self._stop_at = app.state.endpoints, settings.drain_seconds, math.inf
        self._last_seconds = math.ceil(settings.shutdown_seconds) + _EXIT_SECONDS

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections, and say so if that went well."""
        await super().startup(sockets)
        if self.started:
            self._say_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain on the first signal; stop on the second."""
        first = not self._endpoints.stopping
        self._endpoints.stopping = True
        if first and self._drain:
            self._stop_at = time.monotonic() + self._drain
            log.info("stopping in %g s", self._drain)
            self._captured_signals.append(sig)
            return
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop."""
        return await super().on_tick(counter) or time.monotonic() >= self._stop_at

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, and see to it that the process ends: Python waits for the threads of a model's own pools."""
        timer = threading.Timer(self._last_seconds, _end_process)
        timer.daemon = True
        timer.start()
        await super().shutdown(sockets)


def _end_process() -> None:
    log.error("a thread still runs after the time for a shutdown: the process ends without it")
    logging.shutdown()
    os._exit(1)


class RepeatedWarnings(logging.Filter):
    """Lets one line of each warning pass a minute, with the number of those that it stopped before."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}
        self._stopped: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record. There are few different warnings, and none contains text of a request."""
        if record.levelno != logging.WARNING:
            return True
        warning, now = str(record.msg), time.monotonic()
        if now - self._passed.get(warning, -math.inf) < _REPEAT_SECONDS:
            self._stopped[warning] = self._stopped.get(warning, 0) + 1
            return False
        self._passed[warning] = now
        if stopped := self._stopped.pop(warning, 0):
            record.msg = f"{warning} ({stopped} more since the last line)"
        return True


@contextmanager
def _process_state() -> Iterator[None]:
    """Set what a serving process needs: frequent turns of threads, a bounded log, a status of 0 after SIGTERM."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval / 10)  # the model's thread waits less: 3% more requests at saturation
    handler = signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn sends itself the signal again at the end
    loggers, repeated = (log, logging.getLogger("uvicorn.error")), RepeatedWarnings()
    for logger in loggers:
        logger.addFilter(repeated)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(repeated)
        signal.signal(signal.SIGTERM, handler)
        sys.setswitchinterval(interval)
