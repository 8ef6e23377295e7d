"""How far a reconstruction is from a view, and the gradient: each in one function, so that one kernel does both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

# Reconstructions [m, b, d] and a view [b, d] -> losses [m, b] and their gradient [m, b, d], in float32 or wider.
Loss: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

# Keeps the cosine of a zero vector, and its gradient, finite.
_TINY = 1e-12


def loss_function(name: str, temperature: float) -> Loss:
    """The loss of that name."""
    return partial(kld, temperature=temperature) if name == "kld" else {"mse": mse, "mae": mae, "cos": cos}[name]


def mse(Y: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over dimensions of (y - x)^2."""
    R = wide(Y) - wide(X)
    return R.square().mean(-1), R * (2 / Y.shape[-1])


def mae(Y: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over dimensions of |y - x|."""
    R = wide(Y) - wide(X)
    return R.abs().mean(-1), R.sign() / Y.shape[-1]


def kld(Y: Tensor, X: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """KL(softmax(x / t) || softmax(y / t))."""
    log_p = torch.log_softmax(wide(X) / temperature, -1)
    log_q = torch.log_softmax(wide(Y) / temperature, -1)
    p = log_p.exp()
    return (p * (log_p - log_q)).sum(-1), (log_q.exp() - p) / temperature


def cos(Y: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    """The squared distance of the cosine from 1."""
    Y, X = wide(Y), wide(X)
    length = (Y.square().sum(-1, keepdim=True) + _TINY).sqrt()
    unit = X / (X.square().sum(-1, keepdim=True) + _TINY).sqrt()
    cosine = (Y * unit).sum(-1, keepdim=True) / length
    gradient = (cosine - 1) * 2 * (unit - cosine * Y / length) / length
    return (1 - cosine).square().squeeze(-1), gradient


def wide(X: Tensor) -> Tensor:
    """Float32 at the least: sums in 16 bits lose what they are about."""
    return X.float() if X.dtype in (torch.bfloat16, torch.float16) else X
