"""Soft whitening: a view's directions made less uneven, which brings out what a member knows.

Vectors are centred, and every principal direction is divided by its standard deviation to the power `POWER`. Averages
of word vectors gain much by it, encoders that were trained for cosines little or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ensembed.numerics.eigen import top_eigh
from ensembed.numerics.row_matrices import unit_rows

Matrix64 = NDArray[np.float64]

POWER = 0.25
"""0 only centres, 1 whitens. Chosen on STS-B dev: 0.5 gives more on text like the corpus and less on other text."""
RIDGE = 1e-3
"""Added to the variances, in parts of their mean: directions without variance are not blown up."""
LARGEST = 1024
"""Directions that are looked at one by one, the leading ones: some thousand rows do not tell more apart."""


@dataclass(frozen=True, eq=False)
class SoftWhitening:
    """A soft whitening of vectors of d dimensions.

    Attributes:
        mean: [d] of the rows it was found on.
        axes: [d, k] the leading principal directions.
        factors: [k] what they are multiplied by.
        rest: what all other directions are multiplied by.
    """

    mean: Matrix64
    axes: Matrix64
    factors: Matrix64
    rest: float

    @classmethod
    def of(cls, X: Matrix64) -> SoftWhitening:
        """That of rows X [n, d].

        Example:
            >>> X = np.random.default_rng(0).standard_normal((10_000, 3)) * [1.0, 3.0, 9.0] + 5
            >>> spread = ((X - X.mean(axis=0)) @ SoftWhitening.of(X).matrix).std(axis=0)
            >>> (spread[1:] / spread[:-1]).round(1)  # 3 to the power of 0.75
            array([2.3, 2.3])
        """
        n, d = X.shape
        mean = X.mean(axis=0)
        values, axes = _leading(X - mean, min(d, LARGEST))
        total = float(np.square(X - mean).sum()) / n
        ridge = max(RIDGE * total / d, np.finfo(float).tiny)
        left = max(total - float(values.sum()), 0.0) / max(d - len(values), 1)
        return cls(mean, axes, (values + ridge) ** (-POWER / 2), float((left + ridge) ** (-POWER / 2)))

    @property
    def matrix(self) -> Matrix64:
        """[d, d] what centred vectors are multiplied by: symmetric, so that no sign of an eigenvector shows."""
        found = (self.axes * (self.factors - self.rest)) @ self.axes.T
        found[np.diag_indices(len(found))] += self.rest
        return np.asarray(found)

    def leading(self, X: Matrix64) -> Matrix64:
        """Rows X [n, d] along the leading directions alone [n, k], of length one."""
        return np.asarray(unit_rows(((X - self.mean) @ self.axes) * self.factors))

    def whole(self, X: Matrix64) -> Matrix64:
        """Rows X [n, d], whitened, of length one [n, d]."""
        return np.asarray(unit_rows((X - self.mean) @ self.matrix))


def _leading(X: Matrix64, k: int) -> tuple[Matrix64, Matrix64]:
    """The at most k largest variances of centred rows X [n, d], falling, and their directions [d, k]."""
    n, d = X.shape
    if n >= d:
        values, axes = top_eigh(X.T @ X / n, k)
        return np.maximum(values, 0.0), axes
    # Fewer rows than dimensions: the products of rows have the same spectrum, and there are fewer of them.
    values, rows = top_eigh(X @ X.T / n, min(k, n))
    kept = values > np.finfo(float).eps * n * max(float(values[0]), 0.0)
    values, rows = values[kept], rows[:, kept]
    return values, (X.T @ rows) / np.sqrt(n * values)
