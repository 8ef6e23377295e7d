"""LangChain: a model as `Embeddings`."""

from __future__ import annotations

from typing import cast

from ensembed.encoders.base import Encoder
from ensembed.encoders.names_and_consent import Trust
from ensembed.errors import SentenceError
from ensembed.integrations.model_source import untrusted
from ensembed.models.opening import ModelLike, open_model
from ensembed.support.extras import import_extra

import_extra("langchain_core", "langchain", "ensembed.integrations.langchain")

from langchain_core.embeddings import Embeddings  # noqa: E402 - the check above says what to install


class EnsembedEmbeddings(Embeddings):  # type: ignore[misc] # its types are not read
    """A model for LangChain's vector stores, retrievers and caches.

    Documents get the vectors of `encode_document`, queries those of `encode_query`.

    Args:
        model: a meta-encoder or any encoder, the folder of a saved model, or an encoder's name.
        threads: cores per encoder that is opened; None leaves it to each encoder.
        trust: also open encoders that run code or use a network, as in `ensembed.load`.

    Example:
        >>> EnsembedEmbeddings("demo?dim=2&seed=1").embed_documents([])
        []
    """

    def __init__(self, model: ModelLike, *, threads: int | None = None, trust: Trust = False) -> None:
        self.model: Encoder = open_model(untrusted(model), threads=threads, trust=trust)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text."""
        if isinstance(texts, str):
            raise SentenceError("expected a list of texts, got one text: write [text], or call embed_query")
        return cast("list[list[float]]", self.model.encode_document(texts).tolist())

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one query."""
        return cast("list[float]", self.model.encode_query([text])[0].tolist())

    def __repr__(self) -> str:
        return f"EnsembedEmbeddings({self.model.spec.name!r})"
