"""The largest eigenvalues of a large symmetric matrix, without decomposing all of it: block Lanczos.

The method (Golub and Underwood 1977) multiplies a block of vectors by the matrix again and again and solves the small
problem on the space of all blocks so far. A few hundred of many thousand eigenvalues take a space of about a thousand
dimensions and products with the matrix, where LAPACK reduces the whole matrix first.

Products and factorisations are scipy's alone: numpy brings a BLAS of its own, and the idle threads of the one go on
spinning for a while and slow down the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr
from scipy.linalg.blas import dgemm

Matrix64 = NDArray[np.float64]

# Columns per product: fewer would wait for the memory, more would make a space of the same size converge later.
_BLOCK = 32
# A pair has converged when |S v - lambda v| is below this part of its eigenvalue; the eigenvalue's own error is of the
# order of the square of that.
_TOLERANCE = 1e-9
# ... or of this part of the largest eigenvalue, where its own is smaller: rounding leaves no less than 1e-15 of that.
_SMALL = 1e-4
# The search for what was missed begins at this many times the allowed residual: it brings the rest of the digits.
_NEARLY = 1e3
# Steps after random vectors have joined the block, in which no eigenvalue may appear that was missed before.
_PROBES = 3
# How much larger the space has become when the small problem is solved again.
_GROWTH = 1.2
# How many times over the limit must be missed, by the rate of the last steps, before they are given up.
_PATIENCE = 3
# A vector that shrinks by more than this when the rest is taken out of it has lost too many digits.
_CANCELLED = 1e-4


@dataclass(frozen=True, eq=False)
class Found:
    """Converged eigenpairs.

    Attributes:
        values: [k] the largest eigenvalues, falling.
        vectors: [D, k] their eigenvectors, orthonormal.
        residual: the largest |S v - lambda v|, computed from the vectors themselves.
        space: how many vectors the matrix has been multiplied with.
    """

    values: NDArray[np.float64]
    vectors: Matrix64
    residual: float
    space: int


def block_lanczos(S: Matrix64, k: int, limit: int, *, block: int = _BLOCK, seed: int = 0) -> Found | None:
    """The k largest eigenvalues of a symmetric matrix S [D, D] and their eigenvectors; None if they do not converge.

    All blocks are kept orthogonal to each other, so nothing is found twice. A block of b random vectors sees no more
    than b copies of an equal eigenvalue. So when all k have nearly converged, as many new random vectors join the
    block, and the k must still be the largest after a few more steps; else the search goes on with the wider block.

    Args:
        S: symmetric.
        k: how many.
        limit: the largest space, in vectors of length D, that may be tried.
        block: vectors multiplied at a time.
        seed: of the random vectors: the same one gives the same result.
    """
    space = _Space(S, min(limit, len(S)), np.random.default_rng(seed))
    check = max(k + 3 * block, 3 * k // 2)
    before: tuple[int, float] | None = None
    candidate: NDArray[np.float64] | None = None
    space.widen(block)
    while space.expand():
        if space.size < check:
            continue
        values, Y, residuals = space.largest(k)
        excess = float((residuals / _allowed(values)).max())
        if excess > (1 if candidate is not None else _NEARLY):
            if before is not None and _hopeless(*before, space.size, excess, limit):
                return None
            before, candidate = (space.size, excess), None
            check = max(space.size + space.width, int(_GROWTH * space.size))
        elif candidate is None or (np.abs(values - candidate) > _NEARLY * _allowed(values)).any():
            # Nearly converged, or so it seems: look for what a block of this width cannot see.
            candidate = values
            space.widen(space.width)
            check = space.size + _PROBES * space.width
        else:
            vectors = space.vectors(Y)
            residual = _residuals(S, values, vectors)
            return (
                Found(values, vectors, float(residual.max()), space.size)
                if (residual <= 10 * _allowed(values)).all()
                else None
            )
    return None


def _allowed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The residual that each pair may have."""
    return np.asarray(_TOLERANCE * np.maximum(np.abs(values), _SMALL * np.abs(values).max()))


def _hopeless(size: int, excess: float, new_size: int, new_excess: float, limit: int) -> bool:
    """Whether residuals that fall as they did between two sizes will be too large at the limit by far.

    They fall faster and faster, so only what misses it several times over is given up, and not early.
    """
    if 2 * new_size < limit:
        return False
    rate = (np.log(excess) - np.log(new_excess)) / (new_size - size)
    return bool(rate <= 0 or new_size + np.log(new_excess) / rate > _PATIENCE * limit)


def _residuals(S: Matrix64, values: NDArray[np.float64], vectors: Matrix64) -> NDArray[np.float64]:
    """|S v - lambda v| for each vector."""
    R = dgemm(1.0, S if S.flags.f_contiguous else S.T, vectors)
    R -= vectors * values
    return np.asarray(np.sqrt(np.einsum("ij,ij->j", R, R)))


class _Space:
    """An orthonormal basis Q of a growing space, and H = Q' S Q."""

    def __init__(self, S: Matrix64, limit: int, generator: np.random.Generator) -> None:
        # BLAS takes Fortran's order without a copy, and S is its own transpose.
        self._S = S if S.flags.f_contiguous else S.T
        self._generator = generator
        # In Fortran's order: the first m columns are one piece of memory and go into BLAS as they are.
        self._Q = np.empty((len(S), limit), order="F")
        self._H = np.zeros((limit, limit), order="F")
        self._next = np.empty((len(S), 0), order="F")
        self._coupling = np.zeros((0, 0))
        self._scale = 0.0
        self.size = 0

    @property
    def width(self) -> int:
        """Of the block that is multiplied next."""
        return int(self._next.shape[1])

    def widen(self, columns: int) -> None:
        """Let random vectors join the block that is multiplied next."""
        fresh = self._generator.standard_normal((len(self._S), columns))
        fresh, _ = self._orthonormal(np.asfortranarray(fresh), [self._Q[:, : self.size], self._next])
        self._next = np.asfortranarray(np.hstack([self._next, fresh]))

    def expand(self) -> bool:
        """Take the next block into the space and multiply it; False where the limit has no room for it."""
        start, end = self.size, self.size + self.width
        if end > self._Q.shape[1]:
            return False
        self._Q[:, start:end] = self._next
        self.size = end
        W = dgemm(1.0, self._S, self._next)
        if start == 0:
            self._scale = float(np.sqrt(np.einsum("ij,ij->j", W, W)).max())
        basis = self._Q[:, :end]
        overlap = dgemm(1.0, basis, W, trans_a=True)
        self._H[:end, start:end] = overlap
        self._H[start:end, :end] = overlap.T
        W = dgemm(-1.0, basis, overlap, beta=1.0, c=W, overwrite_c=True)
        self._next, self._coupling = self._orthonormal(W, [basis])
        return True

    def largest(self, k: int) -> tuple[NDArray[np.float64], Matrix64, NDArray[np.float64]]:
        """The k largest eigenvalues of H, falling, their vectors [m, k] and what these leave unsolved of S."""
        m, b = self.size, len(self._coupling.T)
        values, Y = eigh(self._H[:m, :m], subset_by_index=(m - k, m - 1), driver="evr", check_finite=False)
        values, Y = values[::-1], np.asfortranarray(Y[:, ::-1])
        R = dgemm(1.0, self._coupling, Y[m - b :])
        return values, Y, np.sqrt(np.einsum("ij,ij->j", R, R))

    def vectors(self, Y: Matrix64) -> Matrix64:
        """The vectors [D, k] that have the coordinates Y [m, k]."""
        return np.asarray(dgemm(1.0, self._Q[:, : self.size], Y))

    def _orthonormal(self, W: Matrix64, bases: list[Matrix64]) -> tuple[Matrix64, Matrix64]:
        """An orthonormal basis of W [D, b], orthogonal to the bases, and its triangular factor [b, b]."""
        factor, whole = np.eye(W.shape[1]), max(self._scale, 1.0 if self.size == 0 else 0.0)
        for _ in range(4):
            for basis in bases:
                if basis.shape[1]:
                    W = dgemm(-1.0, basis, dgemm(1.0, basis, W, trans_a=True), beta=1.0, c=W, overwrite_c=True)
            basis_of_W, R = qr(W, mode="economic", overwrite_a=True, check_finite=False)
            W, factor = np.asfortranarray(basis_of_W, np.float64), R @ factor
            # A column of which little was left is mostly rounding, and not yet orthogonal to the rest: once more.
            if np.abs(R.diagonal()).min() > _CANCELLED * whole:
                break
            whole = 1.0
        return W, factor
