"""Encoders around something else: an encoder with a prefix or fewer dimensions, and any object that has `encode`."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import PROBED, Encoder, EncoderSpec, FloatArray, SupportsEncode, checked_rows
from ensembed.errors import InputError
from ensembed.numerics.row_matrices import unit_rows

# Other weights, another tokenizer or another length limit change the vector of one of these.
_PROBES = [
    "Two dogs are running through the snow.",
    "Der Bäcker in ZÜRICH kostet 12,50 €!",
    " ".join(f"the dog number {i} runs" for i in range(120)),
]


LONG = ("cut", "chunk", "chunk-max")
"""What becomes of texts that are longer than an encoder reads."""

_LEAST_CHUNK = 16


class AdjustedEncoder(Encoder):
    """An encoder with a prefix, whole long texts, and truncated or normalised vectors; in this order.

    Args:
        encoder: the encoder.
        prefix: text put before every sentence, such as `query: ` for the E5 family.
        query_prefix, document_prefix: text put before queries (`encode_query`) and documents (`encode_document`)
            instead of `prefix`; None for no other.
        truncate_dim: keep that many of the first dimensions, for models trained to be cut (Matryoshka); of a
            meta-encoder the best ones.
        normalize: scale the vectors to length one; a zero vector stays zero. None leaves them as they are.
        long: what becomes of a text that is longer than the encoder reads: "cut" leaves it to the encoder, "chunk" is
            the mean of the vectors of its chunks, "chunk-max" the largest value of each dimension.
        chunk: characters of a chunk at most; None takes `CHARACTERS` for each token that the encoder reads.

    Example:
        >>> from ensembed.encoders import DemoEncoder
        >>> AdjustedEncoder(DemoEncoder(dim=8), prefix="query: ", truncate_dim=4).encode(["a dog"]).shape
        (1, 4)
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        prefix: str = "",
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        truncate_dim: int | None = None,
        normalize: bool | None = None,
        long: str = "cut",
        chunk: int | None = None,
    ) -> None:
        spec = encoder.spec
        dim = spec.dim if truncate_dim is None else truncate_dim
        if not 1 <= dim <= spec.dim:
            raise InputError(f"encoder {spec.name!r} has {spec.dim} dimensions: truncate_dim cannot be {dim}")
        self._changes: dict[str, Any] = {"truncate_dim": truncate_dim, "normalize": normalize}
        self._changes |= {"long": long, "chunk": chunk}
        self._whole, self._prefixes = encoder, {"query": query_prefix, "document": document_prefix}
        if dim < spec.dim and hasattr(encoder, "truncate"):  # a meta-encoder knows its best dimensions
            encoder = encoder.truncate(dim)
        if normalize is False and spec.normalize and dim == spec.dim:
            raise InputError(f"encoder {spec.name!r} itself gives vectors of length one: normalize cannot be false")
        self.cacheable, self.concurrent = encoder.cacheable, encoder.concurrent
        self._encoder, self._prefix = encoder, prefix
        self._chunk = _chunk_size(spec, long, chunk)
        self._pool: Callable[..., NDArray[Any]] = np.maximum.reduceat if long == "chunk-max" else _mean_at
        # A part of a unit vector is no unit vector: a truncated encoder is normalised only on request.
        unit = normalize is True or (spec.normalize and dim == spec.dim)
        extra = dict(spec.extra) | ({} if dim == spec.dim else {"truncated_from": str(spec.dim)})
        extra |= {"long": f"{long} {self._chunk}"} if self._chunk else {}
        extras = tuple(sorted(extra.items()))
        self._spec = replace(spec, dim=dim, prompt=spec.prompt + prefix, normalize=unit, extra=extras)

    @property
    def device(self) -> str:
        """Where the encoder computes."""
        return self._encoder.device

    @cached_property
    def query_encoder(self) -> Encoder:
        """The encoder of queries."""
        return self._in_role("query", self._whole.query_encoder)

    @cached_property
    def document_encoder(self) -> Encoder:
        """The encoder of documents."""
        return self._in_role("document", self._whole.document_encoder)

    def _in_role(self, role: str, inner: Encoder) -> Encoder:
        prefix = self._prefixes[role]
        if prefix is None and inner is self._whole:
            return self
        # A prefix in the name replaces the model's own prompt for the role.
        return AdjustedEncoder(
            inner if prefix is None else self._whole,
            prefix=self._prefix if prefix is None else prefix,
            **self._changes,
        )

    def embed(self, sentences: list[str]) -> FloatArray:
        """Return the encoder's vectors of the prefixed sentences, cut and scaled."""
        if self._chunk:
            vectors = self._whole_texts(sentences, self._chunk)[:, : self._spec.dim]
        else:
            vectors = self._encoder.encode([self._prefix + sentence for sentence in sentences])[:, : self._spec.dim]
        return unit_rows(vectors) if self._spec.normalize else vectors

    def shorten(self, vectors: FloatArray, k: int) -> FloatArray:
        """Return vectors [n, d] in the k dimensions that the encoder itself would keep."""
        return self._encoder.shorten(vectors, k)

    def _whole_texts(self, sentences: list[str], size: int) -> FloatArray:
        """Return the vectors of texts, each pooled from those of its chunks."""
        chunks = [split_text(sentence, size) for sentence in sentences]
        vectors = self._encoder.encode([self._prefix + chunk for some in chunks for chunk in some])
        counts = [len(some) for some in chunks]
        starts = np.cumsum([0, *counts[:-1]])
        return vectors if len(vectors) == len(sentences) else np.asarray(self._pool(vectors, starts), np.float32)


CHARACTERS = 4
"""Characters that a token is taken for: a chunk of English this long for each token of the window is seldom cut."""

_BREAK = re.compile(r"(?<=[.!?;])\s+")
_LETTER = re.compile(r"\S")


def split_text(text: str, size: int) -> list[str]:
    """Return a text in chunks of at most `size` characters and similar length, at ends of sentences if possible.

    A text that is no longer is returned as it is; chunks have no blanks around them.

    Example:
        >>> split_text("A dog barks. A cat sleeps all day long. Stocks fell.", 30)
        ['A dog barks.', 'A cat sleeps all day long.', 'Stocks fell.']
    """
    if len(text) <= size:
        return [text]
    chunks, stop = [], len(text.rstrip())
    start = stop - len(text.strip())
    while stop - start > size:  # by positions: copies of the rest would take the square of the length
        length = math.ceil((stop - start) / math.ceil((stop - start) / size))  # of equal chunks
        least = start + length // 3
        ends = [match.start() for match in _BREAK.finditer(text, least, min(start + size + 1, stop))]
        spaces = [i for i in (text.rfind(" ", least, start + length + 1), start + length) if i > start]
        end = min(ends, key=lambda i: abs(i - start - length)) if ends else spaces[0]
        chunks.append(text[start:end].rstrip())
        start = next(_LETTER.finditer(text, end)).start()
    return [*chunks, text[start:stop]]


def _chunk_size(spec: EncoderSpec, long: str, chunk: int | None) -> int | None:
    """Return the characters of a chunk, or None if texts are left to the encoder."""
    if long not in LONG:
        raise InputError(f"encoder {spec.name!r}: long is {' or '.join(LONG)}, not {long!r}")
    if long == "cut":
        if chunk is not None:
            raise InputError(f"encoder {spec.name!r}: chunk is for long=chunk and long=chunk-max")
        return None
    if chunk is None and spec.max_length is None:  # it reads all of a text
        return None
    size = chunk if chunk is not None else CHARACTERS * (spec.max_length or 1)
    if size < _LEAST_CHUNK:
        raise InputError(f"encoder {spec.name!r}: a chunk has at least {_LEAST_CHUNK} characters, not {size}")
    return size


def _mean_at(vectors: FloatArray, starts: NDArray[np.int64]) -> NDArray[Any]:
    counts = np.diff([*starts.tolist(), len(vectors)])
    return np.add.reduceat(vectors, starts) / counts[:, None]


class ObjectEncoder(Encoder):
    """Wraps an object whose `encode(list[str])` returns one row per sentence.

    Args:
        encoder: the object: a sentence-transformers model, or a class of your own.
        name: the encoder's name; by default the object's class.
        revision: what pins its weights and settings; by default a hash of the vectors of three probe sentences.

    Example:
        >>> class Lengths:
        ...     def encode(self, sentences):
        ...         return [[len(s), s.count(" ")] for s in sentences]
        >>> ObjectEncoder(Lengths()).encode(["ab c"])
        array([[4., 1.]], dtype=float32)
    """

    def __init__(self, encoder: SupportsEncode, *, name: str | None = None, revision: str | None = None) -> None:
        self._encoder = encoder
        name = name or type(encoder).__name__
        probes = checked_rows(name, encoder.encode, _PROBES).astype(np.float64)
        self._spec = EncoderSpec(name, "object", probes.shape[1], revision or _revision(probes), pooling="unknown")

    @property
    def device(self) -> str:
        """Where the object says that it computes."""
        return str(getattr(self._encoder, "device", "cpu"))

    def embed(self, sentences: list[str]) -> NDArray[Any]:
        """Return what the object returns."""
        vectors: NDArray[Any] = self._encoder.encode(sentences)
        return vectors


def _revision(probes: NDArray[np.float64]) -> str:
    """Return a hash of a few figures of the probe vectors, rounded to three digits: machines round differently."""
    half = probes.shape[1] // 2 or 1
    figures = [*np.square(probes).sum(axis=1), *probes[:, :half].sum(axis=1), *(probes[:-1] * probes[1:]).sum(axis=1)]
    return PROBED + hashlib.sha256(" ".join(f"{figure:.2e}" for figure in figures).encode()).hexdigest()[:16]
