"""Encoders around something else: an encoder with a prefix or fewer dimensions, and any object that has `encode`."""

from __future__ import annotations

import hashlib
from dataclasses import replace
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


class AdjustedEncoder(Encoder):
    """An encoder with a prefix, and truncated or normalised vectors; in this order, as in sentence-transformers.

    Args:
        encoder: the encoder.
        prefix: text put before every sentence, such as `query: ` for the E5 family.
        truncate_dim: keep that many of the first dimensions; for models trained to be cut (Matryoshka).
        normalize: scale the vectors to length one; a zero vector stays zero. None leaves them as they are.

    Example:
        >>> from ensembed.encoders import DemoEncoder
        >>> AdjustedEncoder(DemoEncoder(dim=8), prefix="query: ", truncate_dim=4).encode(["a dog"]).shape
        (1, 4)
    """

    def __init__(
        self, encoder: Encoder, *, prefix: str = "", truncate_dim: int | None = None, normalize: bool | None = None
    ) -> None:
        spec = encoder.spec
        dim = spec.dim if truncate_dim is None else truncate_dim
        if not 1 <= dim <= spec.dim:
            raise InputError(f"encoder {spec.name!r} has {spec.dim} dimensions: truncate_dim cannot be {dim}")
        if normalize is False and spec.normalize and dim == spec.dim:
            raise InputError(f"encoder {spec.name!r} itself gives vectors of length one: normalize cannot be false")
        self.cacheable, self.concurrent = encoder.cacheable, encoder.concurrent
        self._encoder, self._prefix = encoder, prefix
        # A part of a unit vector is no unit vector: a truncated encoder is normalised only on request.
        unit = normalize is True or (spec.normalize and dim == spec.dim)
        extra = dict(spec.extra) | ({} if dim == spec.dim else {"truncated_from": str(spec.dim)})
        extras = tuple(sorted(extra.items()))
        self._spec = replace(spec, dim=dim, prompt=spec.prompt + prefix, normalize=unit, extra=extras)

    def embed(self, sentences: list[str]) -> FloatArray:
        """Return the encoder's vectors of the prefixed sentences, cut and scaled."""
        vectors = self._encoder.encode([self._prefix + sentence for sentence in sentences])[:, : self._spec.dim]
        return unit_rows(vectors) if self._spec.normalize else vectors


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

    def embed(self, sentences: list[str]) -> NDArray[Any]:
        """Return what the object returns."""
        vectors: NDArray[Any] = self._encoder.encode(sentences)
        return vectors


def _revision(probes: NDArray[np.float64]) -> str:
    """Return a hash of a few figures of the probe vectors, rounded to three digits: machines round differently."""
    half = probes.shape[1] // 2 or 1
    figures = [*np.square(probes).sum(axis=1), *probes[:, :half].sum(axis=1), *(probes[:-1] * probes[1:]).sum(axis=1)]
    return PROBED + hashlib.sha256(" ".join(f"{figure:.2e}" for figure in figures).encode()).hexdigest()[:16]
