"""The model that is served: its vectors, the vectors of its members, and its card."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from ensembed.encoders.base import Encoder, FloatArray
from ensembed.errors import EncoderError, EnsembedError
from ensembed.fetch.catalog import catalog
from ensembed.models.ensemble import MetaEncoder
from ensembed.serve.api_errors import log, where

# The two kinds of rows that a client may ask for.
VECTORS, VIEWS = "vectors", "views"


class MemberCard(TypedDict):
    """One member of the model."""

    name: str
    title: str | None
    kind: str
    dim: int
    licence: str | None
    weight: float
    whitened: bool
    trusted: bool
    reliability: float | None


class IndexCard(TypedDict):
    """The index, without its folder."""

    texts: int
    kind: str | None
    dtype: str | None


class Card(TypedDict):
    """What a person wants to know about the model."""

    name: str
    dim: int
    key: str
    method: dict[str, Any] | None
    rows: int
    corpus: str | None
    members: list[MemberCard]
    index: IndexCard | None


class ServedModel:
    """A model and its names for clients: its name, then the aliases. The members of a meta-encoder can be compared."""

    def __init__(self, model: Encoder, names: Sequence[str]) -> None:
        self.model = model
        self.name = names[0]
        self.names = tuple(names)
        self.dim = model.spec.dim
        self.members: tuple[Encoder, ...] = model.ensemble.encoders if isinstance(model, MetaEncoder) else (model,)

    def vectors(self, texts: list[str]) -> FloatArray:
        """Return the model's vectors [n, d]."""
        if self.model.concurrent:  # it does not warn, and only one thread can catch warnings
            return self.model.encode(texts)
        with warnings.catch_warnings(record=True) as caught:  # a warning about a member may quote a text
            rows = self.model.encode(texts)
        if caught:
            log.warning("the model warned %d times: a member may be down", len(caught))
        return rows

    def views(self, texts: list[str]) -> FloatArray:
        """Return the members' vectors, the model's, and flags of the members that answered: [n, d_1 + … + d_J + d + J].

        `split` takes them apart. Every row has the flags, because the rows of a request may come from several batches.
        """
        if not isinstance(self.model, MetaEncoder):
            return self.vectors(texts)
        views = [self._member_view(encoder, texts) for encoder in self.members]
        if all(view is None for view in views):
            raise EncoderError("every member failed")
        meta = self.model.meta.transform(
            [view if j in self.model.meta.counted else None for j, view in enumerate(views)]
        )
        filled = [
            np.zeros((len(texts), encoder.spec.dim), np.float32) if view is None else view
            for encoder, view in zip(self.members, views, strict=True)
        ]
        answered = np.tile(np.array([view is not None for view in views], np.float32), (len(texts), 1))
        return np.concatenate([*filled, meta, answered], axis=1)

    def split(self, rows: NDArray[Any]) -> tuple[list[NDArray[Any] | None], NDArray[Any]]:
        """Split `views` into the members' parts (None for one that did not answer for every row) and the model's."""
        if not isinstance(self.model, MetaEncoder):
            return [rows], rows
        ends = np.cumsum([*(encoder.spec.dim for encoder in self.members), self.dim])
        *members, meta, answered = np.split(rows, ends, axis=1)
        return [view if all(flags) else None for view, flags in zip(members, answered.T, strict=True)], meta

    def card(self, index: IndexCard | None) -> Card:
        """Describe the model."""
        card: Card = {
            "name": self.name,
            "dim": self.dim,
            "key": self.model.spec.key,
            "method": None,
            "rows": 0,
            "corpus": None,
            "members": [self._member_card(j) for j in range(len(self.members))],
            "index": index,
        }
        if isinstance(self.model, MetaEncoder):
            meta = self.model.meta
            card["method"], card["rows"], card["corpus"] = dict(meta.method), meta.rows, self.model.corpus or None
        return card

    def _member_view(self, encoder: Encoder, texts: list[str]) -> FloatArray | None:
        try:
            return encoder.encode(texts)
        except EnsembedError as error:
            if isinstance(self.model, MetaEncoder) and self.model.missing == "drop":
                log.warning("going on without %s: %s", encoder.spec.name, where(error))
                return None
            raise

    def _member_card(self, j: int) -> MemberCard:
        spec = self.members[j].spec
        entry = catalog().get(spec.name)
        method = self.model.meta.method if isinstance(self.model, MetaEncoder) else {}
        weights = method.get("weights")
        weight = float(weights[j]) if isinstance(weights, (list, tuple)) else None
        return {
            "name": spec.name,
            "title": None if entry is None else entry.title,
            "kind": spec.kind,
            "dim": spec.dim,
            "licence": None if entry is None else entry.licence,
            "weight": 1.0 if weight is None else weight,
            "whitened": j in method.get("whitened", ()),
            "trusted": method.get("trusted") == j,
            "reliability": weight if method.get("weights_from") == "reliability" else None,
        }
