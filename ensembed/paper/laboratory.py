"""Trials on cached views: fit a method on a corpus and predict the similarity of STS pairs, encoding nothing twice."""

from __future__ import annotations

import shutil
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from operator import is_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus, ListCorpus
from ensembed.encoders.base import FloatArray
from ensembed.errors import InputError
from ensembed.methods import Meta, Method
from ensembed.methods.method import fit_supported
from ensembed.methods.passes import LocalPasses
from ensembed.models.ensemble import Ensemble
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import Views, batches
from ensembed.paper.findings import NO_CORPUS
from ensembed.paper.notebook import Notebook
from ensembed.sts.datasets import Dataset
from ensembed.sts.protocol import distinct_sentences, predict
from ensembed.support.atomic_files import make_folder
from ensembed.support.progress import Progress, silent
from ensembed.support.provenance import provenance
from ensembed.views import View, ViewStore

_FITTED = 24  # meta-embeddings in memory, so that one that is tried at several lengths is fitted once
_BLOCK = 4096  # rows read at a time


@dataclass(frozen=True)
class Trial:
    """What is tried."""

    method: Method | None  # None for a member as it is
    members: tuple[int, ...]  # by their place in the ensemble
    corpus: str = NO_CORPUS  # the name of the corpus to fit on
    rows: int | None = None  # how many of its sentences, chosen at random; None for all
    draw: int = 0  # the seed of that choice; the smaller samples of a seed are parts of the larger ones
    keep: int | None = None  # how many of the first dimensions are kept; None for all


@dataclass(frozen=True)
class Outcome:
    """The predictions of a trial."""

    dim: int  # less than the method's where the data does not support more
    predictions: dict[str, tuple[tuple[float, ...], ...]]  # cosines of all pairs by data set, a tuple per sub-testset
    spectrum: tuple[float, ...] | None  # the eigenvalue of each dimension, where the method has them
    fitting: float  # seconds that fitting took, without the moments that trials share

    def cosines(self, dataset: str) -> list[NDArray[np.float64]]:
        """Return the cosines of a data set, an array per sub-testset."""
        return [np.array(part) for part in self.predictions[dataset]]


@dataclass(frozen=True, eq=False)
class Laboratory:
    """The members' views of corpora and of every sentence that is scored."""

    ensemble: Ensemble
    corpora: Mapping[str, Sequence[View]]  # the members' views by corpus; the first is the main one
    evaluation: Sequence[FloatArray]  # the members' vectors of the distinct sentences of `datasets`, in that order
    datasets: Sequence[Dataset]  # what may be scored
    notebook: Notebook  # keeps outcomes
    store: ViewStore  # keeps a training while it runs
    progress: Progress = silent
    texts: Mapping[str, Corpus] = field(default_factory=dict)  # the corpora's sentences: trust is surer with them
    _moments: dict[tuple[str, bool], Moments] = field(default_factory=dict)
    _samples: dict[tuple[str, int, int], Views] = field(default_factory=dict)
    _metas: OrderedDict[Trial, Meta] = field(default_factory=OrderedDict)

    @classmethod
    def prepare(
        cls,
        ensemble: Ensemble,
        corpora: Mapping[str, Corpus],
        datasets: Sequence[Dataset],
        *,
        store: ViewStore,
        notebook: Notebook,
        progress: Progress = silent,
    ) -> Laboratory:
        """Encode the sentences that are not in the store yet."""
        sentences = ListCorpus(distinct_sentences(datasets))
        evaluation = store.embed_all(sentences, ensemble.encoders, progress=progress)
        views = {
            name: store.embed_all(corpus, ensemble.encoders, progress=progress) for name, corpus in corpora.items()
        }
        vectors = [np.asarray(view) for view in evaluation]
        return cls(ensemble, views, vectors, datasets, notebook, store, progress, corpora)

    @property
    def everyone(self) -> tuple[int, ...]:
        """The places of all members."""
        return tuple(range(len(self.ensemble.encoders)))

    @property
    def names(self) -> list[str]:
        """The members' names."""
        return [encoder.spec.name for encoder in self.ensemble.encoders]

    def sentences(self, corpus: str) -> int:
        """Return the number of sentences of a corpus."""
        return len(self.corpora[corpus][0])

    def corpus_key(self, corpus: str) -> str:
        """Return the hash of a corpus' content."""
        return "" if corpus == NO_CORPUS else self.corpora[corpus][0].manifest.corpus

    def outcome(self, trial: Trial, datasets: Sequence[Dataset]) -> Outcome:
        """Return the predictions of a trial for these data sets, from the notebook if it has them."""
        facts = [*self.facts(trial), trial.keep, [[dataset.name, dataset.fingerprint] for dataset in datasets]]
        return self.notebook.record(Outcome, facts, lambda: self._try(trial, datasets))

    def combining(self, trial: Trial, vectors: Sequence[FloatArray]) -> Callable[[], object]:
        """Return a call that combines the vectors of all members [n, d_j] as the trial does, to be timed."""
        meta = self._fit(trial)
        views = [vectors[j] for j in trial.members]
        return lambda: meta.transform(views)

    def facts(self, trial: Trial) -> list[Any]:
        """Return everything that a fit depends on, libraries and processor included."""
        method = trial.method.to_json() if trial.method else None
        members = [self.ensemble.encoders[j].spec.key for j in trial.members]
        known = provenance()
        torch = [known["torch"], known.get("gpu", "")] if trial.method and trial.method.trains else []
        made_with = [known["numpy"], known["scipy"], known["processor"], *torch]
        return [method, members, self.corpus_key(trial.corpus), trial.rows, trial.draw, made_with]

    def _try(self, trial: Trial, datasets: Sequence[Dataset]) -> Outcome:
        start = time.perf_counter()
        meta = self._fit(trial) if trial.method else None
        fitting = time.perf_counter() - start
        place = {text: i for i, text in enumerate(distinct_sentences(self.datasets))}
        rows = [place[text] for text in distinct_sentences(datasets)]
        views = [self.evaluation[j][rows] for j in trial.members]
        if meta is not None:
            vectors = meta.transform(views)[:, : trial.keep]
        else:
            [view] = views
            vectors = view[:, : trial.keep]
        predicted = predict(lambda _sentences: vectors, datasets)
        cosines = [tuple(tuple(part.tolist()) for part in parts) for parts in predicted]
        predictions = {dataset.name: parts for dataset, parts in zip(datasets, cosines, strict=True)}
        spectrum = None if meta is None or meta.spectrum is None else tuple(meta.spectrum.tolist())
        return Outcome(vectors.shape[1], predictions, spectrum, round(fitting, 3))

    def _fit(self, trial: Trial) -> Meta:
        """Return the fitted method of a trial, in all its dimensions; the last ones fitted stay in memory."""
        trial, method = replace(trial, keep=None), trial.method
        if method is None:
            raise InputError("a member as it is needs no fitting")
        if not method.needs_rows:  # quicker to build than to keep
            return method.build([self.ensemble.dims[j] for j in trial.members])
        if trial.corpus not in self.corpora:
            raise InputError(f"{trial} has to be fitted on one of: {', '.join(self.corpora)}")
        if trial not in self._metas:
            self._metas[trial] = fit_supported(method, partial(self._fit_on_rows, trial))
            if len(self._metas) > _FITTED:
                self._metas.popitem(last=False)
        self._metas.move_to_end(trial)
        return self._metas[trial]

    def _fit_on_rows(self, trial: Trial, method: Method) -> Meta:
        views = [self._training(trial)[j] for j in trial.members]
        passes = _SharedMoments(views, partial(self._moments_for, trial))
        key = self.notebook.key("training", self.facts(trial))
        with self.store.training(key) if method.trains else nullcontext() as kept:
            if kept is not None and self.notebook.fresh:
                shutil.rmtree(kept)
                make_folder(kept)
            folder: dict[str, Any] = {"checkpoint": kept} if kept else {}
            return method.fit(views, passes=passes, progress=self.progress, **folder)

    def _moments_for(self, trial: Trial, normalize: bool) -> Moments:
        """Return the moments of the trial's members; one pass over a corpus serves all trials."""
        if trial.rows is not None:
            moments = Moments.of_views(self._training(trial), normalize=normalize)
        else:
            key = (trial.corpus, normalize)
            if key not in self._moments:
                views = self.corpora[trial.corpus]
                self._moments[key] = Moments.of_views(views, Pass(progress=self.progress), normalize=normalize)
            moments = self._moments[key]
        if trial.members == self.everyone:
            return moments
        places = np.split(np.arange(sum(self.ensemble.dims)), np.cumsum(self.ensemble.dims)[:-1])
        return moments.of_columns(np.concatenate([places[j] for j in trial.members]))

    def _training(self, trial: Trial) -> Views:
        """Return every member's vectors of the sentences that the trial is fitted on."""
        views = self.corpora[trial.corpus]
        if trial.rows is None:
            return list(views)
        key = (trial.corpus, trial.rows, trial.draw)
        if key not in self._samples:
            drawn = np.random.default_rng(trial.draw).permutation(len(views[0]))[: trial.rows]
            self._samples.clear()  # all methods use one sample before the next is drawn
            self._samples[key] = _rows(views, np.sort(drawn))
        return self._samples[key]


class _SharedMoments(LocalPasses):
    """Passes that take the moments of a trial's views from the laboratory, which computes them once for all trials."""

    def __init__(self, views: Views, shared: Callable[[bool], Moments]) -> None:
        self._views, self._shared = views, shared

    def moments(self, views: Views, how: Pass = Pass(), *, normalize: bool = False) -> Moments:
        """Return the moments of these views, shared if they are the trial's."""
        if len(views) == len(self._views) and all(map(is_, views, self._views)):
            return self._shared(normalize)
        return super().moments(views, how, normalize=normalize)


def _rows(views: Sequence[View], rows: NDArray[np.int64]) -> Views:
    """Read those rows of every view into memory; the views are read once, from the beginning."""
    kept: list[list[NDArray[Any]]] = []
    start = 0
    for blocks in batches(list(views), _BLOCK):
        inside = rows[(rows >= start) & (rows < start + len(blocks[0]))] - start
        kept.append([block[inside] for block in blocks])
        start += len(blocks[0])
    return [np.concatenate(blocks) for blocks in zip(*kept, strict=True)]
