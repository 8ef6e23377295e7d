"""Filling views on a cluster: Ray Data takes shards to pools of actors, each of which holds a loaded encoder.

One row of the dataset is one shard of one view. The actor reads the shard's sentences, encodes them and writes the
file; what comes back is a small row about it. The views are branches of one dataset, so that Ray Data gives the actors
that one of them no longer needs to another.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder
from ensembed.engines.base import Stage
from ensembed.engines.ray.jobs import Job, Room, most_actors, waves
from ensembed.engines.ray.worker_opening import Source
from ensembed.engines.ray.worker_results import Result, peak_memory
from ensembed.engines.ray.worker_work import ShardEncoder, Work, fill
from ensembed.engines.resources import resources_for
from ensembed.errors import EncoderError, EngineError
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress, silent
from ensembed.views import View, ViewStore

if TYPE_CHECKING:
    from ensembed.engines.ray import Ray

# Blocks that Ray may lose before it gives up; they are run once more at the end.
_LOST_BLOCKS = 16
# Up to so many shards are filled here: other processes would take longer to start.
_FILL_HERE = 32


def embed_all(
    engine: Ray,
    store: ViewStore,
    corpus: Corpus,
    encoders: Sequence[Encoder],
    *,
    verify: bool = False,
    progress: Progress = silent,
) -> list[View]:
    """Fill the views of several encoders on a cluster, to the same bytes that `ViewStore.embed_all` gives.

    Args:
        engine: says which cluster it is and what encoders get of it; it is told of the stages.
        store: on a path that all nodes share.
        corpus: the sentences, which all nodes must be able to read; each distinct one is encoded once.
        encoders: opened by name on the nodes where they can be, and sent there otherwise.
        verify: check views that are complete too: read every shard, and encode the damaged ones again.
        progress: told of rows.

    Raises:
        StoreBusyError: another process is writing one of the views.
        StoreError: the disk is full, not writable or not shared. What was written stays.
        EncoderError: an encoder fails on some block, which is named; all others are written and kept.
        EngineError: the cluster has no room for what is asked, or was lost.
    """
    asked = resources_for(engine.resources, [encoder.spec.name for encoder in encoders])
    of = {encoder.spec.key: resources for encoder, resources in zip(encoders, asked, strict=True)}
    began = time.perf_counter()
    rows = len(corpus)
    engine.note(Stage("index", rows, time.perf_counter() - began, 1, peak_memory()))
    with store.unfinished(corpus, encoders, verify=verify) as views:
        jobs = [
            Job(j, files, of[encoder.spec.key], corpus, progress, files.find(progress))
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
    """Complete the views that are whole, and say what the others lack."""
    failed: list[EncoderError] = []
    for job in jobs:
        try:
            job.finish()
        except EncoderError as error:
            failed.append(error)
    if failed:
        raise EncoderError("; ".join(map(str, failed)))


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
            self._work[job.number] = self._work_of(job)
            job.files.clear_pending()
        for wave in waves(jobs, self._room):
            for job, _ in wave:
                job.begin()
            lost = self._consume(
                [self._encoding(job, count) for job, count in wave], [job for job, _ in wave], _LOST_BLOCKS
            )
            self._try_again([job for job, _ in wave], lost)
        for job in jobs:
            self._engine.note(job.stage())
        workers = {worker for job in jobs for worker in job.workers}
        read = sum(job.read_seconds for job in jobs) / max(len(workers), 1)
        self._engine.note(Stage("read", sum(job.rows_done for job in jobs), read, len(workers), 0))

    def _room(self) -> Room:
        return Room.of(self._ray)

    def fill(self, jobs: Sequence[Job]) -> None:
        """Fill the open rows of shards: all that they need is there now, unless its block failed."""
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
            lost = self._consume([self._filling(job) for job in left], left, 0)
            if lost is not None:
                raise EngineError(f"the rows of repeated sentences could not be filled: {lost}; run again to go on")
            workers = {worker for job in left for worker in job.workers - before[job.number]}
        self._engine.note(Stage("fill", rows, time.perf_counter() - began, len(workers), 0))
        for job in left:
            if job.pending and not job.failures:
                raise EngineError(f"{len(job.pending)} shards of {job.name!r} could not be filled; run again to go on")

    def _filling(self, job: Job) -> Callable[[], Any]:
        """What makes the dataset of a view's pending shards."""
        blocks = job.blocks(sorted(job.pending), most=64)

        def make() -> Any:  # noqa: ANN401 - a dataset
            return self._data.from_arrow(blocks).map_batches(
                fill, fn_kwargs={"work": self._work[job.number]}, batch_size=None, batch_format="pyarrow"
            )

        return make

    def _try_again(self, jobs: Sequence[Job], lost: str | None) -> None:
        """Run the blocks that Ray lost once more, one at a time."""
        left = [job for job in jobs if job.missing]
        for job in left:
            if lost is None:
                self._room().check(job, 1)
                lost = self._consume([self._encoding(job, 1, alone=True)], jobs, -1)
            if missing := job.missing:
                job.give_up(missing, lost or "it got lost twice; the cluster's logs say more")

    def _work_of(self, job: Job) -> Work:
        source = Source.of(self._encoders[job.number], job.resources.threads, job.resources.batch_size)
        return Work(job.number, job.files, self._corpus, source, self._engine.attempts + 1)

    def _encoding(self, job: Job, count: int, *, alone: bool = False) -> Callable[[], Any]:
        """What makes the dataset of a view's missing shards, with a pool of `count` actors to begin with."""
        starts, resources = job.missing, job.resources
        pool = (
            {"size": 1, "max_tasks_in_flight_per_actor": 1}
            if alone
            else {"min_size": min(resources.actors[0], count), "initial_size": count, "max_size": most_actors(job)}
        )
        blocks = job.blocks(starts, size=1 if alone else None)

        def make() -> Any:  # noqa: ANN401 - a dataset
            return self._data.from_arrow(blocks).map_batches(
                ShardEncoder,
                fn_constructor_args=(self._work[job.number],),
                batch_size=None,
                batch_format="pyarrow",
                compute=self._data.ActorPoolStrategy(**pool),
                num_cpus=resources.num_cpus,
                num_gpus=resources.num_gpus,
            )

        return make

    def _consume(self, make: Sequence[Callable[[], Any]], jobs: Sequence[Job], lost_blocks: int) -> str | None:
        """Run datasets as one and take what comes back; why Ray gave up, or None.

        Args:
            make: makes each of them.
            jobs: to which results go.
            lost_blocks: how many blocks may be lost, -1 for any number.
        """
        by_number = {job.number: job for job in jobs}
        with warnings.catch_warnings():
            # Of Ray's own: the context warns of some of its own defaults when it is first made.
            warnings.simplefilter("ignore", DeprecationWarning)
            context = self._data.DataContext.get_current().copy()
        context.enable_progress_bars = False
        context.max_errored_blocks = lost_blocks
        # Each row is a block of its own, which comes back when its shard is there and not when its task ends.
        context.target_max_block_size = 1
        with self._data.DataContext.current(context), _quiet():
            first, *rest = [one() for one in make]
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
    """Keep Ray Data's log off the terminal; its file has it. What goes wrong, we say ourselves."""
    logger = logging.getLogger("ray.data")

    def drop(_record: logging.LogRecord) -> bool:
        return False

    handlers = [handler for handler in logger.handlers if type(handler).__name__ == "PlainRayHandler"]
    for handler in handlers:
        handler.addFilter(drop)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(drop)
