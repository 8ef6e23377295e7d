"""Moments on a cluster: every block of rows becomes a D x D matrix where it is read; a fixed tree merges them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ensembed.engines.engine import Stage
from ensembed.engines.ray.cluster_resources import Cluster
from ensembed.engines.ray.row_blocks import Supply, cuts, opened
from ensembed.engines.ray.shard_worker import Usage
from ensembed.errors import EngineError, EnsembedError, ViewError
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import Views, find_non_finite
from ensembed.support.progress import Progress

if TYPE_CHECKING:
    from ensembed.engines.ray.ray_engine import Ray

_WORK = 1e13  # largest number of operations of a block per core: two minutes, which is what a lost worker costs
_ROUNDS = 4  # smallest number of blocks per parallel task: the last ones to finish delay the end less
_COLUMNS_PER_CORE = 1024  # a task takes one more core for so many: there should be few large matrices


def moments(engine: Ray, views: Views, how: Pass, normalize: bool) -> Moments:
    """Return the moments of row-aligned views; an EngineError names a block whose workers died again and again."""
    began = time.monotonic()
    ray = engine.connected()
    cluster = Cluster.of(ray)
    rows, D = views[0].shape[0], sum(view.shape[1] for view in views)
    cores = min(how.threads or max(D // _COLUMNS_PER_CORE, 1), cluster.smallest)
    device = how.device
    gpu = device is not None and device.startswith("cuda")
    if gpu and not cluster.gpus:
        raise EngineError(f"device={device!r} needs a GPU, and the Ray cluster has none: leave it out")
    slots = min(cluster.slots(cores), cluster.gpus) if gpu else cluster.slots(cores)
    task = {
        "num_returns": 2,
        "scheduling_strategy": "SPREAD",
        "num_cpus": cores,
        "num_gpus": int(gpu),
        "max_retries": engine.attempts,
        "retry_exceptions": [OSError, MemoryError],  # another attempt, or another machine, may not have them
    }
    merge = ray.remote(_merged).options(num_cpus=1, max_retries=engine.attempts)
    run = _Run(ray, ray.remote(_block).options(**task), merge, Supply(ray, views), engine.attempts)
    blocks = cuts(views, engine.blocks or block_count(rows, D, slots, cores))
    usages = run.all_blocks(blocks, (Pass(how.precision, cores, device), normalize), 2 * slots, how.progress)
    result = run.result()
    engine.note(Stage("moments", rows, time.monotonic() - began, *Usage.total(usages)))
    return result


def block_count(rows: int, columns: int, slots: int, cores: int) -> int:
    """Return how many blocks rows are cut into, for so many tasks at the same time of so many cores each."""
    work = int(2.0 * rows * columns**2 / (_WORK * cores))
    # A block's matrix of float64 should not be larger than its rows of float32.
    return max(min(max(_ROUNDS * slots, work), rows // (2 * columns)), 1)


class _Run:
    """One pass over all blocks, some at a time; results are merged in pairs, like the carries of a binary counter."""

    def __init__(self, ray: Any, block: Any, merge: Any, supply: Supply, attempts: int) -> None:  # noqa: ANN401 - Ray's own
        self._ray, self._block, self._merge, self._supply, self._attempts = ray, block, merge, supply, attempts
        self._running: dict[Any, tuple[int, int]] = {}
        self._open: list[tuple[int, Any]] = []

    def all_blocks(
        self, blocks: Sequence[tuple[int, int]], options: tuple[Pass, bool], most: int, progress: Progress
    ) -> list[Usage]:
        """Begin every block, at most so many before others are done; return what each worker used."""
        usages: list[Usage] = []
        done, rows = 0, blocks[-1][1]
        try:
            for start, stop in [*blocks, (rows, rows)]:
                while len(self._running) >= (most if start < stop else 1):
                    done += self._wait(usages)
                    progress("moments", done, rows)
                if start < stop:
                    result, usage = self._block.remote(start, options, self._supply.block(start, stop))
                    self._running[usage] = (start, stop)
                    self._add(result)
        except BaseException:  # Ctrl-C too: tasks that were begun must not run on
            for usage in self._running:
                self._ray.cancel(usage)
            raise
        return usages

    def _add(self, result: Any) -> None:  # noqa: ANN401 - the reference of a task that may still run
        level = 0
        while self._open and self._open[-1][0] == level:
            result = self._merge.remote(self._open.pop()[1], result)
            level += 1
        self._open.append((level, result))

    def result(self) -> Moments:
        """Return the moments of all blocks."""
        root = self._open.pop()[1]
        while self._open:
            root = self._merge.remote(self._open.pop()[1], root)
        with self._errors("what was made of some rows"):
            merged: Moments = self._ray.get(root)
        # Arrays from the object store are read-only.
        return replace(merged, mean=merged.mean.copy(), scatter=merged.scatter.copy())

    def _wait(self, usages: list[Usage]) -> int:
        """Wait until a block is finished; return its rows."""
        (usage,), _ = self._ray.wait(list(self._running), num_returns=1)
        start, stop = self._running.pop(usage)
        with self._errors(f"the block of rows {start} to {stop}"):
            usages.append(self._ray.get(usage))
        return stop - start

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Turn Ray's errors into ours; errors of ours that a task raised are raised unchanged."""
        exceptions = self._ray.exceptions
        try:
            yield
        except exceptions.RayTaskError as error:
            cause = error.cause
            while isinstance(cause, exceptions.RayTaskError):  # a merge whose block failed
                cause = cause.cause
            if isinstance(cause, EnsembedError):
                raise cause from None
            raise EngineError(f"{what} cannot be computed: {cause!r}") from error
        except exceptions.RayError as error:
            reason = str(error).splitlines()[0]
            raise EngineError(
                f"{what} cannot be computed: the workers were lost {self._attempts + 1} times ({reason}); give tasks "
                "more memory, fewer columns or more attempts"
            ) from error


def _block(start: int, options: tuple[Pass, bool], block: list[Any]) -> tuple[Moments, Usage]:
    """In a task: return the moments of the rows from `start` on, and what the worker used."""
    views = [opened(part) for part in block]
    try:
        return Moments.of_views(views, options[0], normalize=options[1]), Usage.of_this_process()
    except ViewError as error:  # it names the row by its number in the block
        raise ViewError(find_non_finite(views, start) or str(error)) from error


def _merged(left: Moments, right: Moments) -> Moments:
    return left + right
