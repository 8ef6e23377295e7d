"""What is served: a model, what can be asked of it, and its card."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import Encoder, FloatArray
from ensembed.errors import EncoderError, EnsembedError
from ensembed.fetch.catalog import catalog
from ensembed.models.ensemble import MetaEncoder
from ensembed.serve.quiet_log import log, where

VECTORS, VIEWS = "vectors", "views"


class Hit(Protocol):
    """One result of a search."""

    @property
    def id(self) -> str:
        """What the text is called."""

    @property
    def score(self) -> float:
        """How near it is."""

    @property
    def text(self) -> str | None:
        """The text, where it was kept."""

    @property
    def metadata(self) -> Any:  # noqa: ANN401 - what the user gave
        """What is known of it."""


class SupportsSearch(Protocol):
    """What the server asks of an index: `ensembed.search.Index` is one."""

    def __len__(self) -> int:
        """How many texts there are."""

    def search(self, queries: Any, k: int = 10) -> Sequence[Sequence[Hit]]:  # noqa: ANN401 - texts or vectors
        """The k nearest of each query."""


class Served:
    """A model under the name that clients call it.

    Args:
        model: any encoder; of a meta-encoder the members can be asked, too.
        name: what clients call it; None is its own name.
    """

    def __init__(self, model: Encoder, name: str | None = None) -> None:
        self.model = model
        self.name = name or model.spec.name
        self.dim = model.spec.dim
        self.members: tuple[Encoder, ...] = model.ensemble.encoders if isinstance(model, MetaEncoder) else (model,)

    def functions(self) -> Mapping[str, Any]:
        """What a batcher may run, by kind."""
        return {VECTORS: self.vectors, VIEWS: self.views}

    def vectors(self, texts: list[str]) -> FloatArray:
        """The model's vectors [n, d]."""
        if self.model.concurrent:  # warns of nothing, and warnings can be caught by one thread only
            return self.model.encode(texts)
        with warnings.catch_warnings(record=True) as told:  # a warning about a member can quote a text
            rows = self.model.encode(texts)
        if told:
            log.warning("the model warned %d times: a member may be down", len(told))
        return rows

    def views(self, texts: list[str]) -> FloatArray:
        """The members' vectors, the model's, and which members gave theirs: [n, d_1 + ... + d_J + d + J].

        `split` takes them apart.
        """
        if not isinstance(self.model, MetaEncoder):
            return self.vectors(texts)
        views: list[FloatArray | None] = [self._member(encoder, texts) for encoder in self.members]
        if all(view is None for view in views):
            raise EncoderError("every member failed")
        counted = [view if j in self.model.meta.counted else None for j, view in enumerate(views)]
        meta = self.model.meta.transform(counted)
        there = [
            np.zeros((len(texts), encoder.spec.dim), np.float32) if view is None else view
            for encoder, view in zip(self.members, views, strict=True)
        ]
        # Every row says it for itself: the rows of a request may be of several batches, and a member comes and goes.
        answered = np.tile(np.array([view is not None for view in views], np.float32), (len(texts), 1))
        return np.concatenate([*there, meta, answered], axis=1)

    def split(self, rows: NDArray[Any]) -> tuple[list[NDArray[Any] | None], NDArray[Any]]:
        """The members' parts of `views`, None of a member that did not give every row; and the model's."""
        if not isinstance(self.model, MetaEncoder):
            return [rows], rows
        ends = np.cumsum([*(encoder.spec.dim for encoder in self.members), self.dim])
        *members, meta, answered = np.split(rows, ends, axis=1)
        whole = np.asarray(answered.all(axis=0))
        return [view if there else None for view, there in zip(members, whole, strict=True)], meta

    def card(self, index: SupportsSearch | None) -> dict[str, Any]:
        """What a person wants to know of the model."""
        spec = self.model.spec
        facts: dict[str, Any] = {"name": self.name, "dim": self.dim, "key": spec.key}
        if isinstance(self.model, MetaEncoder):
            meta = self.model.meta
            facts |= {"method": _plain(meta.method), "rows": meta.rows, "corpus": self.model.corpus or None}
        else:
            facts |= {"method": None, "rows": 0, "corpus": None}
        facts["members"] = [self._member_card(j) for j in range(len(self.members))]
        facts["index"] = None if index is None else _index_card(index)
        return facts

    def _member(self, encoder: Encoder, texts: list[str]) -> FloatArray | None:
        try:
            return encoder.encode(texts)
        except EnsembedError as error:
            if isinstance(self.model, MetaEncoder) and self.model.missing == "drop":
                log.warning("going on without %s: %s", encoder.spec.name, where(error))
                return None
            raise

    def _member_card(self, j: int) -> dict[str, Any]:
        spec = self.members[j].spec
        entry = catalog().get(spec.name)
        facts: dict[str, Any] = {
            "name": spec.name,
            "title": None if entry is None else entry.title,
            "kind": spec.kind,
            "dim": spec.dim,
            "licence": None if entry is None else entry.licence,
            "weight": 1.0,
            "whitened": False,
            "trusted": False,
            "reliability": None,
        }
        if isinstance(self.model, MetaEncoder):
            method = self.model.meta.method
            weights = method.get("weights")
            if isinstance(weights, (list, tuple)):
                facts["weight"] = float(weights[j])
                facts["reliability"] = facts["weight"] if method.get("weights_from") == "reliability" else None
            facts["whitened"] = j in method.get("whitened", ())
            facts["trusted"] = method.get("trusted") == j
        return facts


def _index_card(index: SupportsSearch) -> dict[str, Any]:
    """Not where it is: clients need not know the folders of this machine."""
    known = getattr(index, "facts", {})
    return {"texts": len(index), "kind": known.get("kind"), "dtype": known.get("dtype")}


def _plain(method: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in method.items()}
