"""Encode every text once, though several models share an encoder."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.models.ensemble import Ensemble, MetaEncoder


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
        self.rows: dict[str, dict[str, FloatArray]] = {}

    def remember(self, encoder: Encoder) -> Encoder:
        """Return the encoder, or the model with its members, that encodes no text that an equal one has encoded."""
        if isinstance(encoder, MetaEncoder):
            members = [self.remember(member) for member in encoder.ensemble.encoders]
            settings: dict[str, Any] = {"missing": encoder.missing, "corpus": encoder.corpus}
            return MetaEncoder(Ensemble(members), encoder.meta, name=encoder.spec.name, **settings)
        # Without a key that stands for the vectors, equal keys say nothing.
        return _Remembering(encoder, self) if encoder.cacheable else encoder


class _Remembering(Encoder):
    """An encoder with a memory."""

    def __init__(self, encoder: Encoder, memory: EncodeOnce) -> None:
        self._encoder, self._memory = encoder, memory
        self._rows = memory.rows.setdefault(encoder.spec.key, {})

    @property
    def spec(self) -> EncoderSpec:
        return self._encoder.spec

    @property
    def query_encoder(self) -> Encoder:
        return self._in_role(self._encoder.query_encoder)

    @property
    def document_encoder(self) -> Encoder:
        return self._in_role(self._encoder.document_encoder)

    def _in_role(self, encoder: Encoder) -> Encoder:
        return self if encoder is self._encoder else self._memory.remember(encoder)

    def embed(self, sentences: list[str]) -> FloatArray:
        """Return the vectors of the sentences, and encode only those that are new."""
        new = [text for text in sentences if text not in self._rows]
        if new:
            self._rows.update(zip(new, self._encoder.encode(new), strict=True))
        return np.stack([self._rows[text] for text in sentences])
