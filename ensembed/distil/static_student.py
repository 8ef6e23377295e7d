"""A static student in training: a vector and a weight per token, updated by Adam for the tokens of a batch only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ensembed.distil.distil_job import Job, Rows
from ensembed.distil.student_training import Loss, Student

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8
_TABLES = ("vectors", "weights")


class StaticStudent(Student):
    """The mean over a sentence's tokens of vectors [V, d] times exp(weights [V]).

    Rows of tokens that are not in a batch do not change in its step, nor do their moments: what a step costs depends on
    the batch, not on the vocabulary.
    """

    by_neighbours = True

    def __init__(self, job: Job, device: Any) -> None:  # noqa: ANN401 - torch's own type
        vectors = torch.from_numpy(job.start()["vectors"].copy()).to(device)
        self._parameters = {"vectors": vectors, "weights": torch.zeros(len(vectors), 1, device=device)}
        self._first = {name: torch.zeros_like(tensor) for name, tensor in self._parameters.items()}
        self._second = {name: torch.zeros_like(tensor) for name, tensor in self._parameters.items()}
        self._steps = torch.zeros(1, device=device)
        # Rows as long as the start's: a rate of 0.001 then means the same for every start.
        self._scale = float(vectors.square().sum(1).mean().sqrt()) or 1.0
        self._device = device

    def step(self, rows: Rows, rate: float, loss: Loss) -> Tensor:
        """Take one step."""
        used, places = torch.unique(torch.from_numpy(rows.tokens).to(self._device), return_inverse=True)
        parts = {name: tensor[used].requires_grad_() for name, tensor in self._parameters.items()}
        Y = _means(parts["vectors"], parts["weights"], places, torch.from_numpy(rows.offsets).to(self._device))
        value = loss(Y, torch.from_numpy(rows.targets).to(self._device))
        gradients = torch.autograd.grad(value, list(parts.values()))
        self._steps += 1
        shares = [1 - beta ** float(self._steps) for beta in _BETAS]
        with torch.no_grad():
            for name, gradient in zip(parts, gradients, strict=True):
                first = self._first[name][used].lerp_(gradient, 1 - _BETAS[0])
                second = self._second[name][used].lerp_(gradient.square(), 1 - _BETAS[1])
                self._first[name][used], self._second[name][used] = first, second
                change = (first / shares[0]) / ((second / shares[1]).sqrt() + _EPSILON)
                self._parameters[name][used] -= rate * change
        return value.detach()

    def vectors(self, rows: Rows) -> Tensor:
        """Return the means."""
        with torch.no_grad():
            tokens, offsets = (torch.from_numpy(array).to(self._device) for array in (rows.tokens, rows.offsets))
            return _means(self._parameters["vectors"], self._parameters["weights"], tokens, offsets)

    def scale(self, factors: Tensor) -> None:
        """Scale the table."""
        self._parameters["vectors"] *= factors

    def weights(self) -> dict[str, Tensor]:
        """Return vectors and weights."""
        return dict(self._parameters)

    def moments(self) -> dict[str, Tensor]:
        """Return Adam's moments and the number of steps."""
        first = {f"first.{name}": tensor for name, tensor in self._first.items()}
        return first | {f"second.{name}": tensor for name, tensor in self._second.items()} | {"steps": self._steps}


def _means(vectors: Tensor, weights: Tensor, tokens: Tensor, offsets: Tensor) -> Tensor:
    """Return the means over sentences [b, d] of the tokens' weighted vectors."""
    return torch.nn.functional.embedding_bag(tokens, vectors * weights.exp(), offsets[:-1], mode="mean")
