"""The loss of students against slow formulas, and batches of sentences that are near each other."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from distil_cases import CORPUS, TEACHER, small_plan
from numpy.typing import NDArray

from ensembed.distil.distil_job import decode, encode
from ensembed.distil.distillation import prepare
from ensembed.distil.student_training import Loss, _by_neighbours, train
from ensembed.numerics.row_matrices import unit_rows
from ensembed.views import ViewStore


def slow_divergence(Y: NDArray[Any], T: NDArray[Any]) -> float:
    """Shares by the softmax of cosines over 0.05, without the sentence itself."""
    total = 0.0
    for i in range(len(Y)):
        others = [j for j in range(len(Y)) if j != i]
        shares = []
        for V in (unit_rows(Y), unit_rows(T)):
            powers = [math.exp(float(V[i] @ V[j]) / 0.05) for j in others]
            shares.append([power / sum(powers) for power in powers])
        total += sum(t * math.log(t / y) for y, t in zip(*shares, strict=True))
    return total / len(Y)


def test_the_loss_is_that_of_the_slow_formula() -> None:
    random = np.random.default_rng(0)
    Y, T = random.standard_normal((2, 9, 6))
    cosine = [float(np.einsum("ij,ij->i", unit_rows(Y[:, :k]), unit_rows(T[:, :k])).mean()) for k in (6, 2)]
    tensors = torch.from_numpy(Y), torch.from_numpy(T)
    assert float(Loss()(*tensors)) == pytest.approx(1 - cosine[0], abs=1e-6)
    expected = 1 - cosine[0] + 1 - cosine[1] + 0.3 * slow_divergence(Y, T)
    assert float(Loss((2,), 0.3)(*tensors)) == pytest.approx(expected, rel=1e-5)
    assert float(Loss(near=1.0)(tensors[1], tensors[1])) == pytest.approx(0, abs=1e-6)


def test_batches_hold_each_sentence_once_and_neighbours_together() -> None:
    random = np.random.default_rng(0)
    topics = random.standard_normal((20, 16))
    topic = random.integers(0, 20, 2000)
    targets = encode((topics[topic] + 0.05 * random.standard_normal((2000, 16))).astype(np.float32))
    order = random.permutation(2000)[:1900]
    batches = _by_neighbours(order, targets, 256, random)
    assert sorted(np.concatenate(batches).tolist()) == sorted(order.tolist())
    assert [len(batch) for batch in batches] == [256] * 7 + [108]
    V = decode(targets)
    near = [np.sort(V[batch] @ V[batch].T, axis=1)[:, -25:].mean() for batch in batches]
    random_ones = [np.sort(V[rows] @ V[rows].T, axis=1)[:, -25:].mean() for rows in np.split(order[:1792], 7)]
    assert np.mean(near) > np.mean(random_ones)


def test_the_order_among_neighbours_is_learned(tmp_path: Path) -> None:
    store = ViewStore(tmp_path / "store")
    kept = []
    for near in (0.0, 1.0):
        job = prepare(TEACHER, CORPUS, small_plan(tmp_path, near=near, whiten=0), tmp_path / str(near), store=store)
        trained = train(job, threads=1)
        assert trained.best.spearman > trained.start.spearman
        kept.append(trained.best.spearman)
    assert kept[1] > kept[0]
