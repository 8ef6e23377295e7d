"""Any object that has `encode`, as an encoder."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import Encoder, EncoderSpec, SupportsEncode, as_numbers, naming_failures
from ensembed.errors import EncoderError

# Short, cased and accented, and long: other weights, another tokenizer and another length limit show in one of them.
_PROBES = [
    "Two dogs are running through the snow.",
    "Der Bäcker in ZÜRICH kostet 12,50 €!",
    " ".join(f"the dog number {i} runs" for i in range(120)),
]


class ObjectEncoder(Encoder):
    """Wraps an object whose `encode(list[str])` returns one row per sentence.

    Args:
        encoder: the object: a sentence-transformers model, your own class.
        name: what to call it; by default the object's class.
        revision: what pins its weights and settings. Without one, the vectors of three probe sentences stand in for
            it, so that another model does not read this one's cached views. A change that does not show in them (a
            length limit beyond some 600 tokens, say) does not show at all: give a revision of your own then.

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
        with naming_failures(name):
            raw = encoder.encode(list(_PROBES))
        probes = as_numbers(raw, name).astype(np.float64)
        if probes.ndim != 2 or probes.shape[0] != len(_PROBES) or probes.shape[1] == 0:
            raise EncoderError(
                f"encoder {name!r} returned an array of shape {probes.shape} for {len(_PROBES)} sentences; "
                "its encode must return one row of numbers per sentence"
            )
        if not np.isfinite(probes).all():
            raise EncoderError(f"encoder {name!r} returned NaN or Inf for one of the probe sentences {_PROBES}")
        self._spec = EncoderSpec(name, "object", probes.shape[1], revision or _revision(probes), pooling="unknown")

    @property
    def spec(self) -> EncoderSpec:
        """Everything that changes the numbers, as far as it can be told from outside."""
        return self._spec

    def embed(self, sentences: list[str]) -> NDArray[Any]:
        """What the object says."""
        return as_numbers(self._encoder.encode(list(sentences)), self._spec.name)


def _revision(probes: NDArray[np.float64]) -> str:
    """A hash of a few figures of the probe vectors.

    Few and to three digits: rounding in another batch, thread count or machine must not look like another model, and
    with every entry hashed one of them would always be on the verge.
    """
    half = probes.shape[1] // 2 or 1
    figures = [*np.square(probes).sum(axis=1), *probes[:, :half].sum(axis=1), *(probes[:-1] * probes[1:]).sum(axis=1)]
    return "probed-" + hashlib.sha256(" ".join(f"{figure:.2e}" for figure in figures).encode()).hexdigest()[:16]
