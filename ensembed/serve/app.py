"""The ASGI application: the endpoints, searches of an index, and what answers on which path."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from typing_extensions import NotRequired, TypedDict

from ensembed.encoders.base import Encoder, FloatArray
from ensembed.errors import EnsembedError
from ensembed.serve.access import Access, Metrics
from ensembed.serve.api_errors import ApiError, busy, json_reply, log, where
from ensembed.serve.batching import Vectors, WorkerThread
from ensembed.serve.limits import Limits, ReplyBudget
from ensembed.serve.openapi import DOCS_POLICY, Operation, docs_page, openapi_document
from ensembed.serve.served_model import (
    VECTORS,
    VIEWS,
    Card,
    IndexCard,
    ServedModel,
    SimilarityReply,
    compare_texts,
    without_folders,
)
from ensembed.serve.settings import Settings

if TYPE_CHECKING:
    from ensembed.search import Hit

_ABOUT = "Sentence embeddings of an ensemble. /v1/embeddings takes what OpenAI's clients send."
_STATUSES = {
    404: ("there is nothing here: see /docs for the paths of this server", "not_found"),
    405: ("this path takes another method", "wrong_method"),
}
_READING_ERRORS = (400, 401, 408, 413, 415, 421, 429, 500, 503, 504)
_ACCESS_ERRORS = (401, 421)
_NUMBERS_AT_ONCE = 4096  # written before other requests get their turn: a millisecond of work, 85 KB
_PROBE_SECONDS = 2.0
_PAGE = Path(__file__).parent / "page"
_MEDIA_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
_MOST_WAITING = 64


class Embedding(TypedDict):
    """The vector of one text."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(TypedDict):
    """Words, because the members of an ensemble count tokens differently."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsReply(TypedDict):
    """The vectors of the texts, in their order."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage
    missing: NotRequired[list[str]]  # members that the vectors lack; not there if they lack none


class ModelEntry(TypedDict):
    """A model that this server has."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelsReply(TypedDict):
    """All models."""

    object: Literal["list"]
    data: list[ModelEntry]


class HitFacts(TypedDict):
    """A text of the index."""

    id: str
    score: float
    text: str | None
    metadata: Any


class SearchReply(TypedDict):
    """The nearest texts of the index, the nearest first."""

    hits: list[HitFacts]
    missing: NotRequired[list[str]]  # members that the query's vector lacks


class Status(TypedDict):
    """The state of the server."""

    status: str


class SupportsSearch(Protocol):
    """What the server needs of an index; `ensembed.search.Index` has it."""

    def __len__(self) -> int:
        """Return the number of texts."""

    def search(self, queries: Any, k: int = 10) -> Sequence[Sequence[Hit]]:  # noqa: ANN401 - texts or vectors
        """Return the k nearest texts of each query."""


class IndexSearch:
    """Searches an index. If it has a method `refresh`, what other processes write to it is found, too."""

    def __init__(self, index: SupportsSearch, settings: Settings) -> None:
        self._index, self._seconds = index, settings.request_seconds
        self._thread: WorkerThread | None = None
        self._waiting, self._warned = 0, 0.0
        # An index of another kind, or from before models treated queries apart, is asked with plain vectors.
        self.has_roles = bool(getattr(index, "has_roles", False))

    def facts(self) -> IndexCard:
        """Describe the index, but not its folder: clients should not know the folders of this machine."""
        known = getattr(self._index, "facts", {})
        return {"texts": len(self._index), "kind": known.get("kind"), "dtype": known.get("dtype")}

    async def nearest(self, query: FloatArray, k: int) -> Sequence[Hit]:
        """Return the k nearest texts of a query [1, d]."""
        if self._waiting >= _MOST_WAITING:
            raise busy("too many searches are waiting", 1)
        self._thread = self._thread or WorkerThread("ensembed-search")
        self._waiting += 1
        work = self._thread.run(self._run, query, k)
        work.add_done_callback(self._count_done)
        try:
            return await asyncio.wait_for(asyncio.shield(work), self._seconds)
        except asyncio.TimeoutError:
            raise ApiError(504, f"the search took longer than {self._seconds:g} s", code="timeout") from None
        except Exception as error:  # noqa: BLE001 - an index may raise anything
            log.error("the index failed a request: %s", where(error))
            raise ApiError(500, "the index failed; the server's log says where", code="index_failed") from None

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    def _count_done(self, work: asyncio.Future[Sequence[Hit]]) -> None:
        self._waiting -= 1
        if not work.cancelled():
            work.exception()  # marks it as seen: asyncio would log it if the client did not wait

    def _run(self, query: FloatArray, k: int) -> Sequence[Hit]:
        try:
            getattr(self._index, "refresh", lambda: None)()
        except (EnsembedError, OSError) as error:  # what was opened can still be searched
            if time.monotonic() - self._warned > 60:
                self._warned = time.monotonic()
                log.warning("the index cannot be read again: %s", where(error))
        (hits,) = self._index.search(query, k)
        return hits


class Endpoints:
    """Answers requests."""

    def __init__(self, served: ServedModel, settings: Settings, index: SupportsSearch | None) -> None:
        self._served, self._settings = served, settings
        self._limits = Limits(settings, served.names, served.dim)
        self._index = None if index is None else IndexSearch(index, settings)
        self.counts, self.replies = Metrics(), ReplyBudget(settings.reply_bytes)
        self._vectors = Vectors(served, settings, self.counts)
        self._page = {file.name: file for file in _PAGE.iterdir() if file.suffix in _MEDIA_TYPES}
        self._turn = asyncio.Lock()
        self.warm = self.stopping = False

    def operations(self) -> list[Operation]:
        """Return the endpoints that the OpenAPI document describes."""
        limits, text = self._limits, {"input": "A dog runs.", "model": self._served.name}
        pair = {"texts": ["A dog runs.", "A puppy is running."]}
        query = {"query": "a running dog", "k": 5}
        errors, or_missing = _READING_ERRORS, (*_READING_ERRORS, 404)
        return [
            Operation("POST", "/v1/embeddings", self.embeddings, EmbeddingsReply, or_missing, limits.embeddings, text),
            Operation("GET", "/v1/models", self.models, ModelsReply, _ACCESS_ERRORS),
            Operation("POST", "/similarity", self.similarity, SimilarityReply, errors, limits.similarity, pair),
            Operation("POST", "/search", self.search, SearchReply, or_missing, limits.search, query),
            Operation("GET", "/card", self.card, Card, _ACCESS_ERRORS),
            Operation("GET", "/health", self.health, Status),
            Operation("GET", "/ready", self.ready, Status, (503,)),
            Operation("GET", "/metrics", self.metrics, str, _ACCESS_ERRORS, media="text/plain"),
        ]

    async def embeddings(self, request: Request) -> Response:
        """Embed a text or a list of texts, as OpenAI's servers do."""
        query = await self._limits.read(request, self._limits.embeddings)
        self._check_model(query.model)
        texts = [query.input] if isinstance(query.input, str) else query.input
        self.replies.reserve(request.scope, len(texts) * self._served.dim * np.dtype(np.float32).itemsize)
        k = query.dimensions or self._served.dim
        self._served.shorten(np.empty((0, self._served.dim), np.float32), k)  # refuses before anything is encoded
        role = "document" if query.input_type == "passage" else query.input_type
        rows = await self._vectors.rows(self._served.kind_of(role), texts, request)
        vectors, missing = self._served.complete(rows)
        if k < self._served.dim:
            vectors = await asyncio.to_thread(self._served.shorten, vectors, k)
        words = sum(len(text.split()) for text in texts)
        facts = {"model": query.model, "usage": Usage(prompt_tokens=words, total_tokens=words)}
        parts = _embeddings_json(vectors, query.encoding_format == "base64", facts | _missing_facts(missing))
        if vectors.size <= _NUMBERS_AT_ONCE:
            return self._reserved(request, Response(b"".join(parts), media_type="application/json"))
        one_by_one = in_turn(parts, self._turn)
        if request.scope.get("http_version") != "1.0":  # which knows no chunks
            return StreamingResponse(one_by_one, media_type="application/json")
        body = []
        async for part in one_by_one:
            self.replies.reserve(request.scope, len(part))
            body.append(part)
        return Response(b"".join(body), media_type="application/json")

    async def models(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """List the model, under each of its names; /v1/models/NAME has one entry of the list."""
        return json_reply(ModelsReply(object="list", data=[_model_entry(name) for name in self._served.names]))

    async def model(self, request: Request) -> Response:
        """Describe the model of that name."""
        self._check_model(name := request.path_params["name"])
        return json_reply(_model_entry(name))

    async def similarity(self, request: Request) -> Response:
        """Compare texts under each member and under the model, and show where the members disagree."""
        query = await self._limits.read(request, self._limits.similarity)
        views, meta = self._served.split(np.array(await self._vectors.rows(VIEWS, query.texts, request)))
        return self._reserved(request, json_reply(compare_texts(self._served.member_names, views, meta)))

    async def search(self, request: Request) -> Response:
        """Find the texts of the index that are nearest to a query."""
        query = await self._limits.read(request, self._limits.search)
        if self._index is None:
            message = "this server has no index: start it with --index FOLDER, which `ensembed index` makes"
            raise ApiError(404, message, code="no_index")
        kind = self._served.kind_of("query" if self._index.has_roles else None)
        vectors, missing = self._served.complete(await self._vectors.rows(kind, [query.query], request))
        hits = await self._index.nearest(vectors, query.k)
        facts = {"hits": [_hit_facts(hit) for hit in hits]} | _missing_facts(missing)
        return self._reserved(request, json_reply(facts))

    async def card(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """Describe what the model is made of."""
        return json_reply(self._served.card(None if self._index is None else self._index.facts()))

    async def health(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """Say that the process answers."""
        return json_reply(Status(status="ok"))

    async def ready(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """Say whether requests should be sent here."""
        if self.stopping or not self.warm:
            state = "the server is stopping" if self.stopping else "the model is not ready yet"
            raise ApiError(503, state, code="not_ready", headers={"Retry-After": "1"})
        if self._vectors.batcher.busy_seconds > self._settings.request_seconds:
            raise ApiError(503, "the model hangs", code="not_ready")
        return json_reply(Status(status="ready"))

    async def metrics(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """Give counts and times to Prometheus."""
        text = self.counts.text(self._vectors.recent, self._vectors.batcher.queued, self.replies.held)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def warm_up(self) -> None:
        """Encode once, so that the first client does not wait for what the model makes on first use."""
        self._turn = asyncio.Lock()  # belongs to the loop that runs now
        while not self.warm:
            try:
                await self._vectors.rows(VECTORS, ["ready"])
                self.warm = True
            except ApiError:
                log.error("the model does not give vectors yet; next try in %g s", _PROBE_SECONDS)
                await asyncio.sleep(_PROBE_SECONDS)

    async def close(self) -> None:
        """Finish what was accepted, within the time for it, and end all threads."""
        await self._vectors.batcher.close(self._settings.shutdown_seconds)
        if self._index is not None:
            self._index.close()

    async def page(self, request: Request) -> Response:
        """Send the page, or one of its files. No other file can be named."""
        file = self._page.get(request.path_params.get("name", "index.html"))
        if file is None:
            raise ApiError(404, "the page has no such file", code="not_found")
        headers = {"Cache-Control": "no-cache"}  # after an upgrade browsers must load the new files
        return Response(file.read_bytes(), media_type=_MEDIA_TYPES[file.suffix], headers=headers)

    def _reserved(self, request: Request, reply: Response) -> Response:
        self.replies.reserve(request.scope, len(reply.body))
        return reply

    def _check_model(self, name: str) -> None:
        if name not in self._served.names:  # the message does not repeat it: it may contain anything
            message = f"there is no such model here: this server has {', '.join(self._served.names)}"
            raise ApiError(404, message, "model", "model_not_found")


def _model_entry(name: str) -> ModelEntry:
    return {"id": name, "object": "model", "created": 0, "owned_by": "ensembed"}


def _hit_facts(hit: Hit) -> HitFacts:
    score = float(hit.score)
    if not math.isfinite(score):
        raise ApiError(500, "the index gave a score that is not a finite number", code="index_failed")
    return {"id": hit.id, "score": score, "text": hit.text, "metadata": hit.metadata}


def _missing_facts(names: list[str]) -> dict[str, Any]:
    """Return what a reply says about members that its vectors lack; nothing if they lack none."""
    return {"missing": names} if names else {}


def _embeddings_json(vectors: FloatArray, packed: bool, facts: dict[str, Any]) -> Iterator[bytes]:
    """Write an `EmbeddingsReply` of vectors [n, d] in parts. They are finite: the batcher checks them."""
    at_once, lead = max(_NUMBERS_AT_ONCE // vectors.shape[1], 1), b'{"object":"list","data":['
    for start in range(0, len(vectors), at_once):
        rows = enumerate(vectors[start : start + at_once], start)
        yield lead + b",".join(_embedding_json(i, row, packed) for i, row in rows)
        lead = b","
    yield b"]," + json.dumps(facts, separators=(",", ":")).encode()[1:]


def _embedding_json(i: int, row: FloatArray, packed: bool) -> bytes:
    numbers = b'"%s"' % base64.b64encode(row.astype("<f4", copy=False).tobytes()) if packed else to_json(row.tolist())
    return b'{"object":"embedding","index":%d,"embedding":%s}' % (i, numbers)


async def in_turn(parts: Iterator[bytes], turn: asyncio.Lock) -> AsyncIterator[bytes]:
    """Make one part at a time, of all replies together, and let other requests have their turn between."""
    while True:
        async with turn:
            part = next(parts, None)
            await asyncio.sleep(0)
        if part is None:
            return
        yield part


def create_app(
    model: Encoder, *, name: str | None = None, index: SupportsSearch | None = None, settings: Settings | None = None
) -> Starlette:
    """Return an ASGI application that serves a model.

    Args:
        model: any encoder; the members of a meta-encoder are shown side by side.
        name: the name of the model for clients; None for its own name, without folders.
        index: the index that `/search` searches, made with the same model.
        settings: limits, times, keys.

    Example:
        >>> from ensembed import open_encoder
        >>> app = create_app(open_encoder("demo?dim=8"), name="tiny")
        >>> app.url_path_for("embeddings")
        '/v1/embeddings'
    """
    settings = settings or Settings()
    served = ServedModel(model, (name or without_folders(model.spec.name), *settings.aliases))
    endpoints = Endpoints(served, settings, index)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:  # noqa: ARG001 - Starlette's signature
        endpoints.stopping = False
        warming = asyncio.ensure_future(endpoints.warm_up())
        yield
        endpoints.stopping = True
        warming.cancel()
        await endpoints.close()

    routes = _routes(endpoints, f"ensembed: {served.name}")
    access = Middleware(
        Access,
        settings=settings,
        metrics=endpoints.counts,
        replies=endpoints.replies,
        routes=[route.path for route in routes],
    )
    handlers = {ApiError: _error_reply, HTTPException: _error_reply}
    app = Starlette(routes=routes, middleware=[access], exception_handlers=handlers, lifespan=lifespan)
    app.state.endpoints = endpoints
    return app


def _routes(endpoints: Endpoints, title: str) -> list[Route]:
    document = openapi_document(title, _ABOUT, operations := endpoints.operations())
    docs = Response(docs_page(document), media_type="text/html", headers={"Content-Security-Policy": DOCS_POLICY})
    return [
        *(Route(operation.path, operation.endpoint, methods=[operation.method]) for operation in operations),
        Route("/v1/models/{name:path}", endpoints.model),
        Route("/", endpoints.page),
        Route("/static/{name}", endpoints.page),
        Route("/docs", docs, methods=["GET"]),
        Route("/openapi.json", json_reply(document), methods=["GET"]),
    ]


async def _error_reply(request: Request, error: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    if isinstance(error, ApiError):
        return error.reply()
    status, headers = (error.status_code, error.headers) if isinstance(error, HTTPException) else (500, None)
    message, code = _STATUSES.get(status, ("the request cannot be used", None))
    return ApiError(status, message, code=code, headers=dict(headers or {})).reply()
