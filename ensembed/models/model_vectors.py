"""Models' vectors of a corpus, from stored views that all models with the same members share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder, FloatArray
from ensembed.errors import MissingError
from ensembed.methods.meta import Meta
from ensembed.models.ensemble import MetaEncoder
from ensembed.numerics.row_matrices import Matrix
from ensembed.support.progress import Progress, silent
from ensembed.views import ViewStore
from ensembed.views.view_folder import MANIFEST


def model_vectors(
    corpus: Corpus, models: Sequence[Encoder], store: ViewStore, *, encode: bool = True, progress: Progress = silent
) -> list[Matrix]:
    """Return each model's vectors of the corpus [n, d].

    An encoder's view is filled once and stored. A meta-encoder's vectors are computed from the views of its members
    whenever they are read, unless its own view is stored. Vectors that can vary are not stored but encoded now.

    With `encode=False` nothing is encoded: a MissingError says which view is not complete.
    """
    needed = [_encoders_behind(model, corpus, store) for model in models]
    encoders = [encoder for some in needed for encoder in some]
    if encode:
        views = iter(store.embed_all(corpus, encoders, progress=progress))
    else:
        views = iter([store.view(corpus, encoder.spec) for encoder in encoders])
    vectors: list[Matrix] = []
    for model, some in zip(models, needed, strict=True):
        if not some and not encode:
            raise MissingError(f"the vectors of {model.spec.name!r} are not always the same: they are not stored")
        if not some:
            vectors.append(model.encode(list(corpus), progress=progress))
        elif isinstance(model, MetaEncoder) and some != [model]:
            vectors.append(_Combined(model.meta, {j: next(views) for j in model.meta.counted}))
        else:
            vectors.append(next(views))
    return vectors


def _encoders_behind(model: Encoder, corpus: Corpus, store: ViewStore) -> list[Encoder]:
    """Return the encoders whose views give a model's vectors; none if its vectors can vary."""
    if (
        isinstance(model, MetaEncoder)
        and model.cacheable
        and not (store.folder(corpus, model.spec) / MANIFEST).exists()
    ):
        members = [model.ensemble.encoders[j] for j in model.meta.counted]
        if all(member.cacheable for member in members):
            return members
    return [model] if model.cacheable else []


class _Combined:
    """A meta-embedding of stored views, computed when it is read."""

    def __init__(self, meta: Meta, views: dict[int, Matrix]) -> None:
        self.shape: tuple[int, ...] = (next(iter(views.values())).shape[0], meta.dim)
        self.dtype: np.dtype[Any] = np.dtype(np.float32)
        self._meta, self._views = meta, views

    def __getitem__(self, rows: slice, /) -> FloatArray:
        views = [self._views.get(j) for j in range(len(self._meta.view_dims))]
        return self._meta.transform([None if view is None else view[rows] for view in views])
