"""The pass behind the moments: shifted rows multiplied in tiles on all cores while the next rows are read.

The upper triangle of the products is cut into square tiles. A core multiplies one tile at a time, so that no thread
waits for another inside a product, and reading, hashing and centring the next rows is work like any other. Every entry
is the same sum whoever computes it: the result does not depend on the number of threads, to the bit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError, ViewError
from ensembed.numerics.row_matrices import Views, non_finite, unit_rows
from ensembed.support.machine import available_cores
from ensembed.support.progress import Progress

# Rows per product: long enough for it to run at full speed, short enough for a sum in float32. Shards have as many.
STRETCH = 4096
# Numbers in a buffer: narrow views are taken in several stretches at a time, so that a task is worth a thread's while.
_BUFFER = 2**21
# Columns of a tile at the most. Narrower ones cost more in packing (512: 7%), wider ones leave cores without work.
_TILE = 720
# Rows that are scaled, centred and summed before the next: they stay in a core's own cache meanwhile.
_CACHED = 256
# Multiplications below which threads cost more than they bring.
_SMALL = 2**27

Array64 = NDArray[np.float64]


def shifted_sums(
    views: Views, *, normalize: bool, dtype: type[np.floating[Any]], threads: int | None, progress: Progress
) -> tuple[Array64, Array64, Array64]:
    """A shift c [D], and the sums of x - c [D] and of (x - c)(x - c)' [D, D] over the concatenated rows x.

    The shift, the mean of the first rows, is what keeps the digits: encoders' means are often much longer than the
    spread around them, and X'X - n m m' of unshifted rows cancels.

    Args:
        views: row-aligned, at least one row. Each is read by one thread at a time, which need not be the caller's.
        normalize: scale every row of every view to length one first.
        dtype: of the products of a stretch of rows; they are summed in float64.
        threads: None takes as many as BLAS would.
        progress: told of rows.

    Raises:
        ViewError: NaN or Inf, by view and row.
    """
    if threads is not None and threads < 1:
        raise InputError(f"threads must be at least 1, not {threads}")
    run = _Pass(views, normalize, dtype)
    with one_blas_thread() as usual:
        if threads is None and run.work < _SMALL:
            run.all_rows(_in_turn, progress)
        else:
            with ThreadPoolExecutor(threads or usual) as pool:
                run.all_rows(pool.submit, progress)
    return run.shift.astype(np.float64), run.total, run.products


def tiles(D: int, widest: int) -> list[tuple[slice, slice]]:
    """Rows and columns of the tiles that cover the upper triangle of a [D, D] matrix, the halved ones last."""
    cuts = np.linspace(0, D, -(-D // widest) + 1).astype(int).tolist()
    strips = [slice(a, b) for a, b in pairwise(cuts)]
    pairs = [(row, column) for i, row in enumerate(strips) for column in strips[i + 1 :]]
    return pairs + [(strip, strip) for strip in strips]


@contextmanager
def one_blas_thread() -> Iterator[int]:
    """BLAS calls of this process run on one thread each; gives the number they had.

    Several callers may be inside at once: the last one out restores what the first one found.
    """
    from threadpoolctl import threadpool_info, threadpool_limits

    with _LOCK:
        if not _INSIDE:
            pools = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
            _INSIDE.append((max(pools, default=available_cores()), threadpool_limits(1, user_api="blas")))
        else:
            _INSIDE.append(_INSIDE[0])
        usual, limits = _INSIDE[0]
    try:
        yield usual
    finally:
        with _LOCK:
            _INSIDE.pop()
            if not _INSIDE:
                limits.restore_original_limits()


_LOCK = threading.Lock()
_INSIDE: list[tuple[int, Any]] = []


class _Pass:
    """One pass over the views and its sums so far.

    Of three buffers one is filled, one is multiplied, and one still has tiles in work: no core waits for the others
    at the end of a block.
    """

    def __init__(self, views: Views, normalize: bool, dtype: type[np.floating[Any]]) -> None:
        self._views = views
        self._normalize = normalize
        self._rows = rows = views[0].shape[0]
        ends = np.cumsum([view.shape[1] for view in views]).tolist()
        self._places = [slice(end - view.shape[1], end) for end, view in zip(ends, views, strict=True)]
        D = ends[-1]
        self.work = rows * D * D
        self.shift: NDArray[Any] = np.zeros(D, dtype)
        self.total = np.zeros(D)
        self.products = np.zeros((D, D))
        self._tiles = tiles(D, _TILE)
        self._block = STRETCH * min(max(_BUFFER // (STRETCH * D), 1), 16)
        # The same buffers all the time: fresh ones would cost more in page faults than the copy into them.
        count = min(-(-rows // self._block), 3)
        self._buffers = [np.empty((min(self._block, rows), D), dtype) for _ in range(count)]
        self._own = threading.local()

    def all_rows(self, submit: Callable[..., Future[None]], progress: Progress) -> None:
        """Read and multiply block after block, then fill the lower triangle."""
        starts = range(0, self._rows, self._block)
        reading = self._begin_reading(0, submit)
        before: list[Future[None]] | list[None] = [None] * len(self._tiles)
        last_but_one: list[Future[None]] | list[None] = before
        for start in starts:
            for read in reading:
                read.result()
            # What was multiplied two blocks ago leaves its buffer for the rows that come next.
            _wait(last_but_one)
            if start + self._block < self._rows:
                reading = self._begin_reading(start + self._block, submit)
            X = self._buffers[start // self._block % 3][: self._rows - start]
            work = [submit(self._multiply, X, *tile, done) for tile, done in zip(self._tiles, before, strict=True)]
            last_but_one, before = before, work
            progress("moments", min(start + self._block, self._rows), self._rows)
        _wait(before)
        for rows, columns in self._tiles:
            tile = self.products[rows, columns]
            self.products[columns, rows] = tile.T if rows != columns else np.triu(tile) + np.triu(tile, 1).T

    def _begin_reading(self, start: int, submit: Callable[..., Future[None]]) -> list[Future[None]]:
        return [submit(self._read, j, start) for j in range(len(self._views))]

    def _read(self, j: int, start: int) -> None:
        """Put the rows of view j from `start` on into their buffer, less the shift, and sum them."""
        view, place = self._views[j], self._places[j]
        ones = np.ones((1, _CACHED), self.shift.dtype)
        X = self._buffers[start // self._block % 3][:, place]
        # What overflows becomes Inf or NaN, which is reported here. Each thread has an error state of its own.
        with np.errstate(over="ignore", invalid="ignore"):
            for first in range(start, min(start + self._block, self._rows), STRETCH):
                A = np.asarray(view[first : first + STRETCH])
                if len(A) != min(STRETCH, self._rows - first):
                    raise ViewError(f"view {j} has {self._rows} rows by its shape, but ends at row {first + len(A)}")
                if first == 0:
                    self.shift[place] = (unit_rows(A) if self._normalize else A).mean(axis=0, dtype=np.float64)
                for k in range(0, len(A), _CACHED):
                    rows = A[k : k + _CACHED]
                    x = X[first - start + k :][: len(rows)]
                    shift = self.shift[place]
                    np.subtract(unit_rows(rows) if self._normalize else rows, shift, out=x, casting="unsafe")
                    self.total[place] += (ones[:, : len(x)] @ x)[0]  # BLAS sums twice as fast as numpy
                if not np.isfinite(self.total[place]).all():
                    raise ViewError(non_finite([A], first, [j]))

    def _multiply(self, X: NDArray[Any], rows: slice, columns: slice, before: Future[None] | None) -> None:
        """Add X' X of one tile to the products, after the same tile of the rows before."""
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        if not hasattr(self._own, "scratch"):
            self._own.scratch = np.empty(_TILE**2, X.dtype)
        tile = self._own.scratch[: shape[0] * shape[1]].reshape(shape)
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(X), STRETCH):
                Y = X[start : start + STRETCH]
                np.matmul(Y[:, rows].T, Y[:, columns], out=tile)
                if before is not None:
                    before.result()  # it was begun earlier, so that it never waits for this one
                self.products[rows, columns] += tile


def _wait(tasks: list[Future[None]] | list[None]) -> None:
    for task in tasks:
        if task is not None:
            task.result()


def _in_turn(function: Callable[..., None], *arguments: Any) -> Future[None]:  # noqa: ANN401 - the function's own
    """Call a function at once, as an executor would later."""
    done: Future[None] = Future()
    function(*arguments)
    done.set_result(None)
    return done
