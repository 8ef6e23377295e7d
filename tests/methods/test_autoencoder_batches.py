"""Where rows come from: every one once an epoch, in a new order, whether they lie on the device or are streamed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import oracles
import pytest
import torch
from method_views import Array, make_views
from small_store import CORPUS, ENCODER

from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import CorruptViewError, ViewError
from ensembed.methods import Autoencoder
from ensembed.methods.autoencoder import training_batches as batches
from ensembed.methods.autoencoder.training_batches import Batches, Resident, Streamed, draw_kept, make_batches
from ensembed.support.progress import silent
from ensembed.views import ViewStore

pytestmark = pytest.mark.usefixtures("one_thread")

CHUNK, WINDOW, ROWS = 8, 3, 101


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_CHUNK", CHUNK)


class Recorded:
    """A matrix that remembers which stretches were read."""

    def __init__(self, X: Array) -> None:
        self._X = X
        self.shape, self.dtype = X.shape, X.dtype
        self.read: list[tuple[int, int]] = []

    def __getitem__(self, rows: slice) -> Array:
        self.read.append((rows.start, rows.stop))
        return self._X[rows]


def _numbered(rows: int = ROWS) -> list[Array]:
    """Two views that hold the numbers of their rows."""
    numbers = np.arange(rows, dtype=np.float32)
    return [np.stack([numbers, numbers]).T, np.stack([1000 + numbers] * 3).T]


def _make(kind: str, views: Sequence[Any], seed: int = 0, dropout: float = 0.0) -> Batches:
    if kind == "resident":
        return Resident(views, torch.float32, "cpu", seed, dropout, silent)
    return Streamed(views, torch.float32, "cpu", seed, dropout, window=WINDOW)


def _epoch(source: Batches, epoch: int, size: int, dims: Sequence[int] = (2, 3), rows: int = ROWS) -> list[Array]:
    """All rows [n, d_j] of an epoch in their order."""
    source.begin(epoch)
    found = []
    for start in range(0, rows, size):
        buffers = [torch.full((min(size, rows - start), d), -1.0) for d in dims]
        source.fill(buffers, None)
        found.append([buffer.numpy() for buffer in buffers])
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


@pytest.mark.parametrize("size", [1, 7, 24, 30, 100, 101])
@pytest.mark.parametrize("kind", ["resident", "streamed"])
def test_an_epoch_has_every_row_once_and_the_views_aligned(kind: str, size: int) -> None:
    """A window has 24 rows: batches are smaller, as large, and larger."""
    source = _make(kind, _numbered())
    for epoch in (0, 1):
        first, second = _epoch(source, epoch, size)
        assert sorted(first[:, 0]) == list(range(ROWS))
        np.testing.assert_array_equal(second, np.stack([first[:, 0] + 1000] * 3).T)
    source.close()


@pytest.mark.parametrize("kind", ["resident", "streamed"])
def test_the_order_depends_on_seed_and_epoch_alone(kind: str) -> None:
    def order(seed: int, epoch: int, size: int = 7) -> list[float]:
        source = _make(kind, _numbered(), seed)
        _epoch(source, 5, 7)  # an epoch that was before leaves no trace
        found: list[float] = _epoch(source, epoch, size)[0][:, 0].tolist()
        source.close()
        return found

    assert order(0, 1) == order(0, 1) == order(0, 1, size=50)
    orders = [order(seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(one) for one in orders}) == 4
    for one in orders:
        assert abs(np.corrcoef(one, np.arange(ROWS))[0, 1]) < 0.7
        assert np.mean(np.abs(np.diff(one)) == 1) < 0.2  # neighbours do not stay neighbours


def test_streaming_reads_chunks_of_neighbours_once_an_epoch_and_holds_two_windows() -> None:
    views = [Recorded(view) for view in _numbered()]
    source = Streamed(views, torch.float32, "cpu", 0, 0.0, window=WINDOW)
    assert not views[0].read
    source.begin(0)
    buffers = [torch.empty(1, 2), torch.empty(1, 3)]
    for _ in range(ROWS):
        source.fill(buffers, None)
    assert sorted(views[0].read) == [(start, min(start + CHUNK, ROWS)) for start in range(0, ROWS, CHUNK)]
    assert views[0].read == views[1].read != sorted(views[0].read)
    with pytest.raises(RuntimeError, match="no more rows"):
        source.fill(buffers, None)

    for view in views:
        view.read.clear()
    source.begin(1)
    source.fill(buffers, None)
    source.close()  # waits for the reader
    assert len(views[0].read) <= 2 * WINDOW


def test_views_of_a_store_that_are_larger_than_a_window_are_streamed(store: ViewStore) -> None:
    views = store.embed_all(CORPUS, [ENCODER, DemoEncoder(6, seed=4)])
    rows = len(views[0])
    assert rows > WINDOW * CHUNK
    source = _make("streamed", views)
    found = np.hstack(_epoch(source, 0, 10, dims=(4, 6), rows=rows))
    source.close()
    expected = np.hstack([view[:] for view in views])
    np.testing.assert_array_equal(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)])


@pytest.mark.parametrize(("part", "kind"), [(0.0, Streamed), (1.0, Resident)])
def test_views_stay_on_the_device_where_they_fit(part: float, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_RESIDENT", part)
    made = make_batches(_numbered(), torch.float32, "cpu", 0, 0.0, silent)
    assert type(made) is kind
    made.close()


def test_views_that_just_do_not_fit_are_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    size = ROWS * 5 * 4
    for memory, kind in ((2 * size, Resident), (2 * size - 1, Streamed)):
        monkeypatch.setattr(batches, "_memory", lambda _device, memory=memory: memory)
        made = make_batches(_numbered(), torch.float32, "cpu", 0, 0.0, silent)
        assert type(made) is kind
        made.close()


@pytest.fixture
def streaming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing fits on the device."""
    monkeypatch.setattr(batches, "_RESIDENT", 0.0)


METHOD = Autoencoder(dim=4, hidden_layers=1, loss="mse", epochs=5, batch_size=30, view_dropout=0.2, learning_rate=0.01)


@pytest.mark.usefixtures("streaming")
def test_streamed_training_gives_the_same_bits_twice_and_leaves_no_thread() -> None:
    views = make_views(ROWS, (6, 5))
    before = threading.active_count()
    first, second = (METHOD.fit(views).transform(views) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert threading.active_count() == before


def test_resident_and_streamed_batches_differ_only_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are one batch, so that their order does not matter."""
    method = Autoencoder(dim=4, loss="mse", epochs=20, precision="float64", learning_rate=0.01)
    views = [view / 10 for view in make_views(ROWS, (6, 5))]
    resident = method.fit(views).transform(views)
    monkeypatch.setattr(batches, "_RESIDENT", 0.0)
    assert oracles.error(method.fit(views).transform(views), resident) < 1e-5


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("row", [0, 50, 100])
def test_nan_in_a_streamed_view_is_named(row: int) -> None:
    views = make_views(ROWS, (6, 5))
    views[1][row, 2] = np.nan
    before = threading.active_count()
    with pytest.raises(ViewError, match=f"view 1 holds NaN or Inf in row {row};"):
        METHOD.fit(views)
    assert threading.active_count() == before


@pytest.mark.usefixtures("streaming")
def test_a_damaged_shard_stops_training(store: ViewStore) -> None:
    view = store.embed(CORPUS, ENCODER)
    path = view.folder / view.manifest.shards[3]
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CorruptViewError):
        METHOD.fit([view])


def test_reading_onto_the_device_is_reported() -> None:
    reports: list[tuple[str, int, int | None]] = []
    Resident(_numbered(), torch.float32, "cpu", 0, 0.0, lambda *report: reports.append(report))
    assert reports[0] == ("read views", CHUNK, ROWS)
    assert reports[-1] == ("read views", ROWS, ROWS)


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("views", [1, 2, 5])
def test_dropout_keeps_at_least_one_view_of_every_row(views: int, dropout: float) -> None:
    keep = torch.full((views, 4000, 1), 7.0)
    draw_kept(keep, dropout, torch.Generator().manual_seed(0))
    assert set(keep.unique().tolist()) <= {0.0, 1.0}
    assert (keep.sum(0) >= 1).all()
    # All J are left out with probability q^J, and then one comes back.
    expected = 1 - dropout + dropout**views / views
    assert float(keep.mean()) == pytest.approx(expected, abs=0.02)
    assert keep.mean(1).flatten().tolist() == pytest.approx([expected] * views, abs=0.03)  # no view is favoured


@pytest.mark.parametrize("kind", ["resident", "streamed"])
def test_dropout_depends_on_seed_and_epoch_alone(kind: str) -> None:
    def kept(seed: int, epoch: int) -> list[float]:
        source = _make(kind, _numbered(), seed, dropout=0.5)
        keep = torch.empty(2, 30, 1)
        for number in (3, epoch):
            source.begin(number)
            for _ in range(2):
                source.fill([torch.empty(30, 2), torch.empty(30, 3)], keep)
        source.close()
        found: list[float] = keep.flatten().tolist()
        return found

    assert kept(0, 1) == kept(0, 1)
    assert len({tuple(kept(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4
