"""What a task is: texts in roles, and measures of their vectors that can be resampled."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import Encoder, FloatArray
from ensembed.paper.experiments.bootstrap import PERCENTILES

Array: TypeAlias = NDArray[np.float64]
Role: TypeAlias = Literal["query", "document", "text"]
"""How a text is encoded: `encode_query`, `encode_document` or `encode`."""

EncodeTexts: TypeAlias = "Callable[[Encoder, Texts], FloatArray]"
"""Returns a model's vectors of texts, scaled to length one."""

Statistic: TypeAlias = Callable[[Array], Array]
"""A measure of items that are counted several times: counts [b, n] -> values [b]."""

# Counts at a time: a block of resamples of this many float64 stays small.
_BLOCK = 1 << 22


@dataclass(frozen=True)
class Texts:
    """Texts that are encoded in one role."""

    role: Role
    texts: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Figure:
    """A measure of one model on one task, and its values on resamples of the items [resamples]."""

    value: float
    resampled: Array

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% percentile interval; the value twice if there are no resamples."""
        if not len(self.resampled):
            return self.value, self.value
        low, high = np.percentile(self.resampled, PERCENTILES).tolist()
        return low, high

    def to_json(self) -> dict[str, float]:
        """Return the value and its interval; figures are fractions."""
        low, high = self.interval
        return {"value": self.value, "low": low, "high": high} if len(self.resampled) else {"value": self.value}


@dataclass(frozen=True)
class Measuring:
    """How a model is measured: on how many resamples of the items, by which seed, and by which measures (all if None).

    The resamples are the same for every model.
    """

    resamples: int = 0
    seed: int = 0
    measures: Sequence[str] | None = None


class Task(ABC):
    """Texts, and what a good model does with them.

    Attributes:
        name: name in tables.
        kind: the kind of task, for people and programs.
        measures: the names of its figures; the first is the one that tables show.
        items: how many items (queries, texts, pairs) are judged.
    """

    name: str
    kind: ClassVar[str]
    measures: ClassVar[tuple[str, ...]]

    @property
    @abstractmethod
    def items(self) -> int:
        """How many items (queries, texts, pairs) are judged."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """The hash of the data; results carry it."""

    @abstractmethod
    def score(self, model: Encoder, encode: EncodeTexts, how: Measuring) -> dict[str, Figure]:
        """Measure a model: `encode` gives its vectors of texts."""


class VectorTask(Task):
    """A task whose figures are functions of its texts' vectors."""

    @abstractmethod
    def texts(self) -> Mapping[str, Texts]:
        """Return the texts whose vectors `statistic` needs, by the name that it knows them by."""

    @abstractmethod
    def statistic(self, measure: str, vectors: Mapping[str, FloatArray]) -> Statistic:
        """Return a measure of the texts' vectors, scaled to length one, as a function of the items' counts."""

    @abstractmethod
    def gold(self) -> Any:  # noqa: ANN401 - whatever JSON can hold
        """Return what is known about the texts, for the fingerprint."""

    @cached_property
    def texts_hash(self) -> str:
        """The hash of all texts and of what is known about them; the resamples are chosen by it."""
        return hash_facts([self.kind, {name: group.texts for name, group in self.texts().items()}, self.gold()])

    @property
    def fingerprint(self) -> str:
        """The hash of the data; results carry it."""
        return self.texts_hash

    def statistics(self, measures: Sequence[str], vectors: Mapping[str, FloatArray]) -> dict[str, Statistic]:
        """Return `statistic` of several measures."""
        return {name: self.statistic(name, vectors) for name in measures}

    def score(self, model: Encoder, encode: EncodeTexts, how: Measuring) -> dict[str, Figure]:
        """Measure the vectors that `encode` gives."""
        return self.figures({name: encode(model, texts) for name, texts in self.texts().items()}, how)

    def figures(self, vectors: Mapping[str, FloatArray], how: Measuring) -> dict[str, Figure]:
        """Measure the vectors on the items and on resamples of them."""
        statistics = self.statistics(self.measures if how.measures is None else how.measures, vectors)
        ones = np.ones((1, self.items))
        values = {name: float(statistic(ones)[0]) for name, statistic in statistics.items()}
        blocks: dict[str, list[Array]] = {name: [] for name in statistics}
        for counts in draws(self.items, how.resamples, [how.seed, int(self.texts_hash, 16)]):
            for name, statistic in statistics.items():
                blocks[name].append(statistic(counts))
        return {name: Figure(values[name], np.concatenate([np.empty(0), *blocks[name]])) for name in statistics}


def hash_facts(facts: Any) -> str:  # noqa: ANN401 - whatever JSON can hold
    """Return 16 digits of the hash of facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def draws(items: int, resamples: int, seed: Sequence[int]) -> Iterator[Array]:
    """Yield blocks [b, items] of how often each item is in each resample: as many items as there are, with repeats."""
    random = np.random.default_rng(list(seed))
    step = max(1, _BLOCK // max(1, items))
    for start in range(0, resamples, step):
        block = min(step, resamples - start)
        chosen = random.integers(items, size=(block, items)) + items * np.arange(block)[:, None]
        yield np.bincount(chosen.ravel(), minlength=block * items).reshape(block, items).astype(np.float64)


def mean_of(units: Sequence[float] | NDArray[Any]) -> Statistic:
    """Return the mean of a figure of each item."""
    values = np.asarray(units, np.float64)
    return lambda counts: np.einsum("ij,j->i", counts, values) / counts.sum(axis=1)
