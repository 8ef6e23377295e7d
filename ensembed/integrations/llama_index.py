"""LlamaIndex: a model as `BaseEmbedding`."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from ensembed.encoders.names_and_consent import Trust
from ensembed.errors import ModelError
from ensembed.integrations.model_source import Source
from ensembed.models.opening import ModelLike
from ensembed.support.extras import import_extra

import_extra("llama_index.core", "llama-index", "ensembed.integrations.llama_index")

from llama_index.core.base.embeddings.base import BaseEmbedding  # noqa: E402 - the check above says what to install
from llama_index.core.bridge.pydantic import Field, PrivateAttr  # noqa: E402 - checked above

_BATCH = 512  # what an encoder takes at a time itself; LlamaIndex's 10 are for remote APIs


class EnsembedEmbedding(BaseEmbedding):  # type: ignore[misc] # its types are not read
    """A model for LlamaIndex's indexes, retrievers and ingestion pipelines.

    Texts get the vectors of `encode_document`, queries those of `encode_query`. `from_dict` refuses a model that has
    changed, or that was only in memory.

    Args:
        model: a meta-encoder or any encoder, the folder of a saved model, or an encoder's name.
        embed_batch_size: texts per call, at most 2048.
        threads: cores per encoder that is opened; None leaves it to each encoder.
        trust: also open encoders that run code or use a network; `to_dict` does not keep it.
        fingerprint: the fingerprint that the model must have; for `from_dict`.
        **settings: the other fields of `BaseEmbedding`.
    """

    model: str | None = Field(default=None, description="The folder or name of the model; None for one in memory.")
    fingerprint: str = Field(description="The hash of everything that changes the model's numbers.")
    threads: int | None = Field(default=None, description="Cores per encoder.")
    trust: Trust = Field(default=False, exclude=True)
    _source: Source = PrivateAttr()

    def __init__(
        self,
        model: ModelLike,
        *,
        embed_batch_size: int = _BATCH,
        threads: int | None = None,
        trust: Trust = False,
        fingerprint: str | None = None,
        **settings: Any,  # noqa: ANN401 - LlamaIndex's own fields
    ) -> None:
        source = Source(model, threads=threads, trust=trust)
        spec = source.model.spec
        if fingerprint not in (None, spec.key):
            raise ModelError(
                f"the model {source.name or spec.name!r} has changed: its fingerprint was {fingerprint} and is "
                f"{spec.key}, so its vectors do not fit those made before; use the former model, or embed again"
            )
        settings = {"model_name": spec.name, "embed_batch_size": embed_batch_size} | settings
        super().__init__(model=source.name, fingerprint=spec.key, threads=threads, trust=trust, **settings)
        self._source = source

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex writes down."""
        return "EnsembedEmbedding"

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> EnsembedEmbedding:  # noqa: ANN401 - LlamaIndex's own
        """Make an object from the data of `to_dict`; only the caller can give trust, never the data."""
        return cast("EnsembedEmbedding", super().from_dict({k: v for k, v in data.items() if k != "trust"}, **kwargs))

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return cast("list[list[float]]", self._source.model.encode_document(texts).tolist())

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return cast("list[float]", self._source.model.encode_query([query])[0].tolist())

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    # LlamaIndex drops what cannot be pickled; without its model this object would be broken.
    def __getstate__(self) -> dict[str, Any]:
        self._source.require_name("pickle")
        return cast("dict[str, Any]", super().__getstate__())

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["__dict__"])  # type: ignore[misc] # opens the model again
