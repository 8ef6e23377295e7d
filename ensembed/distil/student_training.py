"""Train a student on a job: batches, schedule, loss, figures on held-out sentences, checkpoints. Needs torch.

    python -m ensembed.distil.student_training FOLDER

trains the job in a folder that `ensembed distil --prepare FOLDER` wrote, on a machine that has torch, numpy,
safetensors and filelock and nothing else; `ensembed distil --trained FOLDER` saves the student afterwards.
"""

from __future__ import annotations

import json
import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensembed.distil.distil_job import Job, Rows, decode, seal
from ensembed.distil.fidelity import Fidelity, HeldOut
from ensembed.errors import InputError, ModelError, TrainingError
from ensembed.numerics.process_group import Alone, DivergedError
from ensembed.numerics.torch_device import checked_device, memory_errors
from ensembed.support.checks import check_whole
from ensembed.support.progress import Progress, lines, silent
from ensembed.support.training_checkpoint import Checkpoint, State

_KEEP_EVERY = 60.0  # seconds between checkpoints: an interruption loses at most this
_LEAST_CHECKS = 10  # figures on held-out sentences per training, at least
_SHARPNESS = 0.05  # of the softmax of cosines
_NOTHING = -1e4  # the part of a sentence in its own shares, before the softmax
_PLACES = 512  # sentences, at most, by which others are sorted
_GROUP = 32  # sentences near each other in a batch
_WHITENED = 8192  # sentences that the sizes of dimensions are taken from
_FACTS = {"step": int, "best": float, "best_step": int, "since": int, "loss": float, "seconds": float}
RESULT = "result.json"
TRAINED = "trained.safetensors"


@dataclass(frozen=True)
class Training:
    """How a student is trained.

    Attributes:
        epochs: passes over the sentences.
        batch_size: sentences per step.
        learning_rate: the largest one: it rises linearly for a tenth of the steps, then falls linearly to zero.
        leading: leading dimensions that are trained to be used alone, too (Matryoshka): each adds its loss.
        whiten: after training, each dimension is divided by its root mean square to this power, so that large ones do
            not outweigh the others in a cosine: 0 for nothing, 1 for full whitening.
        near: what the second part of the loss counts, see `Loss`; batches of a static student then hold sentences that
            are near each other.
        patience: stop when the figures on held-out sentences have not risen in so many checks. None: never.
        seed: seed of held-out sentences and batches.
    """

    epochs: int = 10
    batch_size: int = 1024
    learning_rate: float = 1e-3
    leading: tuple[int, ...] = ()
    whiten: float = 0.5
    near: float = 0.0
    patience: int | None = None
    seed: int = 0

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Training:
        """Return the settings in a job's facts."""
        return cls(**{**facts, "leading": tuple(facts["leading"])})


@dataclass(frozen=True)
class Loss:
    """What a student is to make small: the mean of 1 - cos to its teacher's directions, and more if so asked.

    Attributes:
        leading: numbers of leading dimensions whose own 1 - cos is added.
        near: what the batch's sentences say about each other counts. Each sentence gives the others a share by the
            softmax of their cosines over `_SHARPNESS`; the divergence (Kullback and Leibler's) of the student's
            shares from the teacher's is added, times this.
    """

    leading: tuple[int, ...] = ()
    near: float = 0.0

    def __call__(self, Y: Tensor, T: Tensor) -> Tensor:
        """Return the loss of the student's vectors [b, d] of a batch, given the teacher's."""
        loss = torch.zeros((), device=Y.device)
        for y, t in ((Y, T), *((Y[:, :k], T[:, :k]) for k in self.leading)):
            loss = loss + (1 - torch.nn.functional.cosine_similarity(y, t, dim=1, eps=1e-6)).mean()
        return loss + self.near * _divergence(Y, T) if self.near else loss


def _divergence(Y: Tensor, T: Tensor) -> Tensor:
    """Return how much the shares that sentences give each other differ, in the mean over the batch."""
    itself = torch.eye(len(Y), dtype=torch.bool, device=Y.device)
    student, teacher = (
        (V @ V.T / _SHARPNESS).masked_fill(itself, _NOTHING).log_softmax(1)
        for V in (torch.nn.functional.normalize(X, dim=1, eps=1e-6) for X in (Y, T))
    )
    return (teacher.exp() * (teacher - student)).sum(1).mean()


class Student(ABC):
    """A network in training: its weights, its optimiser, and how a batch becomes vectors."""

    by_length: bool = False
    """Whether batches are of sentences of similar lengths."""

    by_neighbours: bool = False
    """Whether batches hold sentences that are near each other, if the loss looks at that."""

    @abstractmethod
    def step(self, rows: Rows, rate: float, loss: Loss) -> Tensor:
        """Take one step on a batch and return its loss."""

    @abstractmethod
    def vectors(self, rows: Rows) -> Tensor:
        """Return the vectors [b, d] of sentences, without gradients."""

    @abstractmethod
    def scale(self, factors: Tensor) -> None:
        """Multiply the dimensions of all vectors by factors [d]."""

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """Return the weights: what is saved in the end."""

    @abstractmethod
    def moments(self) -> dict[str, Tensor]:
        """Return the optimiser's state: what a checkpoint needs besides."""


@dataclass(frozen=True)
class Trained:
    """What came out of a training.

    Attributes:
        weights: the weights of the best check on held-out sentences.
        start: the figures of the untrained start.
        best: the figures of the weights before they are whitened.
        saved: the figures of the weights as they are.
        leading: the figures of the first k dimensions of the weights as they are, by k.
        facts: steps, seconds, sentences.
    """

    weights: Mapping[str, NDArray[Any]]
    start: Fidelity
    best: Fidelity
    saved: Fidelity
    leading: Mapping[int, Fidelity]
    facts: Mapping[str, Any]


def make_student(job: Job, device: Any, group: Alone | None = None) -> Student:  # noqa: ANN401 - torch's own type
    """Return the student of a job at its start, which a group of processes may train."""
    kind = job.facts.get("student")
    if kind == "static":
        from ensembed.distil.static_student import StaticStudent

        return StaticStudent(job, device)
    if kind == "bert":
        from ensembed.distil.bert_student import BertStudent

        return BertStudent(job, device, group)
    raise ModelError(f"{job.folder}: there is no student of kind {kind!r}")


def train(
    job: Job,
    *,
    device: str | None = None,
    threads: int | None = None,
    progress: Progress = silent,
    keep_every: float | None = None,
    group: Alone | None = None,
) -> Trained:
    """Train a job to its end, from its checkpoint if it has one. In a group the first process writes checkpoints.

    Raises:
        TrainingError: the loss is not finite any more, or memory is full.
    """
    chosen = checked_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    training = Training.of(job.facts["training"])
    # A group's messages go through the device that is current.
    current = torch.cuda.device(chosen) if chosen.type == "cuda" else nullcontext()
    with current, _threads(threads), memory_errors(f"batch_size={training.batch_size}"):
        run = _Run(job, training, make_student(job, chosen, group), chosen, group or Alone())
        return run.trained(progress, _KEEP_EVERY if keep_every is None else keep_every)


def train_folder(folder: Path, **how: Any) -> Trained:  # noqa: ANN401 - the arguments of `train`
    """Train the job in a folder: what an engine runs, in this process or others."""
    return train(Job.open(folder), **how)


class _Run:
    """One training, alone or in a group: then each process has the same weights after every step."""

    def __init__(self, job: Job, training: Training, student: Student, device: torch.device, group: Alone) -> None:
        self._job, self._training, self._student = job, training, student
        self._device, self._group = device, group
        self._held, self._rows = job.split()
        self._loss = Loss(training.leading, training.near)
        self._held_out = HeldOut(job.rows(self._held).targets)
        self._per_epoch = -(-len(self._rows) // training.batch_size)
        self._steps = self._per_epoch * training.epochs
        self._every = max(1, min(self._per_epoch, -(-self._steps // _LEAST_CHECKS)))
        self._checkpoint = Checkpoint(job.folder, f"{job.identity} {device} {torch.__version__}")

    def trained(self, progress: Progress, keep_every: float) -> Trained:
        """Train, and return the best weights."""
        start = self._fidelity()
        facts: dict[str, Any] = {"step": 0, "best": start.score, "best_step": 0, "since": 0, "loss": 0.0}
        facts["seconds"] = 0.0
        best = {name: tensor.clone() for name, tensor in self._student.weights().items()}
        facts = self._restored(facts, best)
        began = saved = time.monotonic()
        before = facts["seconds"]
        total = torch.zeros((), device=self._device)
        since_check = 0
        for rows in self._batches(facts["step"]):
            total += self._student.step(self._job.rows(rows), self._rate(facts["step"]), self._loss)
            facts["step"] += 1
            since_check += 1
            if facts["step"] % self._every == 0 or facts["step"] == self._steps:
                facts["loss"] = float(total) / since_check
                total.zero_()
                since_check = 0
                self._check(facts, best)
                if self._training.patience is not None and facts["since"] >= self._training.patience:
                    break
            label = f"train · held-out {facts['best']:.4f}" + (f", loss {facts['loss']:.4f}" if facts["loss"] else "")
            progress(label, facts["step"], self._steps)
            # A checkpoint between two checks would lose the losses since the last one: they are summed from zero then.
            if since_check == 0 and self._group.of_first(time.monotonic() - saved > keep_every):
                saved = time.monotonic()
                facts["seconds"] = before + saved - began
                self._keep(facts, best)
        progress("train", self._steps, self._steps)
        facts["seconds"] = before + time.monotonic() - began
        for name, tensor in self._student.weights().items():
            tensor.copy_(best[name])
        trained = self._fidelity()
        self._whiten()
        vectors = self._vectors()
        leading = {k: self._held_out.fidelity(vectors[:, :k]) for k in self._training.leading}
        weights = {name: tensor.float().cpu().numpy() for name, tensor in self._student.weights().items()}
        about = {"steps": facts["step"], "best_step": facts["best_step"], "seconds": round(facts["seconds"], 1)}
        about |= {"sentences": len(self._rows), "held_out": len(self._held)}
        return Trained(weights, start, trained, self._held_out.fidelity(vectors), leading, about)

    def _tensors(self, best: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return all that a checkpoint holds."""
        student = self._student
        return {
            **{f"weights.{name}": tensor for name, tensor in student.weights().items()},
            **{f"moments.{name}": tensor for name, tensor in student.moments().items()},
            **{f"best.{name}": tensor for name, tensor in best.items()},
        }

    def _restored(self, facts: dict[str, Any], best: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the facts of the checkpoint, if there is one, after restoring its tensors; a group has the first's."""
        tensors = self._tensors(best)
        if self._group.rank == 0:
            shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
            if (state := self._checkpoint.read(shapes, _FACTS)) is not None:
                facts = dict(state.facts)
                for name, tensor in tensors.items():
                    tensor.copy_(torch.from_numpy(np.array(state.arrays[name])))
        for tensor in tensors.values():
            self._group.take_first(tensor)
        return self._group.of_first(facts)

    def _keep(self, facts: Mapping[str, Any], best: Mapping[str, Tensor]) -> None:
        if self._group.rank == 0:
            arrays = {name: tensor.detach().cpu().numpy() for name, tensor in self._tensors(best).items()}
            self._checkpoint.write(State(arrays, facts))
        self._group.kept(facts)

    def _check(self, facts: dict[str, Any], best: Mapping[str, Tensor]) -> None:
        """Compare the student with the teacher on held-out sentences, and keep the best weights.

        What follows from rounded figures is for the first process of a group to say: the others go on as it does.
        """
        finite = all(bool(tensor.isfinite().all()) for tensor in self._student.weights().values())
        finite, facts["loss"] = self._group.of_first((finite, facts["loss"]))
        if not (math.isfinite(facts["loss"]) and finite):
            raise DivergedError(
                f"the student's loss became {facts['loss']} at step {facts['step']}: lower "
                f"learning_rate={self._training.learning_rate}"
            )
        score = self._group.of_first(self._fidelity().score)
        if score > facts["best"]:
            facts |= {"best": score, "best_step": facts["step"], "since": 0}
            for name, tensor in self._student.weights().items():
                best[name].copy_(tensor)
        else:
            facts["since"] += 1

    def _whiten(self) -> None:
        """Scale the dimensions by their sizes over some sentences to train on."""
        if not self._training.whiten:
            return
        rows = np.random.default_rng([self._training.seed, 4]).permutation(self._rows)[:_WHITENED]
        parts = [self._student.vectors(self._job.rows(part)) for part in np.array_split(rows, -(-len(rows) // 256))]
        # Directions, not lengths, are compared: a long vector counts no more than a short one.
        squares = torch.nn.functional.normalize(torch.cat(parts).double(), dim=1).square().mean(0)
        factors = (squares / squares.max()).clamp(min=1e-6) ** (-self._training.whiten / 2)
        self._student.scale(factors.float())

    def _fidelity(self) -> Fidelity:
        return self._held_out.fidelity(self._vectors())

    def _vectors(self) -> NDArray[Any]:
        """Return the student's vectors of the held-out sentences, of which each process encodes its share."""
        order = self._held[np.argsort(self._job.lengths[self._held], kind="stable")]
        result = np.zeros((len(order), self._job.dim), np.float32)
        for rows in np.array_split(order, max(1, len(order) // 256))[self._group.rank :: self._group.size]:
            part = self._student.vectors(self._job.rows(rows)).float().cpu().numpy()
            result[np.searchsorted(self._held, rows)] = part
        together = torch.from_numpy(result).to(self._device)
        self._group.add_up(together)
        return np.asarray(together.cpu())

    def _rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        warm = max(1, self._steps // 10)
        left = (self._steps - step) / max(1, self._steps - warm)
        return self._training.learning_rate * min((step + 1) / warm, left)

    def _batches(self, first: int) -> Iterator[NDArray[np.int64]]:
        """Yield the rows of the batches from step `first` on; the order of an epoch depends on seed and epoch only."""
        size = self._training.batch_size
        for epoch in range(first // self._per_epoch, self._training.epochs):
            random = np.random.default_rng([self._training.seed, 1, epoch])
            order = random.permutation(self._rows)
            batches = [order[start : start + size] for start in range(0, len(order), size)]
            if self._student.by_length:
                batches = _by_length(order, self._job.lengths, size, random)
            elif self._student.by_neighbours and self._training.near:
                batches = _by_neighbours(order, self._job.targets, size, random)
            yield from batches[first - epoch * self._per_epoch if epoch == first // self._per_epoch else 0 :]


def _by_length(
    order: NDArray[np.int64], lengths: NDArray[np.int64], size: int, random: np.random.Generator, window: int = 32
) -> list[NDArray[np.int64]]:
    """Return batches of similar lengths: each `window` batches are sorted by length, and then all batches mixed."""
    batches = []
    for start in range(0, len(order), size * window):
        some = order[start : start + size * window]
        some = some[np.argsort(lengths[some], kind="stable")]
        batches += [some[begin : begin + size] for begin in range(0, len(some), size)]
    return [batches[k] for k in random.permutation(len(batches))]


def _by_neighbours(
    order: NDArray[np.int64], targets: NDArray[np.int8], size: int, random: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Return batches of groups of sentences that are near each other under the teacher, and random groups beside them.

    Sentences are sorted by the nearest of some random ones, and then cut into groups.
    """
    chosen = np.sort(order[: min(_PLACES, -(-len(order) // _GROUP))])  # about a group or more for each
    places = torch.from_numpy(decode(targets[chosen])).T.contiguous()
    nearest = [
        (torch.from_numpy(decode(targets[rows])) @ places).argmax(1).numpy()
        for rows in np.array_split(order, -(-len(order) // 8192))
    ]
    order = order[np.argsort(np.concatenate(nearest), kind="stable")]
    groups = np.array_split(order, -(-len(order) // _GROUP))
    mixed = np.concatenate([groups[k] for k in random.permutation(len(groups))])
    return [mixed[start : start + size] for start in range(0, len(mixed), size)]


@contextmanager
def _threads(threads: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if threads is not None:
        check_whole("threads", threads, 1)
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def write_trained(job: Job, trained: Trained) -> None:
    """Write the weights and figures of a trained job into its folder."""
    from safetensors.numpy import save

    from ensembed.support.atomic_files import write_all_atomically

    result: dict[str, Any] = {
        "start": trained.start.to_json(),
        "best": trained.best.to_json(),
        "saved": trained.saved.to_json(),
        "leading": {str(k): figures.to_json() for k, figures in trained.leading.items()},
        "facts": dict(trained.facts),
    }
    data = save({name: np.ascontiguousarray(array) for name, array in trained.weights.items()})
    result["job"] = job.identity
    result["sha256"] = seal(result, data)
    contents = {job.folder / TRAINED: data, job.folder / RESULT: json.dumps(result, indent=1).encode() + b"\n"}
    write_all_atomically(contents)


def main(arguments: Sequence[str]) -> int:
    """Train the job in a folder."""
    if len(arguments) != 1:
        print("usage: python -m ensembed.distil.student_training FOLDER", file=sys.stderr)
        return 2
    try:
        job = Job.open(Path(arguments[0]))
        trained = train(job, progress=lines())
        write_trained(job, trained)
    except (InputError, ModelError, TrainingError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"start": trained.start.to_json(), "best": trained.best.to_json(), **trained.facts}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
