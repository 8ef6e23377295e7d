"""Table 1: GCCA's tau and the autoencoder's depth and loss, searched on STS-B dev and on nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ensembed.methods import GCCA
from ensembed.methods.autoencoder.method import Autoencoder, Loss
from ensembed.paper.findings import AutoencoderPoint, TauPoint
from ensembed.paper.laboratory import Laboratory, Outcome, Trial
from ensembed.paper.training import Training, autoencoder
from ensembed.sts.datasets import Dataset
from ensembed.sts.protocol import Score, aggregate

TAUS = (0.01, 0.1, 1.0, 10.0, 100.0)
LAYERS = (0, 1, 2)
LOSSES: tuple[Loss, ...] = ("mse", "mae", "kld", "cos")

UNTRAINED = "untrained"
# A learning rate that leaves the weights as they were drawn, and so few sentences that it takes one step.
_NONE = 1e-20
_ONE_BATCH = 256


@dataclass(frozen=True)
class Search:
    """Searches on one corpus, scored on STS-B dev.

    Attributes:
        laboratory: members and views.
        dev: STS-B dev.
        corpus: the name of the corpus.
        dim: d.
        training: how long autoencoders are trained.
    """

    laboratory: Laboratory
    dev: Dataset
    corpus: str
    dim: int
    training: Training = "reduced"

    def taus(self) -> tuple[TauPoint, ...]:
        """GCCA for every tau."""
        points = []
        for done, tau in enumerate(TAUS, 1):
            trial = Trial(GCCA(self.dim, tau), self.laboratory.everyone, self.corpus)
            points.append(TauPoint(tau, self._score(self.laboratory.outcome(trial, [self.dev]))))
            self.laboratory.progress(f"table 1, tau ({self.corpus})", done, len(TAUS))
        return tuple(points)

    def autoencoders(self) -> tuple[AutoencoderPoint, ...]:
        """Every depth and loss, and what the weights are worth before they are trained."""
        points = []
        cells = [(layers, loss) for layers in LAYERS for loss in (UNTRAINED, *LOSSES)]
        for done, (layers, loss) in enumerate(cells, 1):
            outcome = self.laboratory.outcome(self._trial(layers, loss), [self.dev])
            points.append(AutoencoderPoint(layers, loss, self._score(outcome), outcome.fitting))
            self.laboratory.progress("table 1, autoencoders", done, len(cells))
        return tuple(points)

    def autoencoder(self, hidden_layers: int, loss: Loss) -> Autoencoder:
        """The one of that depth and loss."""
        rows = self.laboratory.sentences(self.corpus)
        return autoencoder(self.training, rows, dim=self.dim, hidden_layers=hidden_layers, loss=loss)

    def _trial(self, layers: int, loss: str) -> Trial:
        everyone = self.laboratory.everyone
        for known in LOSSES:
            if loss == known:
                return Trial(self.autoencoder(layers, known), everyone, self.corpus)
        as_drawn = replace(
            self.autoencoder(layers, LOSSES[0]), epochs=1, batch_size=_ONE_BATCH, learning_rate=_NONE, device="cpu"
        )
        rows = min(_ONE_BATCH, self.laboratory.sentences(self.corpus))
        return Trial(as_drawn, everyone, self.corpus, rows=rows)

    def _score(self, outcome: Outcome) -> Score:
        return aggregate(outcome.cosines(self.dev.name), self.dev)


def best_tau(points: tuple[TauPoint, ...]) -> float:
    """The tau with the highest Pearson correlation on STS-B dev."""
    return max(points, key=lambda point: point.score.pearson).tau


def best_autoencoder(points: tuple[AutoencoderPoint, ...]) -> tuple[int, Loss]:
    """The depth and loss with the highest Pearson correlation on STS-B dev."""
    trained = {
        (point.hidden_layers, loss): point.score.pearson for point in points for loss in LOSSES if loss == point.loss
    }
    return max(trained, key=lambda cell: trained[cell])
