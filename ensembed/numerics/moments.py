"""Second moments: all that a linear method needs to know about a corpus.

`+` merges the moments of two disjoint sets of rows (Chan, Golub and LeVeque 1983); `Moments.zero(D)` is neutral. The
upper triangle of the products is cut into square tiles, each multiplied by one core while the next rows are read. The
result does not depend on the number of threads, to the bit.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError, ViewError
from ensembed.numerics.pass_options import Pass, Precision
from ensembed.numerics.row_matrices import Array64, Views, check_views, column_slices, non_finite, unit_rows
from ensembed.support.checks import check_whole
from ensembed.support.machine import available_cores
from ensembed.support.progress import Progress

# A variance below this part of the largest one is rounding noise, not a direction of the data. float32 inputs have
# relative errors of 6e-8, whose square, 4e-15, is far below the first; float32 products have errors near 1e-7,
# and up to 6e-6 if a column has few different values, which all round alike.
_RESOLUTION: dict[Precision, float] = {"float64": 1e-11, "float32": 1e-5}
# Rows that differ by less than this part of their mean, squared, differ by the rounding of float32.
_ROUNDING = 1e-14
STRETCH = 4096
"""Rows per product: enough to run at full speed, few enough for a sum in float32. Shards have as many."""
# Numbers in a buffer: narrow views are taken in several stretches at a time, so that a task is worth starting.
_BUFFER = 2**21
# Largest number of columns of a tile. Narrower tiles cost more in packing (512: 7%), wider ones leave cores idle.
_TILE = 720
# Rows that are scaled, centred and summed before the next: they stay in a core's own cache meanwhile.
_CACHED = 256
# Multiplications below which threads cost more than they gain.
_SMALL = 2**27


@dataclass(frozen=True, eq=False)
class Moments:
    """Row count, mean and scatter matrix of the concatenated views.

    Attributes:
        n: the number of rows.
        mean: [D] the mean row.
        scatter: [D, D] the sum over rows of (x - mean)(x - mean)', symmetric.
        resolution: variances below this part of the largest cannot be distinguished from zero.
        device: where problems with these moments are solved: None is numpy, anything else a device of torch.
    """

    n: int
    mean: Array64
    scatter: Array64
    resolution: float = _RESOLUTION["float64"]
    device: str | None = None

    @classmethod
    def zero(cls, dim: int) -> Moments:
        """Return the moments of no rows."""
        return cls(0, np.zeros(dim), np.zeros((dim, dim)))

    @classmethod
    def of(cls, X: NDArray[Any], how: Pass = Pass()) -> Moments:
        """Return the moments of the rows of one array [n, D].

        Example:
            >>> Moments.of(np.array([[1.0, 2.0], [3.0, 6.0]])).covariance
            array([[1., 2.],
                   [2., 4.]])
        """
        return cls.of_views([X], how)

    @classmethod
    def of_views(cls, views: Views, how: Pass = Pass(), *, normalize: bool = False) -> Moments:
        """Return the moments of row-aligned views [n, d_j], concatenated, in one pass.

        Args:
            views: arrays, memory maps, stored views or torch tensors. Each is read by one thread at a time; tensors
                that are on the device of the pass already are not copied.
            how: how the pass runs.
            normalize: scale every row of every view to length one first; a zero row stays zero.
        """
        if how.precision not in get_args(Precision):
            raise InputError(f"precision is 'float64' or 'float32', not {how.precision!r}")
        views = check_views(views)
        n = views[0].shape[0]
        if n == 0:
            return cls.zero(sum(view.shape[1] for view in views))
        precision: Precision = how.precision if how.device is None else "float64"
        if how.device is not None:
            from ensembed.numerics.torch_device import shifted_sums_on

            shift, total, scatter = shifted_sums_on(how.device, views, normalize=normalize, progress=how.progress)
        else:
            shift, total, scatter = shifted_sums(views, how, normalize)
        # Symmetric to the bit; what overflows is reported below.
        with np.errstate(over="ignore", invalid="ignore"):
            scatter -= np.outer(total / np.sqrt(n), total / np.sqrt(n))
        moments = cls(n, shift + total / n, scatter, _RESOLUTION[precision], how.device)
        if not np.isfinite(moments.scatter).all():
            raise ViewError(f"the views hold values whose squares are too large for {precision}; scale them down")
        return moments

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows together."""
        if self.mean.shape != other.mean.shape:
            raise ViewError(f"moments of {len(self.mean)} and of {len(other.mean)} columns do not add up")
        n = self.n + other.n
        if n == 0:
            return self
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.n / n)
        apart = delta * np.sqrt(self.n * other.n / n)  # on both sides: the result is symmetric to the bit
        scatter = self.scatter + other.scatter + np.outer(apart, apart)
        return Moments(n, mean, scatter, max(self.resolution, other.resolution), self.device or other.device)

    def of_columns(self, columns: NDArray[np.integer[Any]]) -> Moments:
        """Return the moments of some of the columns, for instance of all views but one."""
        scatter = self.scatter[np.ix_(columns, columns)]
        return Moments(self.n, self.mean[columns], scatter, self.resolution, self.device)

    @property
    def covariance(self) -> Array64:
        """[D, D] the mean over rows of (x - mean)(x - mean)': the paper's Sigma, divided by n."""
        return self.scatter / max(self.n, 1)

    def varies(self, columns: slice = slice(None)) -> bool:
        """Return whether the rows differ in these columns by more than rounding."""
        variance = np.diagonal(self.scatter)[columns].sum() / max(self.n, 1)
        return bool(variance > _ROUNDING * np.square(self.mean[columns]).sum())


def shifted_sums(views: Views, how: Pass, normalize: bool) -> tuple[Array64, Array64, Array64]:
    """Return a shift c [D], and the sums of x - c [D] and of (x - c)(x - c)' [D, D] over the concatenated rows x.

    The shift, the mean of the first rows, keeps the digits: encoders' means are often much longer than the spread
    around them, and X'X - n m m' of unshifted rows cancels. A ViewError names the view and the row of NaN or Inf.
    """
    threads = how.threads
    if threads is not None:
        check_whole("threads", threads, 1)
    run = _Sums(views, normalize, np.float64 if how.precision == "float64" else np.float32)
    with one_blas_thread() as usual:
        if threads is None and run.work < _SMALL:
            run.all_rows(_call, how.progress)
        else:
            with ThreadPoolExecutor(threads or min(usual, available_cores())) as pool:
                run.all_rows(pool.submit, how.progress)
    return run.shift.astype(np.float64), run.total, run.products


def tiles(D: int, widest: int) -> list[tuple[slice, slice]]:
    """Return rows and columns of the tiles that cover the upper triangle of a [D, D] matrix, the diagonal ones last."""
    cuts = np.linspace(0, D, -(-D // widest) + 1).astype(int).tolist()
    strips = [slice(a, b) for a, b in pairwise(cuts)]
    pairs = [(row, column) for i, row in enumerate(strips) for column in strips[i + 1 :]]
    return pairs + [(strip, strip) for strip in strips]


@contextmanager
def one_blas_thread() -> Iterator[int]:
    """Let BLAS calls of this process run on one thread each, until the last caller leaves; yield the number before."""
    with _LOCK:
        if not _INSIDE:
            blas = _blas(len(sys.modules))
            pools = [pool["num_threads"] for pool in blas.info()]
            usual = max(pools) if pools else available_cores()
            _INSIDE.append((usual, blas.limit(limits=1)))
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


@lru_cache(maxsize=1)
def _blas(modules: int) -> Any:  # noqa: ANN401, ARG001 - of threadpoolctl, which has no types; see below
    """Return the handle on the threads of BLAS, which takes milliseconds to make.

    It knows the libraries that are loaded already. A module that is imported later, such as scipy's, may bring its own:
    the handle is made anew if the number of modules is another one.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


_LOCK = threading.Lock()
_INSIDE: list[tuple[int, Any]] = []


class _Sums:
    """One pass over the views and its sums so far, with three buffers so that no core waits for the others."""

    def __init__(self, views: Views, normalize: bool, dtype: type[np.floating[Any]]) -> None:
        self._views = views
        self._normalize = normalize
        self._rows = rows = views[0].shape[0]
        self._places = column_slices([view.shape[1] for view in views])
        D = self._places[-1].stop
        self.work = rows * D * D
        self.shift: NDArray[Any] = np.zeros(D, dtype)
        self.total = np.zeros(D)
        self.products = np.zeros((D, D))
        self._tiles = tiles(D, _TILE)
        self._block = STRETCH * min(max(_BUFFER // (STRETCH * D), 1), 16)
        # The same buffers for all blocks: new ones would cost more in page faults than the copy into them.
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
            # The buffer of the block before the last is free now for the next rows.
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
        """Put the rows of view j from `start` on into their buffer, minus the shift, and sum them."""
        view, place = self._views[j], self._places[j]
        ones = np.ones((1, _CACHED), self.shift.dtype)
        X = self._buffers[start // self._block % 3][:, place]
        # An overflow becomes Inf or NaN, which is reported here. Each thread has an error state of its own.
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
                    before.result()  # it was begun earlier, so it never waits for this one
                self.products[rows, columns] += tile


def _wait(tasks: list[Future[None]] | list[None]) -> None:
    for task in tasks:
        if task is not None:
            task.result()


def _call(function: Callable[..., None], *arguments: Any) -> Future[None]:  # noqa: ANN401 - the function's own
    """Call a function at once, with the signature of an executor's `submit`."""
    done: Future[None] = Future()
    function(*arguments)
    done.set_result(None)
    return done
