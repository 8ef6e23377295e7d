"""Weights that are found by the members' reliability, without labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ensembed.corpora.corpus import Corpus
from ensembed.errors import InputError
from ensembed.methods.meta import Meta
from ensembed.support.progress import Progress, silent

if TYPE_CHECKING:
    from ensembed.methods.base import Method
    from ensembed.reliability import Reliability

M = TypeVar("M", bound="Method")


def found_reliability(
    views: Sequence[Any],
    *,
    sentences: Corpus | Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    progress: Progress = silent,
) -> Reliability:
    """The members' reliability; surer where the sentences of the views are known."""
    from ensembed.reliability import reliability  # only here: most fits do without

    rows = views[0].shape[0]
    if rows < 2:
        raise InputError(f"weights by reliability need at least two sentences to learn from, got {rows}")
    return reliability(views, sentences=sentences, names=names, progress=progress)


def fit_by_reliability(
    method: M,
    views: Sequence[Any],
    fit: Callable[[M], Meta],
    *,
    sentences: Corpus | Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    progress: Progress = silent,
) -> Meta:
    """Find the weights, fit the method that has them, and note in its facts where they are from and how sure."""
    found = found_reliability(views, sentences=sentences, names=names, progress=progress)
    meta = fit(method.trusting(found))
    # The sentences were looked at, even where the method itself needs none.
    return dataclasses.replace(meta, method={**meta.method, **origin(found)}, rows=views[0].shape[0])


def origin(found: Reliability) -> dict[str, Any]:
    """What a fitted method's facts say about weights by reliability."""
    facts = {"trusted": found.best, "decided": found.decided, "sure": round(found.sure, 3)}
    return {"weights_from": "reliability", **facts}
