"""Moments on a real cluster: those of one machine, whatever the blocks, and whoever is lost on the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ray_faults import Faulty
from ray_nodes import Nodes

from ensembed import ListCorpus, ViewStore
from ensembed.encoders import open_encoder
from ensembed.engines import Ray
from ensembed.engines.ray.row_blocks import cuts, equal_parts
from ensembed.errors import CorruptViewError, EngineError, ViewError
from ensembed.methods import GCCA, Auto, Meta, Method
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass
from ensembed.views import View

Array = NDArray[Any]

ROWS = 12_500


def make_views(rows: int = ROWS, dims: tuple[int, ...] = (24, 16)) -> list[Array]:
    """Views of which each says something of its own and something that the others say, too, far from zero."""
    rng = np.random.default_rng(7)
    shared = rng.standard_normal((rows, 8)) * np.linspace(3, 1, 8)
    return [
        (shared @ rng.standard_normal((8, d)) + rng.standard_normal((rows, d)) * np.linspace(2, 1, d) + 5).astype(
            np.float32
        )
        for d in dims
    ]


def stored(folder: Path, shard_rows: int = 64) -> list[View]:
    corpus = ListCorpus([f"sentence {i} of {i % 7}" for i in range(1_000)])
    encoders = [open_encoder(name) for name in ("demo?dim=8&seed=1", "demo?dim=6&seed=2")]
    return ViewStore(folder, shard_rows=shard_rows).embed_all(corpus, encoders)


def assert_same(found: Moments, expected: Moments) -> None:
    assert found.n == expected.n
    assert found.resolution == expected.resolution
    assert np.abs(found.mean - expected.mean).max() <= 1e-12 * np.abs(expected.mean).max()
    assert np.abs(found.scatter - expected.scatter).max() <= 1e-12 * np.abs(expected.scatter).max()
    np.testing.assert_array_equal(found.scatter, found.scatter.T)
    found.scatter[0, 0] += 1  # it can be written to


def assert_same_meta(found: Meta, expected: Meta, views: list[Any]) -> None:
    assert found.method == expected.method
    assert found.rows == expected.rows
    if expected.spectrum is not None:
        assert found.spectrum is not None
        np.testing.assert_allclose(found.spectrum, expected.spectrum, rtol=1e-10, atol=1e-10 * expected.spectrum[0])
    rows = [view[:100] for view in views]
    # What is kept of a model are float32.
    np.testing.assert_allclose(found.transform(rows), expected.transform(rows), rtol=0, atol=1e-5)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("blocks", [None, 1, 2, 5, 64])
def test_arrays_have_the_same_moments_in_any_number_of_blocks(blocks: int | None) -> None:
    views = make_views(3_001)
    views[1] = views[1].astype(np.float64)
    reports: list[tuple[str, int, int | None]] = []
    engine = Ray(blocks=blocks)
    found = engine.moments(views, Pass(progress=lambda *report: reports.append(report)), normalize=True)
    assert_same(found, Moments.of_views(views, normalize=True))
    assert reports[-1] == ("moments", 3_001, 3_001)
    assert [done for _, done, _ in reports] == sorted(done for _, done, _ in reports)
    stage = engine.stages[0]
    assert (stage.name, stage.rows) == ("moments", 3_001)
    assert 1 <= stage.workers <= 3
    assert stage.memory > 1e7
    assert stage.seconds > 0


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("blocks", [None, 3])
def test_stored_views_are_read_where_the_tasks_are(tmp_path: Path, blocks: int | None) -> None:
    views = stored(tmp_path)
    assert_same(Ray(blocks=blocks).moments(views), Moments.of_views(views))


@pytest.mark.usefixtures("cluster")
def test_moments_do_not_depend_on_which_block_finishes_first() -> None:
    views = make_views(2_000)
    first, second = (Ray(blocks=9).moments(views) for _ in range(2))
    np.testing.assert_array_equal(first.scatter, second.scatter)
    np.testing.assert_array_equal(first.mean, second.mean)


@pytest.mark.usefixtures("cluster")
def test_float32_moments_on_a_cluster_have_the_coarser_resolution() -> None:
    views = make_views(2_000)
    found = Ray(blocks=3).moments(views, Pass(precision="float32"))
    assert found.resolution == Moments.of_views(views, Pass(precision="float32")).resolution
    assert np.abs(found.scatter - Moments.of_views(views).scatter).max() < 1e-5 * np.abs(found.scatter).max()


@pytest.mark.usefixtures("cluster")
def test_moments_on_a_cluster_without_gpu_raise_an_engine_error() -> None:
    with pytest.raises(EngineError, match="device='cuda' needs a GPU"):
        Ray().moments(make_views(100), Pass(device="cuda"))


@pytest.mark.usefixtures("cluster")
def test_no_rows_and_one_row() -> None:
    assert Ray().moments([np.zeros((0, 3))]).n == 0
    assert Ray().moments([np.ones((1, 3))]).n == 1


# Moments of the views themselves, and of whitened rows, which the workers compute. Other methods ask for the same.
METHODS: dict[str, Method] = {"gcca": GCCA(dim=6), "whitened": Auto(dim=6, weights=(1.0, 0.5), whitened=(1,))}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(("method", "blocks"), list(zip(METHODS.values(), (2, 5), strict=True)), ids=METHODS)
def test_a_killed_worker_does_not_change_the_moments(tmp_path: Path, method: Method, blocks: int) -> None:
    """The worker ends in the middle of its block, which another one then does."""
    X, Y = make_views()
    views = [Faulty(X, ROWS // 2, "kill", tmp_path), Y]
    found = method.fit(views, passes=Ray(blocks=blocks))
    assert len({path.name.partition("-")[2] for path in tmp_path.iterdir()}) >= 2, "no worker was killed"
    assert_same_meta(found, method.fit([X, Y]), [X, Y])


def test_a_lost_node_does_not_change_the_moments(cluster: Nodes, tmp_path: Path) -> None:
    """The node goes with what is running on it, and with what it had computed."""
    import ray

    method = METHODS["whitened"]
    X, Y = make_views(30_000, (96, 80))  # matrices of more than 100 kB stay on the node that made them
    driver = str(ray.get_runtime_context().get_node_id())
    views = [Faulty(X, 29_999, "wait", tmp_path, driver), Y]
    lost: list[str] = []

    def pull_the_plug() -> None:
        deadline = time.monotonic() + 60
        while not (said := [path.read_text() for path in tmp_path.iterdir()]) or not said[0]:
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)
        for node in [node for node in cluster.others if node.node_id == said[0]]:
            cluster.remove(node)
            lost.append(said[0])

    thread = threading.Thread(target=pull_the_plug)
    thread.start()
    try:
        found = method.fit(views, passes=Ray(blocks=7, attempts=20))
    finally:
        thread.join()
        if lost:
            cluster.add()
    assert lost
    assert len(list(tmp_path.iterdir())) >= 2
    assert_same_meta(found, method.fit([X, Y]), [X, Y])


@pytest.mark.usefixtures("cluster")
def test_a_block_that_always_kills_its_worker_is_named(tmp_path: Path) -> None:
    X, Y = make_views(2_000)
    views: list[Any] = [Faulty(X, 700, "always kill", tmp_path), Y]
    with pytest.raises(EngineError, match=r"rows 500 to 1000 cannot be computed: the workers were lost 2 times"):
        Ray(blocks=4, attempts=1).moments(views)
    assert len(list(tmp_path.iterdir())) == 2
    assert_same(Ray(blocks=4).moments([X, Y]), Moments.of_views([X, Y]))  # the cluster is as it was


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("change", [_flip, Path.unlink], ids=["flipped", "missing"])
def test_a_damaged_shard_is_named_as_it_is_locally(tmp_path: Path, change: Callable[[Path], None]) -> None:
    views = stored(tmp_path)
    shard = views[1].folder / views[1].manifest.shards[9]
    change(shard)
    messages = []
    for moments in (Moments.of_views, Ray(blocks=5, attempts=1).moments):
        with pytest.raises(CorruptViewError, match=shard.name) as error:
            moments(views)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


@pytest.mark.usefixtures("cluster")
def test_nan_in_a_block_is_named_by_its_row_among_all_rows() -> None:
    X, Y = make_views(9_000)
    Y[8_900, 3] = np.nan
    with pytest.raises(ViewError, match="view 1 holds NaN or Inf in row 8900"):
        Ray(blocks=3).moments([X, Y])


def test_rows_of_a_stored_view_open_only_their_own_shards(tmp_path: Path) -> None:
    view = stored(tmp_path)[0]
    whole = np.asarray(view)
    rows = view.stretch(130, 250)
    for k, name in enumerate(view.manifest.shards):
        if k not in (2, 3):
            (view.folder / name).unlink()
    np.testing.assert_array_equal(rows[:], whole[130:250])
    np.testing.assert_array_equal(rows[5:80], whole[135:210])
    assert rows[120:200].shape == (0, 8)
    assert rows.shape == (120, 8)


def test_the_last_shard_may_be_short(tmp_path: Path) -> None:
    view = stored(tmp_path, shard_rows=300)[0]
    np.testing.assert_array_equal(view.stretch(850, 1000)[:], view[850:1000])


def test_a_view_is_pickled_as_its_folder(tmp_path: Path) -> None:
    import pickle

    view = stored(tmp_path)[0]
    copy = pickle.loads(pickle.dumps(view))  # noqa: S301 - our own bytes
    assert len(pickle.dumps(view)) < 1000
    np.testing.assert_array_equal(np.asarray(copy), np.asarray(view))


def test_blocks_are_of_whole_shards(tmp_path: Path) -> None:
    views = stored(tmp_path)
    for blocks in (1, 2, 5, 1000):
        found = cuts(views, blocks)
        assert found[0][0] == 0
        assert found[-1][1] == 1000
        assert all(start % 64 == 0 for start, _ in found)
        assert len(found) == min(blocks, 16)
        assert all(stop > start for start, stop in found)
    assert equal_parts(7, 3) == [(0, 2), (2, 4), (4, 7)]
    assert equal_parts(2, 3) == [(0, 1), (1, 2)]
