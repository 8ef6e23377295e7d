"""The encoders and decoders of all views, their loss and its gradient, in few and large matrix products.

The gradient is written out: with it, every product has the shape that we choose. The codes of the J views are stacked,
so that each decoder runs once over all of them, and the first layers of all decoders, which take the same codes, are
one matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from ensembed.methods.autoencoder.losses import Loss, wide
from ensembed.methods.autoencoder.parameters import Parameters
from ensembed.methods.projections import Activation

# Gradient with respect to a layer's output and that output -> gradient with respect to its input.
Backward: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# Reconstructions [m, b, d], a view [b, d] and counts -> the loss; the reconstructions become its gradient.
ReplaceByGradient: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], Tensor]

_BACKWARD: dict[str, Backward] = {
    "relu": lambda D, A: torch.ops.aten.threshold_backward(D, A, 0),
    "tanh": torch.ops.aten.tanh_backward,
}


@dataclass(frozen=True)
class Design:
    """The shapes of an autoencoder.

    Attributes:
        dims: of the views.
        code: the dimension of one view's code.
        hidden_layers: of every encoder and decoder.
        hidden_dim: units of a hidden layer.
        activation: after every hidden layer.
        kind: which codes a decoder sees, see `Autoencoder`.
    """

    dims: tuple[int, ...]
    code: int
    hidden_layers: int
    hidden_dim: int
    activation: Activation
    kind: str

    @property
    def views(self) -> int:
        """J."""
        return len(self.dims)

    @property
    def decoder_input(self) -> int:
        """What a decoder takes."""
        return self.code * (self.views if self.kind == "concatenated" else 1)

    @property
    def first_widths(self) -> list[int]:
        """What the first layers of the decoders give."""
        return [self.hidden_dim] * self.views if self.hidden_layers else list(self.dims)

    def shapes(self) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
        """The shapes of all weights, and how many inputs the layer of each has."""
        L, h = self.hidden_layers, self.hidden_dim
        shapes: dict[str, tuple[int, ...]] = {}
        inputs: dict[str, int] = {}

        def add(name: str, takes: int, *shape: int) -> None:
            shapes[name], inputs[name] = shape, takes

        for layer in range(L + 1):
            for j, size in enumerate(self.dims):
                takes, out = h if layer else size, h if layer < L else self.code
                add(f"encoder.{layer}.{j}", takes, takes, out)
                add(f"encoder.{layer}.{j}.bias", takes, out)
        add("decoder.0", self.decoder_input, self.decoder_input, sum(self.first_widths))
        add("decoder.0.bias", self.decoder_input, sum(self.first_widths))
        for layer in range(1, L + 1):
            for j, size in enumerate(self.dims):
                out = size if layer == L else h
                add(f"decoder.{layer}.{j}", h, h, out)
                add(f"decoder.{layer}.{j}.bias", h, out)
        return shapes, inputs


class CrossViewNetwork:
    """Computes the loss of a batch and its gradient.

    Args:
        design: the shapes.
        parameters: the weights, whose gradient is filled.
        replace_by_gradient: see the function of that name.
    """

    def __init__(self, design: Design, parameters: Parameters, replace_by_gradient: ReplaceByGradient) -> None:
        self._design = design
        self._weights = parameters.weights
        self._gradients = parameters.gradients
        self._replace_by_gradient = replace_by_gradient
        self._backward = _BACKWARD[design.activation]

    def __call__(self, X: Sequence[Tensor], keep: Tensor | None = None) -> Tensor:
        """The loss of a batch, the mean over its rows; the gradient is left in the parameters.

        Args:
            X: views [b, d_j].
            keep: [J, b, 1] which view of a row is there, as 1 or 0; None for all.
        """
        outputs = self._encode(X)
        C, back = self._mix(outputs[-1], keep)
        loss, dC = self._decode(C, X, keep)
        dZ = back(dC)
        if self._design.kind == "decoupled":
            loss = loss + _draw_together(outputs[-1], keep, dZ)
        self._encode_back(X, outputs, dZ)
        return loss

    def _encode(self, X: Sequence[Tensor]) -> list[Tensor]:
        """The outputs [J, b, .] of the encoders' layers, the codes last."""
        design = self._design
        L = design.hidden_layers
        first = X[0].new_empty(design.views, len(X[0]), design.hidden_dim if L else design.code)
        for j, view in enumerate(X):
            self._layer(view, f"encoder.0.{j}", first[j], hidden=L > 0)
        outputs = [first]
        for layer in range(1, L + 1):
            before = outputs[-1]
            out = before.new_empty(*before.shape[:2], design.hidden_dim if layer < L else design.code)
            for j in range(design.views):
                self._layer(before[j], f"encoder.{layer}.{j}", out[j], hidden=layer < L)
            outputs.append(out)
        return outputs

    def _encode_back(self, X: Sequence[Tensor], outputs: list[Tensor], D: Tensor) -> None:
        """The gradients of the encoders, from that of the codes [J, b, e]."""
        weights = self._weights
        for layer in range(self._design.hidden_layers, 0, -1):
            A = outputs[layer - 1]
            back = torch.empty_like(A)
            for j in range(self._design.views):
                self._layer_gradients(f"encoder.{layer}.{j}", A[j], D[j])
                torch.mm(D[j], weights[f"encoder.{layer}.{j}"].t(), out=back[j])
            D = self._backward(back, A)
        for j, view in enumerate(X):
            self._layer_gradients(f"encoder.0.{j}", view, D[j])

    def _mix(self, Z: Tensor, keep: Tensor | None) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """What decoders see [m b, c] of the codes [J, b, e], and how its gradient becomes that of the codes."""
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
        """The loss of reconstructing the views from what decoders see [m b, c], and its gradient."""
        widths = self._design.first_widths
        first = C.new_empty(len(C), sum(widths))
        self._layer(C, "decoder.0", first, hidden=self._design.hidden_layers > 0)
        D = torch.empty_like(first) if self._design.hidden_layers else first
        total: Tensor | float = 0.0
        end = 0
        for j, (view, width) in enumerate(zip(X, widths, strict=True)):
            place = slice(end, end + width)
            total = total + self._decode_view(j, first[:, place], D[:, place], view, self._counts(j, keep))
            end += width
        if self._design.hidden_layers:
            D = self._backward(D, first)
        self._layer_gradients("decoder.0", C, D)
        return torch.as_tensor(total), D @ self._weights["decoder.0"].t()

    def _decode_view(self, j: int, A: Tensor, D: Tensor, view: Tensor, counts: Tensor | None) -> Tensor:
        """The loss of one view's reconstructions from the output A of its decoder's first layer.

        The gradient with respect to A is put into D, which is A itself where there is no other layer.
        """
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
        """How much each of the codes [m, b, 1] counts in the loss of view j; None for all alike."""
        if self._design.kind in ("averaged", "concatenated"):
            return None
        if self._design.kind == "cross":
            return keep
        # A decoupled decoder has no say about the codes of other views.
        own = self._weights["decoder.0"].new_zeros(self._design.views, 1, 1)
        own[j] = 1
        return own if keep is None else own * keep

    def _layer(self, A: Tensor, name: str, out: Tensor, *, hidden: bool) -> None:
        """A layer's output for A [n, m], with the activation behind a hidden one."""
        bias, matrix = self._weights[f"{name}.bias"], self._weights[name]
        if hidden and self._design.activation == "relu" and A.is_cuda:
            torch._addmm_activation(bias, A, matrix, out=out)  # the product's own kernel does both
            return
        torch.addmm(bias, A, matrix, out=out)
        if hidden:
            _activate(out, self._design.activation)

    def _layer_gradients(self, name: str, A: Tensor, D: Tensor) -> None:
        """The gradients of a layer with input A, from that of its output."""
        torch.mm(A.t(), D, out=self._gradients[name])
        # A product sums columns at the speed of memory; a sum of its own takes three times as long.
        torch.mm(D.new_ones(1, len(D)), D, out=self._gradients[f"{name}.bias"].unsqueeze(0))


def replace_by_gradient(loss: Loss, Y: Tensor, X: Tensor, counts: Tensor | None) -> Tensor:
    """The loss of reconstructions Y [m, b, d] of a view [b, d], a sum over m and a mean over b; Y becomes its gradient.

    Args:
        loss: of each.
        Y: the reconstructions.
        X: the view.
        counts: [m, b, 1] or [m, 1, 1] how much each counts; None for all alike.
    """
    losses, gradient = loss(Y, X)
    if counts is not None:
        losses, gradient = losses * counts.squeeze(-1), gradient * counts
    Y.copy_(gradient / Y.shape[1])
    return losses.sum() / Y.shape[1]


def _draw_together(Z: Tensor, keep: Tensor | None, dZ: Tensor) -> Tensor:
    """The mean squared distance between the views' codes [J, b, e], summed over pairs; its gradient is added to dZ."""
    J, b, e = Z.shape
    Z = wide(Z)
    kept = Z.new_ones(J, 1, 1) if keep is None else wide(keep)
    apart = kept * (kept.sum(0) * Z - (kept * Z).sum(0))
    dZ += (apart * (2 / (b * e))).to(dZ.dtype)
    return (Z * apart).sum() / (b * e)


def _activate(A: Tensor, activation: str) -> Tensor:
    return torch.relu_(A) if activation == "relu" else torch.tanh_(A)
