"""The endpoints: OpenAI's embeddings and models, similarity, search, the card, health, metrics, the page's files."""

from __future__ import annotations

import asyncio
import base64
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from ensembed.encoders.base import FloatArray
from ensembed.serve.api_errors import ApiError, json_reply, log
from ensembed.serve.index_search import IndexSearch, SupportsSearch
from ensembed.serve.limits import Limits
from ensembed.serve.metrics import Metrics
from ensembed.serve.openapi import Operation
from ensembed.serve.served_model import VECTORS, VIEWS, Card, ServedModel
from ensembed.serve.settings import Settings
from ensembed.serve.similarity import SimilarityReply, compare_texts
from ensembed.serve.vectors import Vectors

if TYPE_CHECKING:
    from ensembed.search import Hit

_READING_ERRORS = (400, 401, 408, 413, 415, 421, 429, 500, 504)
_ACCESS_ERRORS = (401, 421)
# Numbers that are written before other requests get their turn: some milliseconds of work.
_NUMBERS_AT_ONCE = 65_536
_PROBE_SECONDS = 2.0
_PAGE = Path(__file__).parent / "page"
_MEDIA_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}


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


class Status(TypedDict):
    """The state of the server."""

    status: str


class Endpoints:
    """Answers requests."""

    def __init__(self, served: ServedModel, settings: Settings, index: SupportsSearch | None) -> None:
        self._served = served
        self._settings = settings
        self._limits = Limits(settings, served.names, served.dim)
        self._index = None if index is None else IndexSearch(index, settings)
        self.counts = Metrics()
        self._vectors = Vectors(served, settings, self.counts)
        self._page = {file.name: file for file in _PAGE.iterdir() if file.suffix in _MEDIA_TYPES}
        self.warm = False
        self.stopping = False

    def operations(self) -> list[Operation]:
        """Return the endpoints that the OpenAPI document describes."""
        limits, example = self._limits, {"input": "A dog runs.", "model": self._served.name}
        pair = {"texts": ["A dog runs.", "A puppy is running."]}
        query = {"query": "a running dog", "k": 5}
        errors = _READING_ERRORS
        return [
            Operation(
                "POST", "/v1/embeddings", self.embeddings, EmbeddingsReply, (*errors, 404), limits.embeddings, example
            ),
            Operation("GET", "/v1/models", self.models, ModelsReply, _ACCESS_ERRORS),
            Operation("POST", "/similarity", self.similarity, SimilarityReply, errors, limits.similarity, pair),
            Operation("POST", "/search", self.search, SearchReply, (*errors, 404), limits.search, query),
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
        rows = await self._vectors.rows(VECTORS, texts, request)
        words = sum(len(text.split()) for text in texts)
        body = await _embeddings_json(rows, query.dimensions, query.encoding_format == "base64", query.model, words)
        return Response(body, media_type="application/json")

    async def models(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        """List the model, under each of its names."""
        return json_reply(ModelsReply(object="list", data=[_model_entry(name) for name in self._served.names]))

    async def model(self, request: Request) -> Response:
        """Describe the model of that name."""
        name = request.path_params["name"]
        self._check_model(name)
        return json_reply(_model_entry(name))

    async def similarity(self, request: Request) -> Response:
        """Compare texts under each member and under the model, and show where the members disagree."""
        query = await self._limits.read(request, self._limits.similarity)
        rows = np.array(await self._vectors.rows(VIEWS, query.texts, request))
        views, meta = self._served.split(rows)
        return json_reply(compare_texts([encoder.spec.name for encoder in self._served.members], views, meta))

    async def search(self, request: Request) -> Response:
        """Find the texts of the index that are nearest to a query."""
        query = await self._limits.read(request, self._limits.search)
        if self._index is None:
            message = "this server has no index: start it with --index FOLDER, which `ensembed index` makes"
            raise ApiError(404, message, code="no_index")
        vectors = np.array(await self._vectors.rows(VECTORS, [query.query], request))
        hits = await self._index.nearest(vectors, query.k)
        return json_reply(SearchReply(hits=[_hit_facts(hit) for hit in hits]))

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
        text = self.counts.text(self._vectors.recent, self._vectors.batcher.queued)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def warm_up(self) -> None:
        """Encode once, so that the first client does not wait for what the model makes on first use."""
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


async def _embeddings_json(rows: Sequence[FloatArray], dim: int | None, packed: bool, model: str, words: int) -> bytes:
    """Write an `EmbeddingsReply` in parts, because a large one takes long. Rows are finite: the batcher checks them."""
    parts: list[bytes] = []
    written = 0
    for i, row in enumerate(rows):
        numbers = row[:dim]
        if packed:
            vector = b'"%s"' % base64.b64encode(numbers.astype("<f4", copy=False).tobytes())
        else:
            vector = to_json(numbers.tolist())
        parts.append(b'{"object":"embedding","index":%d,"embedding":%s}' % (i, vector))
        written += len(numbers)
        if written > _NUMBERS_AT_ONCE:
            written = 0
            await asyncio.sleep(0)
    usage = b'{"prompt_tokens":%d,"total_tokens":%d}' % (words, words)
    return b'{"object":"list","data":[%s],"model":%s,"usage":%s}' % (
        b",".join(parts),
        json.dumps(model).encode(),
        usage,
    )
