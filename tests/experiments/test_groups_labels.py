"""What groups without labels lose is computed against the best that labels would choose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ensembed.encoders import DemoEncoder
from ensembed.sts.datasets import Pairs
from ensembed.tasks import Clustering
from ensembed.tasks.pair_tasks import PairClassification
from ensembed.views import ViewStore
from experiments.groups_labels import cluster_row, dropped_row, f1, pair_row

PETS = tuple(f"the {a} dog {b} {c}" for a in ("old", "red", "big", "shy") for b in "stuv" for c in "wxyz")
SHARES = tuple(f"{a} stocks {b} today {c}" for a in ("tech", "bank", "oil", "gas") for b in "stuv" for c in "wxyz")


def test_f1_counts_what_is_said_and_true() -> None:
    said, true = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert f1(said, true) == 0.5
    assert f1(said & False, true) == 0


def test_losses_are_against_the_best_choice(tmp_path: Path) -> None:
    store, model = ViewStore(tmp_path), DemoEncoder(64)
    task = Clustering("mine", PETS + SHARES, ("pets",) * len(PETS) + ("shares",) * len(SHARES))
    cells, loss = cluster_row(model, task, store)
    assert loss == pytest.approx(float(cells[3]) - float(cells[1]), abs=0.11)
    assert loss >= 0
    _, dropped, same, named, same_named = dropped_row(model, task, store)
    assert int(same) <= int(dropped)
    assert int(same_named) <= int(named)
    pairs = Pairs("pairs", PETS[:60] + PETS[:60], SHARES[:60] + PETS[1:61], np.repeat([0.0, 1.0], 60))
    cells, loss = pair_row(model, PairClassification(pairs), store)
    assert float(cells[4]) - max(float(cells[1]), float(cells[3])) == pytest.approx(loss, abs=0.11)
