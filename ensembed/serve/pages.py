"""The page at `/` and its files, which come with the package."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from ensembed.serve.replies import ApiError

_FOLDER = Path(__file__).parent / "page"
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.[a-z0-9]+")
_PLACEHOLDER = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>ensembed</title>
<h1>ensembed</h1><p>The server is up. What it can be asked: <a href="/docs">/docs</a>.</p></html>
"""
_FRESH = {"Cache-Control": "no-cache"}  # after an upgrade the page must be the new one


async def page(request: Request) -> Response:  # noqa: ARG001 - Starlette's signature
    """The page."""
    file = _FOLDER / "index.html"
    return Response(file.read_bytes() if file.is_file() else _PLACEHOLDER, media_type="text/html", headers=_FRESH)


async def static(request: Request) -> Response:
    """A file of the page: of its own folder only, of the types that a page has."""
    name = request.path_params["name"]
    file = _FOLDER / name
    kind = _TYPES.get(file.suffix)
    if not _NAME.fullmatch(name) or kind is None or not file.is_file():
        raise ApiError(404, "the page has no such file", code="not_found")
    return Response(file.read_bytes(), media_type=kind, headers=_FRESH)
