"""Models behind an OpenAI-compatible server: OpenAI itself, vLLM, text-embeddings-inference, infinity, Ollama."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from ensembed.encoders.base import PROBED, Encoder, EncoderSpec, FloatArray, naming_failures
from ensembed.encoders.names_and_consent import Checked, Request, at_least, one_of
from ensembed.encoders.openai.api_client import EmbeddingAPI, RequestOptions
from ensembed.encoders.openai.api_servers import EXAMPLE, find_server
from ensembed.errors import InputError
from ensembed.support.atomic_files import make_folder, write_atomically
from ensembed.support.file_limits import read_json
from ensembed.support.machine import cache_dir

OPENS = "URL#MODEL of an OpenAI-compatible server"
SERVER_PROBES = (
    "A man is playing a guitar on the stage.",
    "Stock prices fell sharply after the report, analysts said on Tuesday.",
    "Zwei Hunde laufen durch den Schnee.",
)
"""The sentences whose vectors tell which weights a server has. A change of these changes every revision."""

_MAX_CHARS = 8000  # OpenAI takes 8,192 tokens, and in most scripts a character is at most one
_DAY = 86_400.0
_SAME = 0.01  # distance, as a part of the length: half precision moves vectors by thousandths, other weights by more
_MOST_REMEMBERED = 16  # revisions per model; the oldest go first
_LOCK_SECONDS = 10  # a process that holds the lock writes some kilobytes


class OpenAIEncoder(Encoder):
    """A model that is asked over HTTP.

    A blank sentence is sent as one space. Opening the encoder asks for the vectors of three probe sentences.

    Args:
        api: the model.
        name: how to call the encoder.
        max_chars: characters of a sentence beyond these are cut off.
        revision: pins the weights; None derives it from the probe vectors.
    """

    def __init__(
        self, api: EmbeddingAPI, *, name: str, max_chars: int = _MAX_CHARS, revision: str | None = None
    ) -> None:
        self._api, self._max_chars = api, max_chars
        with naming_failures(name):
            vectors = api.first(SERVER_PROBES)
        dimensions = api.options.dimensions
        # Neither the server's address nor how it is asked changes the numbers.
        own = () if dimensions is None else (("dimensions", str(dimensions)),)
        extra = (*own, ("max_chars", str(max_chars)), ("model", api.model))
        revision = revision or probed_revision(api.model, dimensions, vectors)
        self._spec = EncoderSpec(name, "openai", vectors.shape[1], revision, pooling="unknown", extra=extra)

    def embed(self, sentences: list[str]) -> FloatArray:
        """Return the server's vectors of the sentences, which are cut where they are too long."""
        cut = [sentence[: self._max_chars] for sentence in sentences]
        return self._api.embed([text if text.strip() else " " for text in cut])


def effects(request: Request) -> dict[str, str]:
    """Return what needs consent: sending sentences to another machine, unless its key is set, which is consent."""
    server = find_server(request.location.partition("#")[0], request.shown)
    return {} if server.nearby or server.key else {"network": f"sends your sentences to {server.place}"}


def open_openai(request: Request) -> OpenAIEncoder:
    """Open `openai:URL#MODEL`, with the options of `RequestOptions` and `OpenAIEncoder`."""
    url, _, model = request.location.partition("#")
    server = find_server(url, request.name)
    if not model:
        raise InputError(f"encoder {request.name!r} names no model: write openai:URL#MODEL, as in {EXAMPLE}")
    counts = ("batch_items", "batch_tokens", "concurrency", "dimensions", "max_chars")
    types: dict[str, Any] = dict.fromkeys(counts, at_least(1)) | {"retries": at_least(0)}
    types |= {"timeout": Checked(float, lambda seconds: 0 < seconds <= _DAY), "revision": Checked(str, str.strip)}
    options = request.options(**types, encoding=one_of("base64", "float"))
    fields = [field.name for field in dataclasses.fields(RequestOptions)]
    how = RequestOptions(**{key: options.pop(key) for key in fields if key in options})
    return OpenAIEncoder(EmbeddingAPI(server, model, name=request.name, options=how), name=request.name, **options)


def probed_revision(model: str, dimensions: int | None, vectors: FloatArray) -> str:
    """Return the revision of the model that gives these vectors [probes, d] to `SERVER_PROBES`.

    Real servers round differently from one reply to the next. So the cache remembers vectors with their revision, and
    vectors that are almost the same get it again. Without a writable cache, the revision is the hash of the vectors.
    """
    exact = np.ascontiguousarray(vectors, "<f4")
    revision = PROBED + hashlib.sha256(exact.tobytes()).hexdigest()[:16]
    name = hashlib.sha256(json.dumps([model, dimensions]).encode()).hexdigest()[:32]
    file = cache_dir() / "servers" / f"{name}.json"
    # Two processes that see the model for the first time must agree on its revision.
    with contextlib.suppress(OSError):
        make_folder(file.parent)
        with FileLock(file.with_suffix(".lock"), timeout=_LOCK_SECONDS):
            seen = dict(_remembered_vectors(file, exact.shape[0]))
            distances = {key: _distance(exact, known) for key, known in seen.items() if known.shape == exact.shape}
            best = min(distances, key=distances.__getitem__, default=revision)
            if distances.get(best, 1.0) <= _SAME:
                return best
            seen[revision] = exact
            texts = {key: base64.b64encode(rows.tobytes()).decode() for key, rows in seen.items()}
            entries = [{"revision": key, "vectors": text} for key, text in texts.items()]
            write_atomically(file, json.dumps({"model": model, "seen": entries[-_MOST_REMEMBERED:]}).encode())
    return revision


def _distance(vectors: FloatArray, known: FloatArray) -> float:
    """Return the largest distance of a row from the known one, as a part of its length."""
    lengths = np.linalg.norm(known.astype(float), axis=1) + np.finfo(np.float32).tiny  # a row may be zero
    return float((np.linalg.norm(vectors.astype(float) - known, axis=1) / lengths).max())


def _remembered_vectors(file: Path, rows: int) -> Iterator[tuple[str, FloatArray]]:
    """Yield revisions and their vectors, the oldest first, up to the first damaged entry."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        for entry in read_json(file)["seen"]:
            flat = np.frombuffer(base64.b64decode(entry["vectors"], validate=True), "<f4")
            if entry["revision"].startswith(PROBED) and np.isfinite(flat).all():
                yield entry["revision"], flat.reshape(rows, -1)
