"""What every request passes: who may ask, what browsers may do with the reply, and what is counted and logged."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ensembed.serve.keys import Keys
from ensembed.serve.metrics import Metrics
from ensembed.serve.quiet_log import log, where
from ensembed.serve.replies import ApiError, error_reply
from ensembed.serve.settings import Settings

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

# Nothing from elsewhere, nothing written into the page itself.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_OPEN = frozenset(["/", "/docs", "/openapi.json"])
# What watches over a server calls it as it likes: by the address of a container, say. They tell nothing.
_PROBES = frozenset(["/health", "/ready"])
_OTHER = "other"
_STATIC = "/static/"


class Guard:
    """ASGI middleware.

    Args:
        app: what is guarded.
        settings: keys and host names.
        metrics: told of every reply.
        routes: the paths that there are; others are counted and logged as one, whatever they hold.
        direct: what POST requests of a path are answered by. The application would do the same; finding its way there
            takes it as long as all the rest that happens to a request.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        metrics: Metrics,
        routes: Collection[str],
        direct: Mapping[str, Endpoint],
    ) -> None:
        self._app = app
        self._keys = Keys(settings.keys)
        self._hosts = frozenset(host.lower() for host in settings.hosts)
        self._metrics = metrics
        self._routes = frozenset(routes)
        self._direct = dict(direct)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *_extra(message)]
            await send(message)

        path = scope["path"]
        route = path if path in self._routes else _STATIC if path.startswith(_STATIC) else _OTHER
        try:
            refused = self._refusal(scope, route)
            if refused is not None:
                await error_reply(refused)(scope, receive, sending)
            elif scope["method"] == "POST" and path in self._direct:
                reply = await _answered(self._direct[path], Request(scope, receive))
                await reply(scope, receive, sending)
            else:
                await self._app(scope, receive, sending)
        except ClientDisconnect:
            status = status or 499
        except Exception as error:  # noqa: BLE001 - nothing may reach a log that prints messages
            log.error("%s failed: %s", route, where(error))
            if not status:
                failure = ApiError(500, "the server failed on this request; its log says where", code="failed")
                await error_reply(failure)(scope, receive, sending)
        finally:
            seconds = time.perf_counter() - start
            self._metrics.request(route, status, seconds)
            if log.isEnabledFor(logging.INFO):
                log.info("%s %s %d %.1f ms", _method(scope), route, status, seconds * 1000)

    def _refusal(self, scope: Scope, route: str) -> ApiError | None:
        if route in _PROBES or (not self._hosts and (not self._keys or route in _OPEN)):
            return None
        headers = dict(scope["headers"])
        if self._hosts and _hostname(headers.get(b"host", b"")) not in self._hosts:
            message = "this server is not called so: see `ensembed serve --help` about --allow-host"
            return ApiError(421, message, code="wrong_host", headers={"Connection": "close"})
        if not self._keys or route in _OPEN or route == _STATIC or self._keys.allow(headers.get(b"authorization")):
            return None
        return ApiError(
            401,
            "this server wants an API key: send the header Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer", "Connection": "close"},
        )


async def _answered(endpoint: Endpoint, request: Request) -> Response:
    try:
        return await endpoint(request)
    except ApiError as error:
        return error_reply(error)


def _extra(message: Message) -> list[tuple[bytes, bytes]]:
    there = {name for name, _ in message.get("headers", [])}
    extra = list(_HEADERS)
    if b"content-security-policy" not in there:
        extra.append((b"content-security-policy", POLICY.encode()))
    if b"cache-control" not in there:
        extra.append((b"cache-control", b"no-store"))
    return extra


def _hostname(host: bytes) -> str:
    """Without the port; brackets of an IPv6 address stay."""
    name = host.decode("latin-1").lower()
    end = name.find("]")
    return name[: end + 1] if name.startswith("[") and end > 0 else name.partition(":")[0]


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH") else "?"
