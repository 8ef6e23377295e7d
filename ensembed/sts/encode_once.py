"""Encode every text once, though several models share an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.models.ensemble import Ensemble, MetaEncoder
from ensembed.support.progress import Progress, silent


class EncodeOnce:
    """A memory of vectors, by the encoders' keys.

    Example:
        >>> from ensembed.encoders import open_encoder
        >>> memory = EncodeOnce()
        >>> first, second = (memory.remember(open_encoder("demo?dim=3")) for _ in range(2))
        >>> bool((first.encode(["a text"]) == second.encode(["a text"])).all())  # encoded by the first alone
        True
    """

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, FloatArray]] = {}

    def remember(self, encoder: Encoder) -> Encoder:
        """Return the encoder, or the model with its members, that encodes no text that an equal one has encoded."""
        if isinstance(encoder, MetaEncoder):
            members = [self.remember(member) for member in encoder.ensemble.encoders]
            settings: dict[str, Any] = {"missing": encoder.missing, "corpus": encoder.corpus}
            return MetaEncoder(Ensemble(members), encoder.meta, name=encoder.spec.name, **settings)
        # Without a key that stands for the vectors, equal keys say nothing.
        return _Remembering(encoder, self._rows.setdefault(encoder.spec.key, {})) if encoder.cacheable else encoder


class _Remembering(Encoder):
    """An encoder with a memory."""

    def __init__(self, encoder: Encoder, rows: dict[str, FloatArray]) -> None:
        self._encoder, self._rows = encoder, rows

    @property
    def spec(self) -> EncoderSpec:
        return self._encoder.spec

    def encode(self, sentences: Sequence[str], *, progress: Progress = silent) -> FloatArray:
        """Return the vectors [n, d] of the sentences, in their order."""
        new = [text for text in dict.fromkeys(sentences) if text not in self._rows]
        if new:
            self._rows.update(zip(new, self._encoder.encode(new, progress=progress), strict=True))
        if not len(sentences):
            return self._encoder.encode(sentences)
        return np.stack([self._rows[text] for text in sentences])

    def embed(self, sentences: list[str]) -> FloatArray:
        """Do the same."""
        return self.encode(sentences)
