"""Several processes that train one autoencoder: each on its own rows, all with the same weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")


class Group(Protocol):
    """The processes that train together, and which of them this is.

    Attributes:
        rank: 0 is the first, which writes checkpoints.
        size: how many there are.
    """

    rank: int
    size: int

    def add_up(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over all processes, which is the same to the bit in all of them."""

    def of_all(self, value: T) -> list[T]:
        """What every process has for this value, by rank."""

    def of_first(self, value: T) -> T:
        """What the first process has for this value."""

    def kept(self, facts: Mapping[str, Any]) -> None:
        """Told in every process when a checkpoint was written."""


class Alone:
    """A group of one."""

    rank, size = 0, 1

    def add_up(self, tensor: Tensor) -> None:
        """Nothing is to be added."""

    def of_all(self, value: T) -> list[T]:
        """One value."""
        return [value]

    def of_first(self, value: T) -> T:
        """It."""
        return value

    def kept(self, facts: Mapping[str, Any]) -> None:
        """Nobody else wants to know."""


class Distributed:
    """The default group of torch.distributed, which someone has set up."""

    def __init__(self) -> None:
        from torch import distributed

        self._distributed = distributed
        self.rank, self.size = int(distributed.get_rank()), int(distributed.get_world_size())

    def add_up(self, tensor: Tensor) -> None:
        """Over all processes."""
        if self.size > 1:
            self._distributed.all_reduce(tensor)

    def of_all(self, value: T) -> list[T]:
        """Gathered by rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        self._distributed.all_gather_object(values, value)
        return values

    def of_first(self, value: T) -> T:
        """Sent by rank 0."""
        if self.size == 1:
            return value
        values = [value]
        self._distributed.broadcast_object_list(values, src=0)
        return values[0]

    def kept(self, facts: Mapping[str, Any]) -> None:
        """Nobody else wants to know."""


@dataclass(frozen=True)
class Shares:
    """How many rows each process of a group has, and takes in every step.

    All make the same number of steps: one that has run out of rows takes part in the last with none.

    Attributes:
        parts: the rows of each process.
        rank: which of them this is.
        batch: rows a step and process; the last step of a process may have fewer.
    """

    parts: tuple[int, ...]
    rank: int
    batch: int

    @classmethod
    def of(cls, parts: Sequence[int], rank: int, batch_size: int) -> Shares:
        """A batch split among the processes, rounded up, so that a batch of all rows is one step."""
        return cls(tuple(parts), rank, -(-min(batch_size, sum(parts)) // len(parts)))

    @property
    def rows(self) -> int:
        """Of all processes together."""
        return sum(self.parts)

    def steps(self) -> Iterator[tuple[int, int]]:
        """For every step of an epoch the rows of this process, and of all together."""
        for start in range(0, max(self.parts), self.batch):
            counts = [min(max(part - start, 0), self.batch) for part in self.parts]
            yield counts[self.rank], sum(counts)


def seed_of(seed: int, rank: int) -> int:
    """The seed of a process's order and dropout: the first one's is that of a training alone."""
    if rank == 0:
        return seed
    return int(np.random.SeedSequence([seed, rank]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def weighted_sum(group: Group, tensors: Sequence[Tensor], share: float) -> None:
    """Replace tensors by their sum over the group, in which this process's count `share`."""
    for tensor in tensors:
        tensor.mul_(share) if share else tensor.zero_()  # a gradient without rows is of another step
        group.add_up(tensor)


def flag_tensor(values: Sequence[float], like: Tensor) -> Tensor:
    """A few numbers that a group adds up."""
    return torch.tensor(list(values), dtype=torch.float64, device=like.device)
