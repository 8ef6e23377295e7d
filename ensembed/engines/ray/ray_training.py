"""Trainings on Ray Train: the local trainer in every worker, each with its share of the rows, gradients added up."""

from __future__ import annotations

import math
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from ensembed.engines.engine import Stage
from ensembed.engines.ray.cluster_resources import Cluster, Resources, Room
from ensembed.engines.ray.row_blocks import Supply, equal_parts, opened
from ensembed.engines.ray.shard_worker import Usage
from ensembed.errors import EngineError, EnsembedError, TrainingError
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import Matrix
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress, silent

if TYPE_CHECKING:
    from ensembed.engines.ray.ray_engine import Ray
    from ensembed.methods.autoencoder import Autoencoder
    from ensembed.methods.meta import Network
    from ensembed.numerics.process_group import Alone

T = TypeVar("T")
Report: TypeAlias = tuple[str, int, int | None]

_LOOK_EVERY = 0.2  # seconds between looks at the workers' reports
_TELL_EVERY = 120.0  # seconds between reports of a checkpoint to Ray Train: each one stops all workers for some seconds
_STOP_WITHIN = 60.0  # seconds for the workers to stop after a request: an epoch, and what Ray Train takes to notice


@dataclass(frozen=True)
class _Work:
    """What every worker gets."""

    training: Callable[..., Any]
    threads: int
    device: str | None
    gpu: bool
    keep_every: float
    mailbox: Any


def train(engine: Ray, method: Autoencoder, views: Sequence[Matrix], dim: int, how: Pass) -> tuple[Network, ...]:
    """Return the trained encoders of all views, of which every worker has its part of the rows."""
    import_extra("torch", "ae", "training an autoencoder")
    rows = views[0].shape[0]
    supply = Supply(engine.connected(), views)
    parts = [supply.block(start, stop) for start, stop in equal_parts(rows, engine.train_workers)]
    folder = None if how.checkpoint is None else Path(how.checkpoint).absolute()
    return run_training(
        engine, partial(_train_part, method, parts, dim, folder), rows, replace(how, device=method.device)
    )


def _train_part(
    method: Autoencoder,
    parts: Sequence[Sequence[Any]],
    dim: int,
    checkpoint: Path | None,
    *,
    group: Alone,
    device: str | None,
    threads: int,
    progress: Progress,
    keep_every: float,
) -> tuple[Network, ...]:
    """In a worker: train on its rows. `parts` has for every worker its rows of each view, or where they are."""
    from ensembed.methods.autoencoder.training_loop import train as train_here

    views = [opened(part) for part in parts[group.rank]]
    how = Pass(threads=threads, progress=progress, checkpoint=checkpoint)
    return train_here(method, views, dim, how, group=group, device=device, keep_every=keep_every)


def run_training(engine: Ray, training: Callable[..., T], rows: int, how: Pass) -> T:
    """Return what the first worker returns; an EngineError if workers were lost again and again."""
    import_extra("ray.train.torch", "ray", "training on Ray")
    began = time.monotonic()
    ray = engine.connected()
    cluster = Cluster.of(ray)
    workers = min(engine.train_workers, rows)
    gpu = _takes_gpu(how.device, cluster, workers)
    threads = _cores(ray, workers, min(how.threads or cluster.slots(1) // workers or 1, cluster.smallest), gpu)
    mailbox = _make_mailbox(ray)
    work = _Work(training, threads, how.device, gpu, engine.keep_every, mailbox)
    try:
        with _storage(None if how.checkpoint is None else Path(how.checkpoint).absolute()) as storage:
            trainer = _trainer(work, workers, engine.attempts, storage)
            result, usages = _watched(ray, trainer, mailbox, how.progress, engine.attempts)
    finally:
        ray.kill(mailbox)
    engine.note(Stage("train", rows, time.monotonic() - began, *Usage.total(usages)))
    return cast("T", result)


def _cores(ray: Any, workers: int, threads: int, gpu: bool) -> int:  # noqa: ANN401 - a module without types
    """Return the cores of each worker, reduced until all fit at the same time: Ray would wait without end."""
    for cores in range(threads, 0, -1):
        if Room.of(ray).take(Resources(num_cpus=cores, num_gpus=int(gpu)), workers) == workers:
            return cores
    raise EngineError(
        f"{workers} training workers of a core{' and a GPU' * gpu} each do not fit into the Ray cluster; lower "
        "`train_workers` (--train-workers), or start more nodes"
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
) -> tuple[Any, list[Usage]]:
    """Run the trainer in a thread, so that interrupts arrive here; pass on reports; return the first one's result."""
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
            for label, done, total in ray.get(mailbox.new_reports.remote()):
                progress(label, done, total)
    except BaseException:
        # An autoencoder's first worker keeps its last whole epoch when it is asked to stop.
        mailbox.stop.remote()
        thread.join(_STOP_WITHIN)
        raise
    failure, usages = ray.get(mailbox.end.remote())
    if isinstance(failure, BaseException):
        raise failure
    if isinstance(outcome[0], ray.train.TrainingFailedError):
        raise EngineError(
            f"training stopped after {attempts + 1} failures: {_reason(outcome[0])}; the last checkpoint is kept, the "
            "same call goes on"
        ) from outcome[0]
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0], usages


def _reason(error: Any) -> str:  # noqa: ANN401 - Ray's own
    """Return the message of the first worker that failed."""
    causes = list(getattr(error, "worker_failures", {}).values()) or [error]
    return (str(causes[0]).strip().splitlines() or [repr(causes[0])])[0]


def _takes_gpu(device: str | None, cluster: Cluster, workers: int) -> bool:
    """Return whether workers have a GPU each: if the device is one, or by default if there are enough of them."""
    if device is None:
        return cluster.gpus >= workers
    if device.startswith("cuda") and cluster.gpus < workers:
        raise EngineError(
            f"{workers} workers on device={device!r} need a GPU each, and the Ray cluster has {cluster.gpus}"
        )
    return device.startswith("cuda")


@contextmanager
def _storage(checkpoint: Path | None) -> Iterator[Path]:
    """Yield a folder for Ray Train's own files that all machines see; it is removed at the end."""
    if checkpoint is None:
        with tempfile.TemporaryDirectory(prefix="ensembed-") as folder:
            yield Path(folder)
        return
    storage = checkpoint / "ray"
    shutil.rmtree(storage, ignore_errors=True)  # that of a driver that was killed
    try:
        storage.mkdir(parents=True, exist_ok=True)
        yield storage
    finally:
        shutil.rmtree(storage, ignore_errors=True)
        with suppress(OSError):  # it contains a checkpoint
            checkpoint.rmdir()


def _make_mailbox(ray: Any) -> Any:  # noqa: ANN401 - a module without types
    """Return an actor on this machine, for reports of workers before they return."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(_Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()


class _Mailbox:
    """Receives the first worker's reports, and the first failure that another attempt would only repeat."""

    def __init__(self) -> None:
        self._reports: list[Report] = []
        self._usages: list[Usage] = []
        self._failure: BaseException | None = None
        self._stopped = False

    def report(self, reports: list[Report]) -> bool:
        """Take reports; return whether training is to stop."""
        self._reports += reports
        return self._stopped

    def new_reports(self) -> list[Report]:
        """Return the reports since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def fail(self, error: BaseException) -> None:
        """Take an error; the first one counts."""
        self._failure = self._failure or error

    def add_usage(self, usage: Usage) -> None:
        """Take what a worker used."""
        self._usages.append(usage)

    def end(self) -> tuple[BaseException | None, list[Usage]]:
        """Return the error, if there was one, and what the workers used."""
        return self._failure, self._usages

    def stop(self) -> None:
        """Stop the training: the caller no longer waits."""
        self._stopped = True
        self.fail(KeyboardInterrupt())


class _Reports:
    """Progress that goes to the mailbox, no more often than it is read."""

    def __init__(self, ray: Any, mailbox: Any) -> None:  # noqa: ANN401 - a module without types, and an actor
        self._ray, self._mailbox = ray, mailbox
        self._waiting: dict[str, Report] = {}
        self._last = 0.0

    def __call__(self, label: str, done: int, total: int | None, /) -> None:
        """Keep the last report of every task, and send them from time to time."""
        self._waiting[label.partition(" · ")[0]] = (label, done, total)
        if time.monotonic() - self._last > _LOOK_EVERY or done == total:
            waiting, self._waiting = list(self._waiting.values()), {}
            self._last = time.monotonic()
            if self._ray.get(self._mailbox.report.remote(waiting)):
                raise KeyboardInterrupt


def _work(config: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what the training returns
    """In a worker: do its part of the training; the first worker returns the result."""
    import ray
    from ray import train as ray_train

    from ensembed.numerics.process_group import Distributed, DivergedError

    class Reporting(Distributed):
        reported = -math.inf

        def kept(self, facts: Mapping[str, Any]) -> None:
            """Tell Ray Train now and then; the checkpoint itself is ours, where all machines see it."""
            if self.of_first(time.monotonic() - self.reported > _TELL_EVERY):
                ray_train.report(dict(facts))
                self.reported = time.monotonic()

    work: _Work = config["work"]
    if ray.get(work.mailbox.end.remote())[0] is not None:
        return None  # no machine was the reason: another attempt would end the same way
    group = Reporting()
    progress: Progress = _Reports(ray, work.mailbox) if group.rank == 0 else silent
    how: dict[str, Any] = {"threads": work.threads, "progress": progress, "keep_every": work.keep_every}
    try:
        result = work.training(group=group, device=_device(work), **how)
    except (EnsembedError, KeyboardInterrupt) as error:
        together = isinstance(error, DivergedError)
        ray.get(work.mailbox.fail.remote(TrainingError(str(error)) if together else error))
        if together or group.size == 1:
            return None
        # The others wait for this worker's gradient: only the end of the group stops them.
        raise RuntimeError(str(error)) from error
    ray.get(work.mailbox.add_usage.remote(Usage.of_this_process()))
    return result if group.rank == 0 else None


def _device(work: _Work) -> str:
    """Return this worker's own device."""
    if not work.gpu:
        return work.device or "cpu"
    from ray.train.torch import get_device

    device = str(get_device())
    return "cuda" if device in ("cuda", "cuda:0") else device
