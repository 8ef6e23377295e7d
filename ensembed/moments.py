"""Second moments: all that a linear method needs to know about a corpus.

Moments form a commutative monoid: `Moments.zero(D)` is its neutral element and `+` merges what two disjoint sets of
rows say (Chan, Golub and LeVeque 1983). One streaming pass, several passes merged, or blocks from many machines give
the same result up to rounding, in memory that does not depend on the number of rows.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk, ssyrk
from threadpoolctl import threadpool_limits

from ensembed.errors import InputError, ViewError
from ensembed.progress import Progress, silent
from ensembed.rows import Views, batches, check_views, non_finite, unit_rows

Precision: TypeAlias = Literal["float64", "float32"]

# Rows per product: long enough for the product to run at full speed, short enough to stay in the tens of megabytes.
_BLOCK = 4096
# A variance below this part of the largest one is rounding noise, not a direction of the data. float32 inputs carry
# relative errors of 6e-8, whose square, 4e-15, is far below the first; float32 products have errors near 1e-7.
_RESOLUTION: dict[Precision, float] = {"float64": 1e-11, "float32": 1e-6}
# Rows that differ by less than this part of their mean, squared, differ by the rounding of float32.
_ROUNDING = 1e-14


@dataclass(frozen=True, eq=False)
class Moments:
    """Row count, mean and scatter matrix of the concatenated views.

    Attributes:
        n: the number of rows.
        mean: [D] the mean row.
        scatter: [D, D] the sum over rows of (x - mean)(x - mean)', symmetric.
        resolution: variances below this part of the largest cannot be told from zero.
    """

    n: int
    mean: NDArray[np.float64]
    scatter: NDArray[np.float64]
    resolution: float = _RESOLUTION["float64"]

    @classmethod
    def zero(cls, dim: int) -> Moments:
        """The moments of no rows at all."""
        return cls(0, np.zeros(dim), np.zeros((dim, dim)))

    @classmethod
    def of(cls, X: NDArray[Any], *, precision: Precision = "float64", threads: int | None = None) -> Moments:
        """The moments of the rows of one array [n, D].

        Example:
            >>> Moments.of(np.array([[1.0, 2.0], [3.0, 6.0]])).covariance
            array([[1., 2.],
                   [2., 4.]])
        """
        return cls.of_views([X], precision=precision, threads=threads)

    @classmethod
    def of_views(
        cls,
        views: Views,
        *,
        normalize: bool = False,
        precision: Precision = "float64",
        threads: int | None = None,
        progress: Progress = silent,
    ) -> Moments:
        """The moments of row-aligned views [n, d_j], concatenated, in one pass.

        Args:
            views: arrays, memory maps or stored views.
            normalize: scale every row of every view to length one first; a zero row stays zero.
            precision: "float32" multiplies centred blocks in float32 and merges them in float64: twice as fast, with
                errors near 1e-7.
            threads: for the matrix products; None leaves BLAS its own choice.
            progress: told of rows.
        """
        if precision not in get_args(Precision):
            raise InputError(f"precision is 'float64' or 'float32', not {precision!r}")
        views = check_views(views)
        rows = views[0].shape[0]
        sums = _ShiftedSums(sum(view.shape[1] for view in views), precision)
        limits = threadpool_limits(threads, user_api="blas") if threads else nullcontext()
        # What overflows becomes Inf or NaN, which is reported here.
        with limits, np.errstate(over="ignore", invalid="ignore"):
            for blocks in batches(views, _BLOCK):
                start = sums.n
                sums.add([unit_rows(block) if normalize else block for block in blocks])
                if not np.isfinite(sums.total).all():
                    raise ViewError(non_finite(blocks, start))
                progress("moments", sums.n, rows)
            moments = sums.moments()
        if not np.isfinite(moments.scatter).all():
            raise ViewError(f"the views hold values whose squares are too large for {precision}; scale them down")
        return moments

    def __add__(self, other: Moments) -> Moments:
        """The moments of both sets of rows together."""
        if self.mean.shape != other.mean.shape:
            raise ViewError(f"moments of {len(self.mean)} and of {len(other.mean)} columns do not add up")
        n = self.n + other.n
        if n == 0:
            return self
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.n / n)
        scatter = self.scatter + other.scatter + np.outer(delta, delta * (self.n * other.n / n))
        return Moments(n, mean, scatter, max(self.resolution, other.resolution))

    def of_columns(self, columns: NDArray[np.integer[Any]]) -> Moments:
        """The moments of some of the columns, for instance of all views but one."""
        return Moments(self.n, self.mean[columns], self.scatter[np.ix_(columns, columns)], self.resolution)

    @property
    def covariance(self) -> NDArray[np.float64]:
        """[D, D] the mean over rows of (x - mean)(x - mean)': the paper's Sigma, divided by n."""
        return self.scatter / max(self.n, 1)

    def varies(self, columns: slice = slice(None)) -> bool:
        """Whether the rows differ in these columns by more than rounding."""
        variance = np.diagonal(self.scatter)[columns].sum() / max(self.n, 1)
        return bool(variance > _ROUNDING * np.square(self.mean[columns]).sum())


class _ShiftedSums:
    """Sums of (x - c) and (x - c)(x - c)', c being the mean of the first block.

    The shift is what keeps the digits: encoders' means are often much longer than the spread around them, and
    X'X - n m m' of unshifted rows cancels.
    """

    def __init__(self, dim: int, precision: Precision) -> None:
        self.n = 0
        self.total = np.zeros(dim)
        self._precision: Precision = precision
        self._shift: NDArray[Any] | None = None
        self._products = np.zeros((dim, dim), order="F")
        self._block_products = np.zeros((dim, dim) if precision == "float32" else (0, 0), np.float32, order="F")
        # One buffer for all blocks: a fresh one would cost more in page faults than the copy into it.
        self._buffer = np.empty((_BLOCK, dim), precision)

    def add(self, blocks: list[NDArray[Any]]) -> None:
        """Take the next rows, at most `_BLOCK`, as one array [rows, d_j] per view."""
        X = self._buffer[: len(blocks[0])]
        if self._shift is None:
            self._shift = np.concatenate([block.mean(axis=0, dtype=np.float64) for block in blocks]).astype(X.dtype)
        end = 0
        for block in blocks:
            start, end = end, end + block.shape[1]
            np.subtract(block, self._shift[start:end], out=X[:, start:end], casting="unsafe")
        self.n += len(X)
        # Not a product with ones: numpy's BLAS threads would go on spinning and slow down scipy's in the next line.
        self.total += X.sum(axis=0, dtype=np.float64)
        if X.dtype == np.float64:
            # X is in C order, so X.T is what Fortran calls its own: no copy, and the sum stays in place.
            self._products = dsyrk(1.0, X.T, beta=1.0, c=self._products, overwrite_c=True)
        else:
            self._block_products = ssyrk(1.0, X.T, c=self._block_products, overwrite_c=True)
            self._products += self._block_products

    def moments(self) -> Moments:
        if self._shift is None:
            return Moments.zero(len(self.total))
        # The products fill the upper triangle; below it are zeros.
        scatter = self._products + self._products.T
        np.fill_diagonal(scatter, self._products.diagonal())
        scatter -= np.outer(self.total, self.total / self.n)
        return Moments(self.n, self._shift + self.total / self.n, scatter, _RESOLUTION[self._precision])
