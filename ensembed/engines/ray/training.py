"""An autoencoder on Ray Train: the local trainer in every worker, each on its own rows, gradients added up.

The first worker writes our own checkpoints into the store's folder for this training. A worker or a machine that is
lost ends the group; Ray Train starts another one, which goes on from the last checkpoint.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ensembed.engines.base import Stage
from ensembed.engines.ray.blocks import Supply, equal_parts
from ensembed.engines.ray.cluster import Cluster, Note, note
from ensembed.engines.ray.jobs import Room
from ensembed.engines.resources import Resources
from ensembed.errors import EngineError, EnsembedError, TrainingError
from ensembed.numerics.row_matrices import Matrix
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress

if TYPE_CHECKING:
    from ensembed.engines.ray import Ray
    from ensembed.methods.autoencoder import Autoencoder
    from ensembed.methods.projections import Network

# Seconds between looks at what the workers say.
_LOOK_EVERY = 0.2
# Seconds between reports to Ray Train of a checkpoint: one holds all workers up until it is taken, some seconds.
_TELL_EVERY = 120.0
# Seconds for the workers to stop when they are asked to: an epoch, and what Ray Train takes to notice.
_STOP_WITHIN = 60.0


@dataclass(frozen=True)
class _Work:
    """What every worker is told.

    Attributes:
        method: the hyper-parameters.
        d: dimensions of the codes.
        threads: of each.
        checkpoint: the folder in which training is kept, or None.
        parts: for every worker its rows of each view, or where they are.
        gpu: whether each has a GPU.
        keep_every: seconds between checkpoints.
        mailbox: the actor that hears of progress and of failure.
    """

    method: Autoencoder
    d: int
    threads: int
    checkpoint: Path | None
    parts: list[list[Any]]
    gpu: bool
    keep_every: float
    mailbox: Any


def train(
    engine: Ray,
    method: Autoencoder,
    views: Sequence[Matrix],
    d: int,
    *,
    threads: int | None,
    progress: Progress,
    checkpoint: Path | None,
) -> tuple[Network, ...]:
    """The encoders of all views, trained.

    Raises:
        MissingError: torch is not installed.
        TrainingError: training went wrong, as it would on one machine.
        EngineError: workers were lost again and again.
    """
    import_extra("torch", "ae", "training an autoencoder")
    import_extra("ray.train.torch", "ray", "training an autoencoder on Ray")
    began = time.monotonic()
    ray, cluster = engine.connected(), Cluster.of(engine.connected())
    blocks = equal_parts(views[0].shape[0], engine.train_workers)
    workers = len(blocks)
    supply = Supply(ray, views)
    gpu = _takes_gpu(method, cluster, workers)
    threads = _fitting(ray, workers, min(threads or cluster.slots(1) // workers or 1, cluster.smallest), gpu)
    mailbox = _make_mailbox(ray)
    folder = None if checkpoint is None else Path(checkpoint).absolute()
    parts = [supply.block(start, stop) for start, stop in blocks]
    work = _Work(method, d, threads, folder, parts, gpu, engine.keep_every, mailbox)
    try:
        with _storage(folder) as storage:
            trainer = _trainer(work, workers, engine.attempts, storage)
            networks, notes = _watched(ray, trainer, mailbox, progress, engine.attempts)
    finally:
        ray.kill(mailbox)
    engine.note(Stage("train", views[0].shape[0], time.monotonic() - began, *Note.together(notes)))
    return networks


def _fitting(ray: Any, workers: int, threads: int, gpu: bool) -> int:  # noqa: ANN401 - a module without types
    """The cores that each worker gets, lowered until all have a place at the same time: Ray would wait without end.

    Raises:
        EngineError: not even workers of one core have.
    """
    for cores in range(threads, 0, -1):
        room, one = Room.of(ray), Resources(num_cpus=cores, num_gpus=int(gpu))
        if all(room.take(one) for _ in range(workers)):
            return cores
    raise EngineError(
        f"{workers} training workers of a core{' and a GPU' * gpu} each do not fit into the Ray cluster; lower "
        "train_workers (--train-workers), or start more nodes"
    )


def _trainer(work: _Work, workers: int, attempts: int, storage: Path) -> Any:  # noqa: ANN401 - Ray's own
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    resources = {"CPU": work.threads} | ({"GPU": 1} if work.gpu else {})
    return TorchTrainer(
        cast("Any", _work),  # Ray has no types for what a worker returns
        train_loop_config={"work": work},
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=work.gpu, resources_per_worker=resources),
        torch_config=TorchConfig(backend="nccl" if work.gpu else "gloo"),
        run_config=RunConfig(
            name="run", storage_path=str(storage), failure_config=FailureConfig(max_failures=attempts)
        ),
    )


def _watched(
    ray: Any,  # noqa: ANN401 - a module without types
    trainer: Any,  # noqa: ANN401 - Ray's own
    mailbox: Any,  # noqa: ANN401 - an actor
    progress: Progress,
    attempts: int,
) -> tuple[tuple[Network, ...], list[Note]]:
    """Run the trainer, pass on what its workers say, and give what the first of them returns.

    Ray Train waits in a thread of its own: in this one it would take the interrupts, and not give them back.
    """
    outcome: list[Any] = []

    def fit() -> None:
        try:
            outcome.append(trainer.fit().return_value)
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread that waits
            outcome.append(error)

    thread = threading.Thread(target=fit, name="ensembed-train", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_LOOK_EVERY)
            for label, done, total in ray.get(mailbox.heard.remote()):
                progress(label, done, total)
    except BaseException:
        # The first worker keeps its last whole epoch when it hears of it.
        mailbox.stop.remote()
        thread.join(_STOP_WITHIN)
        raise
    failure = ray.get(mailbox.failure.remote())
    if isinstance(failure, BaseException):
        raise failure
    if isinstance(outcome[0], ray.train.TrainingFailedError):
        raise EngineError(
            f"training stopped after {attempts + 1} failures: {_reason(outcome[0])}; the last checkpoint is kept, the "
            "same call goes on"
        ) from outcome[0]
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    networks: tuple[Network, ...] = outcome[0]
    return networks, ray.get(mailbox.notes.remote())


def _reason(error: Any) -> str:  # noqa: ANN401 - Ray's own
    """What the first worker that failed had to say."""
    causes = list(getattr(error, "worker_failures", {}).values()) or [error]
    return (str(causes[0]).strip().splitlines() or [repr(causes[0])])[0]


def _takes_gpu(method: Autoencoder, cluster: Cluster, workers: int) -> bool:
    """Whether workers have a GPU each: where it is asked for, or where there are enough of them."""
    if method.device is not None and method.device.startswith("cuda"):
        if cluster.gpus < workers:
            raise EngineError(
                f"{workers} workers on device={method.device!r} need a GPU each, and the Ray cluster has {cluster.gpus}"
            )
        return True
    if method.device is not None:
        return False
    return cluster.gpus >= workers


@contextmanager
def _storage(checkpoint: Path | None) -> Iterator[Path]:
    """A folder for what Ray Train writes of its own, where all machines see it; it is removed at the end."""
    if checkpoint is None:
        with tempfile.TemporaryDirectory(prefix="ensembed-") as folder:
            yield Path(folder)
        return
    place = checkpoint / "ray"
    try:
        place.mkdir(parents=True, exist_ok=True)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        with suppress(OSError):  # a checkpoint is in it
            checkpoint.rmdir()


def _make_mailbox(ray: Any) -> Any:  # noqa: ANN401 - a module without types
    """An actor beside this process, for what workers have to say before they return."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(_Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()


class _Mailbox:
    """Hears reports of the first worker, and of the first failure that another try would only repeat."""

    def __init__(self) -> None:
        self._reports: list[tuple[str, int, int | None]] = []
        self._notes: list[Note] = []
        self._failure: BaseException | None = None
        self._stopped = False

    def say(self, reports: list[tuple[str, int, int | None]]) -> bool:
        """Take reports; whether training is to stop."""
        self._reports += reports
        return self._stopped

    def heard(self) -> list[tuple[str, int, int | None]]:
        """What was said since the last time."""
        reports, self._reports = self._reports, []
        return reports

    def fail(self, error: BaseException) -> None:
        """Take an error; the first one counts."""
        self._failure = self._failure or error

    def failure(self) -> BaseException | None:
        """The error, if there was one."""
        return self._failure

    def stop(self) -> None:
        """Nobody waits any more."""
        self._stopped = True
        self._failure = self._failure or KeyboardInterrupt()

    def add_note(self, one: Note) -> None:
        """Take what a worker took."""
        self._notes.append(one)

    def notes(self) -> list[Note]:
        """What the workers took."""
        return self._notes


class _Reports:
    """Progress that goes to the mailbox, not more often than someone looks there."""

    def __init__(self, ray: Any, mailbox: Any) -> None:  # noqa: ANN401 - a module without types, and an actor
        self._ray, self._mailbox = ray, mailbox
        self._waiting: dict[str, tuple[str, int, int | None]] = {}
        self._last = 0.0

    def __call__(self, label: str, done: int, total: int | None, /) -> None:
        """Keep the last report of every task, and send them from time to time."""
        self._waiting[label.partition(" · ")[0]] = (label, done, total)
        if time.monotonic() - self._last > _LOOK_EVERY or done == total:
            waiting, self._waiting = list(self._waiting.values()), {}
            self._last = time.monotonic()
            if self._ray.get(self._mailbox.say.remote(waiting)):
                raise KeyboardInterrupt


def _silent(_label: str, _done: int, _total: int | None, /) -> None:
    """What is said by one worker is said."""


def _work(config: Mapping[str, Any]) -> tuple[Network, ...] | None:
    """In a worker: its part of the training. What the first one returns is what was trained."""
    import ray
    from ray import train as ray_train

    from ensembed.methods.autoencoder.group import Distributed
    from ensembed.methods.autoencoder.training import DivergedError
    from ensembed.methods.autoencoder.training import train as train_here

    class Reporting(Distributed):
        told = -math.inf

        def kept(self, facts: Mapping[str, Any]) -> None:
            """Tell Ray Train now and then; the checkpoint itself is ours, where all machines see it."""
            if self.of_first(time.monotonic() - self.told > _TELL_EVERY):
                ray_train.report({"epoch": facts["epoch"], "loss": facts["loss"]})
                self.told = time.monotonic()

    work: _Work = config["work"]
    if ray.get(work.mailbox.failure.remote()) is not None:
        return None  # it was not the machine's fault: another try would end the same
    group = Reporting()
    views = [ray.get(part) if isinstance(part, ray.ObjectRef) else part for part in work.parts[group.rank]]
    progress: Progress = _Reports(ray, work.mailbox) if group.rank == 0 else _silent
    try:
        networks = train_here(
            work.method,
            views,
            work.d,
            threads=work.threads,
            progress=progress,
            checkpoint=work.checkpoint,
            group=group,
            device=_device(work),
            keep_every=work.keep_every,
        )
    except (EnsembedError, KeyboardInterrupt) as error:
        together = isinstance(error, DivergedError)
        ray.get(work.mailbox.fail.remote(TrainingError(str(error)) if together else error))
        if together or group.size == 1:
            return None
        # The others wait for this one's gradient: only the end of the group tells them.
        raise RuntimeError(str(error)) from error
    ray.get(work.mailbox.add_note.remote(note()))
    return networks if group.rank == 0 else None


def _device(work: _Work) -> str | None:
    """This worker's own device; None leaves the choice to the method, which sees one GPU or none."""
    if not work.gpu:
        return "cpu" if work.method.device is None else None
    from ray.train.torch import get_device

    device = str(get_device())
    return "cuda" if device in ("cuda", "cuda:0") else device
