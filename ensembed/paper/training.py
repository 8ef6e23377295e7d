"""How long the autoencoders of the experiments are trained."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from ensembed.methods.autoencoder.autoencoder_method import Autoencoder, Loss

Training: TypeAlias = Literal["reduced", "paper"]

TRAININGS: tuple[Training, ...] = get_args(Training)

# For two cores: 840 batches of 256 are as many as a search over twelve autoencoders has time for in a quarter of an
# hour, by the time of a step. No score was looked at for it.
_BATCH = 256
_STEPS = 840


def autoencoder(training: Training, rows: int, *, dim: int, hidden_layers: int, loss: Loss) -> Autoencoder:
    """An autoencoder of the experiments.

    Args:
        training: `reduced` is the number of epochs, at least one, that comes nearest to 215,000 sentences, on the CPU;
            `paper` is the paper's 500 epochs of batches of 10,000, on a GPU if there is one.
        rows: how many sentences it is trained on.
        dim: d.
        hidden_layers: its depth.
        loss: its loss.

    Example:
        >>> autoencoder("reduced", 10_536, dim=512, hidden_layers=0, loss="kld").epochs
        20
    """
    if training == "paper":
        return Autoencoder(dim, hidden_layers, loss=loss, solver="batches")
    epochs = max(1, round(_STEPS * _BATCH / rows))
    # What could be solved from moments is trained, too, since the search compares trainings.
    return Autoencoder(
        dim,
        hidden_layers,
        loss=loss,
        epochs=epochs,
        batch_size=_BATCH,
        device="cpu",
        precision="float32",
        solver="batches",
    )


def describe(method: Autoencoder, rows: int) -> str:
    """A training in words.

    Example:
        >>> describe(autoencoder("reduced", 10_536, dim=512, hidden_layers=0, loss="kld"), 10_536)
        'kld, hidden layers: 0, 20 epochs of batches of 256 (840 steps), seed 0'
    """
    steps = method.epochs * -(-rows // method.batch_size)
    epochs = f"{method.epochs} epoch{'s' if method.epochs > 1 else ''}"
    training = f"{epochs} of batches of {method.batch_size} ({steps} steps), seed {method.seed}"
    return f"{method.loss}, hidden layers: {method.hidden_layers}, {training}"
