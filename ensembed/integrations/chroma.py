"""Chroma: a model as an `EmbeddingFunction` whose configuration is kept with the collection."""

from __future__ import annotations

from collections import deque
from typing import Any, cast
from weakref import WeakValueDictionary

from ensembed.encoders.base import Encoder, UntrustedName
from ensembed.encoders.names_and_consent import Trust
from ensembed.errors import InputError, ModelError
from ensembed.integrations.model_source import Source
from ensembed.integrations.vector_stores import constant
from ensembed.models.opening import ModelLike, is_gone
from ensembed.support.extras import import_extra

import_extra("chromadb", "chroma", "ensembed.integrations.chroma")

from chromadb.api.types import Documents, EmbeddingFunction, Embeddings, Space  # noqa: E402 - checked above
from chromadb.utils.embedding_functions import register_embedding_function  # noqa: E402 - checked above

# Chroma makes the function again for every call on a reopened collection: models stay open, by the keys of their
# encoders of documents and of queries.
_OPEN: WeakValueDictionary[tuple[str, str], Encoder] = WeakValueDictionary()
_RECENT: deque[Encoder] = deque(maxlen=4)
_REMEDY = "pass it again, as embedding_function=EnsembedEmbeddingFunction(model or folder)"


@register_embedding_function
class EnsembedEmbeddingFunction(EmbeddingFunction[Documents]):  # type: ignore[misc] # its types are not read
    """A model that embeds the documents and queries of Chroma collections.

    A collection keeps the model's folder or name and its fingerprint, and refuses a model with another fingerprint.
    A model whose vectors may lack a member (`missing="drop"`) is a StoreError.

    Documents get the vectors of `encode_document`, queries those of `encode_query`; a collection that was made before
    the function treated them apart keeps plain vectors of both.

    Args:
        model: a model in memory (pass it again when you reopen a collection), the folder of a saved one, or a name.
        threads: cores per encoder that is opened; None leaves it to each encoder.
        trust: also open encoders that run code or use a network; it is not kept with the collection.
    """

    def __init__(self, model: ModelLike, *, threads: int | None = None, trust: Trust = False) -> None:
        source = Source(model, threads=threads, trust=trust)
        model = constant(source.model)
        self._use(model, source.lasting_name, model.document_encoder, model.query_encoder)

    def _use(self, model: Encoder, name: str | None, documents: Encoder, queries: Encoder) -> None:
        self.model = model
        self._name = name
        self._documents, self._queries = documents, queries
        for keys in {_keys(model, model), _keys(model.document_encoder, model.query_encoder)}:
            _OPEN[keys] = model
        if model not in _RECENT:
            _RECENT.append(model)

    def __call__(self, input: Documents) -> Embeddings:  # noqa: A002 - Chroma's word
        """Return one vector per document; Chroma itself refuses an empty list."""
        return cast("Embeddings", list(self._documents.encode(input)))

    def embed_query(self, input: Documents) -> Embeddings:  # noqa: A002 - Chroma's word
        """Return one vector per query."""
        return cast("Embeddings", list(self._queries.encode(input)))

    @staticmethod
    def name() -> str:
        """Return the name that collections keep."""
        return "ensembed"

    def default_space(self) -> Space:
        """Return "cosine": the vectors need not have length one."""
        return cast("Space", "cosine")

    def supported_spaces(self) -> list[Space]:
        """Return all spaces; only cosine ignores the vectors' lengths."""
        return ["cosine", "l2", "ip"]

    def get_config(self) -> dict[str, Any]:
        """Return what a collection keeps; `queries` is the fingerprint of the encoder of queries, if it is another."""
        fingerprint, queries = _keys(self._documents, self._queries)
        apart = {} if queries == fingerprint else {"queries": queries}
        return {"model": self._name, "fingerprint": fingerprint} | apart

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> EnsembedEmbeddingFunction:
        """Make the function from the data of `get_config`; a model that has changed is a ModelError."""
        EnsembedEmbeddingFunction.validate_config(config)
        name, fingerprint = config["model"], config["fingerprint"]
        keys = (fingerprint, config.get("queries", fingerprint))
        model = _OPEN.get(keys)
        if model is None:
            if name is None:
                raise ModelError(f"the collection was made with a model in memory, which is gone: {_REMEDY}")
            if is_gone(UntrustedName(name)):
                raise ModelError(f"the model that filled the collection is not in {name} any more: {_REMEDY}")
            model = Source(name).model
        documents, queries = model.document_encoder, model.query_encoder
        if keys == _keys(model, model):
            documents = queries = model
        for before, encoder in zip(keys, (documents, queries), strict=True):
            _refuse_change(before, encoder.spec.key, name)
        # Without __init__, which would open the model a second time.
        function = EnsembedEmbeddingFunction.__new__(EnsembedEmbeddingFunction)
        function._use(model, name, documents, queries)
        return function

    def validate_config_update(self, old_config: dict[str, Any], new_config: dict[str, Any]) -> None:
        """Raise a ModelError if the fingerprints differ: a model may move, but not become another."""
        _refuse_change(old_config.get("fingerprint"), new_config.get("fingerprint"), new_config.get("model"))

    @staticmethod
    def validate_config(config: dict[str, Any]) -> None:
        """Raise an InputError unless it is what `get_config` gives."""
        name, fingerprint = config.get("model"), config.get("fingerprint")
        known = isinstance(fingerprint, str) and isinstance(config.get("queries", fingerprint), str)
        if not (name is None or (isinstance(name, str) and name)) or not known:
            raise InputError(f"a configuration of ensembed has a 'model' and a 'fingerprint', unlike {config!r}")

    def check(self, collection: Any) -> None:  # noqa: ANN401 - Chroma has several classes of collections
        """Raise a ModelError if another model filled the collection. Call it before `modify`: Chroma does not check."""
        kept = collection.configuration_json.get("embedding_function") or {}
        if kept.get("name") == self.name():
            fingerprint = (kept.get("config") or {}).get("fingerprint")
            _refuse_change(fingerprint, self._documents.spec.key, self._name or self.model.spec.name)


def _keys(documents: Encoder, queries: Encoder) -> tuple[str, str]:
    return documents.spec.key, queries.spec.key


def _refuse_change(before: str | None, now: str | None, name: str | None) -> None:
    if before != now:
        change = f"its fingerprint was {before} and is {now}"
        problem = f"the model {name!r} is not the one that filled the collection: {change}"
        raise ModelError(f"{problem}; use the former model, or embed the documents again into a new collection")
