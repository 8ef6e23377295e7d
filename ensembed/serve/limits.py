"""Every limit on what a client may send, and on replies that clients do not read.

`Limits.read` limits a request's body, `ReplyBudget` the replies, `limited_protocol` connections, heads and slow
readers, `Batcher.submit` and `IndexSearch.nearest` the queues.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from ensembed.serve.api_errors import TOKENS, ApiError, busy, closing, invalid_request, log
from ensembed.serve.settings import Settings
from ensembed.support.file_limits import count_values

OTHER_VALUES = 1000  # keys, and values of fields other than the texts: far more than any client sends
# A refused body is read on for this long and thrown away: a client that still sends would not see the reply otherwise.
_DISCARD_SECONDS = 1.0
_HEAD_BYTES = 64 << 10
_SMALL_REPLY = 128 << 10  # bytes; clients that do not read cannot keep out such replies
_HELD = "ensembed.reply_bytes"  # the key of a request's scope
_INPUT_TYPES = (
    "What the texts are, for models that put different texts before queries and documents; `passage` is a document."
)
_FORMATS = "`float` for numbers, `base64` for the bytes of little-endian 32-bit floats."


class _Request(BaseModel):
    """Unknown fields are ignored: OpenAI's clients may send new ones."""

    model_config = ConfigDict(extra="ignore", strict=True)
    texts_field: ClassVar[str]


class EmbeddingsRequest(_Request):
    """A text or a list of texts to embed."""

    texts_field = "input"
    input: str | list[str]
    model: str
    dimensions: int | None = None
    encoding_format: Literal["float", "base64"] | None = Field(None, description=_FORMATS)
    input_type: Literal["query", "document", "passage"] | None = Field(None, description=_INPUT_TYPES)
    user: str | None = Field(None, description="Ignored.")


class SimilarityRequest(_Request):
    """Texts to compare with each other."""

    texts_field = "texts"
    texts: list[str]


class SearchRequest(_Request):
    """A query of the index."""

    texts_field = "query"
    query: str
    k: int = 10


R = TypeVar("R", bound=_Request)
T = TypeVar("T")


class Limits:
    """Reads requests within limits. `embeddings`, `similarity` and `search` are the models of the requests."""

    def __init__(self, settings: Settings, names: Sequence[str], dim: int) -> None:
        text = Annotated[str, Field(min_length=1, max_length=settings.max_characters)]

        def texts(most: int) -> Any:  # noqa: ANN401 - a type
            return Annotated[list[text], Field(min_length=1, max_length=most, fail_fast=True)]

        def count(most: int) -> Any:  # noqa: ANN401 - a type
            return Annotated[int, Field(ge=1, le=most), BeforeValidator(_whole)]

        most_compared = min(settings.max_similarity, settings.max_items)
        self.embeddings = create_model(
            "EmbeddingsRequest",
            __base__=EmbeddingsRequest,
            input=(text | texts(settings.max_items), Field(description="A text, or a list of texts.")),
            model=(str, Field(description="The model's name: see /v1/models.", json_schema_extra={"enum": [*names]})),
            dimensions=(count(dim) | None, Field(None, description="Return the k leading dimensions of each vector.")),
        )
        compared = (texts(most_compared), Field(description="The texts, at least one."))
        self.similarity = create_model("SimilarityRequest", __base__=SimilarityRequest, texts=compared)
        query = (text, Field(description="What to look for."))
        k = (count(settings.max_hits), Field(10, description="The number of hits."))
        self.search = create_model("SearchRequest", __base__=SearchRequest, query=query, k=k)
        self._most_texts = {self.embeddings: settings.max_items, self.similarity: most_compared, self.search: 1}
        self._settings, self._held = settings, 0

    async def read(self, request: Request, model: type[R]) -> R:
        """Return the parsed body of a request; ApiError if it exceeds a limit or is no such request."""
        await self._check_head(request)
        try:
            body = await _within(self._settings.body_seconds, self._collect(request))
        except asyncio.TimeoutError:
            raise closing(408, "the body took too long to arrive", "slow_body") from None
        if body is None:
            raise await self._too_large(request)
        check_values(body, model.texts_field, self._most_texts[model])
        try:
            return model.model_validate_json(body)
        except ValidationError as error:
            raise invalid_request(error) from None

    async def _collect(self, request: Request) -> bytes | None:
        """Return the body; None as soon as it is too large, which a body without a stated length may be."""
        chunks, size = [], 0
        try:
            async for chunk in request.stream():
                size += len(chunk)
                self._held += len(chunk)
                chunks.append(chunk)
                if size > self._settings.max_body_bytes:
                    return None
                if self._held > self._settings.held_bytes and self._held > size:
                    raise busy("too many bodies are being received", 1)
            return b"".join(chunks)
        finally:
            self._held -= size

    async def _check_head(self, request: Request) -> None:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":  # also refuses forms: other web pages may send those without permission
            raise closing(415, "send JSON, with the header Content-Type: application/json", "not_json")
        if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise closing(415, "send the body as it is, without Content-Encoding", "packed_body")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 18 or int(length) > self._settings.max_body_bytes):
            raise await self._too_large(request)

    async def _too_large(self, request: Request) -> ApiError:
        await _discard(request)
        most = self._settings.max_body_bytes
        return closing(413, f"the body is larger than {most} bytes: send fewer texts at a time", "body_too_large")


def _whole(value: object) -> object:
    """Accept 2.0 as 2: JSON does not distinguish them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_values(body: bytes, field: str, texts: int) -> None:
    """Refuse a body with far too many values before it is parsed: a million empty lists take the parser seconds."""
    most = texts + OTHER_VALUES
    if len(body) <= most or sum(map(body.count, (b",", b"[", b"{"))) <= most or count_values(body) <= most:
        return
    if re.search(rb'"%s"\s*:[\s\[]*-?[0-9]' % field.encode(), body):
        message = TOKENS if field == "input" else f"{field} contains numbers: send texts"
        raise ApiError(400, message, field, "token_ids" if field == "input" else "string_type")
    message = f"the body contains too many values: {field} may have {texts} texts; send them in several requests"
    raise ApiError(400, message, field, "too_many_texts")


async def _discard(request: Request) -> None:
    async def read() -> None:
        async for _ in request.stream():
            pass

    with suppress(asyncio.TimeoutError, RuntimeError):  # Starlette raises RuntimeError if nothing is left to read
        await _within(_DISCARD_SECONDS, read())


async def _within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    if sys.version_info < (3, 11):
        return await asyncio.wait_for(work, seconds)
    async with asyncio.timeout(seconds):  # `wait_for` would make a task for every request
        return await work


class ReplyBudget:
    """Counts the bytes that replies hold until clients have read them. A small reply always has room."""

    def __init__(self, limit: int) -> None:
        self._limit, self.held = limit, 0

    def reserve(self, scope: Scope, size: int) -> None:
        """Count bytes of the reply to a request; ApiError if there is no room. A single reply may have any size."""
        own = scope.get(_HELD, 0) + size
        others = self.held + size - own
        if own > _SMALL_REPLY and others and own + others > self._limit:
            message = "too many replies wait for their clients to read them: come back in 1 s, or send fewer texts"
            raise ApiError(503, message, code="replies_full", headers={"Retry-After": "1"})
        scope[_HELD] = own
        self.held += size

    def release(self, scope: Scope) -> None:
        """Free what was counted for a request, whose reply was sent or given up."""
        self.held -= scope.pop(_HELD, 0)


class _CountingTransport:
    """A transport that counts the bytes that were given to it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self.written = transport, 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any method of a transport
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self._transport.write(data)


_Base: Any = AutoHTTPProtocol  # one of two classes, depending on what is installed


class _LimitedProtocol(_Base):  # type: ignore[misc] # a class that is chosen at run time
    """Uvicorn's protocol with limits: refuses extra connections and drops slow or large heads and slow readers."""

    _settings: Settings

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(_CountingTransport(transport))
        if len(self.connections) > self._settings.connections:
            log.warning("more than %d connections: new ones are refused", self._settings.connections)
            self.app = _refuse_connection
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        self._paused_at, self._counted, self._seconds_left = 0.0, 0, self._settings.read_seconds
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop(self._head_timer)
            self._head_bytes, self._head_timer = 0, None
            return
        self._head_bytes += len(data)
        if self._head_bytes > _HEAD_BYTES:
            self.transport.abort()
        elif self._head_timer is None:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._write_timer, self._end_timer):
            self._stop(timer)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._paused_at = self.loop.time()
        self._write_timer = self.loop.call_later(self._seconds_left, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop(self._write_timer)
        # The time that a client has left grows with the bytes that it takes: one that reads every part just in
        # time would hold its place in the budget for hours.
        written, self._counted = self.transport.written - self._counted, self.transport.written
        left = self._seconds_left - (self.loop.time() - self._paused_at) + written / self._settings.least_rate
        self._seconds_left = min(max(left, 0.0), self._settings.read_seconds)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._await_end()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._await_end()

    def _await_end(self) -> None:
        """Limit the time for the end of the last reply: the transport waits for it before it closes."""
        self._end_timer = self._end_timer or self.loop.call_later(self._settings.read_seconds, self.transport.abort)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self._settings.header_seconds, self.transport.abort)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def limited_protocol(settings: Settings) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with the limits of these settings: uvicorn makes an object of it per connection."""
    return type("LimitedProtocol", (_LimitedProtocol,), {"_settings": settings})


async def _refuse_connection(scope: Scope, receive: Receive, send: Send) -> None:
    error = closing(503, "the server has too many connections: come back later", "too_many_connections")
    error.headers["Retry-After"] = "1"
    with suppress(ClientDisconnect):
        await _discard(Request(scope, receive))
        await error.reply()(scope, receive, send)
