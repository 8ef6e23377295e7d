"""What a cluster has, and what a worker took of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ensembed.engines.ray.worker_results import peak_memory, worker_name
from ensembed.errors import EngineError


@dataclass(frozen=True)
class Cluster:
    """The machines of a cluster that are alive.

    Attributes:
        cores: of each machine that has any.
        gpus: of all together.
    """

    cores: tuple[int, ...]
    gpus: int

    @classmethod
    def of(cls, ray: Any) -> Cluster:  # noqa: ANN401 - a module without types
        """Those of the cluster that this process is connected to.

        Raises:
            EngineError: none has a core for tasks: they would wait for ever.
        """
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        cores = tuple(int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1)
        if not cores:
            raise EngineError("the Ray cluster has no CPU for tasks: start a node with --num-cpus of at least 1")
        return cls(cores, int(sum(node.get("GPU", 0) for node in nodes)))

    @property
    def smallest(self) -> int:
        """The cores of the smallest machine: a task that takes no more runs on any that is left."""
        return min(self.cores)

    def slots(self, cores: int) -> int:
        """Tasks of so many cores that run at the same time."""
        return max(sum(node // cores for node in self.cores), 1)


@dataclass(frozen=True)
class Note:
    """What a worker says of itself: who it is, and its memory at its peak in bytes."""

    worker: str
    memory: int

    @staticmethod
    def together(notes: Sequence[Note]) -> tuple[int, int]:
        """How many workers there were, and the memory of the largest."""
        return len({one.worker for one in notes}), max((one.memory for one in notes), default=0)


def note() -> Note:
    """In a worker: its note."""
    return Note(worker_name(), peak_memory())
