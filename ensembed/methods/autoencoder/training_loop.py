"""Training an autoencoder: steps (a CUDA graph in a single process), epochs, progress, checkpoints, early stopping."""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from ensembed.errors import InputError
from ensembed.methods.autoencoder.cross_view_network import (
    CrossViewNetwork,
    Design,
    Parameters,
    ReplaceByGradient,
    adam,
    loss_function,
    replace_by_gradient,
)
from ensembed.methods.autoencoder.training_batches import Batches, are_resident, make_batches
from ensembed.methods.meta import FloatArray, Layer, Network
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.process_group import Alone, DivergedError, Shares, seed_of, weighted_sum
from ensembed.numerics.row_matrices import Matrix
from ensembed.numerics.torch_device import kernel_errors, memory_errors
from ensembed.support.progress import Progress
from ensembed.support.training_checkpoint import Checkpoint, State

if TYPE_CHECKING:
    from ensembed.methods.autoencoder.autoencoder_method import Autoencoder

_KEEP_EVERY = 30.0  # seconds between checkpoints: an interruption loses at most this and an epoch
_STANDSTILL = 1e-4  # a loss that falls by less than this part of itself counts as not falling
_DTYPES = {"float64": torch.float64, "float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16}
_FACTS = {"epoch": int, "best": float, "since": int}
_HASHED_ROWS = 4096  # at a time


def train(
    method: Autoencoder,
    views: Sequence[Matrix],
    d: int,
    how: Pass,
    *,
    group: Alone | None = None,
    device: str | None = None,
    keep_every: float | None = None,
) -> tuple[Network, ...]:
    """Return the trained encoders of all views, with codes of d dimensions.

    In a group, the views are the rows of this process, and the first process writes checkpoints, every `keep_every`
    seconds (None is half a minute). `device` is the device of this process, if it is not the method's.
    """
    device = choose_device(method.device if device is None else device)
    precision = _choose_precision(method, device)
    # Graphs, streams and kernels are made on the device that is current.
    less = memory_errors(f"batch_size={method.batch_size}, dim or hidden_dim")
    with torch.cuda.device(device) if device.startswith("cuda") else nullcontext(), less:
        seconds = _KEEP_EVERY if keep_every is None else keep_every
        return _Run(method, views, device, precision, group or Alone(), seconds).networks(d, how)


class _Run:
    """One training on one device, alone or in a group."""

    def __init__(
        self, method: Autoencoder, views: Sequence[Matrix], device: str, precision: str, group: Alone, keep_every: float
    ) -> None:
        self._method, self._views, self._device, self._precision = method, views, device, precision
        self._group, self._keep_every = group, keep_every

    def networks(self, d: int, how: Pass) -> tuple[Network, ...]:
        """Train, and return the encoders."""
        method, group, dtype = self._method, self._group, _DTYPES[self._precision]
        dims = tuple(view.shape[1] for view in self._views)
        code = d // len(dims) if method.kind in ("concatenated", "decoupled") else d
        design = Design(dims, code, method.hidden_layers, method.hidden_dim or d, method.activation, method.kind)
        parameters = Parameters(design.shapes(), dtype, self._device, int(method.seed))
        checkpoint = None if how.checkpoint is None else Checkpoint(Path(how.checkpoint), self._identity())
        shares = Shares.of(group.of_all(self._views[0].shape[0]), group.rank, int(method.batch_size))
        with _settings(how.threads, self._device, self._precision):
            seed = seed_of(int(method.seed), group.rank)
            source = make_batches(self._views, dtype, self._device, seed, method.view_dropout, how.progress)
            with closing(source) as batches:
                stepper = Stepper(method, design, parameters, batches, shares, group)
                self._epochs(stepper, parameters, checkpoint, how.progress)
        if checkpoint is not None and group.rank == 0:
            checkpoint.remove()
        return _networks(design, {name: weight.float().cpu().numpy() for name, weight in parameters.named().items()})

    def _identity(self) -> str:
        """Return a hash of everything that determines a training; in a group, of all processes."""
        # Besides the method itself, what changes the order of sums and of rows.
        resident = are_resident(self._views, _DTYPES[self._precision], self._device)
        facts = [self._device, self._precision, torch.__version__, resident]
        parts = self._group.of_all(identity_of([self._method.to_json(), facts], self._views))
        return parts[0] if len(parts) == 1 else identity_of(parts, [])

    def _epochs(
        self, stepper: Stepper, parameters: Parameters, checkpoint: Checkpoint | None, progress: Progress
    ) -> None:
        """Run all epochs that are still to do."""
        method, group = self._method, self._group
        facts: dict[str, Any] = {"epoch": 0, "best": math.inf, "since": 0}
        writes = checkpoint is not None and group.rank == 0
        # One process reads it for all: they must not continue from different epochs.
        shapes = {name: tuple(tensor.shape) for name, tensor in parameters.changing().items()}
        state = group.of_first(checkpoint.read(shapes, _FACTS) if checkpoint is not None and writes else None)
        if state is not None:
            facts = dict(state.facts)
            parameters.restore({name: torch.from_numpy(np.array(array)) for name, array in state.arrays.items()})
        saved = time.monotonic()
        # Within an epoch the weights belong to no epoch: the last whole one is held for a checkpoint.
        whole = _WholeEpoch(parameters) if writes else None
        try:
            while facts["epoch"] < method.epochs and (method.patience is None or facts["since"] < method.patience):
                loss = stepper.epoch(facts["epoch"])
                facts["epoch"] += 1
                _check(loss, parameters, facts["epoch"], method.learning_rate)
                if loss < facts["best"] * (1 - _STANDSTILL):
                    facts |= {"best": loss, "since": 0}
                else:  # the best stays, so that many small steps together count as a fall
                    facts["since"] += 1
                progress(f"train · loss {loss:.6g}", facts["epoch"], method.epochs)
                if whole is not None:
                    whole.take(facts)
                if checkpoint is not None and self._is_time(saved, parameters):
                    if whole is not None:
                        checkpoint.write(whole.state())
                    group.kept(facts | {"loss": loss})
                    saved = time.monotonic()
        except KeyboardInterrupt:
            if checkpoint is not None and whole is not None and whole.facts:
                checkpoint.write(whole.state())
            raise
        progress("train", method.epochs, method.epochs)

    def _is_time(self, saved: float, parameters: Parameters) -> bool:
        """Return whether to write a checkpoint now, by the clock of the first process."""
        mine = self._group.rank == 0 and time.monotonic() - saved > self._keep_every
        flag = torch.tensor([float(mine)], dtype=torch.float64, device=parameters.master.device)
        self._group.add_up(flag)
        return bool(flag.item())


def _check(loss: float, parameters: Parameters, epoch: int, learning_rate: float) -> None:
    """Raise a DivergedError if the loss or the weights are not finite."""
    if not math.isfinite(loss):
        problem = f"the autoencoder's loss became {loss}"
    # The loss is that of the weights before the last step. And Adam divides by the root of the squared gradient: if
    # that overflows, the weights do not move any more.
    elif not (parameters.master.isfinite().all() and parameters.second.isfinite().all()):
        problem = f"at a loss of {loss:.3g}, the autoencoder's gradient became too large"
    else:
        return
    raise DivergedError(f"{problem} in epoch {epoch}: lower learning_rate={learning_rate}, or scale the views down")


class Stepper:
    """Runs the steps of an epoch."""

    def __init__(
        self, method: Autoencoder, design: Design, parameters: Parameters, source: Batches, shares: Shares, group: Alone
    ) -> None:
        self._method, self._parameters, self._batches = method, parameters, source
        self._shares, self._group = shares, group
        device, dtype = parameters.master.device, parameters.copy.dtype
        self._buffers = [torch.zeros(shares.batch, size, dtype=dtype, device=device) for size in design.dims]
        dropped = method.view_dropout > 0
        self._keep = torch.ones(design.views, shares.batch, 1, dtype=dtype, device=device) if dropped else None
        self._loss = torch.zeros((), dtype=parameters.master.dtype, device=device)
        self._network = CrossViewNetwork(design, parameters, self._loss_function())
        self._steps: dict[int, Callable[[], None]] = {}

    def epoch(self, number: int) -> float:
        """Go through all rows once; return their mean loss over all processes."""
        total = torch.zeros_like(self._loss)
        rows = sum(self._shares.parts)
        self._batches.begin(number)
        for count, together in self._shares.steps():
            if count:
                self._batches.fill([buffer[:count] for buffer in self._buffers], self._kept(count))
            if self._group.size == 1:
                self._graph_or_step(count)()
            else:
                self._step(count, count / together)
            total += self._loss * (count / rows)
        self._group.add_up(total)
        return float(total)

    def _graph_or_step(self, count: int) -> Callable[[], None]:
        if count not in self._steps:
            step = partial(self._step, count)
            self._steps[count] = self._graph(step) if self._buffers[0].is_cuda else step
        return self._steps[count]

    def _step(self, count: int, share: float | None = None) -> None:
        """Update the weights from `count` rows, which are this share of the rows of a group."""
        if count:
            self._loss.copy_(self._network([buffer[:count] for buffer in self._buffers], self._kept(count)))
        if share is not None:
            weighted_sum(self._group, self._parameters.gradient, share)
        adam(self._parameters, self._method.learning_rate, self._method.betas)

    def _kept(self, count: int) -> Tensor | None:
        return None if self._keep is None else self._keep[:, :count]

    def _loss_function(self) -> ReplaceByGradient:
        """Return what computes the loss: our own kernel on a CUDA device."""
        method = self._method
        if self._buffers[0].is_cuda and self._loss.dtype == torch.float32:
            try:
                from ensembed.methods.autoencoder.triton_kernels import loss_kernel

                loss = loss_kernel(method.loss, method.temperature)
                loss(self._buffers[0][None, :1].clone(), self._buffers[0][:1], None)
            except kernel_errors() as error:
                warnings.warn(f"training slower, without our own kernel: {error}", RuntimeWarning, stacklevel=2)
            else:
                return loss
        return partial(replace_by_gradient, loss_function(method.loss, method.temperature))

    def _graph(self, step: Callable[[], None]) -> Callable[[], None]:
        """Return a step as a CUDA graph."""
        before = self._parameters.snapshot()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # capturing needs a step that has run before: libraries initialise themselves
            for _ in range(2):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Of this thread only: another may be pinning memory for later batches.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            step()
        self._parameters.restore(before)
        return cast("Callable[[], None]", graph.replay)


class _WholeEpoch:
    """The parameters as they were at the end of an epoch, held on their device."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._held = parameters.snapshot()
        self.facts: dict[str, Any] = {}

    def take(self, facts: dict[str, Any]) -> None:
        """Hold the current parameters."""
        self.facts = {}  # a copy that an interruption leaves half done belongs to no epoch
        for name, tensor in self._parameters.changing().items():
            self._held[name].copy_(tensor)
        self.facts = dict(facts)

    def state(self) -> State:
        """Return what is held, for a checkpoint."""
        return State({name: tensor.cpu().numpy() for name, tensor in self._held.items()}, self.facts)


def identity_of(facts: Sequence[Any], views: Sequence[Matrix]) -> str:
    """Return a hash over facts and over every row of every view."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for view in views:
        digest.update(repr(view.shape).encode())
        for start in range(0, view.shape[0], _HASHED_ROWS):
            digest.update(np.ascontiguousarray(view[start : start + _HASHED_ROWS], np.float32).tobytes())
    return digest.hexdigest()[:32]


def choose_device(wanted: str | None) -> str:
    """Return the wanted device, or the best one; an InputError if it does not exist here."""
    if wanted is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=wanted).item()  # some devices only hold shapes
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(f"there is no device {wanted!r} here: {str(error).splitlines()[0]}") from error
    return wanted


def _choose_precision(method: Autoencoder, device: str) -> str:
    cuda = device.startswith("cuda")
    if method.precision == "auto":
        # Two hidden layers magnify rounding errors: a run ends as far away as with another seed.
        coarse = cuda and method.hidden_layers < 2 and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bfloat16" if coarse else "float32"
    if method.precision in ("tf32", "bfloat16") and not cuda:
        reason = f"is for CUDA devices; on {device} it would be slower than float32"
        raise InputError(f"precision={method.precision!r} {reason}")
    return method.precision


@contextmanager
def _settings(threads: int | None, device: str, precision: str) -> Iterator[None]:
    """Set threads and, on CUDA, tf32 products and float32 sums of bfloat16 products; restore them at the end."""
    matmul, cuda = torch.backends.cuda.matmul, device.startswith("cuda")
    before = torch.get_num_threads(), matmul.allow_tf32, matmul.allow_bf16_reduced_precision_reduction
    if threads is not None:
        torch.set_num_threads(threads)
    if cuda:
        matmul.allow_tf32, matmul.allow_bf16_reduced_precision_reduction = precision == "tf32", False
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        if cuda:
            matmul.allow_tf32, matmul.allow_bf16_reduced_precision_reduction = before[1:]


def _networks(design: Design, weights: dict[str, FloatArray]) -> tuple[Network, ...]:
    """Return the encoders, in numpy."""
    # The mean of the codes is written as a sum.
    share = np.float32(1 / design.views if design.kind == "averaged" else 1)
    networks = []
    for j in range(design.views):
        names = [f"encoder.{layer}.{j}" for layer in range(design.hidden_layers + 1)]
        *layers, last = (Layer(weights[name], weights[f"{name}.bias"]) for name in names)
        layers.append(Layer(last.matrix * share, last.bias * share))
        start = j * design.code if design.kind in ("concatenated", "decoupled") else 0
        networks.append(Network(tuple(layers), design.activation, start))
    return tuple(networks)
