"""The loop: batches, steps, progress, checkpoints, early stopping."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ensembed.errors import InputError, TrainingError
from ensembed.methods.autoencoder.checkpoints import Checkpoint, State, identity_of
from ensembed.methods.autoencoder.cross_view_network import Design
from ensembed.methods.autoencoder.parameters import Parameters
from ensembed.methods.autoencoder.process_group import Alone, Group, Shares, flag_tensor, seed_of
from ensembed.methods.autoencoder.steps import Stepper
from ensembed.methods.autoencoder.training_batches import are_resident, make_batches
from ensembed.methods.projections import FloatArray, Layer, Network
from ensembed.numerics.row_matrices import Matrix
from ensembed.support.progress import Progress

if TYPE_CHECKING:
    from ensembed.methods.autoencoder.autoencoder_method import Autoencoder

# Seconds between checkpoints: what an interruption can lose at the most, an epoch apart.
_KEEP_EVERY = 30.0
# A loss that falls by less than this part of itself does not fall.
_STANDSTILL = 1e-4
_DTYPES = {"float64": torch.float64, "float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16}


def train(
    method: Autoencoder,
    views: Sequence[Matrix],
    d: int,
    *,
    threads: int | None,
    progress: Progress,
    checkpoint: Path | None,
    group: Group | None = None,
    device: str | None = None,
    keep_every: float | None = None,
) -> tuple[Network, ...]:
    """The encoders of all views, trained.

    Args:
        method: the hyper-parameters.
        views: row-aligned; in a group, the rows that this process takes.
        d: dimensions of the codes.
        threads: for the CPU; None leaves it to the libraries.
        progress: told of epochs.
        checkpoint: a folder in which training is kept; in a group the first process's counts.
        group: the processes that train together; None is this one alone.
        device: of this process, where it is not the method's.
        keep_every: seconds between checkpoints; None is half a minute.
    """
    device = choose_device(method.device if device is None else device)
    precision = _choose_precision(method, device)
    # Graphs, streams and kernels are made on the device that is current.
    with torch.cuda.device(device) if device.startswith("cuda") else nullcontext(), _memory_errors(method):
        run = _Run(
            method, views, device, precision, group or Alone(), _KEEP_EVERY if keep_every is None else keep_every
        )
        return run.networks(d, threads=threads, progress=progress, checkpoint=checkpoint)


class _Run:
    """One training on one device, alone or in a group."""

    def __init__(
        self, method: Autoencoder, views: Sequence[Matrix], device: str, precision: str, group: Group, keep_every: float
    ) -> None:
        self._method, self._views, self._device, self._precision = method, views, device, precision
        self._group, self._keep_every = group, keep_every

    def networks(
        self, d: int, *, threads: int | None, progress: Progress, checkpoint: Path | None
    ) -> tuple[Network, ...]:
        """Train, and give the encoders."""
        method, group, dtype = self._method, self._group, _DTYPES[self._precision]
        dims = tuple(view.shape[1] for view in self._views)
        code = d // len(dims) if method.kind in ("concatenated", "decoupled") else d
        design = Design(dims, code, method.hidden_layers, method.hidden_dim or d, method.activation, method.kind)
        shapes, inputs = design.shapes()
        parameters = Parameters(shapes, inputs, dtype, self._device, int(method.seed))
        kept = None if checkpoint is None else Checkpoint(Path(checkpoint), self._identity())
        shares = Shares.of(group.of_all(self._views[0].shape[0]), group.rank, int(method.batch_size))
        with _settings(threads, self._device, self._precision):
            seed = seed_of(int(method.seed), group.rank)
            made = make_batches(self._views, dtype, self._device, seed, method.view_dropout, progress)
            with closing(made) as batches:
                stepper = Stepper(method, design, parameters, batches, shares, group)
                self._epochs(stepper, shares.rows, parameters, kept, progress)
        if kept is not None and group.rank == 0:
            kept.remove()
        return _networks(design, {name: weight.float().cpu().numpy() for name, weight in parameters.named().items()})

    def _identity(self) -> str:
        """Of everything that makes a training what it is; of a group, what each of its processes has."""
        # What changes the order of sums and of rows, beside the method itself.
        resident = are_resident(self._views, _DTYPES[self._precision], self._device)
        how = [self._device, self._precision, torch.__version__, resident]
        parts = self._group.of_all(identity_of([self._method.to_json(), how], self._views))
        return parts[0] if len(parts) == 1 else identity_of(parts, [])

    def _epochs(
        self, stepper: Stepper, rows: int, parameters: Parameters, kept: Checkpoint | None, progress: Progress
    ) -> None:
        """All epochs that are still to do."""
        method, group = self._method, self._group
        facts: dict[str, Any] = {"epoch": 0, "best": math.inf, "since": 0}
        # One process reads it for all: they must not go on from different epochs.
        state = group.of_first(kept.read() if kept is not None and group.rank == 0 else None)
        if state is not None:
            facts = dict(state.facts)
            parameters.restore({name: torch.from_numpy(np.array(array)) for name, array in state.arrays.items()})
        saved = time.monotonic()
        # Within an epoch the weights are of no epoch: where training can be gone on with, its last whole one is held.
        whole = _Whole(parameters) if kept is not None and group.rank == 0 else None
        try:
            while facts["epoch"] < method.epochs and (method.patience is None or facts["since"] < method.patience):
                loss = stepper.epoch(facts["epoch"], rows)
                facts["epoch"] += 1
                _check(loss, parameters, facts["epoch"], method.learning_rate)
                if loss < facts["best"] * (1 - _STANDSTILL):
                    facts |= {"best": loss, "since": 0}
                else:  # the best stays, so that many small steps together are a fall
                    facts["since"] += 1
                progress(f"train · loss {loss:.6g}", facts["epoch"], method.epochs)
                if whole is not None:
                    whole.take(facts)
                if kept is not None and self._is_time(saved, parameters):
                    if whole is not None:
                        kept.write(whole.state())
                    group.kept(facts | {"loss": loss})
                    saved = time.monotonic()
        except KeyboardInterrupt:
            if kept is not None and whole is not None and whole.facts:
                kept.write(whole.state())
            raise
        progress("train", method.epochs, method.epochs)

    def _is_time(self, saved: float, parameters: Parameters) -> bool:
        """Whether to keep what is now: by the clock of the first process."""
        mine = self._group.rank == 0 and time.monotonic() - saved > self._keep_every
        if self._group.size == 1:
            return mine
        said = flag_tensor([float(mine)], parameters.master)
        self._group.add_up(said)
        return bool(said.item())


class DivergedError(TrainingError):
    """Training has left the numbers: in a group, for all of its processes in the same epoch."""


def _check(loss: float, parameters: Parameters, epoch: int, learning_rate: float) -> None:
    """Raise a DivergedError where training has left the numbers."""
    if not math.isfinite(loss):
        what = f"the autoencoder's loss became {loss}"
    # The loss is of the weights before the last step. And Adam divides by the root of the squared gradient: where that
    # overflows, nothing moves any more.
    elif not (parameters.master.isfinite().all() and parameters.second.isfinite().all()):
        what = f"at a loss of {loss:.3g}, the autoencoder's gradient became too large"
    else:
        return
    raise DivergedError(f"{what} in epoch {epoch}: lower learning_rate={learning_rate}, or scale the views down")


class _Whole:
    """The parameters as they were at the end of an epoch, held on their device."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._held = parameters.snapshot()
        self.facts: dict[str, Any] = {}

    def take(self, facts: dict[str, Any]) -> None:
        """Hold what is now."""
        self.facts = {}  # what an interruption finds half copied is of no epoch
        for name, tensor in self._parameters.changing().items():
            self._held[name].copy_(tensor)
        self.facts = dict(facts)

    def state(self) -> State:
        """What is held, for a checkpoint."""
        return State({name: tensor.cpu().numpy() for name, tensor in self._held.items()}, self.facts)


def choose_device(wanted: str | None) -> str:
    """The device that is asked for, if it is there, or the best one.

    Raises:
        InputError: there is no such device here.
    """
    if wanted is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=wanted).item()  # some devices only hold shapes
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(f"there is no device {wanted!r} here: {str(error).splitlines()[0]}") from error
    return wanted


def _choose_precision(method: Autoencoder, device: str) -> str:
    wanted, cuda = method.precision, device.startswith("cuda")
    if wanted == "auto":
        # Two hidden layers magnify what is rounded: a run ends as far away as with another seed.
        coarse = cuda and method.hidden_layers < 2 and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bfloat16" if coarse else "float32"
    if wanted in ("tf32", "bfloat16") and not cuda:
        raise InputError(f"precision={wanted!r} is for CUDA devices; on {device} it would be slower than float32")
    return wanted


@contextmanager
def _settings(threads: int | None, device: str, precision: str) -> Iterator[None]:
    """The process's settings that training needs, put back afterwards."""
    before = torch.get_num_threads()
    if threads:
        torch.set_num_threads(threads)
    with _tf32(precision == "tf32") if device.startswith("cuda") else nullcontext():
        try:
            yield
        finally:
            torch.set_num_threads(before)


@contextmanager
def _tf32(wanted: bool) -> Iterator[None]:
    """Products of float32 in fewer bits or not, and sums of bfloat16 products always in float32."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32, matmul.allow_bf16_reduced_precision_reduction
    matmul.allow_tf32, matmul.allow_bf16_reduced_precision_reduction = wanted, False
    try:
        yield
    finally:
        matmul.allow_tf32, matmul.allow_bf16_reduced_precision_reduction = before


@contextmanager
def _memory_errors(method: Autoencoder) -> Iterator[None]:
    """Say what to do when memory runs out."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:  # torch's own for a GPU is a RuntimeError; for the CPU it has none
        if isinstance(error, MemoryError) or "memory" in str(error).lower():
            reason = str(error).splitlines()[0][:200] if str(error) else "memory is full"
            raise TrainingError(
                f"there is not enough memory to train: {reason}; lower batch_size={method.batch_size}, dim or "
                "hidden_dim, or choose another device"
            ) from error
        raise


def _networks(design: Design, weights: dict[str, FloatArray]) -> tuple[Network, ...]:
    """The encoders, in numpy."""
    networks = []
    for j in range(design.views):
        layers = [
            Layer(weights[f"encoder.{layer}.{j}"], weights[f"encoder.{layer}.{j}.bias"])
            for layer in range(design.hidden_layers + 1)
        ]
        if design.kind == "averaged":  # the mean of the codes, as a sum
            share = np.float32(1 / design.views)
            layers[-1] = Layer(layers[-1].matrix * share, layers[-1].bias * share)
        start = j * design.code if design.kind in ("concatenated", "decoupled") else 0
        networks.append(Network(tuple(layers), design.activation, start))
    return tuple(networks)
