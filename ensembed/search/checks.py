"""What is asked of texts, ids, metadata and queries before they are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ensembed.corpora.corpus import check_sentences, shorten
from ensembed.encoders.base import FloatArray
from ensembed.errors import InputError, SentenceError
from ensembed.numerics.row_matrices import unit_rows
from ensembed.search.segment import record_line


def check_texts(texts: Sequence[str], what: str = "text") -> list[str]:
    """The texts as a list; a blank one says nothing that could be found."""
    checked = check_sentences(texts)
    for i, text in enumerate(checked):
        if not text.strip():
            raise SentenceError(f"{what} {i} is blank: leave it out")
    return checked


def check_ids(ids: Sequence[str], count: int | None = None) -> list[str]:
    """The ids as a list of strings, as many as there are texts."""
    if isinstance(ids, str | bytes):
        raise InputError(f"expected a list of ids, got one {type(ids).__name__}: write [id]")
    checked = list(ids)
    if count is not None and len(checked) != count:
        raise InputError(f"{len(checked)} ids for {count} texts: give one for each, or none")
    for i, one in enumerate(checked):
        if not isinstance(one, str) or not one:
            raise InputError(f"id {i} is {shorten(one)}: an id is a string that is not empty")
        try:
            one.encode()
        except UnicodeEncodeError:
            raise InputError(f"id {i} holds a lone surrogate, which is not text: {shorten(one)}") from None
    return checked


def check_metadata(metadata: Sequence[Mapping[str, Any] | None] | None, count: int) -> list[Mapping[str, Any]]:
    """Plain JSON, a mapping for each text."""
    if metadata is None:
        return [{}] * count
    checked = [{} if one is None else one for one in metadata]
    if len(checked) != count:
        raise InputError(f"metadata of {len(checked)} rows for {count} texts: give one for each, or none")
    for i, one in enumerate(checked):
        if not isinstance(one, Mapping) or not all(isinstance(key, str) for key in one):
            raise InputError(f"the metadata of row {i} is {shorten(one)}: it is a mapping with strings for keys")
        try:
            record_line("", "", one)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"the metadata of row {i} is no JSON: {error}; it was {shorten(dict(one))}") from None
    return checked


def check_vectors(vectors: Any, dim: int, count: int | None = None) -> FloatArray:  # noqa: ANN401 - whatever is an array
    """Vectors [n, d] scaled to length one."""
    array = np.asarray(vectors)
    if array.ndim != 2 or array.shape[1] != dim or array.dtype.kind not in "fiu":
        raise InputError(f"vectors are numbers of shape [n, {dim}], not {array.dtype} of shape {array.shape}")
    if count is not None and len(array) != count:
        raise InputError(f"{len(array)} vectors for {count} texts: give one for each")
    rows = unit_rows(array).astype(np.float32, copy=False)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise InputError(f"vector {int(np.argmin(finite))} holds NaN or Inf")
    return rows


def check_count(k: int) -> None:
    """How many hits are wanted."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"k is a whole number from 1 on, not {k!r}")
