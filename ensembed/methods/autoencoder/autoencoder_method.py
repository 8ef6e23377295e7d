"""Autoencoders that reconstruct every view from every other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np

from ensembed.errors import InputError, ViewError
from ensembed.methods.meta import ACTIVATIONS, Activation, Meta
from ensembed.methods.method import Method
from ensembed.methods.passes import Passes
from ensembed.methods.weights import CountedMembers, Weights, checked_weights
from ensembed.numerics.eigen import Whitening, supported_eigh
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import Views, column_slices
from ensembed.support.checks import check_whole, is_number

Loss: TypeAlias = Literal["mse", "mae", "kld", "cos"]
Kind: TypeAlias = Literal["cross", "averaged", "concatenated", "decoupled"]
Precision: TypeAlias = Literal["auto", "float64", "float32", "tf32", "bfloat16"]
Solver: TypeAlias = Literal["auto", "moments", "batches"]


@dataclass(frozen=True)
class Autoencoder(Method):
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
    - *Batches* are drawn again in every epoch; the last one of an epoch is smaller. Dropout leaves out no whole row.
    - *Precision.* Sums, losses and Adam are float32 or wider. Over seeds, no precision changes STS-B dev by more than
      0.15; with two hidden layers a single run may (results/bench-autoencoder.md).
    - *Weights* multiply the outputs of the trained encoders by their roots. The training is the same whatever they are;
      only members of weight 0 are left out.
    - *Kinds.* `cross` reconstructs each view from each. The others are those of Bollegala and Bao (2018) for any number
      of views, without scaling to length one, without noise and without an activation of the code: `averaged` uses the
      mean of all E_j(x_j); `concatenated` their concatenation, each of d / J dimensions; `decoupled` each view's own,
      again of d / J dimensions, which the mean squared distance between them draws together, and concatenates.

    With `loss="mse"` and no hidden layer, the loss is a function of the views' second moments. Its best value, and
    encoders and decoders that have it, are found by an eigenproblem, without training and without torch (`solver`);
    what concerns training is not used then. Many pairs of encoders and decoders have that loss, since a matrix can be
    moved from the one to the other, and the sum of codes depends on which: training stops at another one, whose
    cosines may be better.

    Args:
        dim: the dimension d of the result. Default: the largest member's. The paper takes that, too.
        hidden_layers: hidden layers of every encoder and decoder: 0, 1 or 2. The paper's best on STS-B dev is 1.
        hidden_dim: units of a hidden layer. Default: `dim`.
        activation: what comes after a hidden layer: relu or tanh.
        loss: the loss of a reconstruction: mse, mae, kld (the paper's best) or cos.
        temperature: temperature of the softmax of kld.
        kind: what views are reconstructed from. Default: cross, each from each, as in the paper. See above.
        view_dropout: the part of views that are left out at random in training. A missing member then matters less.
        epochs: passes over the corpus.
        batch_size: sentences per step.
        learning_rate: the learning rate of Adam.
        betas: the betas of Adam.
        patience: stop when the loss has not fallen by a ten-thousandth in so many epochs. Default: never.
        seed: seed of initial weights, batches and dropout. The same seed gives the same result on the same device.
        device: the device to train on: cpu, cuda, cuda:1 or mps. Default: a GPU if there is one.
        precision: precision of products and gradients. Default: auto, bfloat16 on CUDA up to one hidden layer, else
            float32.
        solver: how mse without hidden layers is fitted: moments solves it, batches trains. Default: auto, which solves.
        weights: what each member counts: equal, reliability (found without labels), or a number per member, as in
            1,0.5,0.2. See above.

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
    order: ClassVar[int] = 5
    fit_options: ClassVar[tuple[str, ...]] = ("threads", "progress", "checkpoint")

    def __post_init__(self) -> None:
        for name in ("dim", "hidden_dim", "patience", "epochs", "batch_size", "hidden_layers", "seed"):
            if getattr(self, name) is not None or name not in ("dim", "hidden_dim", "patience"):
                check_whole(name, getattr(self, name), 0 if name in ("hidden_layers", "seed") else 1)
        for name, choices in (("activation", ACTIVATIONS), ("loss", get_args(Loss)), ("kind", get_args(Kind)),
                              ("precision", get_args(Precision)), ("solver", get_args(Solver))):  # fmt: skip
            if getattr(self, name) not in choices:
                raise InputError(f"{name} is {' or '.join(choices)}, not {getattr(self, name)!r}")
        if not 0 <= self.hidden_layers <= 2:
            raise InputError(f"hidden_layers is 0, 1 or 2, not {self.hidden_layers}")
        for name in ("temperature", "learning_rate"):
            if not (is_number(value := getattr(self, name)) and value > 0):
                raise InputError(f"{name} must be a number above 0, not {value!r}")
        if not (is_number(self.view_dropout) and 0 <= self.view_dropout < 1):
            raise InputError(f"view_dropout must be a number from 0 to below 1, not {self.view_dropout!r}")
        if self.seed >= 2**63:
            raise InputError(f"seed must be below 2**63, not {self.seed}")
        if not (self.device is None or isinstance(self.device, str)):
            raise InputError(f"device is a name such as 'cpu' or 'cuda', not {self.device!r}")
        betas = tuple(self.betas) if isinstance(self.betas, Sequence) else ()
        if len(betas) != 2 or not all(is_number(beta) and 0 <= beta < 1 for beta in betas):
            raise InputError(f"betas are two numbers from 0 to below 1, not {self.betas!r}")
        # JSON has no tuples: a list is accepted, too.
        object.__setattr__(self, "betas", tuple(float(beta) for beta in betas))
        object.__setattr__(self, "weights", checked_weights(self.weights))
        if self.solver == "moments" and not self.linear:
            raise InputError('solver="moments" is for loss="mse", hidden_layers=0, kind="cross" and no view_dropout')

    @property
    def linear(self) -> bool:
        """Whether the loss is a function of the second moments alone."""
        return (self.loss, self.hidden_layers, self.kind, self.view_dropout) == ("mse", 0, "cross", 0)

    @property
    def solved(self) -> bool:
        """Whether it is solved from the moments, not trained."""
        return self.linear and self.solver != "batches"

    @property
    def trains(self) -> bool:
        """Whether fitting takes epochs."""
        return not self.solved

    @property
    def solvable(self) -> bool:
        """Whether it is solved, and its weights are known."""
        return self.solved and self.weighting != "reliability"

    def solve(self, moments: Moments, dims: Sequence[int]) -> Meta:
        """Return the meta-embedding of views whose concatenation has these moments; for the linear case only."""
        if not self.linear:
            raise InputError(f"{self} has to be trained: only mse without hidden layers is a function of the moments")
        counted = CountedMembers.of(self.weights, dims)
        return _solve_linear(moments, counted, int(self.dim or max(counted.dims)), self.to_json())

    def largest_dim(self, dims: Sequence[int]) -> int | None:
        """Return the members' dimensions together where the linear case is solved; training has no bound."""
        return sum(dims) if self.solved else None

    def check(self, dims: Sequence[int]) -> None:
        """Refuse a `dim` that cannot be split among these members, too."""
        super().check(dims)
        if self.weighting != "reliability":  # else which members will be left out is not known yet
            self._code(CountedMembers.of(self.weights, dims))

    def _code(self, counted: CountedMembers) -> int:
        """Return the dimension d, of which `concatenated` and `decoupled` give each member the same part."""
        d, J = int(self.dim or max(counted.dims)), len(counted.dims)
        if self.kind in ("concatenated", "decoupled") and d % J:
            raise InputError(f"kind={self.kind!r} splits dim={d} among {J} views: choose a multiple of that")
        return d

    def combine(self, views: Views, how: Pass, passes: Passes) -> Meta:
        """Train on views, which may be larger than memory (TrainingError if it diverges), or solve the linear case."""
        rows, dims = views[0].shape[0], [view.shape[1] for view in views]
        counted = CountedMembers.of(self.weights, dims)
        d = self._code(counted)
        if self.solved:
            return self.solve(passes.moments(views, how), dims)
        # The training does not depend on the weights: with others, an interrupted one can be continued.
        networks = passes.train(self.with_weights("equal"), [views[j] for j in counted.members], d, how)
        scaled = [network.scaled(float(scale)) for network, scale in zip(networks, counted.scales, strict=True)]
        return Meta(self.to_json(), d, counted.projections(scaled), normalize=False, rows=rows)


def _solve_linear(moments: Moments, counted: CountedMembers, d: int, method: Mapping[str, Any]) -> Meta:
    r"""Return the encoders that minimise `sum_j sum_j' |x_j' - D_j' E_j x_j|^2 / d_j'`, with biases, over all rows.

    Write x for the concatenated views, centred, each divided by sqrt(d_j), S for its covariance and S_j for the d_j
    columns of S that belong to view j. With the decoders stacked to D, the loss is the sum over j of the error of
    predicting all of x from x_j through d numbers. For a given D, whose columns may be taken orthonormal, the best
    encoder is E_j = D' S_j S_jj^-1, and it remains to maximise

        trace(D' M D),   M = sum_j S_j S_jj^-1 S_j'

    so D holds the d leading eigenvectors of M: a sum of reduced-rank regressions.
    """
    moments, dims = counted.moments(moments), counted.dims
    scales = np.concatenate([np.full(size, size**-0.5) for size in dims])
    S = moments.covariance * np.outer(scales, scales)
    places = column_slices(dims)
    if not moments.varies():
        raise ViewError("every row of the views is the same: there is nothing to learn from")
    # W W' is the inverse of S_jj, on the directions in which the view varies.
    whiteners = [
        Whitening.of(S[place, place], 0.0, moments.resolution).matrix if moments.varies(place) else np.zeros((size, 0))
        for place, size in zip(places, dims, strict=True)
    ]
    half = [S[:, place] @ W for place, W in zip(places, whiteners, strict=True)]
    M = np.asarray(sum(part @ part.T for part in half))
    values, D = supported_eigh(M, d, moments, "ae")
    encoders = [W @ (part.T @ D) for W, part in zip(whiteners, half, strict=True)]
    projections = counted.centred(np.vstack(encoders) * scales[:, None], moments.mean)
    return Meta(method, d, projections, normalize=False, spectrum=values, rows=moments.n)
