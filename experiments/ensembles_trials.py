"""Trials of many ensembles of the same encoders, from cached views.

How far members are trusted is estimated on the unlabelled corpus alone; no score is read before everything is fitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import FloatArray
from ensembed.methods import GCCA, SVD, Auto, Average, Concat, Method
from ensembed.paper.experiments.run_experiments import corpus_facts, dataset_facts, member_facts
from ensembed.paper.experiments.scored_systems import code
from ensembed.paper.laboratory import Laboratory, Trial
from ensembed.paper.named_corpora import NamedCorpus
from ensembed.reliability import reliability
from ensembed.sts.find import text_version
from ensembed.sts.protocol import Protocol, predict, score
from ensembed.support.provenance import provenance
from experiments.ensembles_scores import AUTO, Addition, Combined, Elsewhere, Ensembles, Row, Trust, plain

PAPER: dict[str, Method] = {"conc": Concat(), "avg": Average(), "svd": SVD(), "gcca": GCCA(tau=10.0)}
"""The paper's methods, all members alike; svd and gcca with the dimension of the largest member."""
WEIGHTED: dict[str, Method] = {AUTO: Auto(), "gcca, weighted": PAPER["gcca"]}
"""The same with the members' reliability as weights, by the label of their row. Concatenation is `Auto()`."""
MOST_MEMBERS = 4
"""The largest ensembles of which all are tried."""
MOST_ELSEWHERE = 3
"""The same where weights are found on other corpora: it takes long."""

PROTOCOL: Protocol = "mean"
SEEDS = (0, 1, 2)
# The length of made-up vectors: that of a small encoder.
_MADE_DIM = 384
_MADE_SEED = 0


@dataclass(frozen=True)
class Trials:
    """Everything that is tried on one laboratory, whose first corpus everything is fitted on.

    Attributes:
        laboratory: the members and their views.
        corpora: the laboratory's, with their sentences.
        examples: ensembles to which useless members are added, and whose weights are found under several seeds.
        larger: ensembles of more than `MOST_MEMBERS` members that are tried, too.
    """

    laboratory: Laboratory
    corpora: Sequence[NamedCorpus]
    examples: Sequence[tuple[str, ...]]
    larger: Sequence[tuple[str, ...]] = ()

    def run(self) -> Ensembles:
        """Run everything, or take results from the notebook."""
        return Ensembles(
            provenance=provenance(),
            protocol=PROTOCOL,
            text=text_version(self.laboratory.datasets),
            datasets=dataset_facts(self.laboratory),
            corpora=corpus_facts(self.laboratory, [corpus.what for corpus in self.corpora]),
            members=member_facts(self.laboratory),
            singles=tuple(self._row(name, Trial(None, (j,))) for j, name in enumerate(self.names)),
            combined=tuple(self._combined()),
            additions=tuple(self._additions()),
            elsewhere=tuple(self._elsewhere()),
        )

    @property
    def names(self) -> list[str]:
        """The members' names."""
        return self.laboratory.names

    @property
    def ensembles(self) -> list[tuple[int, ...]]:
        """Every ensemble of two to `MOST_MEMBERS` members, and the larger ones, by the members' places."""
        everyone = self.laboratory.everyone
        small = [chosen for size in range(2, MOST_MEMBERS + 1) for chosen in combinations(everyone, size)]
        return [*small, *(tuple(sorted(self.names.index(name) for name in members)) for members in self.larger)]

    def trust(self, members: Sequence[int], corpus: NamedCorpus, seed: int = 0) -> Trust:
        """Estimate how far these members can be trusted on a corpus."""
        views = [self.laboratory.corpora[corpus.name][j] for j in members]
        keys = [self.laboratory.ensemble.encoders[j].spec.key for j in members]
        facts = [keys, corpus.corpus.key, seed, code()]
        names = [self.names[j] for j in members]
        return self.laboratory.notebook.record(
            Trust, facts, lambda: trust_of([np.asarray(view) for view in views], corpus.corpus, names, seed)
        )

    def _combined(self) -> Iterator[Combined]:
        fitted_on = self.corpora[0]
        for done, members in enumerate(self.ensembles, 1):
            trust = self.trust(members, fitted_on)
            methods = PAPER | {label: _weighted(method, trust) for label, method in WEIGHTED.items()}
            rows = [self._row(label, Trial(method, members, fitted_on.name)) for label, method in methods.items()]
            yield Combined(tuple(self.names[j] for j in members), trust, tuple(rows))
            self.laboratory.progress("ensembles", done, len(self.ensembles))

    def _additions(self) -> Iterator[Addition]:
        corpus = self.corpora[0]
        for members in self.examples:
            places = [self.names.index(name) for name in members]
            views = [np.asarray(self.laboratory.corpora[corpus.name][j]) for j in places]
            scored = [self.laboratory.evaluation[j] for j in places]
            for added, (view, other) in useless(members, views, scored).items():
                keys = [self.laboratory.ensemble.encoders[j].spec.key for j in places]
                facts = [keys, added, _MADE_DIM, _MADE_SEED, corpus.corpus.key, code()]
                find = partial(trust_of, [*views, view], corpus.corpus, [*members, added], 0)
                trust = self.laboratory.notebook.record(Trust, facts, find)
                yield Addition(tuple(members), added, trust, self._auto_of(trust, [*views, view], [*scored, other]))
            self.laboratory.progress("useless members", 1 + list(self.examples).index(members), len(self.examples))

    def _elsewhere(self) -> Iterator[Elsewhere]:
        """Small ensembles on every corpus; the examples on the first under further seeds, too."""
        examples = {tuple(self.names.index(name) for name in members) for members in self.examples}
        few = [members for members in self.ensembles if members in examples or members == self.laboratory.everyone]
        small = [members for members in self.ensembles if len(members) <= MOST_ELSEWHERE]
        looks = [(corpus, SEEDS[0], small) for corpus in self.corpora]
        looks += [(self.corpora[0], seed, few) for seed in SEEDS[1:]]
        for corpus, seed, chosen in looks:
            for done, members in enumerate(chosen, 1):
                trust = self.trust(members, corpus, seed)
                row = self._row(AUTO, Trial(_weighted(WEIGHTED[AUTO], trust), members, corpus.name))
                yield Elsewhere(tuple(self.names[j] for j in members), corpus.name, seed, trust, row)
                self.laboratory.progress(f"{corpus.name}, seed {seed}", done, len(chosen))

    def _row(self, label: str, trial: Trial) -> Row:
        outcome = self.laboratory.outcome(trial, self.laboratory.datasets)
        return Row(
            label,
            outcome.dim,
            {
                dataset.name: score(outcome.cosines(dataset.name), dataset, PROTOCOL).score
                for dataset in self.laboratory.datasets
            },
        )

    def _auto_of(self, trust: Trust, views: Sequence[FloatArray], scored: Sequence[FloatArray]) -> Row:
        """Score `auto` on vectors of every sentence that is scored, of which some are made up.

        Args:
            trust: how far the members are trusted.
            views: their vectors of the corpus.
            scored: their vectors of the sentences that are scored.
        """
        vectors = _weighted(WEIGHTED[AUTO], trust).fit(views).transform(scored)
        datasets = self.laboratory.datasets
        predicted = predict(lambda _sentences: vectors, datasets)
        results = [score(cosines, dataset, PROTOCOL) for cosines, dataset in zip(predicted, datasets, strict=True)]
        return Row(AUTO, vectors.shape[1], {result.dataset: result.score for result in results})


def trust_of(views: Sequence[NDArray[Any]], corpus: Corpus, names: Sequence[str], seed: int) -> Trust:
    """Estimate how far members with these views [n, d_j] of a corpus can be trusted."""
    estimate = reliability(views, sentences=corpus, names=names, seed=seed)
    return Trust(
        estimate.names[estimate.best],
        plain(estimate.weights),
        plain(estimate.weights_low),
        plain(estimate.weights_high),
        tuple(estimate.mute),
        plain(estimate.whitened_weights),
        estimate.whitened,
    )


def useless(
    members: Sequence[str], views: Sequence[FloatArray], scored: Sequence[FloatArray]
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Return useless members by their description: their vectors of the corpus and of the sentences that are scored.

    Args:
        members: the names of the useful ones.
        views: their vectors [n, d_j] of the corpus.
        scored: their vectors [m, d_j] of the sentences that are scored.
    """
    generator = np.random.default_rng(_MADE_SEED)
    counts = (len(views[0]), len(scored[0]))
    made: dict[str, tuple[FloatArray, ...]] = {
        "random vectors": tuple(generator.standard_normal((n, _MADE_DIM)).astype(np.float32) for n in counts),
        "a constant": tuple(np.ones((n, _MADE_DIM), np.float32) for n in counts),
        f"a copy of {members[0]}": (views[0].copy(), scored[0].copy()),
        f"a copy of {members[-1]}": (views[-1].copy(), scored[-1].copy()),
        f"{members[0]} with its rows shuffled": tuple(
            rows[generator.permutation(len(rows))] for rows in (views[0], scored[0])
        ),
        f"{members[-1]} with its rows shuffled": tuple(
            rows[generator.permutation(len(rows))] for rows in (views[-1], scored[-1])
        ),
        f"half of the columns of {members[0]}": _half(views[0], scored[0]),
        f"half of the columns of {members[-1]}": _half(views[-1], scored[-1]),
    }
    return {what: (both[0], both[1]) for what, both in made.items()}


def _half(*views: FloatArray) -> tuple[FloatArray, ...]:
    """Return the first half of the columns."""
    return tuple(view[:, : view.shape[1] // 2].copy() for view in views)


def _weighted(method: Method, trust: Trust) -> Method:
    if isinstance(method, Auto):
        return replace(method, weights=trust.whitened_weights, whitened=trust.whitened)
    return method.with_weights(trust.weights)
