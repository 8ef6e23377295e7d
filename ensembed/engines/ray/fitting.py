"""Moments on a cluster: every block of rows becomes a D x D matrix where it is read; a fixed tree merges them.

Ray runs a task again when its worker or its node is lost, and makes again what was lost with a node. A merge names the
results that it takes, so a block counts once however often it was computed; and which ones it takes is a matter of
their numbers, never of who was first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ensembed.engines.base import Stage
from ensembed.engines.ray.blocks import Recipe, Supply, cuts
from ensembed.engines.ray.cluster import Cluster, Note, note
from ensembed.errors import EngineError, EnsembedError, ViewError
from ensembed.numerics.moments import Moments
from ensembed.numerics.passes import Pass, Precision
from ensembed.numerics.row_matrices import Matrix, Views, non_finite
from ensembed.numerics.scatter import STRETCH
from ensembed.support.progress import Progress

if TYPE_CHECKING:
    from ensembed.engines.ray import Ray

# Multiplications and additions of a block at the most, for each of its cores: two minutes, what a lost worker costs.
_WORK = 1e13
# Blocks for every task that runs at the same time at the least: the last ones to finish keep others waiting less.
_ROUNDS = 4
# Columns for which a task takes one more core: of large matrices there should be few.
_COLUMNS_PER_CORE = 1024


@dataclass(frozen=True)
class Options:
    """How a block is computed, see `Moments.of_views`; `threads` are those of one task."""

    normalize: bool
    precision: Precision
    threads: int | None
    device: str | None


def moments(engine: Ray, views: Views, options: Options, progress: Progress) -> Moments:
    """The moments of row-aligned views.

    Raises:
        EngineError: the workers of a block died again and again; it says of which rows.
    """
    began = time.monotonic()
    ray, cluster = engine.connected(), Cluster.of(engine.connected())
    rows, D = views[0].shape[0], sum(view.shape[1] for view in views)
    cores = min(options.threads or max(D // _COLUMNS_PER_CORE, 1), cluster.smallest)
    device = options.device
    gpu = device is not None and device.startswith("cuda")
    if gpu and not cluster.gpus:
        raise EngineError(f"device={device!r} needs a GPU, and the Ray cluster has none: leave it out")
    slots = min(cluster.slots(cores), cluster.gpus) if gpu else cluster.slots(cores)
    wanted = engine.blocks or block_count(rows, D, slots, cores)
    taken = {
        "num_cpus": cores,
        "num_gpus": int(gpu),
        "max_retries": engine.attempts,
        "retry_exceptions": [OSError, MemoryError],  # what another try, or another machine, may not meet
    }
    tree = _Tree(ray.remote(_merged).options(num_cpus=1, max_retries=engine.attempts))
    block = ray.remote(_block).options(num_returns=2, scheduling_strategy="SPREAD", **taken)
    run = _Run(ray, block, tree, Supply(ray, views), replace(options, threads=cores), engine.attempts)
    notes = run.all_blocks(cuts(views, wanted), 2 * slots, rows, progress)
    found = run.result()
    engine.note(Stage("moments", rows, time.monotonic() - began, *Note.together(notes)))
    return found


def block_count(rows: int, columns: int, slots: int, cores: int) -> int:
    """How many blocks rows are cut into.

    Args:
        rows: of the views.
        columns: of all of them together.
        slots: tasks that run at the same time.
        cores: of one of them.
    """
    work = int(2.0 * rows * columns**2 / (_WORK * cores))
    # A block's matrix of float64 is to weigh no more than its rows of float32.
    return max(min(max(_ROUNDS * slots, work), rows // (2 * columns)), 1)


class _Tree:
    """Merges results in pairs as they are begun, the way a binary counter carries: of B blocks log B are open."""

    def __init__(self, merge: Any) -> None:  # noqa: ANN401 - a remote function
        self._merge = merge
        self._open: list[tuple[int, Any]] = []

    def add(self, result: Any) -> None:  # noqa: ANN401 - of a task that may still run
        """Take the next block's."""
        level = 0
        while self._open and self._open[-1][0] == level:
            result = self._merge.remote(self._open.pop()[1], result)
            level += 1
        self._open.append((level, result))

    def root(self) -> Any:  # noqa: ANN401 - an object reference
        """All of them, merged."""
        result = self._open.pop()[1]
        while self._open:
            result = self._merge.remote(self._open.pop()[1], result)
        return result


class _Run:
    """One pass over all blocks, some at a time."""

    def __init__(
        self,
        ray: Any,  # noqa: ANN401 - a module without types
        block: Any,  # noqa: ANN401 - a remote function
        tree: _Tree,
        supply: Supply,
        options: Options,
        attempts: int,
    ) -> None:
        self._ray, self._block, self._tree, self._supply = ray, block, tree, supply
        self._options, self._attempts = options, attempts
        self._running: dict[Any, tuple[int, int]] = {}

    def all_blocks(self, blocks: Sequence[tuple[int, int]], most: int, rows: int, progress: Progress) -> list[Note]:
        """Begin every block, at most so many before others are done; what each worker took."""
        notes: list[Note] = []
        done = 0
        try:
            for start, stop in blocks:
                while len(self._running) >= most:
                    done += self._wait(notes)
                    progress("moments", done, rows)
                result, told = self._block.remote(
                    start, self._options, self._supply.recipe, *self._supply.block(start, stop)
                )
                self._running[told] = (start, stop)
                self._tree.add(result)
            while self._running:
                done += self._wait(notes)
                progress("moments", done, rows)
        except BaseException:  # Ctrl-C too: what was begun must not run on
            for told in self._running:
                self._ray.cancel(told)
            raise
        return notes

    def result(self) -> Moments:
        """The moments of all blocks."""
        with self._errors("what was made of some rows"):
            found: Moments = self._ray.get(self._tree.root())
        # What comes out of the object store cannot be written to.
        return Moments(found.n, found.mean.copy(), found.scatter.copy(), found.resolution, found.device)

    def _wait(self, notes: list[Note]) -> int:
        """The rows of blocks that were finished by now, at least of one."""
        ready, _ = self._ray.wait(list(self._running), num_returns=1)
        rows = 0
        for told in ready:
            start, stop = self._running.pop(told)
            with self._errors(f"the block of rows {start} to {stop}"):
                notes.append(self._ray.get(told))
            rows += stop - start
        return rows

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Ray's errors in our words; what was raised on purpose comes through as it was."""
        exceptions = self._ray.exceptions
        try:
            yield
        except exceptions.RayTaskError as error:
            cause = error.cause
            while isinstance(cause, exceptions.RayTaskError):  # of a merge whose block failed
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


def _block(start: int, options: Options, recipe: Recipe, *given: Any) -> tuple[Moments, Note]:  # noqa: ANN401 - what Supply.block gives
    """In a task: the moments of the rows from `start` on, and what they took."""
    views = recipe.views(given)
    try:
        how = Pass(options.precision, options.threads, options.device)
        found = Moments.of_views(views, how, normalize=options.normalize)
    except ViewError as error:
        _say_where(views, start)
        raise ViewError(str(error)) from error
    return found, note()


def _merged(left: Moments, right: Moments) -> Moments:
    """In a task: the moments of both."""
    return left + right


def _say_where(views: Sequence[Matrix], start: int) -> None:
    """Raise a ViewError that names the row, by its number among all rows, which is not finite."""
    for j, view in enumerate(views):
        for first in range(0, view.shape[0], STRETCH):
            A = np.asarray(view[first : first + STRETCH])
            if not np.isfinite(A).all():
                raise ViewError(non_finite([A], start + first, [j]))
