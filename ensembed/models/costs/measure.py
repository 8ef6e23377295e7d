"""Measuring an ensemble's members alone, together, and what is done with their vectors."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders import EncoderLike, open_encoder
from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.errors import DimensionError, InputError, ViewError
from ensembed.methods import GCCA, SVD, Auto, Concat, Meta, Method
from ensembed.models.costs.costs import EnsembleCosts, MemberCosts
from ensembed.models.costs.memory import PeakMemory
from ensembed.models.ensemble import Ensemble, MetaEncoder
from ensembed.support.machine import available_cores
from ensembed.support.progress import Progress, silent
from ensembed.views import ViewStore
from ensembed.views.schedule import Schedule

# Sentences that are timed by themselves, and the most seconds it may take.
_SINGLE, _SINGLE_S = 100, 5.0
_REPEATS = 3


def measure(
    encoders: Sequence[EncoderLike],
    sentences: Sequence[str],
    *,
    threads: int | None = None,
    progress: Progress = silent,
) -> EnsembleCosts:
    """Measure what an ensemble costs.

    Every member encodes all sentences three times: alone, in turn with the others, and side by side with them.

    Args:
        encoders: names, encoders, or any objects that have `encode`.
        sentences: what to encode; repeated and blank ones are left out.
        threads: cores per encoder; None leaves it to each encoder.
        progress: told of sentences.

    Example:
        >>> costs = measure(["demo?dim=8&seed=1", "demo?dim=4&seed=2"], ["a dog barks", "a cat sleeps"])
        >>> [member.dim for member in costs.members], costs.sentences
        ([8, 4], 2)
    """
    texts = [text for text in dict.fromkeys(sentences) if text.strip()]
    if not texts:
        raise InputError("there is no sentence to measure with: give at least one that is not blank")
    members, costs, views = [], [], []
    for source in encoders:
        encoder, found, vectors = _alone(source, texts, threads, progress)
        members.append(encoder)
        costs.append(found)
        views.append(vectors)
    ensemble = Ensemble(members)
    model = MetaEncoder(ensemble, Concat().build(ensemble.dims))
    together = {}
    for side_by_side, label in ((False, "one after the other"), (True, "side by side")):
        model.schedule = Schedule(side_by_side=side_by_side)
        together[side_by_side] = seconds(partial(model.encode, texts, progress=_named(progress, label)))
    transforms = {meta.method["name"]: best(partial(meta.transform, views)) for meta in _fitted(views)}
    return EnsembleCosts(
        members=tuple(costs),
        sentences=len(texts),
        characters=sum(map(len, texts)),
        cores=available_cores(),
        one_after_the_other_s=together[False],
        side_by_side_s=together[True],
        transform_s=transforms,
        cached_s=_cached(members, views, texts),
    )


def seconds(function: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def best(function: Callable[[], object], repeats: int = _REPEATS) -> float:
    """The shortest time of several: what disturbs a run only makes it slower."""
    return min(seconds(function) for _ in range(repeats))


def _alone(
    source: EncoderLike, texts: list[str], threads: int | None, progress: Progress
) -> tuple[Encoder, MemberCosts, FloatArray]:
    """One member: opened, given one sentence, all of them, and some one by one."""
    with PeakMemory() as memory:
        start = time.perf_counter()
        encoder = open_encoder(source, threads=threads, progress=progress)
        opened = time.perf_counter()
        encoder.encode(texts[:1])
        warm = time.perf_counter()
        vectors = encoder.encode(texts, progress=progress)
        done = time.perf_counter()
    single: list[float] = []
    for text in itertools.islice(texts, _SINGLE):
        single.append(seconds(partial(encoder.encode, [text])))
        if time.perf_counter() - done > _SINGLE_S:
            break
    p50, p95 = np.percentile(single, [50, 95]).tolist()
    name, dim = encoder.spec.name, encoder.spec.dim
    costs = MemberCosts(name, dim, opened - start, warm - opened, done - warm, p50, p95, memory.grown)
    return encoder, costs, vectors


def _fitted(views: list[FloatArray]) -> list[Meta]:
    """Methods of every kind that is solved, fitted on these very vectors, of the largest dimension that they allow."""
    wanted = max(view.shape[1] for view in views)
    metas = [Concat().fit(views)]
    if len(views[0]) < 2:
        return metas
    # What auto costs does not depend on its weights: as if the first member were the one that is trusted most.
    metas.append(Auto(weights="equal", whitened=tuple(range(1, len(views)))).fit(views))
    methods: list[Callable[..., Method]] = [SVD, GCCA] if len(views) > 1 else [SVD]
    for method in methods:
        try:
            metas.append(method(dim=wanted).fit(views))
        except DimensionError as error:
            if error.supported:
                metas.append(method(dim=error.supported).fit(views))
        except ViewError:  # a member that is the same for all sentences, say: what it costs was measured all the same
            continue
    return metas


def _cached(members: Sequence[Encoder], views: Sequence[FloatArray], texts: list[str]) -> float:
    """To get the vectors of known sentences out of a view store: find the corpus, check every byte, read."""
    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as folder:
        store = ViewStore(folder)
        played = [_Played(member.spec, texts, view) for member, view in zip(members, views, strict=True)]
        store.embed_all(ListCorpus(texts), played)

        def look_up() -> list[Any]:
            return [np.asarray(view) for view in store.embed_all(ListCorpus(texts), played)]

        return best(look_up)


class _Played(Encoder):
    """An encoder's vectors without the encoder."""

    def __init__(self, spec: EncoderSpec, texts: list[str], vectors: FloatArray) -> None:
        self._spec = spec
        self._row = {text: i for i, text in enumerate(texts)}
        self._vectors = vectors

    @property
    def spec(self) -> EncoderSpec:
        """That of the encoder."""
        return self._spec

    def embed(self, sentences: list[str]) -> FloatArray:
        """Look them up."""
        return self._vectors[[self._row[sentence] for sentence in sentences]]


def _named(progress: Progress, label: str) -> Progress:
    """The same reports under another label."""

    def report(_label: str, done: int, total: int | None, /) -> None:
        progress(label, done, total)

    return report
