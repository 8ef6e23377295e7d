"""Table 2 and the appendix: members, their up-projections and meta-embeddings, our own too, on every data set."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ensembed.reliability as reliability_package
from ensembed.methods import Auto, Method, UpProjection
from ensembed.paper.findings import DEV, MEAN, NO_CORPUS, Change, Changes, Kind, Scatter, System, mean_score
from ensembed.paper.laboratory import Laboratory, Outcome, Trial
from ensembed.reliability import reliability
from ensembed.reliability.trust_estimate import Decided
from ensembed.sts.datasets import Dataset, Pairs
from ensembed.sts.protocol import PartScore, Protocol, Result, Score, ranks, score
from ensembed.support.provenance import provenance

_BY: dict[Decided, str] = {
    "lead": "it trusts {} most (by its lead, {})",
    "words": "it trusts {} most (of those that hardly differ in their leads it depends less on shared words, {})",
    "level": "the first members are level, {} is ahead by a little ({})",
    "nothing": "nothing told which member to trust most",
}
_DECIMALS = 4  # of a cosine, which a picture needs
_MOST_CHANGES = 10  # pairs that are kept in each direction


@dataclass(frozen=True)
class Scored:
    """A row of the main table with what it was made from."""

    system: System
    outcome: Outcome
    method: Method | None


@dataclass(frozen=True)
class Scorer:
    """Scores trials on every data set of a laboratory."""

    laboratory: Laboratory
    protocol: Protocol

    def singles(self) -> list[Scored]:
        """Score every member on its own."""
        labels = [f"single:{name}" for name in self.laboratory.names]
        return [self._scored(label, "single", Trial(None, (j,))) for j, label in enumerate(labels)]

    def up_projections(self, dim: int, seeds: int) -> list[System]:
        """Score random up-projections of every member smaller than `dim`: mean and spread over seeds."""
        systems = []
        specs = [encoder.spec for encoder in self.laboratory.ensemble.encoders]
        members = [(j, f"single:{spec.name} up") for j, spec in enumerate(specs) if spec.dim < dim]
        for done, (j, label) in enumerate(members, 1):
            runs = [self._scored(label, "up", Trial(UpProjection(dim, seed), (j,))).system for seed in range(seeds)]
            systems.append(mean_system(runs, f"mean over {seeds} seeds"))
            self.laboratory.progress("table 2, up-projections", done, len(members))
        return systems

    def meta(self, method: Method, corpus: str = NO_CORPUS, note: str = "") -> Scored:
        """Score a method that is fitted on a corpus."""
        return self._scored(f"meta:{method.name}", "meta", Trial(method, self.laboratory.everyone, corpus), note)

    def own(self, corpus: str) -> Scored:
        """Score `Auto`; its weights are estimated on the corpus before anything is scored."""
        trust = trusted(self.laboratory, corpus)
        return self.meta(trust.method, corpus, trust.note(self.laboratory.names, corpus))

    def _scored(self, label: str, kind: Kind, trial: Trial, note: str = "") -> Scored:
        datasets = self.laboratory.datasets
        outcome = self.laboratory.outcome(trial, datasets)
        requested_dim = getattr(trial.method, "dim", None)
        if kind == "meta" and requested_dim is not None and outcome.dim < requested_dim:
            note = "; ".join(filter(None, [note, f"the data supports {outcome.dim} dimensions"]))
        results = tuple(score(outcome.cosines(dataset.name), dataset, self.protocol) for dataset in datasets)
        return Scored(System(label, kind, outcome.dim, trial.corpus, note, results, {}), outcome, trial.method)


def mean_system(runs: Sequence[System], note: str) -> System:
    """Return the mean of runs that differ in their seed, part by part, with the standard deviation over them."""
    names = [result.dataset for result in runs[0].results]
    results = tuple(_mean_result([run.results[k] for run in runs]) for k in range(len(names)))
    whole = [*names, MEAN] if set(names) != {DEV} else names
    spread = {name: deviation([run.score(name) for run in runs]) for name in whole} if len(runs) > 1 else {}
    return replace(runs[0], note=note, results=results, spread=spread)


def deviation(scores: Sequence[Score]) -> Score:
    """Return the standard deviation of both correlations, of a sample."""
    return Score(*np.std([[score.pearson, score.spearman] for score in scores], axis=0, ddof=1).tolist())


def _mean_result(results: Sequence[Result]) -> Result:
    parts = []
    for k, part in enumerate(results[0].parts):
        same = [result.parts[k] for result in results]
        mean = mean_score([other.score for other in same])
        parts.append(PartScore(part.name, part.pairs, mean, all(other.constant for other in same)))
    return replace(results[0], score=mean_score([result.score for result in results]), parts=tuple(parts))


@dataclass(frozen=True)
class Trusted:
    """How far `Auto` trusts the members on a corpus; see `ensembed.reliability.Reliability`."""

    best: int  # the place of the member that is trusted most
    decided: Decided
    sure: float  # the probability that it is the best
    method: Auto  # with the estimated weights

    def note(self, names: Sequence[str], corpus: str) -> str:
        """Describe the method for the reader of a table: which of the members of these names it trusts, how much."""
        weights, whitened = self.method.weights, self.method.whitened
        numbers = [1.0] * len(names) if isinstance(weights, str) else weights
        counts = ", ".join(f"{name} {number:.2g}" for name, number in zip(names, numbers, strict=True))
        parts = [
            "this library's own, not the paper's",
            _BY[self.decided].format(names[self.best], f"{self.sure:.0%} sure"),
            f"weights: {counts}, found on {corpus} without a score",
            *([f"softly whitened: {', '.join(names[j] for j in whitened)}"] if whitened else []),
        ]
        return "; ".join(parts)


def trusted(laboratory: Laboratory, corpus: str) -> Trusted:
    """Estimate how far the members can be trusted on a corpus, or take it from the notebook."""
    specs = [encoder.spec for encoder in laboratory.ensemble.encoders]
    known = provenance()
    made_with = [known["numpy"], known["scipy"], known["processor"]]
    # Whether the words are known makes a difference, too.
    facts = [[spec.key for spec in specs], laboratory.corpus_key(corpus), corpus in laboratory.texts, made_with, code()]

    def estimate() -> Trusted:
        views, texts, names = laboratory.corpora[corpus], laboratory.texts.get(corpus), laboratory.names
        trust = reliability(views, sentences=texts, names=names, progress=laboratory.progress)
        return Trusted(int(trust.best), trust.decided, trust.sure, Auto().trusting(trust))

    return laboratory.notebook.record(Trusted, facts, estimate)


@cache  # the imported code is what runs, even if the files change
def code() -> str:
    """Return the hash of the code that estimates reliability: records of older code do not count."""
    [folder] = reliability_package.__path__
    package = Path(folder).parent
    used = [package / name for name in ("numerics/eigen.py", "numerics/row_matrices.py", "methods/auto.py")]
    files = [*sorted(Path(folder).glob("*.py")), *used]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def scatters(systems: Sequence[Scored], dataset: Dataset) -> tuple[Scatter, ...]:
    """Return the cosine and the gold score of every pair of a data set."""
    gold = tuple(np.concatenate([part.scores for part in dataset.parts]).tolist())
    cosines = [np.concatenate(scored.outcome.cosines(dataset.name)).round(_DECIMALS) for scored in systems]
    return tuple(
        Scatter(scored.system.label, dataset.name, gold, tuple(values.tolist()))
        for scored, values in zip(systems, cosines, strict=True)
    )


def changes(meta: Scored, member: Scored, datasets: Sequence[Dataset], *, texts: bool) -> Changes:
    """Return the pairs of these data sets whose rank in their sub-testset improved most, or got worse most."""
    moved: list[Change] = []
    for dataset in datasets:
        cosines = (scored.outcome.cosines(dataset.name) for scored in (meta, member))
        for part, ours, theirs in zip(dataset.parts, *cosines, strict=True):
            moved += _changes_of_part(dataset.name, part, ours, theirs, texts=texts)
    moved.sort(key=lambda change: change.gain)
    better = [change for change in reversed(moved[-_MOST_CHANGES:]) if change.gain > 0]
    worse = [change for change in moved[:_MOST_CHANGES] if change.gain < 0]
    return Changes(meta.system.label, member.system.label, tuple(better), tuple(worse))


def _changes_of_part(
    dataset: str, part: Pairs, ours: NDArray[np.float64], theirs: NDArray[np.float64], *, texts: bool
) -> list[Change]:
    # Ranks from 0 for the least to 1; equal values share theirs.
    gold, meta, member = ((ranks(values) - 1) / max(len(part) - 1, 1) for values in (part.scores, ours, theirs))
    gain = np.abs(member - gold) - np.abs(meta - gold)
    columns = [column.tolist() for column in (part.scores, gold, member, meta, gain)]
    pairs = zip(part.sentences1, part.sentences2, strict=True)
    return [
        Change(dataset, part.name, i, score, at_gold, at_member, at_meta, gained, pair if texts else None)
        for i, (pair, score, at_gold, at_member, at_meta, gained) in enumerate(zip(pairs, *columns, strict=True))
    ]
