"""Errors: the JSON that a client reads and the line in the log. Neither contains anything that a client sent."""

from __future__ import annotations

import json
import logging
import traceback
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.responses import Response
from typing_extensions import TypedDict

log = logging.getLogger("ensembed.serve")

TOKENS = (
    "input contains token ids, which every member of an ensemble would read differently: send the text itself "
    "(LangChain's OpenAIEmbeddings does with check_embedding_ctx_length=False)"
)
# The codes of limits. Other codes of invalid requests are those of pydantic.
_LIMIT_CODES = {("dimensions", "less_than_equal"): "too_many_dimensions", ("k", "less_than_equal"): "too_many_hits"}
_JSON_TYPES = {bool: "a boolean", int: "a number", float: "a number", dict: "an object", list: "a list"}


class ErrorFacts(TypedDict):
    """What was wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(TypedDict):
    """An error, as OpenAI's servers write it."""

    error: ErrorFacts


@dataclass(eq=False)
class ApiError(Exception):
    """An error that a client reads."""

    status: int
    message: str  # what was wrong and the way out; it never quotes the request
    param: str | None = None  # the field of the request that is wrong
    code: str | None = None  # a word for programs
    headers: dict[str, str] = field(default_factory=dict)

    def reply(self) -> Response:
        """Return the reply for the client."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        kind = "rate_limit_error" if self.status == 429 else kind
        facts = ErrorFacts(message=self.message, type=kind, param=self.param, code=self.code)
        return json_reply(ErrorReply(error=facts), self.status, self.headers)


def json_reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:  # noqa: ANN401 - JSON
    """Return a JSON document; ValueError where it contains NaN or Inf, which the middleware turns into a 500."""
    body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    return Response(body, status, headers, media_type="application/json")


def closing(status: int, message: str, code: str) -> ApiError:
    """Return an error that closes the connection, because the rest of the body was not read."""
    return ApiError(status, message, code=code, headers={"Connection": "close"})


def busy(message: str, seconds: int) -> ApiError:
    """Return the error for a full queue."""
    return ApiError(429, f"{message}: come back in {seconds} s", None, "queue_full", {"Retry-After": str(seconds)})


def invalid_request(error: ValidationError) -> ApiError:
    """Return the error for a body that its model refused: the field and the reason, without quoting the body."""
    problems = error.errors(include_url=False)
    problem = problems[0]
    if problem["type"] == "json_invalid":
        reason = problem["msg"].removeprefix("Invalid JSON: ")  # a place, and no content
        return ApiError(400, f"the body is not JSON: {reason}", code="invalid_json")
    if problem["type"] == "model_type":
        return ApiError(400, "the body must be a JSON object", code="invalid_json")
    param = str(problem["loc"][0])
    if param == "input":
        return _invalid_input(problems)
    return _limit_error(param, problem) or ApiError(400, f"{_place(problem)}: {problem['msg']}", param, problem["type"])


def _invalid_input(problems: list[ErrorDetails]) -> ApiError:
    """Explain what is wrong with `input`: pydantic reports each member of its union, the text first."""
    value = problems[0]["input"]
    problem = problems[1] if isinstance(value, list) else problems[0]
    kind, place = problem["type"], _place(problem)
    if isinstance(value, list) and value and all(type(item) in (int, list) for item in value):
        first = value[0] if isinstance(value[0], list) else value
        if first and all(type(item) is int for item in first):
            return ApiError(400, TOKENS, "input", "token_ids")
    if kind == "missing":
        return ApiError(400, "input is missing: send a text, or a list of texts", "input", "empty_input")
    if kind in ("too_short", "string_too_short"):
        message = "is empty: send a text, or a list of texts" if place == "input" else "is an empty text: leave it out"
        return ApiError(400, f"{place} {message}", "input", "empty_input")
    wanted = "a text or a list of texts" if place == "input" else "a text"
    message = f"{place} must be {wanted}, not {_JSON_TYPES.get(type(problem['input']), 'null')}"
    return _limit_error("input", problem) or ApiError(400, message, "input", "invalid_input")


def _limit_error(param: str, problem: ErrorDetails) -> ApiError | None:
    """Return the error for a value beyond a limit of `limits.Limits`; None for another problem."""
    kind, value, place = problem["type"], problem["input"], _place(problem)
    if kind == "too_long":
        message = f"has {len(value)} texts, the limit is {problem['ctx']['max_length']}: send them in several requests"
        return ApiError(400, f"{place} {message}", param, "too_many_texts")
    if kind == "string_too_long":
        message = f"has {len(value)} characters, the limit is {problem['ctx']['max_length']}: shorten it"
        return ApiError(400, f"{place} {message}", param, "text_too_long")
    code = _LIMIT_CODES.get((param, kind))
    if code is None:
        return None
    return ApiError(400, f"{param} is {value}, the limit is {problem['ctx']['le']}: ask for fewer", param, code)


def _place(problem: ErrorDetails) -> str:
    """Return the field with the places in its lists, as in `input[3]`."""
    field, *rest = problem["loc"]
    return f"{field}" + "".join(f"[{part}]" for part in rest if isinstance(part, int))


def where(error: BaseException) -> str:
    """Return the type of an error and the line that raised it, with its causes, but no message: it may quote a text."""
    places: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(places) < 4:
        place = ""
        for frame, line in traceback.walk_tb(cause.__traceback__):
            path = PurePath(frame.f_code.co_filename)
            place = f" at {path.parent.name}/{path.name}:{line}"
        places.append(type(cause).__name__ + place)
        cause = cause.__cause__
    return ", caused by ".join(places)
