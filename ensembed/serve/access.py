"""Access: API keys, host names, the security headers of replies, and what is counted and logged of requests."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ensembed.errors import InputError
from ensembed.serve.api_errors import ApiError, closing, log, where
from ensembed.serve.limits import ReplyBudget
from ensembed.serve.settings import Settings
from ensembed.support.file_limits import KEY_FILE_BYTES

if TYPE_CHECKING:
    from ensembed.serve.batching import RecentRows

ENVIRONMENT = "ENSEMBED_API_KEYS"
_SHORTEST_KEY = 8
_PART_BYTES = 128 << 10  # a larger reply is sent in parts, so that a client that does not read delays the next one

# Browsers load nothing from other servers and run nothing that is written into the page itself.
_PAGE_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    b"connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_DEFAULT_HEADERS = ((b"content-security-policy", _PAGE_POLICY), (b"cache-control", b"no-store"))
_STATIC = "/static/"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_KEYLESS = frozenset(["/", "/docs", "/openapi.json", _STATIC])
# Health checks call a server by any name, such as the address of a container. These paths reveal nothing.
_PROBES = frozenset(["/health", "/ready"])
_HOSTNAME = re.compile(rb"\[[^]]*\]|[^:]*")  # without the port; the brackets of an IPv6 address stay
_PORT = re.compile(r"(?<=[^:]):\d+$")  # the header has one, so a setting may have one, too
_METHODS = frozenset(["GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"])


def read_keys(file: Path | None) -> tuple[str, ...]:
    """Return the keys of a file (one a line; # begins a comment) and of ENSEMBED_API_KEYS; errors show no key."""
    keys: list[str] = []
    if file is not None:
        try:
            with file.open("rb") as stream:
                content = stream.read(KEY_FILE_BYTES + 1)
            lines = content.decode().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the file of keys {str(file)!r} cannot be read: {type(error).__name__}") from None
        if len(content) > KEY_FILE_BYTES:
            raise InputError(f"the file of keys {str(file)!r} has more than {KEY_FILE_BYTES:,} bytes")
        keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not keys:
            raise InputError(f"the file of keys {str(file)!r} has no key: write one a line")
    keys += os.environ.get(ENVIRONMENT, "").replace(",", " ").split()
    for i, key in enumerate(keys):
        if len(key) < _SHORTEST_KEY or not all("!" <= character <= "~" for character in key):
            raise InputError(f"key {i + 1} is not {_SHORTEST_KEY} or more visible ASCII characters without spaces")
    return tuple(dict.fromkeys(keys))


class Metrics:
    """What Prometheus reads: requests, batches, cached rows. Every application has its own registry."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()

        def histogram(name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"ensembed_{name}", about, labels, buckets=buckets, registry=registry)

        def gauge(name: str, about: str, *labels: str) -> Gauge:
            return Gauge(f"ensembed_{name}", about, labels, registry=registry)

        about = "Requests by route and HTTP status."
        self._requests = Counter("ensembed_requests", about, ["route", "status"], registry=registry)
        self._seconds = histogram("request_seconds", "From the head of a request to its reply.", _SECONDS, "route")
        self._batch_texts = histogram("batch_texts", "Texts of a batch.", _SIZES)
        self._batch_requests = histogram("batch_requests", "Requests that share a batch.", _SIZES)
        self._batch_seconds = histogram("batch_seconds", "Time of the model for a batch.", _SECONDS)
        self.failures = Counter("ensembed_model_failures", "Requests that the model failed.", registry=registry)
        self.abandoned = Counter("ensembed_abandoned", "Requests whose client went away.", registry=registry)
        self._queued = gauge("queued_texts", "Texts that wait for the model.")
        self._replies = gauge("reply_bytes", "Bytes that unfinished replies hold.")
        self._cache_bytes = gauge("cache_bytes", "Bytes of vectors in the cache.")
        self._cache_rows = gauge("cache_rows", "Vectors in the cache.")
        self._cache = gauge("cache_lookups", "Texts that were looked up.", "result")

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a reply."""
        self._requests.labels(route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def count_batch(self, requests: int, texts: int, seconds: float) -> None:
        """Count a batch."""
        self._batch_requests.observe(requests)
        self._batch_texts.observe(texts)
        self._batch_seconds.observe(seconds)

    def text(self, recent: RecentRows, queued: int, replies: int) -> bytes:
        """Return everything, in Prometheus' format."""
        self._queued.set(queued)
        self._replies.set(replies)
        self._cache_bytes.set(recent.size)
        self._cache_rows.set(len(recent))
        self._cache.labels("hit").set(recent.hits)
        self._cache.labels("miss").set(recent.misses)
        return generate_latest(self._registry)


class Access:
    """ASGI middleware that every request passes. Paths other than `routes` are counted as one: they may be anything."""

    def __init__(
        self, app: ASGIApp, settings: Settings, metrics: Metrics, replies: ReplyBudget, routes: Collection[str]
    ) -> None:
        self._app, self._metrics, self._replies, self._routes = app, metrics, replies, frozenset(routes)
        self._key_hashes = [hashlib.sha256(key.encode()).digest() for key in settings.keys]
        self._hosts = frozenset(_PORT.sub("", host.lower()) for host in settings.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), *_HEADERS]
                names = {name for name, _ in headers}
                message["headers"] = headers + [header for header in _DEFAULT_HEADERS if header[0] not in names]
                await send(message)
                return
            body = message.get("body", b"")
            while len(body) > _PART_BYTES:
                await send({"type": "http.response.body", "body": body[:_PART_BYTES], "more_body": True})
                body = body[_PART_BYTES:]
            await send({**message, "body": body})

        path = scope["path"]
        route = path if path in self._routes else _STATIC if path.startswith(_STATIC) else "other"
        try:
            refusal = self._refusal(scope, route)
            await (refusal.reply() if refusal else self._app)(scope, receive, send_with_headers)
        except ClientDisconnect:
            status = status or 499
        except Exception as error:  # noqa: BLE001 - a server's own log would print messages, which may quote a text
            log.error("%s failed: %s", route, where(error))
            if not status:
                failure = ApiError(500, "the server failed on this request; its log says where", code="failed")
                await failure.reply()(scope, receive, send_with_headers)
        finally:
            self._replies.release(scope)
            seconds = time.perf_counter() - start
            self._metrics.count_request(route, status, seconds)
            if log.isEnabledFor(logging.INFO):
                method = scope["method"] if scope["method"] in _METHODS else "?"
                log.info("%s %s %d %.1f ms", method, route, status, seconds * 1000)

    def _refusal(self, scope: Scope, route: str) -> ApiError | None:
        needs_key = bool(self._key_hashes) and route not in _KEYLESS
        if route in _PROBES or not (self._hosts or needs_key):
            return None
        headers = dict(scope["headers"])
        hostname = _HOSTNAME.findall(headers.get(b"host", b""))[0].decode("latin-1").lower()
        if self._hosts and hostname not in self._hosts:
            message = "this server does not answer to that host name: see `ensembed serve --help` about --allow-host"
            return closing(421, message, "wrong_host")
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        digest = hashlib.sha256(key.strip()).digest()
        # Compare with every key, in constant time, so that the time reveals nothing.
        matches = [hmac.compare_digest(known, digest) for known in self._key_hashes]
        if not needs_key or (any(matches) and scheme.lower() == b"bearer"):
            return None
        error = closing(
            401, "this server needs an API key: send the header Authorization: Bearer KEY", "invalid_api_key"
        )
        error.headers["WWW-Authenticate"] = "Bearer"
        return error
