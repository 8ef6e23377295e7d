"""The encoders and decoders of all views, their loss and its gradient, in few and large matrix products; and Adam.

The gradient is written out, so that the codes of all views are stacked and the first layers of all decoders are one
matrix. All weights are in one flat tensor. Weights and Adam's moments are float32 or wider.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor
from torch.optim.adam import adam as fused_adam

from ensembed.methods.meta import Activation

# Reconstructions [m, b, d] and a view [b, d] -> losses [m, b] and their gradient [m, b, d], in float32 or wider.
Loss: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
# Reconstructions [m, b, d], a view [b, d] and counts -> the loss; the reconstructions become its gradient.
ReplaceByGradient: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], Tensor]
# Gradient with respect to a layer's output, and that output -> gradient with respect to its input.
_BACKWARD: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": lambda D, A: torch.ops.aten.threshold_backward(D, A, 0),
    "tanh": torch.ops.aten.tanh_backward,
}

_EPSILON = 1e-8  # Adam's guard against division by zero; the paper does not give another
# Matrices begin at multiples of so many numbers: products need aligned addresses.
_ALIGNED = 64
# Keeps the cosine of a zero vector, and its gradient, finite.
_TINY = 1e-12


@dataclass(frozen=True)
class Design:
    """The shapes of an autoencoder; `kind` is which codes a decoder sees, see `Autoencoder`."""

    dims: tuple[int, ...]  # of the views
    code: int  # dimension of one view's code
    hidden_layers: int
    hidden_dim: int
    activation: Activation
    kind: str

    @property
    def views(self) -> int:
        """J."""
        return len(self.dims)

    @property
    def first_widths(self) -> list[int]:
        """Output dimensions of the first layers of the decoders."""
        return [self.hidden_dim] * self.views if self.hidden_layers else list(self.dims)

    def shapes(self) -> dict[str, tuple[int, int]]:
        """Return input and output dimensions of all layers; the bias of layer `name` is `name.bias`."""
        L, h = self.hidden_layers, self.hidden_dim
        shapes: dict[str, tuple[int, int]] = {}
        for layer in range(L + 1):
            for j, size in enumerate(self.dims):
                shapes[f"encoder.{layer}.{j}"] = (h if layer else size, h if layer < L else self.code)
        decoder_input = self.code * (self.views if self.kind == "concatenated" else 1)
        shapes["decoder.0"] = (decoder_input, sum(self.first_widths))
        for layer in range(1, L + 1):
            for j, size in enumerate(self.dims):
                shapes[f"decoder.{layer}.{j}"] = (h, size if layer == L else h)
        return shapes


class Parameters:
    """Named weights as views of flat buffers: of `master`, and of `copy` in the products' precision (or the master).

    `first` and `second` are Adam's moments. Initial weights are drawn from U(-1/sqrt(m), 1/sqrt(m)) for m inputs.
    """

    def __init__(self, layers: Mapping[str, tuple[int, int]], dtype: torch.dtype, device: str, seed: int) -> None:
        shapes: dict[str, tuple[int, ...]] = {}
        for name, (inputs, outputs) in layers.items():
            shapes |= {name: (inputs, outputs), f"{name}.bias": (outputs,)}
        self._places, size = {}, 0
        for name, shape in shapes.items():
            self._places[name] = (slice(size, size + math.prod(shape)), shape)
            size += -(-math.prod(shape) // _ALIGNED) * _ALIGNED
        wide_type = torch.float64 if dtype == torch.float64 else torch.float32
        self.master, self.first, self.second = (torch.zeros(size, dtype=wide_type, device=device) for _ in range(3))
        self.copy = self.master if dtype == wide_type else torch.zeros(size, dtype=dtype, device=device)
        self.gradient = torch.zeros(size, dtype=dtype, device=device)
        self.steps = torch.zeros((), dtype=torch.float32, device=device)  # CUDA reads it so, whatever it is
        self.weights = {name: self._view(self.copy, name) for name in shapes}
        self.gradients = {name: self._view(self.gradient, name) for name in shapes}
        # On the CPU, so that the initial weights do not depend on the device.
        generator = torch.Generator().manual_seed(seed)
        for name, shape in shapes.items():
            bound = layers[name.removesuffix(".bias")][0] ** -0.5
            initial = torch.empty(shape, dtype=torch.float64).uniform_(-bound, bound, generator=generator)
            self._view(self.master, name).copy_(initial)
        self.restore(self.changing())

    def named(self) -> dict[str, Tensor]:
        """Return the weights by name, in the precision in which they are updated."""
        return {name: self._view(self.master, name) for name in self._places}

    def changing(self) -> dict[str, Tensor]:
        """Return the tensors that an update changes, apart from the copy."""
        return {"master": self.master, "first": self.first, "second": self.second, "steps": self.steps}

    def snapshot(self) -> dict[str, Tensor]:
        """Return a copy of the tensors that an update changes."""
        return {name: tensor.clone() for name, tensor in self.changing().items()}

    def restore(self, snapshot: Mapping[str, Tensor]) -> None:
        """Go back to a snapshot, on whatever device it is."""
        for name, tensor in self.changing().items():
            tensor.copy_(snapshot[name])
        self.update_copy()

    def update_copy(self) -> None:
        """Bring the copy to the state of the master."""
        if self.copy is not self.master:
            self.copy.copy_(self.master)

    def _view(self, flat: Tensor, name: str) -> Tensor:
        place, shape = self._places[name]
        return flat[place].view(shape)


def adam(P: Parameters, learning_rate: float, betas: tuple[float, float]) -> None:
    """Make one update by Adam (Kingma and Ba 2015) from the gradient."""
    gradient = P.gradient.to(P.master.dtype)
    options = {"amsgrad": False, "weight_decay": 0.0, "maximize": False, "fused": True}
    numbers = {"beta1": betas[0], "beta2": betas[1], "lr": learning_rate, "eps": _EPSILON}
    fused_adam([P.master], [gradient], [P.first], [P.second], [], [P.steps], **options, **numbers)
    P.update_copy()


def loss_function(name: str, temperature: float) -> Loss:
    """Return the loss of that name."""
    return partial(_kld, temperature=temperature) if name == "kld" else {"mse": _mse, "mae": _mae, "cos": _cos}[name]


def _mse(Y: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over dimensions of (y - x)^2."""
    R = _wide(Y) - _wide(X)
    return R.square().mean(-1), R * (2 / Y.shape[-1])


def _mae(Y: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over dimensions of |y - x|."""
    R = _wide(Y) - _wide(X)
    return R.abs().mean(-1), R.sign() / Y.shape[-1]


def _kld(Y: Tensor, X: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """KL(softmax(x / t) || softmax(y / t))."""
    log_p = torch.log_softmax(_wide(X) / temperature, -1)
    log_q = torch.log_softmax(_wide(Y) / temperature, -1)
    p = log_p.exp()
    return (p * (log_p - log_q)).sum(-1), (log_q.exp() - p) / temperature


def _cos(Y: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    """The squared distance of the cosine from 1."""
    Y, X = _wide(Y), _wide(X)
    length = (Y.square().sum(-1, keepdim=True) + _TINY).sqrt()
    unit = X / (X.square().sum(-1, keepdim=True) + _TINY).sqrt()
    cosine = (Y * unit).sum(-1, keepdim=True) / length
    gradient = (cosine - 1) * 2 * (unit - cosine * Y / length) / length
    return (1 - cosine).square().squeeze(-1), gradient


def _wide(X: Tensor) -> Tensor:
    """Return X as float32 or wider: sums in 16 bits lose too many digits."""
    return X.float() if X.dtype in (torch.bfloat16, torch.float16) else X


def replace_by_gradient(loss: Loss, Y: Tensor, X: Tensor, counts: Tensor | None) -> Tensor:
    """Return the loss of reconstructions Y [m, b, d] of a view [b, d], which become its gradient; None counts all."""
    losses, gradient = loss(Y, X)
    if counts is not None:
        losses, gradient = losses * counts.squeeze(-1), gradient * counts
    Y.copy_(gradient / Y.shape[1])
    return losses.sum() / Y.shape[1]


class CrossViewNetwork:
    """Computes the loss of a batch and its gradient, which is left in the parameters."""

    def __init__(self, design: Design, parameters: Parameters, replace_by_gradient: ReplaceByGradient) -> None:
        self._design, self._backward = design, _BACKWARD[design.activation]
        self._weights, self._gradients = parameters.weights, parameters.gradients
        self._replace_by_gradient = replace_by_gradient

    def __call__(self, X: Sequence[Tensor], keep: Tensor | None = None) -> Tensor:
        """Return the mean loss of views [b, d_j]; `keep` [J, b, 1] is 1 for a kept view of a row, None is all."""
        outputs = self._encode(X)
        C, back = self._mix(outputs[-1], keep)
        loss, dC = self._decode(C, X, keep)
        dZ = back(dC)
        if self._design.kind == "decoupled":
            loss = loss + _code_distances(outputs[-1], keep, dZ)
        self._encode_back(X, outputs, dZ)
        return loss

    def _encode(self, X: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs [J, b, .] of the encoders' layers, the codes last."""
        design = self._design
        outputs: list[Tensor] = []
        for layer in range(design.hidden_layers + 1):
            hidden = layer < design.hidden_layers
            inputs: Sequence[Tensor] | Tensor = outputs[-1] if layer else X
            out = X[0].new_empty(design.views, len(X[0]), design.hidden_dim if hidden else design.code)
            for j in range(design.views):
                self._layer(inputs[j], f"encoder.{layer}.{j}", out[j], hidden=hidden)
            outputs.append(out)
        return outputs

    def _encode_back(self, X: Sequence[Tensor], outputs: list[Tensor], D: Tensor) -> None:
        """Fill the gradients of the encoders, from that of the codes [J, b, e]."""
        for layer in range(self._design.hidden_layers, 0, -1):
            A = outputs[layer - 1]
            back = torch.empty_like(A)
            for j in range(self._design.views):
                self._layer_gradients(f"encoder.{layer}.{j}", A[j], D[j])
                torch.mm(D[j], self._weights[f"encoder.{layer}.{j}"].t(), out=back[j])
            D = self._backward(back, A)
        for j, view in enumerate(X):
            self._layer_gradients(f"encoder.0.{j}", view, D[j])

    def _mix(self, Z: Tensor, keep: Tensor | None) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return the decoders' input [m b, c] from the codes [J, b, e], and a function for the gradient's way back."""
        J, b, e = Z.shape
        if self._design.kind == "averaged":
            share = Z.new_full((J, 1, 1), 1 / J) if keep is None else keep / keep.sum(0)
            return (Z * share).sum(0), lambda D: D * share
        if self._design.kind == "concatenated":
            share = Z.new_ones(J, 1, 1) if keep is None else keep
            joined = (Z * share).transpose(0, 1).reshape(b, J * e)
            return joined, lambda D: D.view(b, J, e).transpose(0, 1) * share
        return Z.view(J * b, e), lambda D: D.view(J, b, e)

    def _decode(self, C: Tensor, X: Sequence[Tensor], keep: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the loss of reconstructing the views from the decoders' input [m b, c], and its gradient."""
        widths = self._design.first_widths
        first = C.new_empty(len(C), sum(widths))
        self._layer(C, "decoder.0", first, hidden=self._design.hidden_layers > 0)
        D = torch.empty_like(first) if self._design.hidden_layers else first
        parts = zip(first.split(widths, 1), D.split(widths, 1), X, strict=True)
        losses = [self._decode_view(j, A, dA, view, self._counts(j, keep)) for j, (A, dA, view) in enumerate(parts)]
        if self._design.hidden_layers:
            D = self._backward(D, first)
        self._layer_gradients("decoder.0", C, D)
        return torch.as_tensor(sum(losses)), D @ self._weights["decoder.0"].t()

    def _decode_view(self, j: int, A: Tensor, D: Tensor, view: Tensor, counts: Tensor | None) -> Tensor:
        """Return the loss of one view from the output A of its decoder's first layer; put A's gradient into D."""
        L, h = self._design.hidden_layers, self._design.hidden_dim
        outputs = [A]
        for layer in range(1, L + 1):
            out = A.new_empty(len(A), h if layer < L else view.shape[1])
            self._layer(outputs[-1], f"decoder.{layer}.{j}", out, hidden=layer < L)
            outputs.append(out)
        loss = self._replace_by_gradient(outputs[-1].unflatten(0, (-1, len(view))), view, counts)
        gradient = outputs[-1]
        for layer in range(L, 0, -1):
            name = f"decoder.{layer}.{j}"
            self._layer_gradients(name, outputs[layer - 1], gradient)
            if layer == 1:
                torch.mm(gradient, self._weights[name].t(), out=D)
            else:
                gradient = self._backward(gradient @ self._weights[name].t(), outputs[layer - 1])
        return loss

    def _counts(self, j: int, keep: Tensor | None) -> Tensor | None:
        """Return how much each of the codes [m, b, 1] counts in the loss of view j; None counts all alike."""
        if self._design.kind in ("averaged", "concatenated"):
            return None
        if self._design.kind == "cross":
            return keep
        # A decoupled decoder ignores the codes of other views.
        own = self._weights["decoder.0"].new_zeros(self._design.views, 1, 1)
        own[j] = 1
        return own if keep is None else own * keep

    def _layer(self, A: Tensor, name: str, out: Tensor, *, hidden: bool) -> None:
        """Put a layer's output for A [n, m] into `out`, with the activation after a hidden layer."""
        bias, matrix = self._weights[f"{name}.bias"], self._weights[name]
        if hidden and self._design.activation == "relu" and A.is_cuda:
            torch._addmm_activation(bias, A, matrix, out=out)  # the product's own kernel does both
            return
        torch.addmm(bias, A, matrix, out=out)
        if hidden:
            (torch.relu_ if self._design.activation == "relu" else torch.tanh_)(out)

    def _layer_gradients(self, name: str, A: Tensor, D: Tensor) -> None:
        """Fill the gradients of a layer with input A, from that of its output."""
        torch.mm(A.t(), D, out=self._gradients[name])
        # A product sums columns at the speed of memory; `sum` takes three times as long.
        torch.mm(D.new_ones(1, len(D)), D, out=self._gradients[f"{name}.bias"].unsqueeze(0))


def _code_distances(Z: Tensor, keep: Tensor | None, dZ: Tensor) -> Tensor:
    """Return the mean squared distance between codes [J, b, e], summed over pairs of views; add its gradient to dZ."""
    J, b, e = Z.shape
    Z = _wide(Z)
    kept = Z.new_ones(J, 1, 1) if keep is None else _wide(keep)
    apart = kept * (kept.sum(0) * Z - (kept * Z).sum(0))
    dZ += (apart * (2 / (b * e))).to(dZ.dtype)
    return (Z * apart).sum() / (b * e)
