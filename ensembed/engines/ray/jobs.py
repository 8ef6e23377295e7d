"""The driver's side of a view: what is missing, what came back, and how many actors work on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ensembed.corpora.corpus import Corpus
from ensembed.engines.base import Stage
from ensembed.engines.ray.worker_results import Result
from ensembed.engines.resources import Resources
from ensembed.errors import EncoderError, EngineError, StoreError
from ensembed.support.progress import Progress
from ensembed.views.view_folder import Repeats, ViewFiles

if TYPE_CHECKING:
    import pyarrow as pa

# Blocks that a view is cut into at the most: enough for any cluster, few enough for one driver.
_BLOCKS = 4096
# Blocks on which processes die before a run ends: an encoder that kills them all must not go through a whole corpus.
_DEATHS = 8


@dataclass
class Job:
    """One view that is being filled.

    Attributes:
        number: of the view in this run.
        files: its folder.
        resources: what an actor gets.
        corpus: the sentences.
        progress: told of rows.
        names: the finished shards, by first row.
        pending: first rows of shards with open rows.
        failures: what the encoder failed on, by first row.
        workers: the processes that worked on it.
    """

    number: int
    files: ViewFiles
    resources: Resources
    corpus: Corpus
    progress: Progress
    names: dict[int, str]
    pending: set[int] = field(default_factory=set)
    failures: dict[int, str] = field(default_factory=dict)
    workers: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._rows_before = sum(self.files.stop(start) - start for start in self.names)
        self._rows = 0
        self._began = self._ended = time.perf_counter()
        self._memory = self._deaths = 0
        self.read_seconds = 0.0
        if self._rows_before:
            self._report()

    @property
    def name(self) -> str:
        """The encoder's."""
        return self.files.spec.name

    @property
    def missing(self) -> list[int]:
        """First rows of the shards of which nothing came back."""
        done = self.names.keys() | self.pending | self.failures.keys()
        return [start for start in range(0, self.files.rows, self.files.shard_rows) if start not in done]

    @property
    def rows_done(self) -> int:
        """Rows that were encoded in this run."""
        return self._rows

    def begin(self) -> None:
        """Start the clock."""
        self._began = self._ended = time.perf_counter()

    def take(self, result: Result) -> None:
        """Note what became of a shard.

        Raises:
            EnsembedError: what went wrong stops the whole run.
        """
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
        elif result.start not in self.names:  # a retry may say it twice
            if result.start not in self.pending:
                self._rows += result.rows
                self._report()
            if result.pending:
                self.pending.add(result.start)
            else:
                self.pending.discard(result.start)
                self.names[result.start] = result.name

    def stage(self) -> Stage:
        """What encoding took."""
        return Stage(self.name, self._rows, self._ended - self._began, len(self.workers), self._memory)

    def blocks(self, starts: Sequence[int], *, most: int = _BLOCKS, size: int | None = None) -> list[pa.Table]:
        """Tables with a row per shard: its first row, and its repeats.

        Args:
            starts: the first rows.
            most: tables at the most.
            size: shards per table, instead.
        """
        size = size or self.resources.shards or -(-len(starts) // most)
        return [self._table(starts[k : k + size]) for k in range(0, len(starts), size)]

    def finish(self) -> None:
        """Write the manifest.

        Raises:
            EncoderError: shards are missing.
            StoreError: they are not where this process looks for them.
        """
        if self.failures:
            raise EncoderError(self._failure())
        with self.files.disk_errors():
            there = {path.name for path in self.files.folder.iterdir()}
        if gone := sorted(set(self.names.values()) - there):
            raise StoreError(
                f"workers wrote {len(gone)} shards that are not in {self.files.folder}, {gone[0]} first: the view "
                "store must be on a path that all nodes share; run again to write them"
            )
        self.files.finish(self.names)

    def give_up(self, starts: Iterable[int], why: str) -> None:
        """Note that nothing will come of these shards."""
        for start in starts:
            self.failures[start] = why

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
                "rows": pa.array([one.rows.astype(np.int32).tobytes() for one in repeats], pa.binary()),
                "origins": pa.array([one.origins.astype(np.int64).tobytes() for one in repeats], pa.binary()),
            }
        )

    def _report(self) -> None:
        self.progress(self.name, self._rows_before + self._rows, self.files.rows)


class Room:
    """What the nodes of a cluster have left for actors."""

    def __init__(self, nodes: Iterable[dict[str, float]]) -> None:
        self._nodes = [dict(node) for node in nodes]

    @classmethod
    def of(cls, ray: Any) -> Room:  # noqa: ANN401 - a module without types
        """All that the cluster's nodes have."""
        return cls(node["Resources"] for node in ray.nodes() if node["Alive"])

    def copy(self) -> Room:
        """The same room, to be taken from."""
        return Room(self._nodes)

    def take(self, resources: Resources) -> bool:
        """Take the place of one actor, or say that there is none."""
        demand = resources.demand
        for node in self._nodes:
            if all(node.get(kind, 0.0) >= amount for kind, amount in demand.items()):
                for kind, amount in demand.items():
                    node[kind] = node.get(kind, 0.0) - amount
                return True
        return False

    def check(self, job: Job, least: int) -> None:
        """Raise an EngineError if the whole cluster has no room for so many actors of a view.

        Ray would wait for it without end.
        """
        room = self.copy()
        placed = next((k for k in range(least) if not room.take(job.resources)), least)
        if placed < least:
            has = "; ".join(f"{node.get('CPU', 0):g} CPU, {node.get('GPU', 0):g} GPU" for node in self._nodes)
            raise EngineError(
                f"encoder {job.name!r} asks for at least {least} actor{'s' * (least > 1)} of "
                f"{job.resources.num_cpus:g} CPU and {job.resources.num_gpus:g} GPU, and the cluster has room for "
                f"{placed} (its nodes: {has}); ask for less (`resources`, --resources), or start more nodes; what is "
                "written is kept"
            )


def waves(jobs: Sequence[Job], room: Callable[[], Room]) -> Iterator[list[tuple[Job, int]]]:
    """The views that are filled at the same time, with the number of actors that each begins with.

    Those whose least demands fit into the cluster together are; what is left is shared out in turns.

    Args:
        jobs: the views.
        room: says what the cluster has by now; it is asked before each wave, as nodes may have gone.

    Raises:
        EngineError: a view that is left asks for more than there is.
    """
    left = list(jobs)
    while left:
        free, counts = room(), {}
        for job in left:
            free.check(job, job.resources.actors[0])
        for job in list(left):
            trial = free.copy()
            if all(trial.take(job.resources) for _ in range(job.resources.actors[0])):
                free, counts[job.number] = trial, job.resources.actors[0]
                left.remove(job)
        wave = [job for job in jobs if job.number in counts]
        growing, most = list(wave), {job.number: most_actors(job) for job in wave}
        while growing:
            growing = [job for job in growing if counts[job.number] < most[job.number] and free.take(job.resources)]
            for job in growing:
                counts[job.number] += 1
        yield [(job, counts[job.number]) for job in wave]


def most_actors(job: Job) -> int:
    """As many as may be, and as there are blocks for."""
    least, most = job.resources.actors
    blocks = -(-len(job.missing) // (job.resources.shards or 1))
    return max(least, min(blocks, most if most is not None else blocks))
