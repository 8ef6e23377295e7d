"""What goes back to clients: JSON without NaN, and errors in the shape that OpenAI's clients read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response


class ApiError(Exception):
    """An error that a client is told of. No message holds a text of the request.

    Attributes:
        status: the HTTP status.
        message: what was wrong and the way out.
        param: the field of the request that is at fault.
        code: a word for programs.
        headers: of the reply.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    @property
    def kind(self) -> str:
        """The `type` of OpenAI's errors."""
        if self.status == 429:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < 500 else "server_error"


def closing(status: int, message: str, *, code: str) -> ApiError:
    """An error after which the connection is closed: the rest of the body has not been read."""
    return ApiError(status, message, code=code, headers={"Connection": "close"})


def busy(message: str, seconds: int) -> ApiError:
    """Too much is waiting already."""
    return ApiError(429, message, code="queue_full", headers={"Retry-After": str(seconds)})


def error_reply(error: ApiError) -> Response:
    """The error as OpenAI's servers write it."""
    facts = {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}
    return json_reply({"error": facts}, error.status, error.headers)


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:  # noqa: ANN401 - anything that JSON can hold
    """A JSON document.

    Raises:
        ValueError: there is NaN or Inf in it, which JSON does not have; the guard makes it a 500.
    """
    return json_bytes(json.dumps(value, allow_nan=False, separators=(",", ":")).encode(), status, headers)


def json_bytes(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON document that has been written already."""
    return Response(body, status, dict(headers or {}), media_type="application/json")
