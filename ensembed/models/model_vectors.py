"""Models' vectors of a corpus, from stored views that all models with the same members share."""

from __future__ import annotations

from collections.abc import Sequence

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder
from ensembed.errors import MissingError
from ensembed.methods.meta import MetaRows
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
    needed = [encoders_behind(model, corpus, store) for model in models]
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
            vectors.append(model.encode(iter(corpus), progress=progress))
        elif isinstance(model, MetaEncoder) and some != [model]:
            counted, members = model.meta.counted, range(len(model.meta.projections))
            vectors.append(MetaRows(model.meta, [next(views) if j in counted else None for j in members]))
        else:
            vectors.append(next(views))
    return vectors


def encoders_behind(model: Encoder, corpus: Corpus, store: ViewStore) -> list[Encoder]:
    """Return the encoders whose views give a model's vectors; none if its vectors can vary."""
    if (
        isinstance(model, MetaEncoder)
        and model.cacheable
        and model.time_limit is None  # the model keeps to it, the members alone would not
        and not (store.folder(corpus, model.spec) / MANIFEST).exists()
    ):
        members = [model.ensemble.encoders[j] for j in model.meta.counted]
        if all(member.cacheable for member in members):
            return members
    return [model] if model.cacheable else []
