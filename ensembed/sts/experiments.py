"""Experiments on cached views: fit methods on a corpus and score them, without encoding a sentence twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ensembed.corpus import Corpus, ListCorpus
from ensembed.methods import Autoencoder, Meta, Method, UpProjection
from ensembed.methods.base import MomentMethod, NaiveMethod
from ensembed.model import Ensemble
from ensembed.moments import Moments
from ensembed.progress import Progress, silent
from ensembed.sts.datasets import Dataset
from ensembed.sts.protocol import Protocol, Result, Score, distinct_sentences, evaluate_all
from ensembed.views import View, ViewStore


@dataclass(frozen=True)
class Row:
    """One line of a table of scores.

    Attributes:
        label: what was scored, as in the paper: `single:minilm`, `meta:gcca`.
        dim: the length of its vectors.
        scores: by data set.
        note: what a reader has to know, for instance how a hyper-parameter was chosen.
    """

    label: str
    dim: int
    scores: dict[str, Score]
    note: str = ""


@dataclass(frozen=True, eq=False)
class Laboratory:
    """The members' views of a training corpus and of every sentence that is evaluated.

    Attributes:
        ensemble: the members.
        training: their views of the corpus.
        evaluation: their views of the distinct sentences of `datasets`, in that order.
        datasets: what is scored.
        protocol: how.
        progress: told of rows and epochs, where a method reads the views itself.
    """

    ensemble: Ensemble
    training: Sequence[View]
    evaluation: Sequence[View]
    datasets: Sequence[Dataset]
    protocol: Protocol = "mean"
    progress: Progress = silent
    _moments: dict[bool, Moments] = field(default_factory=dict)

    @classmethod
    def prepare(
        cls,
        ensemble: Ensemble,
        corpus: Corpus,
        datasets: Sequence[Dataset],
        *,
        store: ViewStore,
        protocol: Protocol = "mean",
        progress: Progress = silent,
    ) -> Laboratory:
        """Encode what is not in the store yet."""
        sentences = ListCorpus(distinct_sentences(datasets))
        training, evaluation = (
            store.embed_all(text, ensemble.encoders, progress=progress) for text in (corpus, sentences)
        )
        return cls(ensemble, training, evaluation, datasets, protocol, progress)

    def fit(self, method: Method) -> Meta:
        """Fit on the training views; the moments are computed once for all methods that share them."""
        if isinstance(method, NaiveMethod):
            return method.build(self.ensemble.dims)
        if isinstance(method, MomentMethod):
            return method.solve(self._moments_of(normalize=method.normalize), self.ensemble.dims)
        if isinstance(method, Autoencoder) and method.solved:
            return method.solve(self._moments_of(normalize=False), self.ensemble.dims)
        return method.fit(self.training, progress=self.progress)

    def _moments_of(self, *, normalize: bool) -> Moments:
        if normalize not in self._moments:
            self._moments[normalize] = Moments.of_views(self.training, normalize=normalize)
        return self._moments[normalize]

    def score(self, vectors: NDArray[np.float32]) -> dict[str, Score]:
        """Scores by data set of the vectors of the distinct sentences."""
        return {result.dataset: result.score for result in self.results(vectors)}

    def results(self, vectors: NDArray[np.float32]) -> list[Result]:
        """The same with every sub-testset."""
        return evaluate_all(lambda _sentences: vectors, self.datasets, self.protocol)

    def singles(self) -> list[Row]:
        """Every member on its own."""
        return [
            Row(f"single:{encoder.spec.name}", encoder.spec.dim, self.score(np.asarray(view)))
            for encoder, view in zip(self.ensemble.encoders, self.evaluation, strict=True)
        ]

    def up_projections(self, dim: int, seeds: int = 10) -> list[Row]:
        """Every member smaller than `dim`, projected up at random: the mean over seeds."""
        rows = []
        for encoder, view in zip(self.ensemble.encoders, self.evaluation, strict=True):
            if encoder.spec.dim < dim:
                runs = [self.score(UpProjection(dim, seed).fit([view]).transform([view])) for seed in range(seeds)]
                scores = {name: mean_score([run[name] for run in runs]) for name in runs[0]}
                rows.append(Row(f"single:{encoder.spec.name} up", dim, scores, f"mean over {seeds} seeds"))
        return rows

    def meta(self, method: Method, note: str = "") -> Row:
        """A method, fitted on the training views."""
        fitted = self.fit(method)
        return Row(f"meta:{method.name}", fitted.dim, self.score(fitted.transform(list(self.evaluation))), note)


def mean_score(scores: Sequence[Score]) -> Score:
    """The plain mean of both correlations."""
    return Score(
        float(np.mean([score.pearson for score in scores])), float(np.mean([score.spearman for score in scores]))
    )
