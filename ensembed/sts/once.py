"""Encoding every text once, though several models share an encoder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.models.ensemble import Ensemble, MetaEncoder
from ensembed.support.progress import Progress, silent


class Vectors:
    """What encoders said, in memory, by their keys.

    Example:
        >>> from ensembed.encoders import open_encoder
        >>> vectors = Vectors()
        >>> one, same = (vectors.remember(open_encoder("demo?dim=3")) for _ in range(2))
        >>> bool((one.encode(["a text"]) == same.encode(["a text"])).all())  # which was not encoded again
        True
    """

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, FloatArray]] = {}

    def remember(self, encoder: Encoder) -> Encoder:
        """The encoder, or the model with its members, encoding no text that an equal one has encoded before."""
        if isinstance(encoder, MetaEncoder):
            members = [self.remember(member) for member in encoder.ensemble.encoders]
            return MetaEncoder(
                Ensemble(members),
                encoder.meta,
                name=encoder.spec.name,
                missing=encoder.missing,
                corpus=encoder.corpus,
            )
        # Without a key that stands for the vectors, equal keys say nothing.
        return _Remembering(encoder, self._rows.setdefault(encoder.spec.key, {})) if encoder.cacheable else encoder


class _Remembering(Encoder):
    """An encoder with a memory."""

    def __init__(self, encoder: Encoder, rows: dict[str, FloatArray]) -> None:
        self._encoder = encoder
        self._rows = rows

    @property
    def spec(self) -> EncoderSpec:
        return self._encoder.spec

    def encode(self, sentences: Sequence[str], *, progress: Progress = silent) -> FloatArray:
        """Vectors [n, d] of the sentences, in their order."""
        new = [text for text in dict.fromkeys(sentences) if text not in self._rows]
        if new:
            self._rows.update(zip(new, self._encoder.encode(new, progress=progress), strict=True))
        if not len(sentences):
            return self._encoder.encode(sentences)
        return np.stack([self._rows[text] for text in sentences])

    def embed(self, sentences: list[str]) -> FloatArray:
        """The same, as everything it takes comes through `encode`."""
        return self.encode(sentences)
