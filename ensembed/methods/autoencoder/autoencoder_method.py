"""Autoencoders that reconstruct every view from every other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np

from ensembed.errors import InputError
from ensembed.methods.autoencoder.linear import solve_linear
from ensembed.methods.base import TrainedMethod
from ensembed.methods.found import fit_by_reliability
from ensembed.methods.meta import Meta
from ensembed.methods.parts import Parts
from ensembed.methods.passes import LOCAL, Passes
from ensembed.methods.projections import ACTIVATIONS, Activation
from ensembed.methods.weights import Weights
from ensembed.numerics.moments import Moments
from ensembed.numerics.row_matrices import check_views
from ensembed.support.checks import check_whole
from ensembed.support.progress import Progress, silent

Loss: TypeAlias = Literal["mse", "mae", "kld", "cos"]
Kind: TypeAlias = Literal["cross", "averaged", "concatenated", "decoupled"]
Precision: TypeAlias = Literal["auto", "float64", "float32", "tf32", "bfloat16"]
Solver: TypeAlias = Literal["auto", "moments", "batches"]


@dataclass(frozen=True)
class Autoencoder(TrainedMethod):
    r"""`sum_j E_j(F_j(s))`: encoders from whose output every view can be reconstructed.

    Every view has an encoder E_j: R^{d_j} -> R^d and a decoder D_j: R^d -> R^{d_j}. They are trained together, by Adam,
    to reconstruct every view from every view:

        L(x_1 ... x_J) = sum_j sum_j' l(x_j', D_j'(E_j(x_j)))

    What the paper leaves open, and what is done here:

    - *Layers.* E_j and D_j are affine maps with `hidden_layers` hidden layers of `hidden_dim` units (by default d)
      between them, after each of which comes `activation`. Weights and biases are drawn from U(-1/sqrt(m), 1/sqrt(m)),
      m being a layer's inputs.
    - *Losses.* `mse` and `mae` are means over a view's dimensions, so that large views do not outweigh small ones.
      `cos` is (1 - cos)^2. For `kld`, a vector becomes a distribution by a softmax over its dimensions, divided by
      `temperature` first; it is the divergence of the reconstruction from the view, KL(p(x) || p(y)).
    - *Inputs* are the views as they are: not centred, not length-normalised.
    - *Batches* are drawn anew in every epoch; the last one of an epoch is smaller.

    With `loss="mse"` and no hidden layer, the loss is a function of the views' second moments. Its best value, and
    encoders and decoders that have it, are found by an eigenproblem, without training and without torch (`solver`);
    what concerns training is not used then. Many pairs of encoders and decoders have that loss, since a matrix can be
    moved from the one to the other, and the sum of codes depends on which: training stops at another one, whose
    cosines may be better.

    Args:
        dim: d; None takes the dimension of the largest member, as the paper does.
        hidden_layers: 0, 1 or 2; the paper's best on STS-B dev is 1.
        hidden_dim: units of a hidden layer; None takes d.
        activation: `relu` or `tanh`.
        loss: `mse`, `mae`, `kld` (the paper's best) or `cos`.
        temperature: of kld's softmax.
        kind: `cross` is the paper's. The others are those of Bollegala and Bao (2018), for any number of views:
            `averaged` reconstructs every view from the mean of all E_j(x_j); `concatenated` from their concatenation,
            each E_j having d / J dimensions; `decoupled` reconstructs each view from its own E_j(x_j), again of d / J
            dimensions, which are drawn together by the mean squared distance between them, and concatenates. Unlike
            there, codes and views are not scaled to length one, the code has no activation, and no noise is added.
        view_dropout: the part of views that are left out at random in training, never all of a row, so that the result
            bears a missing member. (`cross` always encodes each view alone.)
        epochs: passes over the data.
        batch_size: rows per step.
        learning_rate: Adam's.
        betas: Adam's.
        patience: stop when the loss has not fallen by a ten-thousandth in so many epochs; None never does, as in the
            paper.
        seed: of weights, batches and dropout. The same seed gives the same result on the same device.
        device: `cpu`, `cuda`, `cuda:1`, `mps`; None takes a GPU if there is one.
        precision: of the products and gradients; sums, losses and Adam are float32 or wider. "auto" is bfloat16 on a
            CUDA device with up to one hidden layer, and float32 elsewhere. Over seeds, no precision changes STS-B dev
            by more than 0.15; with two hidden layers a single run may (results/bench-autoencoder.md).
        solver: "moments" solves the linear case from the moments, "batches" trains; "auto" solves what can be solved.
        weights: what each member counts: "equal", as in the paper; "reliability", found without labels; or a number per
            member. The trained encoders' outputs are multiplied by their roots. (Scaled views would only be scaled back
            by what is learned.) So the training is the same whatever they are; only members of weight 0 are left out.

    References: Poerner, Waltinger and Schütze 2020, section 3.4; Bollegala and Bao, "Learning Word Meta-Embeddings by
    Autoencoding", COLING 2018.

    Example:
        >>> X = np.random.default_rng(0).standard_normal((100, 4))
        >>> meta = Autoencoder(dim=3, hidden_layers=0, loss="mse").fit([X, X @ np.ones((4, 2))])
        >>> meta.transform([X[:2], X[:2] @ np.ones((4, 2))]).shape
        (2, 3)
    """

    dim: int | None = None
    hidden_layers: int = 1
    hidden_dim: int | None = None
    activation: Activation = "relu"
    loss: Loss = "kld"
    temperature: float = 1.0
    kind: Kind = "cross"
    view_dropout: float = 0.0
    epochs: int = 500
    batch_size: int = 10_000
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    patience: int | None = None
    seed: int = 0
    device: str | None = None
    precision: Precision = "auto"
    solver: Solver = "auto"
    weights: Weights = "equal"

    name: ClassVar[str] = "ae"

    def __post_init__(self) -> None:
        for name, least in (("dim", 1), ("hidden_dim", 1), ("patience", 1)):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), least)
        for name, least in (("hidden_layers", 0), ("epochs", 1), ("batch_size", 1), ("seed", 0)):
            check_whole(name, getattr(self, name), least)
        for name, choices in (("activation", ACTIVATIONS), ("loss", get_args(Loss)), ("kind", get_args(Kind)),
                              ("precision", get_args(Precision)), ("solver", get_args(Solver))):  # fmt: skip
            if getattr(self, name) not in choices:
                raise InputError(f"{name} is {' or '.join(choices)}, not {getattr(self, name)!r}")
        if not 0 <= self.hidden_layers <= 2:
            raise InputError(f"hidden_layers is 0, 1 or 2, not {self.hidden_layers}")
        for name in ("temperature", "learning_rate"):
            if not (_is_number(value := getattr(self, name)) and value > 0):
                raise InputError(f"{name} must be a number above 0, not {value!r}")
        if not (_is_number(self.view_dropout) and 0 <= self.view_dropout < 1):
            raise InputError(f"view_dropout must be a number from 0 to below 1, not {self.view_dropout!r}")
        if self.seed >= 2**63:
            raise InputError(f"seed must be below 2**63, not {self.seed}")
        if not (self.device is None or isinstance(self.device, str)):
            raise InputError(f"device is a name such as 'cpu' or 'cuda', not {self.device!r}")
        betas = tuple(self.betas) if isinstance(self.betas, Sequence) else ()
        if len(betas) != 2 or not all(_is_number(beta) and 0 <= beta < 1 for beta in betas):
            raise InputError(f"betas are two numbers from 0 to below 1, not {self.betas!r}")
        # JSON knows no tuples: a list is taken, too.
        object.__setattr__(self, "betas", tuple(float(beta) for beta in betas))
        self._check_weights()
        if self.solver == "moments" and not self.linear:
            raise InputError('solver="moments" is for loss="mse", hidden_layers=0, kind="cross" and no view_dropout')

    @property
    def linear(self) -> bool:
        """Whether the loss is a function of the second moments alone."""
        whole = self.kind == "cross" and self.view_dropout == 0
        return self.loss == "mse" and self.hidden_layers == 0 and whole

    @property
    def solved(self) -> bool:
        """Whether it is solved from the moments, not trained."""
        return self.linear and self.solver != "batches"

    @property
    def trains(self) -> bool:
        """Whether fitting takes epochs."""
        return not self.solved

    def solve(self, moments: Moments, dims: Sequence[int]) -> Meta:
        """The meta-embedding of views of these dimensions whose concatenation has these moments; the linear case only.

        Raises:
            InputError: the loss is not a function of the moments.
        """
        if not self.linear:
            raise InputError(f"{self} has to be trained: only mse without hidden layers is a function of the moments")
        parts = Parts.of(self.weights, dims)
        return solve_linear(moments, parts, int(self.dim or max(parts.dims)), self.to_json())

    def fit(
        self,
        views: Sequence[Any],
        *,
        threads: int | None = None,
        progress: Progress = silent,
        checkpoint: Path | None = None,
        passes: Passes = LOCAL,
    ) -> Meta:
        """Train on row-aligned views, or solve the linear case from their moments.

        Args:
            views: arrays [n, d_j], memory maps or stored views, which may be larger than memory.
            threads: for the CPU; None leaves it to the libraries.
            progress: told of epochs, with the loss.
            checkpoint: a folder in which training is kept from time to time, and from which it goes on, to the same
                weights, when it was interrupted. It is removed at the end.
            passes: who trains, or makes the pass.

        Raises:
            MissingError: torch is not installed.
            TrainingError: the loss is no longer a number.
        """
        checked = check_views(views)
        rows, dims = checked[0].shape[0], [view.shape[1] for view in checked]
        if rows < 2:
            raise InputError(f"{self.name} needs at least two sentences to learn from, got {rows}")
        if self.wants_reliability:
            return fit_by_reliability(
                self,
                checked,
                lambda method: method.fit(
                    checked, threads=threads, progress=progress, checkpoint=checkpoint, passes=passes
                ),
                progress=progress,
            )
        parts = Parts.of(self.weights, dims)
        d, J = int(self.dim or max(parts.dims)), len(parts.dims)
        if self.kind in ("concatenated", "decoupled") and d % J:
            raise InputError(f"kind={self.kind!r} splits dim={d} among {J} views: choose a multiple of that")
        if self.solved:
            return self.solve(passes.moments(checked, threads=threads, progress=progress), dims)
        # Weights are no affair of the training: with others, an interrupted one can be gone on with.
        plain, taken = self.with_weights("equal"), [checked[j] for j in parts.members]
        networks = passes.train(plain, taken, d, threads=threads, progress=progress, checkpoint=checkpoint)
        scaled = [network.scaled(float(scale)) for network, scale in zip(networks, parts.scales, strict=True)]
        return Meta(self.to_json(), d, parts.projections(scaled), normalize=False, rows=rows)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and math.isfinite(value)
