"""The linear algebra that the methods share: symmetric, deterministic, honest about rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, eigh, eigvalsh, solve_triangular

Matrix64 = NDArray[np.float64]


def effective_rank(S: Matrix64, resolution: float) -> int:
    """The number of eigenvalues of the covariance S [d, d] above `resolution` times the largest."""
    values = eigvalsh(S)
    return int(np.count_nonzero(values > resolution * values[-1])) if values[-1] > 0 else 0


def top_eigh(S: Matrix64, k: int) -> tuple[NDArray[np.float64], Matrix64]:
    """The k largest eigenvalues [k] of a symmetric matrix [D, D], falling, and their eigenvectors [D, k]."""
    D = len(S)
    # MRRR finds a part of the spectrum without the rest; from about a quarter on, divide and conquer is faster.
    if 4 * k < D:
        values, vectors = eigh(S, subset_by_index=(D - k, D - 1), driver="evr", check_finite=False)
    else:
        values, vectors = eigh(S, driver="evd", check_finite=False)
    return values[::-1][:k], vectors[:, ::-1][:, :k]


def whitener(S: Matrix64, ridge: float, resolution: float) -> Matrix64:
    """W [d, r] with W' (S + ridge I) W = I, whose columns span the range of the covariance S [d, d] of rank r.

    Directions in which the data does not vary are left out: with a ridge they would only carry noise into new
    vectors, without one they have no whitening.
    """
    d = len(S)
    if _has_full_rank(S, resolution):
        L = cholesky(S + ridge * np.eye(d), lower=True, check_finite=False)
        return np.asarray(solve_triangular(L, np.eye(d), lower=True, check_finite=False).T)
    values, vectors = eigh(S, check_finite=False)
    kept = values > resolution * values[-1]
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept] + ridge))


def fix_signs(V: Matrix64) -> Matrix64:
    """The columns of V, each with the sign that makes its entry of largest size positive."""
    largest = np.abs(V).argmax(axis=0)
    return V * np.where(V[largest, np.arange(V.shape[1])] < 0, -1.0, 1.0)


def _has_full_rank(S: Matrix64, resolution: float) -> bool:
    """Whether no pivot of a Cholesky factorisation vanishes; many times cheaper than the eigenvalues."""
    try:
        L = cholesky(S, lower=True, check_finite=False)
    except LinAlgError:
        return False
    return bool(np.square(L.diagonal()).min() > resolution * np.trace(S))
