"""Second moments: all that a linear method needs to know about a corpus.

Moments form a commutative monoid: `Moments.zero(D)` is its neutral element and `+` merges what two disjoint sets of
rows say (Chan, Golub and LeVeque 1983). One streaming pass, several passes merged, or blocks from many machines give
the same result up to rounding, in memory that does not depend on the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import ViewError
from ensembed.numerics.passes import Pass, Precision
from ensembed.numerics.row_matrices import Views, check_views
from ensembed.numerics.scatter import shifted_sums
from ensembed.numerics.torch_device import shifted_sums_on

# A variance below this part of the largest one is rounding noise, not a direction of the data. float32 inputs carry
# relative errors of 6e-8, whose square, 4e-15, is far below the first; float32 products have errors near 1e-7,
# and up to 6e-6 where a column has few different values, which all round alike.
_RESOLUTION: dict[Precision, float] = {"float64": 1e-11, "float32": 1e-5}
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
        device: where problems with these moments are solved: None is numpy, anything else a device of torch's.
    """

    n: int
    mean: NDArray[np.float64]
    scatter: NDArray[np.float64]
    resolution: float = _RESOLUTION["float64"]
    device: str | None = None

    @classmethod
    def zero(cls, dim: int) -> Moments:
        """The moments of no rows at all."""
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
        views = check_views(views)
        n = views[0].shape[0]
        if n == 0:
            return cls.zero(sum(view.shape[1] for view in views))
        precision = how.precision if how.device is None else "float64"
        if how.device is not None:
            shift, total, scatter = shifted_sums_on(how.device, views, normalize=normalize, progress=how.progress)
        else:
            dtype = np.float64 if precision == "float64" else np.float32
            shift, total, scatter = shifted_sums(
                views, normalize=normalize, dtype=dtype, threads=how.threads, progress=how.progress
            )
        # Symmetric to the bit; what overflows is reported below.
        with np.errstate(over="ignore", invalid="ignore"):
            scatter -= np.outer(total / np.sqrt(n), total / np.sqrt(n))
        moments = cls(n, shift + total / n, scatter, _RESOLUTION[precision], how.device)
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
        apart = delta * np.sqrt(self.n * other.n / n)  # on both sides: the result is symmetric to the bit
        scatter = self.scatter + other.scatter + np.outer(apart, apart)
        return Moments(n, mean, scatter, max(self.resolution, other.resolution), self.device or other.device)

    def of_columns(self, columns: NDArray[np.integer[Any]]) -> Moments:
        """The moments of some of the columns, for instance of all views but one."""
        scatter = self.scatter[np.ix_(columns, columns)]
        return Moments(self.n, self.mean[columns], scatter, self.resolution, self.device)

    @property
    def covariance(self) -> NDArray[np.float64]:
        """[D, D] the mean over rows of (x - mean)(x - mean)': the paper's Sigma, divided by n."""
        return self.scatter / max(self.n, 1)

    def varies(self, columns: slice = slice(None)) -> bool:
        """Whether the rows differ in these columns by more than rounding."""
        variance = np.diagonal(self.scatter)[columns].sum() / max(self.n, 1)
        return bool(variance > _ROUNDING * np.square(self.mean[columns]).sum())
