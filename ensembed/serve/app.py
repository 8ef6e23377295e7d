"""The ASGI application: what answers on which path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ensembed.encoders.base import Encoder
from ensembed.serve.access import Access
from ensembed.serve.api_errors import ApiError, json_reply
from ensembed.serve.endpoints import Endpoints
from ensembed.serve.index_search import SupportsSearch
from ensembed.serve.openapi import DOCS_POLICY, docs_page, openapi_document
from ensembed.serve.served_model import ServedModel
from ensembed.serve.settings import Settings

_ABOUT = "Sentence embeddings of an ensemble. /v1/embeddings takes what OpenAI's clients send."
_STATUSES = {
    404: ("there is nothing here: see /docs for the paths of this server", "not_found"),
    405: ("this path takes another method", "wrong_method"),
}


def create_app(
    model: Encoder,
    *,
    name: str | None = None,
    index: SupportsSearch | None = None,
    settings: Settings | None = None,
) -> Starlette:
    """Return an ASGI application that serves a model.

    Args:
        model: any encoder; the members of a meta-encoder are shown side by side.
        name: the name of the model for clients; None for its own name.
        index: the index that `/search` searches, made with the same model.
        settings: limits, times, keys.

    Example:
        >>> from ensembed import open_encoder
        >>> app = create_app(open_encoder("demo?dim=8"), name="tiny")
        >>> app.url_path_for("embeddings")
        '/v1/embeddings'
    """
    settings = settings or Settings()
    served = ServedModel(model, (name or model.spec.name, *settings.aliases))
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
    access = Middleware(Access, settings=settings, metrics=endpoints.counts, routes=[route.path for route in routes])
    handlers = {ApiError: _error_reply, HTTPException: _error_reply}
    app = Starlette(routes=routes, middleware=[access], exception_handlers=handlers, lifespan=lifespan)
    app.state.endpoints = endpoints
    return app


def _routes(endpoints: Endpoints, title: str) -> list[Route]:
    operations = endpoints.operations()
    document = openapi_document(title, _ABOUT, operations)
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
