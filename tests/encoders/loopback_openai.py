"""A local OpenAI-compatible server that misbehaves as a test wants, and records the requests."""

from __future__ import annotations

import base64
import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np

from ensembed.encoders.base import Encoder, FloatArray
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.encoders.openai.api_client import EmbeddingAPI, RequestOptions
from ensembed.encoders.openai.api_servers import Server


@dataclass(frozen=True)
class Asked:
    """One request."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def texts(self) -> list[str]:
        texts: list[str] = self.body["input"]
        return texts


class Exchange:
    """A request and the ways to answer it."""

    def __init__(self, server: LoopbackOpenAI, handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        self.server = server
        self.asked = asked
        self._handler = handler
        self._open = True

    def close(self) -> None:
        """Count it as answered, before the last byte is sent: the next request may follow at once."""
        if self._open:
            self._open = False
            self.server.count(-1)

    @property
    def vectors(self) -> FloatArray:
        """The right vectors."""
        return self.server.encoder.encode(self.asked.texts)

    def rows(self, encoding: str | None = None) -> list[dict[str, Any]]:
        """The items of a good reply."""
        wanted = encoding or self.asked.body.get("encoding_format", "float")
        return [
            {"object": "embedding", "index": i, "embedding": as_base64(row) if wanted == "base64" else row.tolist()}
            for i, row in enumerate(self.vectors)
        ]

    def give(self, rows: object) -> None:
        """Reply with these items."""
        self.send(200, json.dumps({"object": "list", "data": rows, "model": self.asked.body["model"]}))

    def send(self, status: int, text: str | bytes, headers: Mapping[str, str] | None = None) -> None:
        """Reply with this text."""
        data = text.encode() if isinstance(text, str) else text
        self.send_part(status, data, len(data), headers)

    def send_part(self, status: int, data: bytes, length: int, headers: Mapping[str, str] | None = None) -> None:
        """Reply with these bytes, but announce this length."""
        self.close()
        self._handler.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(length),
            **(headers or {}),
        }.items():
            self._handler.send_header(name, value)
        self._handler.end_headers()
        self._handler.wfile.write(data)

    def send_more(self, data: bytes) -> None:
        """Go on with the reply."""
        self._handler.wfile.write(data)

    def hang_up(self) -> None:
        """Close the connection."""
        self._handler.close_connection = True


Behaviour: TypeAlias = Callable[[Exchange], None]


def good(exchange: Exchange) -> None:
    exchange.give(exchange.rows())


def fails(status: int, message: str = "no", **headers: str) -> Behaviour:
    """Answer with an error in OpenAI's format."""
    spelled = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda exchange: exchange.send(status, json.dumps({"error": {"message": message}}), spelled)


def says(text: str | bytes, status: int = 200, **headers: str) -> Behaviour:
    """Answer with this text."""
    spelled = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda exchange: exchange.send(status, text, spelled)


def changes(change: Callable[[list[dict[str, Any]]], object], encoding: str | None = None) -> Behaviour:
    """Answer with the changed rows of a good reply."""
    return lambda exchange: exchange.give(change(exchange.rows(encoding)))


def drops(exchange: Exchange) -> None:
    """Close the connection in the middle of the reply."""
    exchange.send_part(200, b'{"data": [', 1000)
    exchange.hang_up()


def hangs(exchange: Exchange) -> None:
    """Do not answer until the test is over."""
    exchange.server.over.wait(30)
    exchange.hang_up()


def as_base64(row: FloatArray) -> str:
    return base64.b64encode(np.asarray(row, "<f4").tobytes()).decode()


class LoopbackOpenAI:
    """The server; a context manager.

    Args:
        encoder: gives the vectors.
        behave: answers every request for which `script` has no answer.
    """

    def __init__(self, encoder: Encoder | None = None, behave: Behaviour = good) -> None:
        self.encoder: Encoder = encoder or DemoEncoder(dim=8, seed=3)
        self.behave = behave
        self.script: deque[Behaviour] = deque()
        self.asked: list[Asked] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.over = threading.Event()
        self.pauses: list[float] = []
        self._turn = threading.Lock()
        self._http = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        return self._http.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def connect(
        self,
        *,
        url: str | None = None,
        key: str = "",
        **options: Any,  # noqa: ANN401 - whatever the option is
    ) -> EmbeddingAPI:
        """Return a client that records its pauses in `pauses` instead of waiting."""
        return EmbeddingAPI(
            Server(url or f"{self.url}/embeddings", "THE_VARIABLE", key, nearby=True),
            "m",
            name="it",
            options=RequestOptions(**options),
            pause=lambda _stop, seconds: self.pauses.append(seconds),
        )

    def start(self) -> LoopbackOpenAI:
        self._thread.start()
        return self

    def stop(self) -> None:
        self.over.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def __enter__(self) -> LoopbackOpenAI:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        asked = Asked(handler.path, {name.lower(): value for name, value in handler.headers.items()}, body)
        with self._turn:
            self.asked.append(asked)
            behave = self.script.popleft() if self.script else self.behave
        self.count(1)
        exchange = Exchange(self, handler, asked)
        try:
            behave(exchange)
        finally:
            exchange.close()

    def count(self, change: int) -> None:
        with self._turn:
            self.in_flight += change
            self.most_in_flight = max(self.most_in_flight, self.in_flight)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the library's own types
        """Do nothing: clients that give up are part of the tests."""


def _handler(server: LoopbackOpenAI) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            server.answer(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Do nothing."""

    return Handler
