"""Haystack: a model as a text embedder (for queries) and a document embedder."""

# No `from __future__ import annotations`: Haystack reads the types of `run` as they are.
import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import Self

from ensembed.encoders.base import Encoder
from ensembed.encoders.names_and_consent import Trust
from ensembed.errors import InputError
from ensembed.integrations.model_source import Source
from ensembed.models.opening import ModelLike
from ensembed.support.extras import import_extra
from ensembed.support.progress import bars

import_extra("haystack", "haystack", "ensembed.integrations.haystack")

from haystack import Document, component, default_from_dict, default_to_dict  # noqa: E402 - checked above


class _ModelComponent:
    """The common part of both embedders: the model, opened by `warm_up`, and how they are written to YAML."""

    # The arguments that are kept as attributes and written to YAML, beside the model and threads.
    _settings: ClassVar[tuple[str, ...]]

    def _set_model(self, model: ModelLike, threads: int | None, trust: Trust) -> None:
        self._source = Source(model, threads=threads, trust=trust)
        self.model = str(model) if isinstance(model, Path) else model  # for people who inspect a component
        self.threads = threads

    @property
    def encoder(self) -> Encoder:
        """The opened model."""
        return self._source.model

    def warm_up(self) -> None:
        """Open the model, unless it is open."""
        _ = self._source.model

    def to_dict(self) -> dict[str, Any]:
        """Return data for a pipeline's YAML, without `trust`; a model in memory, without a name, is an InputError."""
        settings = {name: getattr(self, name) for name in self._settings}
        name = self._source.require_name("a Haystack pipeline that is written down")
        data: dict[str, Any] = default_to_dict(self, model=name, threads=self.threads, **settings)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Make a component from the data of `to_dict`, which cannot ask for trust; the model is opened when needed."""
        if "trust" in data.get("init_parameters", {}):
            raise InputError("a pipeline that is read cannot ask for trust: make the component with trust=True")
        embedder: Self = default_from_dict(cls, data)
        return embedder


@component
class EnsembedTextEmbedder(_ModelComponent):
    """Embeds one text, such as a query, as a list of Python floats.

    Args:
        model: a meta-encoder or any encoder, the folder of a saved model, or an encoder's name.
        prefix: text to put before it.
        suffix: text to put after it.
        threads: cores per encoder that is opened; None leaves it to each encoder.
        trust: also open encoders that run code or use a network, as in `ensembed.load`.
    """

    _settings = ("prefix", "suffix")

    def __init__(
        self, model: ModelLike, *, prefix: str = "", suffix: str = "", threads: int | None = None, trust: Trust = False
    ) -> None:
        self._set_model(model, threads, trust)
        self.prefix, self.suffix = prefix, suffix

    @component.output_types(embedding=list[float])  # type: ignore[untyped-decorator] # not read
    def run(self, text: str) -> dict[str, Any]:
        """Return the text's vector as `embedding`."""
        if not isinstance(text, str):
            raise TypeError(f"this takes a string, not {type(text).__name__}; EnsembedDocumentEmbedder takes documents")
        return {"embedding": self.encoder.encode_query([self.prefix + text + self.suffix])[0].tolist()}

    @component.output_types(embedding=list[float])  # type: ignore[untyped-decorator] # not read
    async def run_async(self, text: str) -> dict[str, Any]:
        """Do the same in a thread, so that the event loop goes on."""
        return await asyncio.to_thread(self.run, text)


@component
class EnsembedDocumentEmbedder(_ModelComponent):
    """Embeds documents, meta fields and content as one text: returns copies with vectors, lists of Python floats.

    Args:
        model: a meta-encoder or any encoder, the folder of a saved model, or an encoder's name.
        prefix: text to put before each text.
        suffix: text to put after it.
        meta_fields_to_embed: the names of meta fields to put before the content.
        embedding_separator: stands between the fields and the content.
        progress_bar: draw a bar, if standard error is a terminal.
        threads: cores per encoder that is opened; None leaves it to each encoder.
        trust: also open encoders that run code or use a network, as in `ensembed.load`.
    """

    _settings = ("prefix", "suffix", "meta_fields_to_embed", "embedding_separator", "progress_bar")

    def __init__(
        self,
        model: ModelLike,
        *,
        prefix: str = "",
        suffix: str = "",
        meta_fields_to_embed: list[str] | None = None,
        embedding_separator: str = "\n",
        progress_bar: bool = True,
        threads: int | None = None,
        trust: Trust = False,
    ) -> None:
        if isinstance(meta_fields_to_embed, str):
            raise InputError(f"meta_fields_to_embed is a list of names: write [{meta_fields_to_embed!r}]")
        self._set_model(model, threads, trust)
        self.prefix, self.suffix, self.embedding_separator = prefix, suffix, embedding_separator
        self.meta_fields_to_embed, self.progress_bar = list(meta_fields_to_embed or []), progress_bar

    def _text(self, document: Document) -> str:
        fields = [document.meta.get(name) for name in self.meta_fields_to_embed]
        parts = [*(str(value) for value in fields if value is not None), document.content or ""]
        return self.prefix + self.embedding_separator.join(parts) + self.suffix

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator] # not read
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Return copies of the documents, in their order, with vectors, as `documents`."""
        if not isinstance(documents, list) or not all(isinstance(document, Document) for document in documents):
            raise TypeError("EnsembedDocumentEmbedder takes a list of documents; EnsembedTextEmbedder takes a string")
        with bars(enabled=None if self.progress_bar else False) as progress:
            texts = [self._text(document) for document in documents]
            vectors = self.encoder.encode_document(texts, progress=progress)
        pairs = zip(documents, vectors, strict=True)
        return {"documents": [replace(document, embedding=vector.tolist()) for document, vector in pairs]}

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator] # not read
    async def run_async(self, documents: list[Document]) -> dict[str, Any]:
        """Do the same in a thread, so that the event loop goes on."""
        return await asyncio.to_thread(self.run, documents)
