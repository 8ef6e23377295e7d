"""Table 2 and the appendix: every member, its up-projections, and every meta-embedding on every data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ensembed.methods import Method, UpProjection
from ensembed.paper.findings import DEV, MEAN, NO_CORPUS, Kind, System, mean_score
from ensembed.paper.laboratory import Laboratory, Outcome, Trial
from ensembed.sts.datasets import Dataset
from ensembed.sts.protocol import PartScore, Protocol, Result, Score, score


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
        """Every member on its own."""
        names = [encoder.spec.name for encoder in self.laboratory.ensemble.encoders]
        return [self._scored(f"single:{name}", "single", Trial(None, (j,))) for j, name in enumerate(names)]

    def up_projections(self, dim: int, seeds: int) -> list[System]:
        """Every member smaller than `dim`, projected up at random: mean and spread over seeds."""
        found = []
        members = [(j, one.spec) for j, one in enumerate(self.laboratory.ensemble.encoders) if one.spec.dim < dim]
        for done, (j, spec) in enumerate(members, 1):
            label = f"single:{spec.name} up"
            runs = [self._scored(label, "up", Trial(UpProjection(dim, seed), (j,))).system for seed in range(seeds)]
            found.append(mean_system(runs, f"mean over {seeds} seeds"))
            self.laboratory.progress("table 2, up-projections", done, len(members))
        return found

    def meta(self, method: Method, corpus: str = NO_CORPUS, note: str = "") -> Scored:
        """A method, fitted on a corpus."""
        return self._scored(f"meta:{method.name}", "meta", Trial(method, self.laboratory.everyone, corpus), note)

    def _scored(self, label: str, kind: Kind, trial: Trial, note: str = "") -> Scored:
        datasets = self.laboratory.datasets
        outcome = self.laboratory.outcome(trial, datasets)
        asked = getattr(trial.method, "dim", None)
        if kind == "meta" and asked is not None and outcome.dim < asked:
            note = "; ".join(filter(None, [note, f"the data supports {outcome.dim} dimensions"]))
        results = tuple(self._result(outcome, dataset) for dataset in datasets)
        return Scored(System(label, kind, outcome.dim, trial.corpus, note, results, {}), outcome, trial.method)

    def _result(self, outcome: Outcome, dataset: Dataset) -> Result:
        return score(outcome.cosines(dataset.name), dataset, self.protocol)


def mean_system(runs: Sequence[System], note: str) -> System:
    """The mean of runs that differ in their seed, part by part, with the standard deviation over them."""
    first = runs[0]
    names = [result.dataset for result in first.results]
    results = tuple(_mean_result([run.results[k] for run in runs]) for k in range(len(names)))
    whole = [*names, MEAN] if set(names) != {DEV} else names
    spread = {name: deviation([run.score(name) for run in runs]) for name in whole} if len(runs) > 1 else {}
    return replace(first, note=note, results=results, spread=spread)


def deviation(scores: Sequence[Score]) -> Score:
    """The standard deviation of both correlations, of a sample."""
    pearson, spearman = np.std([[one.pearson, one.spearman] for one in scores], axis=0, ddof=1)
    return Score(float(pearson), float(spearman))


def _mean_result(results: Sequence[Result]) -> Result:
    parts = [
        PartScore(
            part.name,
            part.pairs,
            mean_score([result.parts[k].score for result in results]),
            all(result.parts[k].constant for result in results),
        )
        for k, part in enumerate(results[0].parts)
    ]
    return replace(results[0], score=mean_score([result.score for result in results]), parts=tuple(parts))
