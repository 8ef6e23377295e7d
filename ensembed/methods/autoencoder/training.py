"""The loop: batches, steps, progress, checkpoints, early stopping."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from ensembed.errors import InputError, TrainingError
from ensembed.methods.autoencoder.batches import Batches, make_batches
from ensembed.methods.autoencoder.checkpoints import Checkpoint, State, identity_of
from ensembed.methods.autoencoder.losses import loss_function
from ensembed.methods.autoencoder.network import CrossViewNetwork, Design, replace_by_gradient
from ensembed.methods.autoencoder.parameters import Parameters, adam, adam_update
from ensembed.methods.projections import FloatArray, Layer, Network
from ensembed.progress import Progress
from ensembed.rows import Matrix

if TYPE_CHECKING:
    from ensembed.methods.autoencoder.method import Autoencoder

# Seconds between checkpoints: what an interruption can lose at the most, an epoch apart.
_KEEP_EVERY = 30.0
# A loss that falls by less than this part of itself does not fall.
_STANDSTILL = 1e-4
# What an update changes.
_CHANGING = ("master", "first", "second", "steps")
_DTYPES = {"float64": torch.float64, "float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16}


def train(
    method: Autoencoder,
    views: Sequence[Matrix],
    d: int,
    *,
    threads: int | None,
    progress: Progress,
    checkpoint: Path | None,
) -> tuple[Network, ...]:
    """The encoders of all views, trained."""
    device = choose_device(method.device)
    precision = _choose_precision(method.precision, device)
    dims = tuple(view.shape[1] for view in views)
    code = d // len(dims) if method.kind in ("concatenated", "decoupled") else d
    design = Design(dims, code, method.hidden_layers, method.hidden_dim or d, method.activation, method.kind)
    shapes, inputs = design.shapes()
    parameters = Parameters(shapes, inputs, _DTYPES[precision], device, method.seed)
    kept = None
    if checkpoint is not None:
        kept = Checkpoint(checkpoint, identity_of(method.to_json(), views, f"{device} {precision}"))
    with _settings(threads, precision):
        batches = make_batches(views, _DTYPES[precision], device, method.seed, method.view_dropout, progress)
        stepper = Stepper(method, design, parameters, batches, min(method.batch_size, views[0].shape[0]))
        _run(method, views[0].shape[0], stepper, parameters, kept, progress)
    if kept is not None:
        kept.remove()
    return _networks(design, {name: weight.float().cpu().numpy() for name, weight in parameters.named().items()})


def _run(
    method: Autoencoder,
    rows: int,
    stepper: Stepper,
    parameters: Parameters,
    kept: Checkpoint | None,
    progress: Progress,
) -> None:
    """All epochs that are still to do."""
    facts: dict[str, Any] = {"epoch": 0, "best": math.inf, "since": 0}
    state = kept.read() if kept is not None else None
    if state is not None:
        facts = dict(state.facts)
        _restore(parameters, state)
    saved = time.monotonic()
    # Within an epoch the weights are of no epoch: where training can be gone on with, its last whole one is held.
    whole = _Whole(parameters) if kept is not None else None
    try:
        while facts["epoch"] < method.epochs and (method.patience is None or facts["since"] < method.patience):
            loss = stepper.epoch(facts["epoch"], rows)
            facts["epoch"] += 1
            if not math.isfinite(loss):
                raise TrainingError(
                    f"the autoencoder's loss became {loss} in epoch {facts['epoch']}: lower learning_rate="
                    f"{method.learning_rate}, or look for huge values in the views"
                )
            fell = loss < facts["best"] * (1 - _STANDSTILL)
            facts |= {"best": min(loss, facts["best"]), "since": 0 if fell else facts["since"] + 1}
            progress(f"train · loss {loss:.6g}", facts["epoch"], method.epochs)
            if kept is not None and whole is not None:
                whole.take(facts)
                if time.monotonic() - saved > _KEEP_EVERY:
                    kept.write(whole.state())
                    saved = time.monotonic()
    except KeyboardInterrupt:
        if kept is not None and whole is not None and whole.facts:
            kept.write(whole.state())
        raise
    progress("train", method.epochs, method.epochs)


class _Whole:
    """The parameters as they were at the end of an epoch, held on their device."""

    def __init__(self, parameters: Parameters) -> None:
        self._tensors = {name: getattr(parameters, name) for name in _CHANGING}
        self._held = {name: tensor.clone() for name, tensor in self._tensors.items()}
        self.facts: dict[str, Any] = {}

    def take(self, facts: dict[str, Any]) -> None:
        """Hold what is now."""
        for name, tensor in self._tensors.items():
            self._held[name].copy_(tensor)
        self.facts = dict(facts)

    def state(self) -> State:
        """What is held, for a checkpoint."""
        return State({name: tensor.cpu().numpy() for name, tensor in self._held.items()}, self.facts)


class Stepper:
    """Runs steps; on a CUDA device as graphs, which cost the host nothing.

    Args:
        method: the hyper-parameters.
        design: the shapes.
        parameters: what is trained.
        batches: where rows come from.
        batch_size: rows per step.
    """

    def __init__(
        self, method: Autoencoder, design: Design, parameters: Parameters, batches: Batches, batch_size: int
    ) -> None:
        self._method, self._parameters, self._batches = method, parameters, batches
        device, dtype = parameters.master.device, parameters.copy.dtype
        self._buffers = [torch.zeros(batch_size, size, dtype=dtype, device=device) for size in design.dims]
        dropped = method.view_dropout > 0
        self._keep = torch.ones(design.views, batch_size, 1, dtype=dtype, device=device) if dropped else None
        self._loss = torch.zeros((), dtype=parameters.master.dtype, device=device)
        self._design = design
        self._steps: dict[int, Callable[[], None]] = {}

    def epoch(self, number: int, rows: int) -> float:
        """All rows once; the mean loss."""
        size = len(self._buffers[0])
        total = torch.zeros_like(self._loss)
        self._batches.begin(number)
        for start in range(0, rows, size):
            count = min(size, rows - start)
            self._batches.fill([buffer[:count] for buffer in self._buffers], self._kept(count))
            self._step(count)
            total += self._loss * (count / rows)
        return float(total)

    def _step(self, count: int) -> None:
        if count not in self._steps:
            compiled = count == len(self._buffers[0])  # the last, smaller batch of an epoch is not worth the time
            plain = partial(self._plain_step, self._network(compiled=False), adam_update, count)
            if self._buffers[0].is_cuda:
                self._steps[count] = self._graph(count, compiled=compiled, plain=plain)
            else:
                self._steps[count] = plain
        self._steps[count]()

    def _plain_step(self, network: CrossViewNetwork, update: Callable[..., None], count: int) -> None:
        self._loss.copy_(network([buffer[:count] for buffer in self._buffers], self._kept(count)))
        adam(self._parameters, self._method.learning_rate, self._method.betas, update)

    def _kept(self, count: int) -> Tensor | None:
        return None if self._keep is None else self._keep[:, :count]

    def _network(self, *, compiled: bool) -> CrossViewNetwork:
        loss = partial(replace_by_gradient, loss_function(self._method.loss, self._method.temperature))
        if compiled:
            loss = torch.compile(loss, dynamic=False)
        return CrossViewNetwork(self._design, self._parameters, loss)

    def _graph(self, count: int, *, compiled: bool, plain: Callable[[], None]) -> Callable[[], None]:
        """A step as a CUDA graph, with the kernels of the loss and of Adam compiled, where that is possible."""
        step = plain
        if compiled:
            update = torch.compile(adam_update, dynamic=False)
            step = partial(self._plain_step, self._network(compiled=True), update, count)
        before = _Whole(self._parameters).state()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):  # capturing wants a step that has run before: libraries set themselves up
                for _ in range(2):
                    step()
        except Exception as error:  # the compiler's own errors; a machine without a C compiler
            if not compiled:
                raise
            warnings.warn(f"training without compiled kernels: {error}", RuntimeWarning, stacklevel=2)
            return self._graph(count, compiled=False, plain=plain)
        torch.cuda.current_stream().wait_stream(stream)
        _restore(self._parameters, before)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        _restore(self._parameters, before)
        return cast("Callable[[], None]", graph.replay)


def choose_device(wanted: str | None) -> str:
    """The device that is asked for, if it is there, or the best one.

    Raises:
        InputError: there is no such device here.
    """
    if wanted is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=wanted)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(f"there is no device {wanted!r} here: {str(error).splitlines()[0]}") from error
    return wanted


def _choose_precision(wanted: str, device: str) -> str:
    cuda = device.startswith("cuda")
    if wanted == "auto":
        return "bfloat16" if cuda else "float32"
    if wanted in ("tf32", "bfloat16") and not cuda:
        raise InputError(f"precision={wanted!r} is for CUDA devices; on {device} it would be slower than float32")
    return wanted


@contextmanager
def _settings(threads: int | None, precision: str) -> Iterator[None]:
    """The process's settings that training needs, put back afterwards."""
    before = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    if threads is not None:
        torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.backends.cuda.matmul.allow_tf32 = before[1]


def _restore(parameters: Parameters, state: State) -> None:
    for name in _CHANGING:
        getattr(parameters, name).copy_(torch.from_numpy(np.array(state.arrays[name])))
    parameters.refresh()


def _networks(design: Design, weights: dict[str, FloatArray]) -> tuple[Network, ...]:
    """The encoders, in numpy."""
    networks = []
    for j in range(design.views):
        layers = [Layer(weights[f"encoder.0.{j}"], weights[f"encoder.0.{j}.bias"])]
        layers += [
            Layer(weights[f"encoder.{layer}"][j], weights[f"encoder.{layer}.bias"][j, 0])
            for layer in range(1, design.hidden_layers + 1)
        ]
        if design.kind == "averaged":  # the mean of the codes, as a sum
            share = np.float32(1 / design.views)
            layers[-1] = Layer(layers[-1].matrix * share, layers[-1].bias * share)
        start = j * design.code if design.kind in ("concatenated", "decoupled") else 0
        networks.append(Network(tuple(layers), design.activation, start))
    return tuple(networks)
