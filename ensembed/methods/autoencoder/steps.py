"""One step of training: rows in, weights changed; on a CUDA device as a graph, which costs the host nothing.

Several processes add up their gradients between the gradient and the update; they run without graphs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from ensembed.methods.autoencoder.cross_view_network import (
    CrossViewNetwork,
    Design,
    ReplaceByGradient,
    replace_by_gradient,
)
from ensembed.methods.autoencoder.losses import loss_function
from ensembed.methods.autoencoder.parameters import Parameters, adam, adam_update
from ensembed.methods.autoencoder.process_group import Group, Shares, weighted_sum
from ensembed.methods.autoencoder.training_batches import Batches

if TYPE_CHECKING:
    from ensembed.methods.autoencoder.autoencoder_method import Autoencoder


class Stepper:
    """Runs the steps of an epoch.

    Args:
        method: the hyper-parameters.
        design: the shapes.
        parameters: what is trained.
        batches: where rows come from.
        shares: rows per step, of this process and of all together.
        group: the processes that train together.
    """

    def __init__(
        self,
        method: Autoencoder,
        design: Design,
        parameters: Parameters,
        batches: Batches,
        shares: Shares,
        group: Group,
    ) -> None:
        self._method, self._parameters, self._batches = method, parameters, batches
        self._shares, self._group = shares, group
        batch_size = shares.batch
        device, dtype = parameters.master.device, parameters.copy.dtype
        self._buffers = [torch.zeros(batch_size, size, dtype=dtype, device=device) for size in design.dims]
        dropped = method.view_dropout > 0
        self._keep = torch.ones(design.views, batch_size, 1, dtype=dtype, device=device) if dropped else None
        self._loss = torch.zeros((), dtype=parameters.master.dtype, device=device)
        loss, self._update = self._functions()
        self._network = CrossViewNetwork(design, parameters, loss)
        self._steps: dict[int, Callable[[], None]] = {}

    def epoch(self, number: int, rows: int) -> float:
        """All rows once, of which there are so many in all processes together; their mean loss."""
        total = torch.zeros_like(self._loss)
        self._batches.begin(number)
        for count, together in self._shares.steps():
            if count:
                self._batches.fill([buffer[:count] for buffer in self._buffers], self._kept(count))
            if self._group.size == 1:
                self._step(count)
            else:
                self._shared_step(count, together)
            total += self._loss * (count / rows)
        self._group.add_up(total)
        return float(total)

    def _step(self, count: int) -> None:
        if count not in self._steps:
            step = partial(self._plain_step, count)
            self._steps[count] = self._graph(step) if self._buffers[0].is_cuda else step
        self._steps[count]()

    def _plain_step(self, count: int) -> None:
        self._loss.copy_(self._network([buffer[:count] for buffer in self._buffers], self._kept(count)))
        adam(self._parameters, self._method.learning_rate, self._method.betas, self._update)

    def _shared_step(self, count: int, together: int) -> None:
        """A step whose gradient is the mean over the rows of all processes, of which this one has `count`."""
        if count:
            self._loss.copy_(self._network([buffer[:count] for buffer in self._buffers], self._kept(count)))
        weighted_sum(self._group, [self._parameters.gradient], count / together)
        adam(self._parameters, self._method.learning_rate, self._method.betas, self._update)

    def _kept(self, count: int) -> Tensor | None:
        return None if self._keep is None else self._keep[:, :count]

    def _functions(self) -> tuple[ReplaceByGradient, Callable[..., None]]:
        """What computes the loss, and what updates the weights: kernels of our own on a CUDA device."""
        method = self._method
        if self._buffers[0].is_cuda and self._loss.dtype == torch.float32:
            try:
                from ensembed.methods.autoencoder.triton_kernels import adam_kernel, loss_kernel

                loss = loss_kernel(method.loss, method.temperature)
                loss(self._buffers[0][None, :1].clone(), self._buffers[0][:1], None)
            except (ImportError, RuntimeError, OSError) as error:  # triton is for Linux, and wants a C compiler
                warnings.warn(f"training slower, without kernels of our own: {error}", RuntimeWarning, stacklevel=2)
            else:
                return loss, adam_kernel
        return partial(replace_by_gradient, loss_function(method.loss, method.temperature)), adam_update

    def _graph(self, step: Callable[[], None]) -> Callable[[], None]:
        """A step as a CUDA graph."""
        before = self._parameters.snapshot()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # capturing wants a step that has run before: libraries set themselves up
            for _ in range(2):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Of this thread only: another may be pinning memory for the batches to come.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            step()
        self._parameters.restore(before)
        return cast("Callable[[], None]", graph.replay)
