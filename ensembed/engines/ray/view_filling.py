"""Filling views on a cluster: Ray Data takes shards to pools of actors, each of which holds a loaded encoder."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder
from ensembed.engines.engine import Stage
from ensembed.engines.ray.cluster_resources import Resources, Room, resources_for
from ensembed.engines.ray.shard_worker import Result, ShardEncoder, Work, fill, peak_memory
from ensembed.engines.ray.worker_encoder import Source
from ensembed.errors import EncoderError, EngineError, StoreError
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress
from ensembed.views import View, ViewStore
from ensembed.views.view_folder import Repeats, ViewFiles

if TYPE_CHECKING:
    import pyarrow as pa

    from ensembed.engines.ray.ray_engine import Ray

_BLOCKS = 4096  # largest number of blocks that a view is cut into: enough for any cluster, few enough for one driver
_DEATHS = 8  # blocks on which processes die before a run ends: an encoder may kill them all
_LOST_BLOCKS = 16  # blocks that Ray may lose before it gives up; they are run once more at the end
_FILL_HERE = 32  # up to so many shards are filled in this process: other processes would take longer to start


def embed_all(
    engine: Ray, store: ViewStore, corpus: Corpus, encoders: Sequence[Encoder], verify: bool, progress: Progress
) -> list[View]:
    """Fill the views of several encoders on a cluster, with the same bytes as `ViewStore.embed_all`.

    All nodes must see the store and the corpus under the same paths. Encoders are opened by name on the nodes if
    possible, and otherwise sent there. Whatever error is raised, what was written is kept.
    """
    requested = resources_for(engine.resources, [encoder.spec.name for encoder in encoders])
    by_key = {encoder.spec.key: resources for encoder, resources in zip(encoders, requested, strict=True)}
    began = time.perf_counter()
    rows = len(corpus)
    engine.note(Stage("index", rows, time.perf_counter() - began, 1, peak_memory()))
    with store.unfinished(corpus, encoders, verify=verify) as views:
        jobs = [
            Job(j, files, by_key[encoder.spec.key], corpus, progress, files.find(progress))
            for j, (files, encoder) in enumerate(views)
        ]
        if any(job.missing for job in jobs):
            run = _Run(engine, corpus, {job.number: encoder for job, (_, encoder) in zip(jobs, views, strict=True)})
            run.encode([job for job in jobs if job.missing])
            run.fill(jobs)
        corpus.check_unchanged()
        _finish(jobs)
    return [store.view(corpus, encoder.spec) for encoder in encoders]


def _finish(jobs: Iterable[Job]) -> None:
    """Complete the views that are whole, and raise an EncoderError with what the others lack."""
    failures: list[str] = []
    for job in jobs:
        try:
            job.finish()
        except EncoderError as error:
            failures.append(str(error))
    if failures:
        raise EncoderError("; ".join(failures))


@dataclass
class Job:
    """One view that is being filled; shards are named by their first rows, `pending` are those with open rows."""

    number: int
    files: ViewFiles
    resources: Resources
    corpus: Corpus
    progress: Progress
    names: dict[int, str]
    pending: set[int] = field(default_factory=set)
    failures: dict[int, str] = field(default_factory=dict)
    workers: set[str] = field(default_factory=set)
    rows_done: int = 0
    read_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._rows_before = sum(self.files.stop(start) - start for start in self.names)
        self._memory = self._deaths = 0
        self.begin()
        if self._rows_before:
            self._report()

    @property
    def name(self) -> str:
        """The encoder's name."""
        return self.files.spec.name

    @property
    def missing(self) -> list[int]:
        """First rows of the shards of which nothing came back."""
        done = self.names.keys() | self.pending | self.failures.keys()
        return [start for start in range(0, self.files.rows, self.files.shard_rows) if start not in done]

    @property
    def most_actors(self) -> int:
        """As many actors as allowed, and as there are blocks for."""
        least, most = self.resources.actors
        blocks = -(-len(self.missing) // (self.resources.shards or 1))
        return max(least, min(blocks, most if most is not None else blocks))

    def begin(self) -> None:
        """Start the clock."""
        self._began = self._ended = time.perf_counter()

    def take(self, result: Result) -> None:
        """Note what became of a shard; raise an EnsembedError that stops the whole run."""
        if result.everywhere:
            raise result.exception
        self.workers.add(result.worker)
        self._memory = max(self._memory, result.memory)
        self.read_seconds += result.read_seconds
        self._ended = time.perf_counter()
        if result.error:
            self.failures[result.start] = result.error
            self._deaths += result.died
            if self._deaths >= _DEATHS:
                raise EncoderError(self._failure())
        elif result.start not in self.names:  # a retry may report it twice
            if result.start not in self.pending:
                self.rows_done += result.rows
                self._report()
            if result.pending:
                self.pending.add(result.start)
            else:
                self.pending.discard(result.start)
                self.names[result.start] = result.name

    def stage(self) -> Stage:
        """Return what encoding took."""
        return Stage(self.name, self.rows_done, self._ended - self._began, len(self.workers), self._memory)

    def blocks(self, starts: Sequence[int], *, most: int = _BLOCKS, size: int | None = None) -> list[pa.Table]:
        """Return at most `most` tables, or tables of `size` shards, with a row per shard: first row and repeats."""
        size = size or self.resources.shards or -(-len(starts) // most)
        return [self._table(starts[k : k + size]) for k in range(0, len(starts), size)]

    def finish(self) -> None:
        """Write the manifest."""
        if self.failures:
            raise EncoderError(self._failure())
        with self.files.disk_errors():
            files = {path.name for path in self.files.folder.iterdir()}
        if gone := sorted(set(self.names.values()) - files):
            raise StoreError(
                f"workers wrote {len(gone)} shards that are not in {self.files.folder}, {gone[0]} first: the view "
                "store must be on a path that all nodes share; run again to write them"
            )
        self.files.finish(self.names)

    def _failure(self) -> str:
        start = min(self.failures)
        others = len(self.failures) - 1
        more = f" ({others} other{'s' * (others > 1)} failed, too)" if others else ""
        return (
            f"encoder {self.name!r} fails on the block of rows {start}..{self.files.stop(start) - 1}{more}: "
            f"{self.failures[start]}. Everything else is kept; run again to go on"
        )

    def _table(self, starts: Sequence[int]) -> pa.Table:
        import pyarrow as pa

        first_rows = self.corpus.index.first_rows
        repeats = [Repeats.among(first_rows[start : self.files.stop(start)], start) for start in starts]
        return pa.table(
            {
                "start": pa.array(starts, pa.int64()),
                "rows": pa.array([shard.rows.astype(np.int32).tobytes() for shard in repeats], pa.binary()),
                "origins": pa.array([shard.origins.astype(np.int64).tobytes() for shard in repeats], pa.binary()),
            }
        )

    def _report(self) -> None:
        self.progress(self.name, self._rows_before + self.rows_done, self.files.rows)


def waves(jobs: Sequence[Job], room: Callable[[], Room]) -> Iterator[list[tuple[Job, int]]]:
    """Yield the views that fit into the cluster together, with the number of actors that each begins with.

    `room` returns what the cluster has; it is called before each wave, because nodes may have gone.
    """
    left = list(jobs)
    while left:
        free, counts = room(), {}
        for job in left:
            free.check(job.name, job.resources, job.resources.actors[0])
        for job in list(left):
            trial, least = free.copy(), job.resources.actors[0]
            if trial.take(job.resources, least) == least:
                free, counts[job.number] = trial, least
                left.remove(job)
        wave = [job for job in jobs if job.number in counts]
        growing, most = list(wave), {job.number: job.most_actors for job in wave}
        while growing:
            growing = [job for job in growing if counts[job.number] < most[job.number] and free.take(job.resources)]
            for job in growing:
                counts[job.number] += 1
        yield [(job, counts[job.number]) for job in wave]


class _Run:
    """One use of the cluster."""

    def __init__(self, engine: Ray, corpus: Corpus, encoders: dict[int, Encoder]) -> None:
        self._engine = engine
        self._ray = engine.connected()
        self._data = import_extra("ray.data", "ray", "embedding with the engine `ray`")
        self._corpus = self._ray.put(corpus)
        self._encoders = encoders
        self._work: dict[int, Work] = {}

    def encode(self, jobs: Sequence[Job]) -> None:
        """Encode what is missing, in one wave or several."""
        for job in jobs:
            source = Source.of(self._encoders[job.number], job.resources.threads, job.resources.batch_size)
            self._work[job.number] = Work(job.number, job.files, self._corpus, source, self._engine.attempts + 1)
            job.files.clear_pending()
        for wave in waves(jobs, lambda: Room.of(self._ray)):
            for job, _ in wave:
                job.begin()
            datasets = [self._encoding(job, count) for job, count in wave]
            reason = self._consume(datasets, [job for job, _ in wave], _LOST_BLOCKS)
            self._try_again([job for job, _ in wave], reason)
        for job in jobs:
            self._engine.note(job.stage())
        workers = {worker for job in jobs for worker in job.workers}
        seconds = sum(job.read_seconds for job in jobs) / max(len(workers), 1)
        self._engine.note(Stage("read", sum(job.rows_done for job in jobs), seconds, len(workers), 0))

    def fill(self, jobs: Sequence[Job]) -> None:
        """Fill the open rows of shards: everything that they need exists now, unless its block failed."""
        left = [job for job in jobs if job.pending]
        if not left:
            return
        began = time.perf_counter()
        rows = sum(job.files.stop(start) - start for job in left for start in job.pending)
        if sum(len(job.pending) for job in left) <= _FILL_HERE:
            workers = {"here"}
            for job in left:
                for block in job.blocks(sorted(job.pending)):
                    for table in fill(block, self._work[job.number]):
                        job.take(*Result.of_table(table))
        else:
            before = {job.number: set(job.workers) for job in left}
            reason = self._consume([self._filling(job) for job in left], left, 0)
            if reason is not None:
                raise EngineError(f"the rows of repeated sentences could not be filled: {reason}; run again to go on")
            workers = {worker for job in left for worker in job.workers - before[job.number]}
        self._engine.note(Stage("fill", rows, time.perf_counter() - began, len(workers), 0))
        for job in left:
            if job.pending and not job.failures:
                raise EngineError(f"{len(job.pending)} shards of {job.name!r} could not be filled; run again to go on")

    def _try_again(self, jobs: Sequence[Job], reason: str | None) -> None:
        """Run the blocks that Ray lost once more, one at a time, unless there is a reason why Ray gave up."""
        for job in [job for job in jobs if job.missing]:
            if reason is None:
                Room.of(self._ray).check(job.name, job.resources, 1)
                reason = self._consume([self._encoding(job, 1, alone=True)], jobs, -1)
            for start in job.missing:
                job.failures[start] = reason or "it got lost twice; the cluster's logs say more"

    def _filling(self, job: Job) -> Callable[[], Any]:
        """Return what makes the dataset of a view's pending shards."""
        blocks = job.blocks(sorted(job.pending), most=64)
        return lambda: self._data.from_arrow(blocks).map_batches(
            fill, fn_kwargs={"work": self._work[job.number]}, batch_size=None, batch_format="pyarrow"
        )

    def _encoding(self, job: Job, count: int, *, alone: bool = False) -> Callable[[], Any]:
        """Return what makes the dataset of a view's missing shards, with a pool of `count` actors to begin with."""
        resources = job.resources
        pool = (
            {"size": 1, "max_tasks_in_flight_per_actor": 1}
            if alone
            else {"min_size": min(resources.actors[0], count), "initial_size": count, "max_size": job.most_actors}
        )
        blocks = job.blocks(job.missing, size=1 if alone else None)
        return lambda: self._data.from_arrow(blocks).map_batches(
            ShardEncoder,
            fn_constructor_args=(self._work[job.number],),
            batch_size=None,
            batch_format="pyarrow",
            compute=self._data.ActorPoolStrategy(**pool),
            num_cpus=resources.num_cpus,
            num_gpus=resources.num_gpus,
        )

    def _consume(self, make: Sequence[Callable[[], Any]], jobs: Sequence[Job], lost_blocks: int) -> str | None:
        """Run datasets as one, losing at most `lost_blocks` (-1: any number); return why Ray gave up, or None."""
        by_number = {job.number: job for job in jobs}
        with warnings.catch_warnings():
            # Ray's own: the context warns of some of its own defaults when it is first made.
            warnings.simplefilter("ignore", DeprecationWarning)
            context = self._data.DataContext.get_current().copy()
        context.enable_progress_bars = False
        context.max_errored_blocks = lost_blocks
        # Each row is a block of its own, which comes back when its shard is written and not when its task ends.
        context.target_max_block_size = 1
        with self._data.DataContext.current(context), _quiet():
            first, *rest = [function() for function in make]
            dataset = first.union(*rest) if rest else first
            tables = iter(dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0))
            try:
                for table in tables:
                    for result in Result.of_table(table):
                        by_number[result.job].take(result)
            except self._ray.exceptions.RayError as error:
                return str(error).strip().splitlines()[-1]
            finally:
                # The pools end with the pass over the results, however that ends.
                del tables, dataset
        return None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ray Data's log off the terminal; its file has it, and errors are reported by this package."""
    handlers = [item for item in logging.getLogger("ray.data").handlers if type(item).__name__ == "PlainRayHandler"]

    def drop(_record: logging.LogRecord) -> bool:
        return False

    for handler in handlers:
        handler.addFilter(drop)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(drop)
