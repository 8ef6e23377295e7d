"""An autoencoder on Ray Train: one worker is the local trainer, more do the same together, lost ones are replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from ray_kills import KillAt

from ensembed.engines import Ray
from ensembed.engines.ray import ray_training as training
from ensembed.errors import EngineError, TrainingError
from ensembed.methods import Autoencoder, Meta
from ensembed.methods.meta import Network
from ensembed.numerics.process_group import Alone, Shares, seed_of, weighted_sum

Array = NDArray[Any]

# Ray's own: its data sets, which a training has none of, warn of settings that they make themselves.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")


def make_views(rows: int = 301, dims: tuple[int, ...] = (6, 4)) -> list[Array]:
    rng = np.random.default_rng(3)
    shared = rng.standard_normal((rows, 4))
    return [(shared @ rng.standard_normal((4, d)) / 2).astype(np.float32) for d in dims]


def weights(meta: Meta) -> list[Array]:
    return [
        array
        for projection in meta.projections
        if isinstance(projection, Network)
        for layer in projection.layers
        for array in (layer.matrix, layer.bias)
    ]


def assert_same(found: Meta, expected: Meta) -> None:
    assert found.method == expected.method
    assert len(weights(found)) == len(weights(expected)) > 0
    for a, b in zip(weights(found), weights(expected), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hear of epochs, of deaths and of ends when they come: what is waited for here is processes that start."""
    monkeypatch.setattr(training, "_LOOK_EVERY", 0.02)
    monkeypatch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")


@pytest.mark.usefixtures("cluster")
def test_a_training_that_stops_twice_on_the_cluster_gives_the_bits_of_the_local_trainer(tmp_path: Path) -> None:
    """It is interrupted, then it loses its worker, then it goes on without a cluster."""
    method = Autoencoder(dim=4, loss="cos", epochs=600, batch_size=32, view_dropout=0.2, device="cpu")
    views, kept = make_views(), tmp_path / "kept"
    interrupted: list[int] = []

    def interrupt(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train ·"):
            interrupted.append(done)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        method.fit(views, threads=1, progress=interrupt, checkpoint=kept, passes=Ray())
    # The last whole epoch is kept, though no checkpoint was due.
    assert [path.name for path in kept.iterdir()] == ["training.safetensors"]
    kill = KillAt(interrupted[0] + 50)
    with pytest.raises(EngineError, match=r"training stopped after 1 failures: .*the last checkpoint is kept"):
        method.fit(views, threads=1, progress=kill, checkpoint=kept, passes=Ray(attempts=0, keep_every=0))
    assert kill.killed
    assert kill.epochs[0] >= interrupted[0]
    rest = KillAt(10**9)
    found = method.fit(views, threads=1, progress=rest, checkpoint=kept)
    assert interrupted[0] + 50 <= rest.epochs[0] < rest.epochs[-1] == 600
    assert_same(found, method.fit(views, threads=1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("cluster")
def test_two_workers_add_up_to_the_gradient_of_all_rows_though_one_was_killed(tmp_path: Path) -> None:
    """Where a batch is all rows, their order does not matter; 301 rows are 150 and 151.

    Ray Train begins another group, which goes on from the checkpoint.
    """
    method = Autoencoder(
        dim=4, loss="mse", hidden_layers=1, epochs=600, batch_size=302, learning_rate=0.01, precision="float64",
        solver="batches", device="cpu",
    )  # fmt: skip
    views = make_views()
    engine = Ray(train_workers=2, keep_every=0)
    kill = KillAt(50)
    found = method.fit(views, progress=kill, checkpoint=tmp_path, passes=engine)
    assert len(kill.killed) == 1
    assert min(kill.after) >= 50
    assert kill.after[-1] == 600
    expected = method.fit(views, threads=1)
    for a, b in zip(weights(found), weights(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
    stage = engine.stages[0]
    assert (stage.name, stage.rows, stage.workers) == ("train", 301, 2)
    assert stage.memory > 1e7


@pytest.mark.usefixtures("cluster")
def test_a_training_error_on_the_cluster_is_that_of_the_local_trainer(tmp_path: Path) -> None:
    method = Autoencoder(dim=4, loss="mse", epochs=50, batch_size=64, learning_rate=1e20, device="cpu")
    with pytest.raises(TrainingError, match=r"in epoch \d+: lower learning_rate=1e\+20"):
        method.fit(make_views(), threads=1, checkpoint=tmp_path / "kept", passes=Ray(train_workers=2))


def test_all_processes_make_the_same_number_of_steps() -> None:
    for parts, batch_size, expected in [
        ((10,), 4, [[(4, 4), (4, 4), (2, 2)]]),
        ((4, 5), 4, [[(2, 4), (2, 4), (0, 1)], [(2, 4), (2, 4), (1, 1)]]),
        ((2, 2, 2), 2, [[(1, 3), (1, 3)]] * 3),
        ((3, 3), 100, [[(3, 6)]] * 2),
        ((3, 4), 7, [[(3, 7)], [(4, 7)]]),
    ]:
        found = [list(Shares.of(parts, rank, batch_size).steps()) for rank in range(len(parts))]
        assert found == expected
        assert sum(mine for steps in found for mine, _ in steps) == sum(parts)


def test_a_worker_without_rows_adds_nothing() -> None:
    group = Alone()
    gradient = torch.full((3,), torch.nan)
    weighted_sum(group, gradient, 0.0)
    assert gradient.tolist() == [0, 0, 0]
    assert group.of_all(5) == [5]
    assert group.of_first("x") == "x"


def test_the_first_worker_has_the_seed_of_a_training_alone() -> None:
    assert seed_of(11, 0) == 11
    assert len({seed_of(11, rank) for rank in range(50)}) == 50
    assert all(0 <= seed_of(11, rank) < 2**63 for rank in range(50))


@pytest.mark.usefixtures("cluster")
def test_workers_that_do_not_fit_are_refused_at_once(tmp_path: Path) -> None:
    method = Autoencoder(dim=4, loss="mse", epochs=2, batch_size=64, device="cpu", solver="batches")
    with pytest.raises(EngineError, match="9 training workers of a core each do not fit"):
        method.fit(make_views(), threads=1, checkpoint=tmp_path, passes=Ray(train_workers=9))
