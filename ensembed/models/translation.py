"""Translate between encoders: a model that gives another's vectors from its own, and the figures that say how well."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ensembed.corpora import as_corpus
from ensembed.corpora.corpus import Corpus, ListCorpus
from ensembed.encoders.base import Encoder, SavedSpec
from ensembed.encoders.names_and_consent import Trust
from ensembed.errors import InputError
from ensembed.methods.encoder_map_fitting import FittedMap, fit_map
from ensembed.methods.encoder_maps import KINDS, MapKind
from ensembed.methods.meta import Local, Meta
from ensembed.models.ensemble import Ensemble, MetaEncoder
from ensembed.models.model_vectors import model_vectors
from ensembed.models.opening import ModelLike, open_model
from ensembed.models.saved_translation import FIGURES, Translation
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import unit_rows
from ensembed.reliability.familiarity import Familiarity
from ensembed.reliability.search_agreement import Figure
from ensembed.reliability.trust_estimate import sample_rows, sample_sentences
from ensembed.support.checks import check_whole
from ensembed.support.machine import blas_threads
from ensembed.support.progress import Progress, silent
from ensembed.views import ViewStore

SAMPLE = 20_000
"""Sentences that a map is fitted on at most, by default."""
LEAST = 0.9
"""The default of the least expected recall@10: a map below it falls short."""
WAYS = {
    "translated": "translate",
    "kept": "keep the old model",
    "unlike": "translate text unlike the sample",
}
"""The names of the rows in a table of figures, by the names of the figures."""


def translate(
    source: ModelLike,
    target: ModelLike,
    sentences: Corpus | Path | Iterable[str],
    *,
    sample: int = SAMPLE,
    kinds: Sequence[MapKind] = KINDS,
    store: ViewStore | None = None,
    threads: int | None = None,
    device: str | None = None,
    trust: Trust = False,
    progress: Progress = silent,
) -> MetaEncoder:
    """Return a model that encodes with `source` and gives vectors of `target`, fitted without labels.

    Its `translation` has the figures: how much of what `target` finds it finds, on sentences it was not fitted on.

    Args:
        source: the encoder, or model, that will encode.
        target: the one whose vectors are wanted.
        sentences: texts of the kind that will be translated.
        sample: use at most so many of them, chosen at random; repeated ones count once.
        kinds: the kinds of map to choose among.
        store: where views are kept; by default the user's cache.
        threads: cores to use; None leaves it to each encoder.
        device: compute moments with torch on that device, "cuda" for instance.
        trust: what the members of saved models may do; see `ensembed.load`.
        progress: receives the sentences that are encoded, and the kinds that are tried.

    Raises:
        InputError: there are too few sentences, or both models are the same.

    Example:
        >>> import tempfile
        >>> words = "dog cat fox man red old blue runs eats sees".split()
        >>> texts = [f"{a} {b} {c}" for a in words for b in words for c in words[:5]]
        >>> store = ViewStore(tempfile.mkdtemp())
        >>> model = translate("demo?dim=32", "demo?dim=16&seed=1", texts, store=store)
        >>> model.encode("a red fox").shape
        (16,)
        >>> model.translation.figures["translated"].recall_10.value > 0.5
        True
    """
    check_whole("sample", sample, 1)
    given, wanted = (open_model(model, threads=threads, trust=trust, progress=progress) for model in (source, target))
    if given.spec.key == wanted.spec.key:
        raise InputError(f"{given.spec.name!r} and {wanted.spec.name!r} are the same model: there is nothing to map")
    if isinstance(given, MetaEncoder):
        # Its vectors are not scaled to length one, and the map is linear: then both are one matrix for each member.
        linear = [kind for kind in kinds if kind.regions == 1]
        if kinds and not linear:
            raise InputError(
                f"maps with regions are for single encoders, not for a meta-encoder such as {given.spec.name!r}: name "
                "another kind (kinds=, --kind)"
            )
        kinds = linear
    corpus = sentences if isinstance(sentences, Corpus) else as_corpus(sentences)
    rows = sample_rows(len(corpus), corpus, sample, 0)
    if len(rows) < len(corpus):
        corpus = ListCorpus(sample_sentences(corpus, rows))
    source_view, target_view = model_vectors(corpus, [given, wanted], store or ViewStore(), progress=progress)
    X, Y = np.asarray(source_view[:]), np.asarray(target_view[:])
    with blas_threads(threads):
        how = Pass(threads=threads, device=device, progress=progress)
        fitted = fit_map(X if isinstance(given, MetaEncoder) else unit_rows(X), Y, kinds=kinds, how=how)
    ensemble, meta = _composed(given, fitted, wanted)
    # The vectors by which texts unlike the sample are recognised: of a meta-encoder, those of its first member.
    seen = X
    if isinstance(given, MetaEncoder):
        first = ensemble.encoders[meta.counted[0]]
        seen = np.asarray(model_vectors(corpus, [first], store or ViewStore())[0][:])
    figures = dict(zip(FIGURES, (fitted.translated, fitted.kept, fitted.unlike), strict=True))
    translation = Translation(SavedSpec.of(wanted.spec), figures, fitted.kind.to_json(), Familiarity.of(seen))
    name = f"{given.spec.name} as {wanted.spec.name}"
    return MetaEncoder(ensemble, meta, name=name, corpus=corpus.key, translation=translation)


def _composed(source: Encoder, fitted: FittedMap, target: Encoder) -> tuple[Ensemble, Meta]:
    """Return the encoders behind the source, and the meta-embedding that is the source followed by the map."""
    facts: dict[str, Any] = {"name": "translation", "to": target.spec.name, **fitted.kind.to_json()}
    if not isinstance(source, MetaEncoder):
        return Ensemble([source]), Meta(facts, target.dim, (fitted.projection,), True, rows=fitted.rows)
    before = source.meta
    layer = fitted.projection.layers[0]  # only linear kinds were tried
    projections = [projection.onto(layer.matrix.astype(np.float64)) for projection in before.projections]
    first = before.counted[0]
    shifting = projections[first]
    if not isinstance(shifting, Local):  # which is no network, but can be shifted itself
        shifting = shifting.as_network(target.dim)
    projections[first] = shifting.shifted(layer.bias)
    meta = Meta(facts | {"of": dict(before.method)}, target.dim, tuple(projections), before.normalize, rows=fitted.rows)
    return source.ensemble, meta


@dataclass(frozen=True)
class Verdict:
    """What to expect of a map in an index of so many rows, in words.

    Attributes:
        rows: the number of texts in the index.
        expected: the recall@10 that can be promised: that on text unlike the sample, because queries are seldom of the
            same kind as the texts, minus the width of its interval.
        most: the recall@10 where queries and texts are like the sample.
        least: the recall@10 that was asked for.
    """

    rows: int
    expected: float
    most: float
    least: float

    @property
    def falls_short(self) -> bool:
        """Whether less is expected than was asked for."""
        return self.expected < self.least

    def __str__(self) -> str:
        shown = f"{self.expected:.2f}"
        if self.falls_short and float(shown) >= self.least:  # rounded up, it would not look like less
            shown = f"{math.floor(1000 * self.expected) / 1000:.3f}"
        part = (
            f"{shown} of the ten nearest in an index of {self.rows:,} texts, and up to {self.most:.2f} "
            "where queries and texts are like the sample"
        )
        if self.falls_short:
            return (
                f"expect {part}, less than the {self.least:g} asked for: no kind of map that was "
                "tried finds more of what the two models share; re-embed if that is too little"
            )
        return f"expect {part}"


def verdict(translated: Figure, unlike: Figure, rows: int, least: float = LEAST) -> Verdict:
    """Return what to expect in an index of so many rows, by the figures of a map on text like and unlike its sample."""
    # The whole width: other queries vary as the sample's do, and the fall with the size is an estimate, too.
    most, margin = translated.expected(rows), unlike.recall_10.high - unlike.recall_10.low
    return Verdict(rows, float(np.clip(unlike.expected(rows) - margin, 0.0, most)), most, least)


def figure_rows(figures: Mapping[str, Figure]) -> tuple[list[str], list[list[str]]]:
    """Return the headers and rows of a table of figures for a person; re-embedding is what all are compared with."""
    headers = ["way", "recall@10", "recall@1", "MRR", "itself", "cosines"]
    rows = []
    for name, figure in figures.items():
        estimates = (figure.recall_10, figure.recall_1, figure.mrr, figure.itself, figure.correlation)
        rows.append([WAYS[name], *map(str, estimates)])
    rows.append(["re-embed everything", *["1"] * 5])
    return headers, rows
