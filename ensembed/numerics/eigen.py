"""Symmetric eigenproblems, whitening, signs and ranks; all by scipy, as numpy's second BLAS would slow it down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh, eigvalsh, lapack
from scipy.linalg.blas import dgemm, dtrsm

from ensembed.errors import DimensionError
from ensembed.numerics.krylov import block_lanczos
from ensembed.numerics.moments import Moments
from ensembed.numerics.row_matrices import Array64
from ensembed.numerics.torch_device import top_eigh_on

EigenPairs: TypeAlias = tuple[Array64, Array64]

# Block Lanczos is tried from this size on, for at most this part of the eigenvalues: see docs/explanation/speed.md.
_LARGE = 4000
_FEW = 1 / 20
# The largest space it may use, as a part of the size: a larger one takes as long as LAPACK.
_SPACE = 3 / 8
# Columns of workspace per row that let LAPACK work in blocks.
_WORK = 64


def effective_rank(S: Array64, resolution: float) -> int:
    """Return the number of eigenvalues of the covariance S [d, d] above `resolution` times the largest."""
    values = eigvalsh(S)
    return int(np.count_nonzero(values > resolution * values[-1])) if values[-1] > 0 else 0


def top_eigh(S: Array64, k: int, device: str | None = None) -> EigenPairs:
    """Return the k largest eigenvalues [k] of a symmetric matrix [D, D], descending, and their eigenvectors [D, k].

    Few eigenvalues of a large matrix are tried by block Lanczos first, for at most a tenth of LAPACK's time.
    """
    if device is not None:
        return top_eigh_on(device, S, k)
    D = len(S)
    if D >= _LARGE and k <= _FEW * D and (pairs := block_lanczos(S, k, int(_SPACE * D))) is not None:
        return pairs
    # MRRR finds a part of the spectrum without the rest; from about a quarter on, divide and conquer is faster.
    if 4 * k < D:
        values, vectors = eigh(S, subset_by_index=(D - k, D - 1), driver="evr", check_finite=False)
        return values[::-1], vectors[:, ::-1]
    # `evd` would transform all eigenvectors back from the tridiagonal form; here only k are.
    if D < 3 or not hasattr(lapack, "dstevd"):  # an older scipy
        values, vectors = eigh(S, driver="evd", check_finite=False)
        return values[::-1][:k], vectors[:, ::-1][:, :k]
    reflectors, diagonal, subdiagonal, tau, info = lapack.dsytrd(S.T, lower=1, lwork=_WORK * D)
    if info == 0:
        values, vectors, info = lapack.dstevd(diagonal, subdiagonal)
    if info != 0:
        raise LinAlgError(f"the eigenvalues of a matrix of {D} columns did not converge (LAPACK returned {info})")
    top = np.asfortranarray(vectors[:, ::-1][:, :k])
    # The reflectors lie below the first subdiagonal, like those of a QR decomposition of all rows but the first.
    top[1:], _, info = lapack.dormqr("L", "N", reflectors[1:, :-1], tau, top[1:], _WORK * k)
    return values[::-1][:k], top


def supported_eigh(S: Array64, k: int, moments: Moments, method: str, *, centred: bool = True) -> EigenPairs:
    """Return what `top_eigh` does for a matrix S [D, D] made from the moments of rows, centred or not.

    If one of the k values is not above the rounding of the moments, a DimensionError of the method names the rank of S.
    """
    if k <= min(len(S), moments.n - centred):
        values, vectors = top_eigh(S, k, device=moments.device)
        if values[-1] > moments.resolution * values[0]:
            return values, vectors
    rank = effective_rank(S, moments.resolution)
    raise DimensionError(
        f"{method} with dim={k}: {moments.n} sentences with {len(S)} columns support at most dim={rank}", rank
    )


@dataclass(frozen=True, eq=False)
class Whitening:
    """W [d, r] with W' (S + ridge I) W = I, whose columns span the range of a covariance S [d, d] of rank r.

    Directions in which the data does not vary are left out: with a ridge they would only carry noise into new
    vectors, without one they have no whitening.

    Attributes:
        factor: L [d, d], lower triangular, with W = L'^-1, which is never computed; or W itself [d, r].
        triangular: whether the factor is L.
    """

    factor: Array64
    triangular: bool

    @classmethod
    def of(cls, S: Array64, ridge: float, resolution: float) -> Whitening:
        """Return the whitening of S [d, d]; variances below `resolution` times the largest are noise."""
        if _has_full_rank(S, resolution):
            regular = np.array(S, order="F")
            np.fill_diagonal(regular, regular.diagonal() + ridge)
            return cls(cholesky(regular, lower=True, overwrite_a=True, check_finite=False), True)
        values, vectors = eigh(S, check_finite=False)
        kept = values > resolution * values[-1]
        return cls(np.asfortranarray(vectors[:, kept] / np.sqrt(values[kept] + ridge)), False)

    @property
    def rank(self) -> int:
        """The number r of directions that are kept."""
        return int(self.factor.shape[1])

    @property
    def matrix(self) -> Array64:
        """W [d, r]."""
        return self.back(np.eye(self.rank))

    def cross(self, S: Array64, other: Whitening) -> Array64:
        """Return W' S V for the cross-covariance S [d, e], V being the other whitening; S may be overwritten."""
        if self.triangular:
            S = dtrsm(1.0, self.factor, S, lower=1, overwrite_b=1)
        else:
            S = dgemm(1.0, self.factor, S, trans_a=1)
        if other.triangular:
            return np.asarray(dtrsm(1.0, other.factor, S, side=1, lower=1, trans_a=1, overwrite_b=1))
        return np.asarray(dgemm(1.0, S, other.factor))

    def back(self, U: Array64) -> Array64:
        """Return W U [d, k] for U [r, k]; U is not changed."""
        if self.triangular:
            return np.asarray(dtrsm(1.0, self.factor, U, lower=1, trans_a=1))
        return np.asarray(dgemm(1.0, self.factor, U))


def fix_signs(V: Array64) -> Array64:
    """Return the columns of V, each with the sign that makes its entry of largest size positive."""
    largest = np.abs(V).argmax(axis=0)
    return V * np.where(V[largest, np.arange(V.shape[1])] < 0, -1.0, 1.0)


def _has_full_rank(S: Array64, resolution: float) -> bool:
    """Return whether no pivot of a Cholesky factorisation vanishes; much cheaper than the eigenvalues."""
    try:
        L = cholesky(S, lower=True, check_finite=False)
    except LinAlgError:
        return False
    return bool(np.square(L.diagonal()).min() > resolution * np.trace(S))
