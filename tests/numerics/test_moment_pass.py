"""The pass over the rows: the same to the bit on any number of threads, and BLAS is left as it was."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import oracles
import pytest
from numpy.typing import NDArray
from threadpoolctl import threadpool_info, threadpool_limits

from ensembed.errors import ViewError
from ensembed.numerics import moments as moments_module
from ensembed.numerics.moments import Moments, one_blas_thread, tiles
from ensembed.numerics.pass_options import Pass


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 64 rows in stretches of 32, tiles of 5 columns at the most, threads for everything."""
    for name, value in {"STRETCH": 32, "_BUFFER": 64 * 14, "_TILE": 5, "_CACHED": 7, "_SMALL": 0}.items():
        monkeypatch.setattr(moments_module, name, value)


def _views(n: int) -> list[NDArray[np.float32]]:
    generator = np.random.default_rng(n)
    return [(generator.standard_normal((n, d)) + 3.0).astype(np.float32) for d in (8, 5, 1)]


@pytest.mark.parametrize("D", [1, 5, 6, 11, 30])
@pytest.mark.parametrize("widest", [1, 5, 40])
def test_tiles_cover_the_upper_triangle_once(D: int, widest: int) -> None:
    covered = np.zeros((D, D), int)
    for rows, columns in tiles(D, widest):
        assert max(rows.stop - rows.start, columns.stop - columns.start) <= widest
        covered[rows, columns] += np.triu(np.ones((rows.stop - rows.start,) * 2, int)) if rows == columns else 1
    np.testing.assert_array_equal(covered, np.triu(np.ones((D, D), int)))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("n", [1, 31, 64, 65, 128, 193, 1000])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_blocks_stretches_and_tiles_add_up(n: int, normalize: bool, precision: Any) -> None:  # noqa: ANN401 - one of the words it takes
    views = _views(n)
    reports: list[int] = []
    how = Pass(precision=precision, progress=lambda _l, done, _t, /: reports.append(done))
    found = Moments.of_views(views, how, normalize=normalize)
    X = np.hstack([oracles.unit(view) if normalize else view for view in views]).astype(np.float64)
    mean, expected = oracles.moments(X)
    tolerance = 1e-6 if precision == "float32" or normalize else 1e-12
    assert np.abs(found.scatter - expected).max() <= tolerance * max(n, np.abs(expected).max())
    np.testing.assert_allclose(found.mean, mean, atol=tolerance)
    np.testing.assert_array_equal(found.scatter, found.scatter.T)
    assert reports == [*range(64, n, 64), n]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_the_number_of_threads_changes_no_bit(precision: Any) -> None:  # noqa: ANN401 - one of the words it takes
    views = _views(1000)
    one, *others = (Moments.of_views(views, Pass(precision=precision, threads=threads)) for threads in (1, 2, 3, 16, 3))
    for other in others:
        np.testing.assert_array_equal(one.mean, other.mean)
        np.testing.assert_array_equal(one.scatter, other.scatter)


class _Watched:
    """Rows made as they are read, by one thread at a time; says when two come at once."""

    def __init__(self, n: int, fails_at: int | None = None) -> None:
        self.shape, self.dtype = (n, 3), np.dtype(np.float32)
        self._lock, self._fails_at = threading.Lock(), fails_at

    def __getitem__(self, rows: slice) -> NDArray[np.float32]:
        assert self._lock.acquire(blocking=False), "read by two threads at once"
        try:
            start, stop, _ = rows.indices(self.shape[0])
            if self._fails_at is not None and stop > self._fails_at:
                raise OSError("the disk is gone")
            return np.random.default_rng(start).standard_normal((stop - start, 3)).astype(np.float32)
        finally:
            self._lock.release()


@pytest.mark.usefixtures("small")
def test_a_view_is_read_in_order_by_one_thread_at_a_time() -> None:
    assert Moments.of_views([_Watched(2000), _Watched(2000)], Pass(threads=4)).n == 2000


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("threads", [None, 1, 3])
def test_an_error_while_reading_is_raised_and_blas_threads_are_restored(threads: int | None) -> None:
    before = _blas_threads()
    with pytest.raises(OSError, match="the disk is gone"):
        Moments.of_views([_Watched(2000), _Watched(2000, fails_at=700)], Pass(threads=threads))
    views = _views(300)
    views[1][299, 4] = np.nan
    with pytest.raises(ViewError, match="view 1 holds NaN or Inf in row 299;"):
        Moments.of_views(views, Pass(threads=threads))
    assert _blas_threads() == before


def test_blas_threads_are_restored_when_the_last_pass_ends() -> None:
    with threadpool_limits(2, user_api="blas"):
        first, second = one_blas_thread(), one_blas_thread()
        assert first.__enter__() == 2
        assert second.__enter__() == 2
        assert set(_blas_threads()) == {1}
        first.__exit__(None, None, None)
        assert set(_blas_threads()) == {1}
        second.__exit__(None, None, None)
        assert set(_blas_threads()) == {2}


def test_blas_that_is_loaded_later_is_limited_too() -> None:
    """Scipy brings a BLAS of its own."""
    program = """
from threadpoolctl import threadpool_info, threadpool_limits
from ensembed.numerics.moments import one_blas_thread
with one_blas_thread():
    pass
import scipy.linalg
with threadpool_limits(2, user_api="blas"), one_blas_thread():
    assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def _blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
