"""BERTopic: a model as an embedding backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ensembed.encoders.base import FloatArray
from ensembed.encoders.names_and_consent import Trust
from ensembed.integrations.model_source import Source
from ensembed.models.opening import ModelLike
from ensembed.support.extras import import_extra
from ensembed.support.progress import bars

import_extra("bertopic", "bertopic", "ensembed.integrations.bertopic")

from bertopic.backend import BaseEmbedder  # noqa: E402 - the check above says what to install


class EnsembedBackend(BaseEmbedder):  # type: ignore[misc] # a library without types
    """A model that embeds BERTopic's documents and words: `BERTopic(embedding_model=EnsembedBackend(model))`.

    A pickled topic model keeps the model's folder or name. With a model in memory, save it as safetensors instead.

    Args:
        model: a meta-encoder or any encoder, the folder of a saved model, or an encoder's name.
        threads: cores per encoder that is opened; None leaves it to each encoder.
        trust: also open encoders that run code or use a network, as in `ensembed.load`.

    Example:
        >>> EnsembedBackend("demo?dim=4").embed(["a dog", ""]).shape
        (2, 4)
    """

    def __init__(self, model: ModelLike, *, threads: int | None = None, trust: Trust = False) -> None:
        self._source = Source(model, threads=threads, trust=trust)
        super().__init__(embedding_model=self._source.model)

    def embed(self, documents: Sequence[str], verbose: bool = False) -> FloatArray:
        """Return vectors [n, d]; `verbose` draws a bar, if standard error is a terminal."""
        with bars(enabled=None if verbose else False) as progress:
            return self._source.model.encode(documents, progress=progress)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the model out: the source opens it again."""
        return self.__dict__ | {"embedding_model": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.embedding_model = self._source.model
