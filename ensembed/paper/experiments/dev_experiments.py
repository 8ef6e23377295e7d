"""Experiments that are scored on STS-B dev alone: the searches of Table 1, the ablations of Table 3, and curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from ensembed.methods import GCCA, Method
from ensembed.methods.autoencoder.autoencoder_method import Autoencoder, Loss
from ensembed.paper.experiments.scored_systems import deviation
from ensembed.paper.findings import Ablation, AutoencoderPoint, CurvePoint, TauPoint, mean_score
from ensembed.paper.laboratory import Laboratory, Outcome, Trial
from ensembed.sts.datasets import Dataset
from ensembed.sts.protocol import Score, aggregate

Training: TypeAlias = Literal["reduced", "paper"]
TRAININGS: tuple[Training, ...] = get_args(Training)

TAUS = (0.01, 0.1, 1.0, 10.0, 100.0)
LAYERS = (0, 1, 2)
LOSSES: tuple[Loss, ...] = get_args(Loss)
UNTRAINED = "untrained"
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
LEAST_DIM = 16

# As much as a search over twelve autoencoders has time for in 15 minutes on two cores. No score decided.
_BATCH, _STEPS = 256, 840
_NO_LEARNING = 1e-20  # a learning rate that leaves the random weights as they are


def autoencoder(training: Training, rows: int, *, dim: int, hidden_layers: int, loss: Loss) -> Autoencoder:
    """Return an autoencoder of the experiments, to be trained on so many rows.

    The training `reduced` has the number of epochs, at least one, that comes nearest to 215,000 sentences, on the CPU;
    `paper` has the paper's 500 epochs of batches of 10,000, on a GPU if there is one.
    """
    # Losses that could be solved from moments are trained, too, since the search compares trainings.
    method = Autoencoder(dim, hidden_layers, loss=loss, solver="batches")
    if training == "paper":
        return method
    epochs = max(1, round(_STEPS * _BATCH / rows))
    return replace(method, epochs=epochs, batch_size=_BATCH, device="cpu", precision="float32")


def describe(method: Autoencoder, rows: int) -> str:
    """Describe a training in words: loss, depth, epochs, batches and seed."""
    steps = method.epochs * -(-rows // method.batch_size)
    epochs = f"{method.epochs} epoch{'s' if method.epochs > 1 else ''}"
    training = f"{epochs} of batches of {method.batch_size} ({steps} steps), seed {method.seed}"
    return f"{method.loss}, hidden layers: {method.hidden_layers}, {training}"


@dataclass(frozen=True)
class DevExperiments:
    """Experiments on one corpus, scored on STS-B dev."""

    laboratory: Laboratory
    dev: Dataset
    corpus: str  # the name of the corpus that methods are fitted on
    training: Training = "reduced"  # how long autoencoders are trained

    @property
    def dim(self) -> int:
        """The dimension of meta-embeddings: that of the largest member."""
        return max(self.laboratory.ensemble.dims)

    def taus(self) -> tuple[TauPoint, ...]:
        """Score GCCA for every tau."""
        points = []
        for done, tau in enumerate(TAUS, 1):
            points.append(TauPoint(tau, self._score(self._outcome(self._trial(GCCA(self.dim, tau))))))
            self.laboratory.progress(f"table 1, tau ({self.corpus})", done, len(TAUS))
        return tuple(points)

    def autoencoders(self) -> tuple[AutoencoderPoint, ...]:
        """Score autoencoders of every depth and loss, and their random weights before training."""
        points = []
        cells: list[tuple[int, Loss | None]] = [(layers, loss) for layers in LAYERS for loss in (None, *LOSSES)]
        for done, (layers, loss) in enumerate(cells, 1):
            trial = self._untrained(layers) if loss is None else self._trial(self.autoencoder(layers, loss))
            outcome = self._outcome(trial)
            points.append(AutoencoderPoint(layers, loss or UNTRAINED, self._score(outcome), outcome.fitting))
            self.laboratory.progress("table 1, autoencoders", done, len(cells))
        return tuple(points)

    def autoencoder(self, hidden_layers: int, loss: Loss, rows: int | None = None) -> Autoencoder:
        """Return the autoencoder of that depth and loss for the corpus, or for a sample of so many rows."""
        rows = rows or self.laboratory.sentences(self.corpus)
        return autoencoder(self.training, rows, dim=self.dim, hidden_layers=hidden_layers, loss=loss)

    def ablations(self, methods: Sequence[Method]) -> list[Ablation]:
        """Score methods with all members, then without each of them; return nothing if that would leave one member."""
        everyone = self.laboratory.everyone
        if len(everyone) < 3:
            return []
        ablations: list[Ablation] = []
        for method in methods:
            for without in (None, *everyone):
                members = tuple(j for j in everyone if j != without)
                outcome = self._outcome(replace(self._trial(method), members=members))
                name = "" if without is None else self.laboratory.names[without]
                ablations.append(Ablation(method.name, name, outcome.dim, self._score(outcome)))
                self.laboratory.progress("table 3", len(ablations), len(methods) * (1 + len(everyone)))
        return ablations

    def dimensions(self, methods: Sequence[Method]) -> list[CurvePoint]:
        """Score methods and members cut to their first 16, 32, ... dimensions, and whole."""
        whole = [(f"meta:{method.name}", self._trial(method)) for method in methods]
        whole += [(f"single:{name}", Trial(None, (j,))) for j, name in enumerate(self.laboratory.names)]
        points: list[CurvePoint] = []
        for done, (label, trial) in enumerate(whole, 1):
            full = self._outcome(trial)
            lengths = [LEAST_DIM << power for power in range(full.dim.bit_length()) if LEAST_DIM << power < full.dim]
            cut = {keep: self._outcome(replace(trial, keep=keep)) for keep in lengths} | {full.dim: full}
            points += [CurvePoint(label, keep, self._score(outcome), None, 1) for keep, outcome in cut.items()]
            self.laboratory.progress("dimensions", done, len(whole))
        return points

    def sizes(self, methods: Sequence[Method], draws: int) -> list[CurvePoint]:
        """Score methods on random samples of the corpus, several of each size but for autoencoders; then on all."""
        total = self.laboratory.sentences(self.corpus)
        scores: dict[tuple[str, int], list[Score]] = {}
        sizes = [size for size in SIZES if size < total]
        done = 0
        for size in sizes:
            for draw in range(draws):
                # All methods use one sample before the next is drawn: it is in memory once.
                for method in methods:
                    if draw == 0 or not method.trains:
                        trial = replace(self._trial(self._for_rows(method, size)), rows=size, draw=draw)
                        scores.setdefault((method.name, size), []).append(self._score(self._outcome(trial)))
                done += 1
                self.laboratory.progress("corpus size", done, len(sizes) * draws)
        for method in methods:
            scores[method.name, total] = [self._score(self._outcome(self._trial(method)))]
        points = []
        for name, size in ((method.name, size) for method in methods for size in (*sizes, total)):
            same = scores[name, size]
            spread = deviation(same) if len(same) > 1 else None
            points.append(CurvePoint(f"meta:{name}", size, mean_score(same), spread, len(same)))
        return points

    def _for_rows(self, method: Method, rows: int) -> Method:
        """Return the method for a smaller corpus: an autoencoder then needs more epochs."""
        if not isinstance(method, Autoencoder):
            return method
        return self.autoencoder(method.hidden_layers, method.loss, rows)

    def _untrained(self, layers: int) -> Trial:
        """Return a trial of one step on few sentences that leaves the random weights as they are."""
        method = self.autoencoder(layers, LOSSES[0])
        method = replace(method, epochs=1, batch_size=_BATCH, learning_rate=_NO_LEARNING, device="cpu")
        return replace(self._trial(method), rows=min(_BATCH, self.laboratory.sentences(self.corpus)))

    def _trial(self, method: Method) -> Trial:
        return Trial(method, self.laboratory.everyone, self.corpus)

    def _outcome(self, trial: Trial) -> Outcome:
        return self.laboratory.outcome(trial, [self.dev])

    def _score(self, outcome: Outcome) -> Score:
        return aggregate(outcome.cosines(self.dev.name), self.dev)


def best_tau(points: Sequence[TauPoint]) -> float:
    """Return the tau with the highest Pearson correlation on STS-B dev."""
    return max(points, key=lambda point: point.score.pearson).tau


def best_autoencoder(points: Sequence[AutoencoderPoint]) -> tuple[int, Loss]:
    """Return the depth and loss with the highest Pearson correlation on STS-B dev."""
    trained = [(point, loss) for point in points for loss in LOSSES if loss == point.loss]
    best, loss = max(trained, key=lambda cell: cell[0].score.pearson)
    return best.hidden_layers, loss
