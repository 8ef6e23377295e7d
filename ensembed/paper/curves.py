"""Table 3 and beyond, on STS-B dev: without one member, with fewer dimensions, with fewer sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ensembed.methods import Method
from ensembed.methods.autoencoder.method import Autoencoder
from ensembed.paper.experiments.scored_systems import deviation
from ensembed.paper.findings import Ablation, CurvePoint, mean_score
from ensembed.paper.laboratory import Laboratory, Outcome, Trial
from ensembed.paper.training import Training, autoencoder
from ensembed.sts.datasets import Dataset
from ensembed.sts.protocol import Score, aggregate

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
LEAST_DIM = 16


@dataclass(frozen=True)
class Curves:
    """Variations of the methods that learn, fitted on the main corpus and scored on STS-B dev.

    Attributes:
        laboratory: members and views.
        dev: STS-B dev.
        corpus: the name of the main corpus.
        methods: svd, gcca and ae, with what was chosen for them.
        training: how long autoencoders are trained.
    """

    laboratory: Laboratory
    dev: Dataset
    corpus: str
    methods: Sequence[Method]
    training: Training = "reduced"

    def ablations(self) -> list[Ablation]:
        """Every method with all members, then without each of them; nothing where that would leave one member."""
        everyone = self.laboratory.everyone
        if len(everyone) < 3:
            return []
        names = [encoder.spec.name for encoder in self.laboratory.ensemble.encoders]
        found: list[Ablation] = []
        for method in self.methods:
            for without in (None, *everyone):
                members = tuple(j for j in everyone if j != without)
                outcome = self._outcome(Trial(method, members, self.corpus))
                name = "" if without is None else names[without]
                found.append(Ablation(method.name, name, outcome.dim, self._score(outcome)))
                self.laboratory.progress("table 3", len(found), len(self.methods) * (1 + len(everyone)))
        return found

    def dimensions(self) -> list[CurvePoint]:
        """Every method and every member, cut to its first 16, 32, ... dimensions, and whole."""
        whole = [
            (f"meta:{method.name}", Trial(method, self.laboratory.everyone, self.corpus)) for method in self.methods
        ]
        encoders = self.laboratory.ensemble.encoders
        whole += [(f"single:{encoder.spec.name}", Trial(None, (j,))) for j, encoder in enumerate(encoders)]
        points: list[CurvePoint] = []
        for done, (label, trial) in enumerate(whole, 1):
            full = self._outcome(trial)
            cut = {keep: self._outcome(replace(trial, keep=keep)) for keep in _powers(full.dim)} | {full.dim: full}
            points += [CurvePoint(label, keep, self._score(outcome), None, 1) for keep, outcome in cut.items()]
            self.laboratory.progress("dimensions", done, len(whole))
        return points

    def sizes(self, draws: int) -> list[CurvePoint]:
        """Every method on a part of the corpus, drawn at random, several times but for autoencoders; then on all."""
        total = self.laboratory.sentences(self.corpus)
        found: dict[tuple[str, int], list[Score]] = {}
        sizes = [size for size in SIZES if size < total]
        done = 0
        for size in sizes:
            for draw in range(draws):
                # All methods look at one sample before the next is drawn: it is in memory once.
                for method in self.methods:
                    if draw == 0 or not isinstance(method, Autoencoder):
                        trial = Trial(self._sized(method, size), self.laboratory.everyone, self.corpus, size, draw)
                        score = self._score(self._outcome(trial))
                        found.setdefault((method.name, size), []).append(score)
                done += 1
                self.laboratory.progress("corpus size", done, len(sizes) * draws)
        for method in self.methods:
            trial = Trial(method, self.laboratory.everyone, self.corpus)
            found[method.name, total] = [self._score(self._outcome(trial))]
        return [
            CurvePoint(
                f"meta:{method.name}",
                size,
                mean_score(found[method.name, size]),
                deviation(found[method.name, size]) if len(found[method.name, size]) > 1 else None,
                len(found[method.name, size]),
            )
            for method in self.methods
            for size in (*sizes, total)
        ]

    def _sized(self, method: Method, size: int) -> Method:
        """The method for a smaller corpus: an autoencoder then needs more epochs."""
        if not isinstance(method, Autoencoder):
            return method
        dim = int(method.dim or max(self.laboratory.ensemble.dims))
        return autoencoder(self.training, size, dim=dim, hidden_layers=method.hidden_layers, loss=method.loss)

    def _outcome(self, trial: Trial) -> Outcome:
        return self.laboratory.outcome(trial, [self.dev])

    def _score(self, outcome: Outcome) -> Score:
        return aggregate(outcome.cosines(self.dev.name), self.dev)


def _powers(dim: int) -> list[int]:
    """16, 32, 64, ... below `dim`."""
    powers = [LEAST_DIM]
    while powers[-1] < dim:
        powers.append(2 * powers[-1])
    return powers[:-1]
