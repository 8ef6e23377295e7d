"""Several processes that train one network: each on its share of the rows, all with the same weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from torch import Tensor, distributed

from ensembed.errors import TrainingError

T = TypeVar("T")


class DivergedError(TrainingError):
    """Loss or weights are not finite any more: in a group, for all of its processes after the same step."""


class Alone:
    """The processes that train together, and which of them this is: here a group of one process."""

    rank, size = 0, 1  # rank 0 is the first process, which writes checkpoints

    def add_up(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over all processes, which is the same to the bit in all of them."""

    def take_first(self, tensor: Tensor) -> None:
        """Replace a tensor by that of the first process."""

    def of_all(self, value: T) -> list[T]:
        """Return every process's value, by rank."""
        return [value]

    def of_first(self, value: T) -> T:
        """Return the first process's value."""
        return value

    def kept(self, facts: Mapping[str, Any]) -> None:
        """Take note, in every process, that a checkpoint was written."""


class Distributed(Alone):
    """The default group of torch.distributed, which the caller has set up."""

    def __init__(self) -> None:
        self.rank, self.size = int(distributed.get_rank()), int(distributed.get_world_size())

    def add_up(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over all processes."""
        if self.size > 1:
            distributed.all_reduce(tensor)

    def take_first(self, tensor: Tensor) -> None:
        """Replace a tensor by that of rank 0."""
        if self.size > 1:
            distributed.broadcast(tensor, src=0)

    def of_all(self, value: T) -> list[T]:
        """Return every process's value, by rank."""
        values: list[Any] = [value] * self.size
        if self.size > 1:
            distributed.all_gather_object(values, value)
        return values

    def of_first(self, value: T) -> T:
        """Return the value of rank 0."""
        values = [value]
        if self.size > 1:
            distributed.broadcast_object_list(values, src=0)
        return values[0]


@dataclass(frozen=True)
class Shares:
    """How many rows each process of a group has and takes in every step; all make the same number of steps."""

    parts: tuple[int, ...]  # rows of each process
    rank: int
    batch: int  # rows per step and process; the last step of a process may have fewer

    @classmethod
    def of(cls, parts: Sequence[int], rank: int, batch_size: int) -> Shares:
        """Split a batch among the processes, rounded up, so that a batch of all rows is one step."""
        return cls(tuple(parts), rank, -(-min(batch_size, sum(parts)) // len(parts)))

    def steps(self) -> Iterator[tuple[int, int]]:
        """Yield for every step of an epoch the rows of this process, and of all together."""
        for start in range(0, max(self.parts), self.batch):
            counts = [min(max(part - start, 0), self.batch) for part in self.parts]
            yield counts[self.rank], sum(counts)


def seed_of(seed: int, rank: int) -> int:
    """Return the seed of a process's order and dropout: the first process has that of a training alone."""
    return mixed_seed(seed, rank) if rank else seed


def mixed_seed(seed: int, number: int) -> int:
    """Return a seed below 2**63 that depends on both numbers."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def weighted_sum(group: Alone, tensor: Tensor, share: float) -> None:
    """Replace a tensor by its sum over the group, in which this process's tensor counts `share`."""
    tensor.mul_(share) if share else tensor.zero_()  # without rows, the gradient is that of another step
    group.add_up(tensor)
