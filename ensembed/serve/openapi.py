"""The OpenAPI document, made from the operations of the application, and a page of it without scripts."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from ensembed.serve.api_errors import ErrorReply
from ensembed.support.version import __version__

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; font-size: 1.1rem; } h2 b { display: inline-block; min-width: 3.5rem; }
code, pre { font: 0.9em/1.4 ui-monospace, monospace; } pre { overflow-x: auto; padding: 0.7rem; background: #8882; }
td { padding: 0 1rem 0 0; vertical-align: top; }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; } a { color: #8bf; } }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
DOCS_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; frame-ancestors 'none'"

_STATUSES = {
    400: "The request cannot be used; the message says why.",
    401: "An API key is needed.",
    404: "There is no such model, index or path.",
    408: "The body took too long to arrive.",
    413: "The body is too large.",
    415: "The body is not plain JSON according to its headers.",
    421: "The server does not answer to that host name.",
    429: "Too much is waiting; `Retry-After` says when to come back.",
    500: "The model failed.",
    503: "The server is not ready, or too many replies wait to be read.",
    504: "The model took too long.",
}


@dataclass(frozen=True)
class Operation:
    """One endpoint: its route and its description. The first line of its docstring is the summary."""

    method: str
    path: str
    endpoint: Callable[[Request], Awaitable[Response]]
    reply: Any  # the type of the reply
    errors: Sequence[int] = ()
    request: Any = None  # the type of the body
    example: Mapping[str, Any] | None = None
    media: str = "application/json"


def openapi_document(title: str, description: str, operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document of some operations."""
    types = {ErrorReply} | {kind for operation in operations for kind in (operation.reply, operation.request)}
    references, definitions = TypeAdapter.json_schemas(
        [(kind, "validation", TypeAdapter(kind)) for kind in types], ref_template="#/components/schemas/{model}"
    )

    def content(kind: Any, media: str = "application/json") -> dict[str, Any]:  # noqa: ANN401 - a type
        return {media: {"schema": references[kind, "validation"]}}

    paths: dict[str, Any] = {}
    for operation in operations:
        place = f"{operation.endpoint.__name__}{operation.path}_{operation.method.lower()}"
        replies = {"200": {"description": "Done.", "content": content(operation.reply, operation.media)}}
        for status in operation.errors:
            replies[str(status)] = {"description": _STATUSES[status], "content": content(ErrorReply)}
        facts: dict[str, Any] = {
            "summary": (operation.endpoint.__doc__ or "").partition("\n")[0],
            "operationId": re.sub(r"\W", "_", place),
            "responses": replies,
        }
        if operation.request is not None:
            body = content(operation.request)
            body["application/json"]["example"] = operation.example
            facts["requestBody"] = {"required": True, "content": body}
        paths[operation.path] = {operation.method.lower(): facts}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "description": description, "version": __version__},
        "paths": paths,
        "components": {"schemas": definitions["$defs"]},
    }


def docs_page(document: Mapping[str, Any]) -> bytes:
    """Return an HTML page of an OpenAPI document."""
    title, about = (_text(document["info"][key]) for key in ("title", "description"))
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1><p>{about}</p>",
        "<p>The same for programs: <a href='/openapi.json'>/openapi.json</a>.</p>",
    ]
    for path, operations in document["paths"].items():
        for method, facts in operations.items():
            parts.append(f"<h2><b>{method.upper()}</b> <code>{_text(path)}</code></h2><p>{_text(facts['summary'])}</p>")
            if "requestBody" in facts:
                content = facts["requestBody"]["content"]["application/json"]
                schema = document["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
                parts.append(_table({name: field["description"] for name, field in schema["properties"].items()}))
                command = f"curl http://127.0.0.1:8080{path} -H 'Content-Type: application/json' -d"
                parts.append(f"<pre>{_text(command)} '{_text(json.dumps(content['example']))}'</pre>")
            parts.append(_table({status: reply["description"] for status, reply in facts["responses"].items()}))
    return "".join([*parts, "</html>\n"]).encode()


def _table(rows: Mapping[str, str]) -> str:
    cells = (f"<tr><td><code>{_text(name)}</code><td>{_text(meaning)}</tr>" for name, meaning in rows.items())
    return f"<table>{''.join(cells)}</table>"


def _text(value: str) -> str:
    return html.escape(value.strip())
