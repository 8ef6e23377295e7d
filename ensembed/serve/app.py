"""The application: what is asked where."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ensembed.encoders.base import Encoder
from ensembed.serve import schemas
from ensembed.serve.bodies import Bodies
from ensembed.serve.bounds import Bounds
from ensembed.serve.described import DOCS_POLICY, described, operation, taking
from ensembed.serve.endpoints import Endpoints
from ensembed.serve.guard import Guard
from ensembed.serve.metrics import Metrics
from ensembed.serve.openai import OpenAI
from ensembed.serve.pages import page, static
from ensembed.serve.quiet_log import log
from ensembed.serve.replies import ApiError, error_reply
from ensembed.serve.served import Served, SupportsSearch
from ensembed.serve.settings import Settings
from ensembed.serve.vectors import Vectors
from ensembed.support.version import __version__

_ABOUT = "Sentence embeddings of an ensemble. /v1/embeddings takes what OpenAI's clients send."
_ASKING = ("400", "401", "408", "413", "415", "421", "429", "500", "504")
_REFUSED = ("401", "421")
_UNLISTED = ("/", "/docs", "/openapi.json")
_PROBE_AGAIN = 2.0
_STATUSES = {
    404: ("there is nothing here: /docs lists what there is", "not_found"),
    405: ("this path takes another method", "wrong_method"),
}


def create_app(
    model: Encoder,
    *,
    name: str | None = None,
    index: SupportsSearch | None = None,
    settings: Settings | None = None,
) -> FastAPI:
    """An ASGI application that serves a model.

    Args:
        model: any encoder; the members of a meta-encoder are shown side by side.
        name: what clients call the model; None is its own name.
        index: what `/search` searches, made with the same model.
        settings: limits, waits, keys.

    Example:
        >>> from ensembed import open_encoder
        >>> app = create_app(open_encoder("demo?dim=8"), name="tiny")
        >>> app.title
        'ensembed: tiny'
    """
    settings = settings or Settings()
    served = Served(model, name)
    metrics = Metrics()
    vectors = Vectors(served, settings, metrics)
    bodies = Bodies(settings)
    endpoints = Endpoints(served, vectors, bodies, settings, metrics, index)
    openai = OpenAI(served, vectors, bodies, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:  # noqa: ARG001 - FastAPI's signature
        endpoints.stopping = False
        warming = asyncio.ensure_future(_warm_up(vectors, endpoints))
        yield
        endpoints.stopping = True
        warming.cancel()
        await vectors.batcher.close(settings.shutdown_seconds)
        await endpoints.close()

    # Our own pages of the description: those of FastAPI load scripts from elsewhere.
    app = FastAPI(
        title=f"ensembed: {served.name}",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.endpoints = endpoints
    _add_routes(app, openai, endpoints, Bounds(settings, openai.names, served.dim))
    app.add_middleware(
        Guard,
        settings=settings,
        metrics=metrics,
        routes=[*app.openapi()["paths"], *_UNLISTED],
        direct={
            "/v1/embeddings": openai.embeddings,
            "/similarity": endpoints.similarity,
            "/search": endpoints.search,
        },
    )
    app.add_exception_handler(ApiError, _told)
    app.add_exception_handler(HTTPException, _told)
    return app


def _add_routes(app: FastAPI, openai: OpenAI, endpoints: Endpoints, bounds: Bounds) -> None:
    # The endpoints take bare requests and read them within limits; FastAPI would read any body whole.
    def add(path: str, endpoint: Any, facts: dict[str, Any], method: str = "GET") -> None:  # noqa: ANN401 - an endpoint
        summary, _, _ = (endpoint.__doc__ or "").partition("\n")
        app.add_api_route(
            path, endpoint, methods=[method], summary=summary, description="", openapi_extra=facts, response_model=None
        )

    example = {"input": "A dog runs.", "model": openai.names[0]}
    add(
        "/v1/embeddings",
        openai.embeddings,
        taking(bounds.embeddings(), example) | operation(schemas.EMBEDDINGS, *_ASKING, "404"),
        "POST",
    )
    add("/v1/models", openai.models, operation(schemas.MODELS, *_REFUSED))
    add(
        "/similarity",
        endpoints.similarity,
        taking(bounds.similarity(), {"texts": ["A dog runs.", "A puppy is running."]})
        | operation(schemas.SIMILARITY, *_ASKING),
        "POST",
    )
    add(
        "/search",
        endpoints.search,
        taking(bounds.search(), {"query": "a running dog", "k": 5}) | operation(schemas.SEARCH, *_ASKING, "404"),
        "POST",
    )
    add("/card", endpoints.card, operation(schemas.CARD, *_REFUSED))
    add("/health", endpoints.health, operation(schemas.STATUS))
    add("/ready", endpoints.ready, operation(schemas.STATUS, "503"))
    add("/metrics", endpoints.metrics, operation({"type": "string"}, *_REFUSED, media="text/plain"))
    app.add_route("/v1/models/{name:path}", openai.model, include_in_schema=False)
    app.add_route("/", page, include_in_schema=False)
    app.add_route("/static/{name}", static, include_in_schema=False)

    async def docs(request: Request) -> Response:  # noqa: ARG001 - Starlette's signature
        headers = {"Content-Security-Policy": DOCS_POLICY}
        return Response(described(app.openapi()), media_type="text/html", headers=headers)

    app.add_route("/docs", docs, include_in_schema=False)


async def _told(request: Request, error: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    if isinstance(error, ApiError):
        return error_reply(error)
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(getattr(error, "headers", None) or {})
    message, code = _STATUSES.get(status, ("the request cannot be used", None))
    return error_reply(ApiError(status, message, code=code, headers=headers))


async def _warm_up(vectors: Vectors, endpoints: Endpoints) -> None:
    """Let the model encode once, so that the first client need not wait for what is made on first use."""
    while not await vectors.probe():
        log.error("the model does not give vectors yet; it is asked again in %g s", _PROBE_AGAIN)
        await asyncio.sleep(_PROBE_AGAIN)
    endpoints.warm = True
