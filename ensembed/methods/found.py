"""Weights that are found by the members' reliability, without labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ensembed.corpus import Corpus
from ensembed.errors import InputError
from ensembed.methods.meta import Meta
from ensembed.progress import Progress, silent

if TYPE_CHECKING:
    from ensembed.methods.base import Method

M = TypeVar("M", bound="Method")


def found_weights(
    views: Sequence[Any],
    *,
    sentences: Corpus | Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    progress: Progress = silent,
) -> tuple[float, ...]:
    """The members' weights by `ensembed.reliability.reliability`; surer where the sentences of the views are known."""
    from ensembed.reliability import reliability  # only here: most fits do without

    rows = views[0].shape[0]
    if rows < 2:
        raise InputError(f"weights by reliability need at least two sentences to learn from, got {rows}")
    found = reliability(views, sentences=sentences, names=names, progress=progress)
    return tuple(float(weight) for weight in found.weights)


def fit_by_reliability(
    method: M,
    views: Sequence[Any],
    fit: Callable[[M], Meta],
    *,
    sentences: Corpus | Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    progress: Progress = silent,
) -> Meta:
    """Find the weights, fit the method that has them, and note in its facts where they are from."""
    weights = found_weights(views, sentences=sentences, names=names, progress=progress)
    meta = fit(method.with_weights(weights))
    # The sentences were looked at, even where the method itself needs none.
    return dataclasses.replace(meta, method={**meta.method, "weights_from": "reliability"}, rows=views[0].shape[0])
