"""Models behind an OpenAI-compatible server: OpenAI itself, vLLM, text-embeddings-inference, infinity, Ollama."""

from __future__ import annotations

from typing import Any

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray, naming_failures
from ensembed.encoders.names import Request, at_least, one_of
from ensembed.encoders.openai.api_client import EmbeddingAPI, Limits
from ensembed.encoders.openai.api_servers import EXAMPLE, find_server
from ensembed.encoders.openai.revisions import PROBES, probed_revision
from ensembed.errors import InputError

OPENS = "URL#MODEL of an OpenAI-compatible server"

# OpenAI takes 8,192 tokens. In most scripts a character is a token at the most and a third of one in English, so that
# what is cut here fits, and it is more than two pages. A model that takes less has to be told so, or says so itself.
MAX_CHARS = 8000
_DAY = 86_400.0


class OpenAIEncoder(Encoder):
    """A model that is asked over HTTP.

    A blank sentence is sent as one space, since OpenAI refuses empty ones. Opening it asks for the vectors of three
    probe sentences, which tell the dimension and, if no revision is given, whether the model is one seen before.

    Args:
        api: the model.
        name: what to call it.
        model: what the server calls it.
        dimensions: how many dimensions the API was made to ask for; None for as many as the model has.
        max_chars: characters of a sentence beyond these are cut off.
        revision: pins the weights; None leaves that to the probes.
    """

    def __init__(
        self,
        api: EmbeddingAPI,
        *,
        name: str,
        model: str,
        dimensions: int | None = None,
        max_chars: int = MAX_CHARS,
        revision: str | None = None,
    ) -> None:
        self._api = api
        self._max_chars = max_chars
        with naming_failures(name):
            vectors = api.first(PROBES)
        extra = {"model": model, "max_chars": str(max_chars)}
        if dimensions is not None:
            extra["dimensions"] = str(dimensions)
        self._spec = EncoderSpec(
            name,
            "openai",
            vectors.shape[1],
            revision or probed_revision(model, dimensions, vectors),
            pooling="unknown",
            extra=tuple(sorted(extra.items())),
        )

    @property
    def spec(self) -> EncoderSpec:
        """Everything that changes the numbers: the server's address does not, nor how it is asked."""
        return self._spec

    def embed(self, sentences: list[str]) -> FloatArray:
        """The server's vectors of the sentences, cut where they are too long."""
        cut = [sentence[: self._max_chars] for sentence in sentences]
        return self._api.embed([text if text.strip() else " " for text in cut])


def open_openai(request: Request) -> OpenAIEncoder:
    """`openai:URL#MODEL`, with options.

    `dimensions`, `max_chars` and `revision` change what is asked for. `batch_items`, `batch_tokens`, `concurrency`,
    `timeout`, `retries` (see `Limits`) and `encoding` (`base64` or `float`) only change how.
    """
    url, _, model = request.location.partition("#")
    server = find_server(url, request.name)
    if not model:
        raise InputError(f"encoder {request.name!r} says no model: write openai:URL#MODEL, as in {EXAMPLE}")
    options = request.options(
        batch_items=at_least(1),
        batch_tokens=at_least(1),
        concurrency=at_least(1),
        timeout=_seconds,
        retries=at_least(0),
        dimensions=at_least(1),
        max_chars=at_least(1),
        encoding=one_of("base64", "float"),
        revision=_text,
    )
    limits = Limits(**_taken(options, "batch_items", "batch_tokens", "concurrency", "timeout", "retries"))
    encoding, dimensions = options.pop("encoding", None), options.get("dimensions")
    api = EmbeddingAPI(server, model, name=request.name, limits=limits, dimensions=dimensions, encoding=encoding)
    return OpenAIEncoder(api, name=request.name, model=model, **options)


def _taken(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: options.pop(name) for name in names if name in options}


def _seconds(value: str) -> float:
    number = float(value)
    if not 0 < number <= _DAY:
        raise ValueError(value)
    return number


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError(value)
    return value
