"""The requests, as pydantic checks them and OpenAPI describes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from ensembed.serve.replies import ApiError

TOKENS = (
    "input holds token ids, which mean something else to every member of an ensemble: send the text itself "
    "(LangChain's OpenAIEmbeddings does with check_embedding_ctx_length=False)"
)
_Text = Annotated[str, Field(min_length=1)]


def _whole(value: object) -> object:
    """2.0 is a whole number in JSON, which does not tell them apart."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Count = Annotated[int, Field(ge=1), BeforeValidator(_whole)]


class _Asked(BaseModel):
    """Fields that we do not know are left alone, as OpenAI's clients may send more than they did."""

    model_config = ConfigDict(extra="ignore", strict=True)


class EmbeddingsRequest(_Asked):
    """A text or a list of texts to embed."""

    input: _Text | Annotated[list[_Text], Field(min_length=1, fail_fast=True)] = Field(
        description="A text, or a list of texts."
    )
    model: str = Field(description="The model's name: see /v1/models.")
    dimensions: _Count | None = Field(
        None, description="Give only the first so many numbers of each vector, at most as many as the model has."
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        None, description="`float` for numbers, `base64` for the bytes of little-endian 32-bit floats."
    )
    user: str | None = Field(None, description="Not looked at.")


class SimilarityRequest(_Asked):
    """Texts to compare with each other."""

    texts: Annotated[list[_Text], Field(min_length=1, fail_fast=True)] = Field(description="The texts, at least one.")


class SearchRequest(_Asked):
    """A query of the index."""

    query: _Text = Field(description="What to look for.")
    k: _Count = Field(10, description="How many hits.")


A = TypeVar("A", bound=_Asked)


def parse(shape: type[A], body: bytes) -> A:
    """The request in a body.

    Raises:
        ApiError: it is none; the message says which field and why, and quotes nothing.
    """
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        raise _explained(error, body) from None


def _explained(error: ValidationError, body: bytes) -> ApiError:
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if problem["type"] == "json_invalid":
        return ApiError(400, f"the body is not JSON: {_safe(problem['msg'])}", code="invalid_json")
    if problem["type"] in ("model_type", "model_attributes_type"):
        return ApiError(400, "the body must be a JSON object", code="invalid_json")
    field = str(problem["loc"][0]) if problem["loc"] else None
    if field == "input":
        return _input_problem(_value(body, "input"))
    numbers = "".join(f"[{part}]" for part in problem["loc"][1:] if isinstance(part, int))
    return ApiError(400, f"{field}{numbers}: {problem['msg']}", param=field, code=problem["type"])


def _input_problem(value: Any) -> ApiError:  # noqa: ANN401 - whatever JSON holds
    """What is wrong with `input`; pydantic tells of each member of the union, which confuses."""
    code = "invalid_input"
    if value == "" or value == []:
        return ApiError(400, "input is empty: send a text, or a list of texts", param="input", code="empty_input")
    if isinstance(value, list):
        if all(isinstance(one, (int, list)) and not isinstance(one, bool) for one in value):
            return ApiError(400, TOKENS, param="input", code="token_ids")
        for i, one in enumerate(value):
            if one == "":
                return ApiError(400, f"input[{i}] is an empty text: leave it out", param="input", code="empty_input")
            if not isinstance(one, str):
                return ApiError(400, f"input[{i}] is not a text but {_kind(one)}", param="input", code=code)
    if value is _MISSING:
        return ApiError(400, "input is missing: send a text, or a list of texts", param="input", code="empty_input")
    return ApiError(400, f"input must be a text or a list of texts, not {_kind(value)}", param="input", code=code)


_MISSING = object()
_KINDS = {bool: "a boolean", int: "a number", float: "a number", dict: "an object", list: "a list", type(None): "null"}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "something else")


def _value(body: bytes, field: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    try:
        return from_json(body).get(field, _MISSING)
    except (ValueError, AttributeError):
        return _MISSING


def _safe(message: str) -> str:
    """The parser's words: they give places, not contents."""
    return message.removeprefix("Invalid JSON: ")
