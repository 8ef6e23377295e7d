"""All weights of an autoencoder in one flat tensor, and Adam on it.

One buffer makes the optimiser one kernel and a checkpoint one array. Products read a copy in their own precision, whose
gradient has that precision, too; what is updated, and Adam's moments, are float32 or wider.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

EPSILON = 1e-8
"""Adam's guard against division by zero; the paper does not say another."""

# Matrices begin at multiples of so many numbers: products want aligned addresses.
_ALIGNED = 64


class Parameters:
    """Named weights as views of flat buffers.

    Args:
        shapes: of each weight.
        inputs: how many the layer of each weight has.
        dtype: of the products.
        device: where.
        seed: of the first weights, drawn from U(-1/sqrt(m), 1/sqrt(m)), m being a layer's inputs.

    Attributes:
        master: [size] the weights.
        copy: [size] the same in the products' precision; the master itself where that is the same.
        gradient: [size].
        first, second: [size] Adam's moments.
        steps: how many updates were made.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        inputs: Mapping[str, int],
        dtype: torch.dtype,
        device: str,
        seed: int,
    ) -> None:
        starts, size = {}, 0
        for name, shape in shapes.items():
            starts[name] = size
            size += -(-math.prod(shape) // _ALIGNED) * _ALIGNED
        kept = torch.float64 if dtype == torch.float64 else torch.float32
        self.master, self.first, self.second = (torch.zeros(size, dtype=kept, device=device) for _ in range(3))
        self.copy = self.master if dtype == kept else torch.zeros(size, dtype=dtype, device=device)
        self.gradient = torch.zeros(size, dtype=dtype, device=device)
        self.steps = torch.zeros((), dtype=kept, device=device)
        self._places = {
            name: (slice(start, start + math.prod(shapes[name])), shapes[name]) for name, start in starts.items()
        }
        self.weights = {name: self._view(self.copy, name) for name in shapes}
        self.gradients = {name: self._view(self.gradient, name) for name in shapes}
        # On the CPU, so that the first weights do not depend on the device.
        generator = torch.Generator().manual_seed(seed)
        for name, shape in shapes.items():
            bound = inputs[name] ** -0.5
            drawn = torch.empty(shape, dtype=torch.float64).uniform_(-bound, bound, generator=generator)
            self._view(self.master, name).copy_(drawn)
        self.restore(self.changing())

    def named(self) -> dict[str, Tensor]:
        """The weights, as they are kept."""
        return {name: self._view(self.master, name) for name in self._places}

    def changing(self) -> dict[str, Tensor]:
        """What an update changes, apart from the copy."""
        return {"master": self.master, "first": self.first, "second": self.second, "steps": self.steps}

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of what an update changes."""
        return {name: tensor.clone() for name, tensor in self.changing().items()}

    def restore(self, snapshot: Mapping[str, Tensor]) -> None:
        """Go back to a snapshot, wherever it is."""
        for name, tensor in self.changing().items():
            tensor.copy_(snapshot[name])
        if self.copy is not self.master:
            self.copy.copy_(self.master)

    def _view(self, flat: Tensor, name: str) -> Tensor:
        place, shape = self._places[name]
        return flat[place].view(shape)


def adam(parameters: Parameters, learning_rate: float, betas: tuple[float, float], update: Callable[..., None]) -> None:
    """One update by Adam (Kingma and Ba 2015) from the gradient; `update` is `adam_update`, as it is or compiled."""
    parameters.steps += 1
    # 1 - beta^t, without the cancellation that would cost float32 four digits in the first steps.
    logs = [math.log(beta) if beta else -math.inf for beta in betas]
    shares = torch.stack([-torch.expm1(parameters.steps * log) for log in logs])
    update(
        parameters.master,
        parameters.copy,
        parameters.gradient,
        parameters.first,
        parameters.second,
        shares,
        learning_rate,
        *betas,
    )


def adam_update(
    master: Tensor,
    copy: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    shares: Tensor,
    learning_rate: float,
    beta1: float,
    beta2: float,
) -> None:
    """The arithmetic of `adam`, on plain tensors, so that it can be compiled to one kernel."""
    g = gradient.to(first.dtype)
    m = first + (g - first) * (1 - beta1)
    v = second + (g * g - second) * (1 - beta2)
    scale = (v / shares[1]).sqrt() + EPSILON
    new = master - learning_rate * (m / shares[0]) / scale
    first.copy_(m)
    second.copy_(v)
    master.copy_(new)
    if copy is not master:
        copy.copy_(new)
