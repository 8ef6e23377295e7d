"""The OpenAPI description, and a page of it that needs neither scripts nor a network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from typing import Any

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; font-size: 1.1rem; } h2 b { display: inline-block; min-width: 3.5rem; }
code, pre { font: 0.9em/1.4 ui-monospace, monospace; } pre { overflow-x: auto; padding: 0.7rem; background: #8882; }
td { padding: 0 1rem 0 0; vertical-align: top; }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; } a { color: #8bf; } }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
DOCS_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; frame-ancestors 'none'"

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_MEANINGS = {
    "400": "The request cannot be used; the message says why.",
    "401": "An API key is wanted.",
    "404": "There is no such model, index or path.",
    "408": "The body took too long to arrive.",
    "413": "The body is too large.",
    "415": "The body is not said to be plain JSON.",
    "421": "The server is not called by that host name.",
    "429": "Too much is waiting; `Retry-After` says when to come back.",
    "500": "The model failed.",
    "503": "The server is not ready.",
    "504": "The model took too long.",
}


def operation(reply: Mapping[str, Any], *errors: str, media: str = "application/json") -> dict[str, Any]:
    """The replies of an operation: the schema of a good one, and the errors it can have."""
    replies: dict[str, Any] = {"200": {"description": "Done.", "content": {media: {"schema": dict(reply)}}}}
    for status in errors:
        replies[status] = {"description": _MEANINGS[status], "content": {"application/json": {"schema": _ERROR}}}
    return {"responses": replies}


def taking(schema: Mapping[str, Any], example: Mapping[str, Any]) -> dict[str, Any]:
    """The body of an operation."""
    content = {"schema": dict(schema), "example": dict(example)}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def described(description: Mapping[str, Any]) -> bytes:
    """A page of an OpenAPI description."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{_text(description['info']['title'])}</title><style>{_STYLE}</style>",
        f"<h1>{_text(description['info']['title'])}</h1><p>{_text(description['info'].get('description', ''))}</p>",
        "<p>The same for programs: <a href='/openapi.json'>/openapi.json</a>.</p>",
    ]
    for path, operations in description["paths"].items():
        for method, facts in operations.items():
            parts.append(f"<h2><b>{method.upper()}</b> <code>{_text(path)}</code></h2>")
            parts.append(f"<p>{_text(facts.get('summary', ''))} {_text(facts.get('description', ''))}</p>")
            parts += _body(path, facts.get("requestBody"))
            parts += ["<table>", *map(_reply, facts.get("responses", {}).items()), "</table>"]
    return "".join([*parts, "</html>\n"]).encode()


def _body(path: str, body: Mapping[str, Any] | None) -> list[str]:
    if body is None:
        return []
    content = body["content"]["application/json"]
    rows = [
        f"<tr><td><code>{_text(name)}</code><td>{_text(field.get('description', ''))}</tr>"
        for name, field in content["schema"]["properties"].items()
    ]
    example = json.dumps(content["example"])
    command = f"curl http://127.0.0.1:8080{path} -H 'Content-Type: application/json' -d '{example}'"
    return ["<table>", *rows, "</table>", f"<pre>{_text(command)}</pre>"]


def _reply(item: tuple[str, Mapping[str, Any]]) -> str:
    status, facts = item
    return f"<tr><td><code>{_text(status)}</code><td>{_text(facts.get('description', ''))}</tr>"


def _text(value: str) -> str:
    return html.escape(value.strip())
