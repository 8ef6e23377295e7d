"""The model that is served: its vectors and card, and how similar texts are under it and under its members."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from typing_extensions import TypedDict

from ensembed.encoders.base import Encoder, FloatArray
from ensembed.errors import DimensionError, EncoderError, EnsembedError
from ensembed.fetch.catalog import catalog
from ensembed.models.ensemble import WITHOUT, MemberFailedError, MetaEncoder
from ensembed.numerics.row_matrices import unit_rows
from ensembed.serve.api_errors import ApiError, log, where

# The kinds of rows that a client may ask for.
VECTORS, VIEWS, QUERIES, DOCUMENTS = "vectors", "views", "queries", "documents"
_MOST_PAIRS = 50
_DIGITS = 6
_FOLDERS = re.compile(r"[^?&=:#]*(?:[/\\]|%2F|%5C)(?=[^?&=:#])", re.IGNORECASE)
_URL = re.compile(r"([\w.+-]+:)?(?!file:)[\w.+-]{2,}://", re.IGNORECASE)


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
        self.model, self.dim = model, model.spec.dim
        self.name, self.names = names[0], tuple(names)
        self.members: tuple[Encoder, ...] = model.ensemble.encoders if isinstance(model, MetaEncoder) else (model,)
        self.member_names = _distinct([without_folders(encoder.spec.name) for encoder in self.members])

    def kind_of(self, role: str | None) -> str:
        """Return the kind of rows of texts in a role: `query`, `document` or none."""
        if role == "query" and self.model.query_encoder is not self.model:
            return QUERIES
        if role == "document" and self.model.document_encoder is not self.model:
            return DOCUMENTS
        return VECTORS

    def rows(self, kind: str, texts: list[str]) -> FloatArray:
        """Return rows for `complete`: the model's vectors; if members may be missing, then a flag per member.

        A flag is 1 if the member answered. Rows of the kind `VIEWS` are those of `views`.
        """
        if kind == VIEWS and isinstance(self.model, MetaEncoder):
            return self.views(self.model, texts)
        model = self.model
        if kind in (QUERIES, DOCUMENTS):
            model = model.query_encoder if kind == QUERIES else model.document_encoder
        if model.concurrent:  # it does not warn, and only one thread can catch warnings
            return model.encode(texts)
        with warnings.catch_warnings(record=True) as caught:  # a warning may quote a text
            if not isinstance(model, MetaEncoder) or model.missing == "error":
                rows = model.encode(texts)
            else:
                rows, failures = model.encode_present(texts)
                for j, error in failures.items():
                    self._log_missing(model, j, error)
                rows = np.concatenate([rows, self._flags(len(texts), failures)], axis=1)
        if caught:
            log.warning("the model warned %d times", len(caught))
        return rows

    def _flags(self, count: int, absent: Collection[int]) -> FloatArray:
        """Return 0 for absent members, 1 for others, in every row: the rows of a request may be of several batches."""
        flags = np.ones((count, len(self.members)), np.float32)
        flags[:, list(absent)] = 0.0
        return flags

    def absent(self, rows: FloatArray) -> set[int]:
        """Return the places of members without whose answer some rows, of any kind, were made."""
        flags = rows[:, -len(self.members) :] if rows.shape[1] > self.dim else np.ones((1, 0))
        return set(np.flatnonzero(~flags.all(axis=0)).tolist())

    def complete(self, rows: Sequence[FloatArray]) -> tuple[FloatArray, list[str]]:
        """Return the vectors [n, d] in `rows`, and the names of members that some lack."""
        vectors, flags = np.split(np.array(rows), [self.dim], axis=1)
        names = self.member_names if flags.size else []
        return vectors, [name for name, answered in zip(names, flags.T, strict=True) if not answered.all()]

    def shorten(self, vectors: FloatArray, k: int) -> FloatArray:
        """Return the model's vectors [n, d] in their k leading dimensions; an ApiError says why that cannot be."""
        try:
            return self.model.shorten(vectors, k)
        except DimensionError as error:
            raise ApiError(400, str(error), "dimensions", "too_many_dimensions") from None

    def views(self, model: MetaEncoder, texts: list[str]) -> FloatArray:
        """Return for `split` members' vectors, the model's, and flags of who answered: [n, d_1 + … + d_J + d + J]."""
        views = [self._member_view(model, j, texts) for j in range(len(self.members))]
        if all(view is None for view in views):
            raise EncoderError("every member failed")
        absent = [j for j, view in enumerate(views) if view is None]
        fitted = model.meta_without(absent)
        meta = fitted.transform([view if j in fitted.counted else None for j, view in enumerate(views)])
        empty = [np.zeros((len(texts), encoder.spec.dim), np.float32) for encoder in self.members]
        filled = [zeros if view is None else view for zeros, view in zip(empty, views, strict=True)]
        return np.concatenate([*filled, meta, self._flags(len(texts), absent)], axis=1)

    def split(self, rows: NDArray[Any]) -> tuple[list[NDArray[Any] | None], NDArray[Any]]:
        """Split `views` into the members' parts (None for one that did not answer for every row) and the model's."""
        if not isinstance(self.model, MetaEncoder):
            return [rows], rows
        ends = np.cumsum([*(encoder.spec.dim for encoder in self.members), self.dim])
        *members, meta, answered = np.split(rows, ends, axis=1)
        return [view if all(flags) else None for view, flags in zip(members, answered.T, strict=True)], meta

    def card(self, index: IndexCard | None) -> Card:
        """Describe the model."""
        fitted = self.model if isinstance(self.model, MetaEncoder) else None
        return {
            "name": self.name,
            "dim": self.dim,
            "key": self.model.spec.key,
            "method": dict(fitted.meta.method) if fitted else None,
            "rows": fitted.meta.rows if fitted else 0,
            "corpus": (fitted.corpus or None) if fitted else None,
            "members": [self._member_card(j) for j in range(len(self.members))],
            "index": index,
        }

    def _member_view(self, model: MetaEncoder, j: int, texts: list[str]) -> FloatArray | None:
        try:
            return model.encode_member(j, texts)
        except MemberFailedError as failure:
            self._log_missing(model, j, failure.error)
            return None

    def _log_missing(self, model: MetaEncoder, j: int, error: EnsembedError) -> None:
        log.warning("%s %s: %s", WITHOUT[model.missing], self.member_names[j], where(error))

    def _member_card(self, j: int) -> MemberCard:
        spec = self.members[j].spec
        entry = catalog().get(spec.name)
        method = self.model.meta.method if isinstance(self.model, MetaEncoder) else {}
        weights = method.get("weights")
        weight = float(weights[j]) if isinstance(weights, (list, tuple)) else None
        return {
            "name": self.member_names[j],
            "title": None if entry is None else entry.title,
            "kind": spec.kind,
            "dim": spec.dim,
            "licence": None if entry is None else entry.licence,
            "weight": 1.0 if weight is None else weight,
            "whitened": j in method.get("whitened", ()),
            "trusted": method.get("trusted") == j,
            "reliability": weight if method.get("weights_from") == "reliability" else None,
        }


def without_folders(name: str) -> str:
    """Return an encoder's name without the folders of its paths, which clients should not know.

    Example:
        >>> without_folders("words:/home/me/glove.txt?pooling=sif&frequencies=/home/me/counts.txt")
        'words:glove.txt?pooling=sif&frequencies=counts.txt'
    """
    end = name.find("?", max(name.find("#"), 0))  # as `parse_name` has it
    place, options = (name[:end], name[end:]) if end >= 0 else (name, "")
    if not _URL.match(place):
        place = _FOLDERS.sub("", place)
    return (place + _FOLDERS.sub("", options)).rstrip("/\\")


def _distinct(names: Sequence[str]) -> list[str]:
    """Number the names that occur more than once."""
    counts = Counter(names)
    return [f"{name} ({j + 1})" if counts[name] > 1 else name for j, name in enumerate(names)]


class MemberMatrix(TypedDict):
    """The cosines under one member."""

    name: str
    matrix: list[list[float]]


class Disagreement(TypedDict):
    """A pair of texts that members rank differently."""

    first: int
    second: int
    spread: float
    difference: float
    highest: str | None
    lowest: str | None


class SimilarityReply(TypedDict):
    """The cosines of the texts."""

    members: list[MemberMatrix]
    missing: list[str]
    meta: list[list[float]]
    disagreement: list[Disagreement]


def compare_texts(names: Sequence[str], views: Sequence[NDArray[Any] | None], meta: NDArray[Any]) -> SimilarityReply:
    """Return the cosines of n texts from the members' views [n, d_j] (None if one is down) and the model's [n, d]."""
    matrices = {name: _cosines(view) for name, view in zip(names, views, strict=True) if view is not None}
    return {
        "members": [{"name": name, "matrix": matrix.round(_DIGITS).tolist()} for name, matrix in matrices.items()],
        "missing": [name for name in names if name not in matrices],
        "meta": _cosines(meta).round(_DIGITS).tolist(),
        "disagreement": _disagreement(list(matrices), list(matrices.values())),
    }


def _cosines(X: NDArray[Any]) -> NDArray[np.float64]:
    """Return cosines that are exactly symmetric and within [-1, 1]."""
    Z = unit_rows(X.astype(np.float64))
    C = np.clip(Z @ Z.T, -1.0, 1.0)
    return np.asarray((C + C.T) / 2)


def _disagreement(names: Sequence[str], matrices: Sequence[NDArray[np.float64]]) -> list[Disagreement]:
    """Return the pairs of texts that members see most differently, those first.

    Pairs are ranked under each member, from 0 to 1; a pair's `spread` is its largest rank less its smallest.
    """
    if len(matrices) < 2 or len(matrices[0]) < 2:
        return []
    first, second = np.triu_indices(len(matrices[0]), 1)
    cosines = np.array([matrix[first, second] for matrix in matrices])
    ranks = (rankdata(cosines, axis=1) - 1) / max(len(first) - 1, 1)
    spread, difference = np.ptp(ranks, axis=0), np.ptp(cosines, axis=0)
    order = np.lexsort((-difference, -spread))[:_MOST_PAIRS]
    judged = ranks if len(first) > 1 else cosines
    differs = np.round(np.ptp(judged, axis=0), _DIGITS) > 0
    return [
        {
            "first": int(first[pair]),
            "second": int(second[pair]),
            "spread": round(float(spread[pair]), _DIGITS),
            "difference": round(float(difference[pair]), _DIGITS),
            "highest": names[int(judged[:, pair].argmax())] if differs[pair] else None,
            "lowest": names[int(judged[:, pair].argmin())] if differs[pair] else None,
        }
        for pair in order
    ]
