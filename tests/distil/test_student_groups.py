"""Several processes train one student as one does, up to rounding; here they are threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from distil_cases import CORPUS, TEACHER
from make_st import write_st

from ensembed.distil.distil_job import Job
from ensembed.distil.distillation import Plan, prepare
from ensembed.distil.student_training import Trained, train
from ensembed.errors import TrainingError
from ensembed.numerics.process_group import Alone, DivergedError
from ensembed.views import ViewStore

T = TypeVar("T")


class Thread(Alone):
    """A thread of a group."""

    def __init__(self, rank: int, barrier: Barrier, values: list[Any]) -> None:
        self.rank, self.size = rank, len(values)
        self._barrier, self._values = barrier, values

    def of_all(self, value: T) -> list[T]:
        self._values[self.rank] = value
        self._barrier.wait(60)
        values = deepcopy(self._values)  # as if they were sent
        self._barrier.wait(60)
        return values

    def of_first(self, value: T) -> T:
        return self.of_all(value)[0]

    def add_up(self, tensor: torch.Tensor) -> None:
        tensor.copy_(torch.stack(self.of_all(tensor)).sum(0))

    def take_first(self, tensor: torch.Tensor) -> None:
        tensor.copy_(self.of_first(tensor))


def together(job: Job, size: int) -> list[Trained]:
    barrier, values = Barrier(size), [None] * size

    def train_here(rank: int) -> Trained | Exception:
        try:
            return train(job, device="cpu", group=Thread(rank, barrier, values))
        except Exception as error:  # noqa: BLE001 - raised below
            if not isinstance(error, DivergedError):  # the others do not know, and wait
                barrier.abort()
            return error

    with ThreadPoolExecutor(size) as pool:
        results = list(pool.map(train_here, range(size)))
    errors = [result for result in results if isinstance(result, Exception)]
    for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
        raise error
    return [result for result in results if isinstance(result, Trained)]


def make_job(folder: Path, **how: Any) -> Job:  # noqa: ANN401 - the fields of a plan
    settings = {"epochs": 2, "batch_size": 43, "learning_rate": 1e-3, "dim": 12}
    plan = Plan(student=f"st:{write_st(folder / 'bert')}?layers=1", **{**settings, **how})
    return prepare(TEACHER, CORPUS, plan, folder / "job", store=ViewStore(folder / "store"))


@pytest.mark.parametrize(
    ("size", "how"), [(2, {"leading": (4,)}), (3, {"near": 0.1, "learning_rate": 3e-4, "whiten": 0.5})]
)
def test_a_group_trains_the_student_of_one_process(tmp_path: Path, size: int, how: dict[str, Any]) -> None:
    """The last batch of an epoch is one sentence: all but one process have none. `near` looks at whole batches."""
    job = make_job(tmp_path, **how)
    results = together(job, size)
    alone = train(job, device="cpu")
    for found in results:
        assert found.facts["steps"] == alone.facts["steps"] == 12
        assert found.facts["best_step"] == alone.facts["best_step"] > 0
        for name, weights in alone.weights.items():
            if not name.endswith("key.bias"):  # it changes no vector, and its gradient is nothing but rounding
                np.testing.assert_allclose(found.weights[name], weights, rtol=0, atol=2e-5)
            np.testing.assert_array_equal(found.weights[name], results[0].weights[name])


def test_a_training_that_diverges_does_so_in_all_processes(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"became nan at step \d+: lower learning_rate=1e\+20"):
        together(make_job(tmp_path, learning_rate=1e20), 2)
