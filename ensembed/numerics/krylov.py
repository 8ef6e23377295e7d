"""The largest eigenvalues of a large symmetric matrix, without decomposing all of it: block Lanczos.

The method (Golub and Underwood 1977) multiplies a block of vectors by the matrix again and again and solves the small
problem on the space of all blocks so far. All products are scipy's, since numpy's second BLAS would slow them down.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh, qr
from scipy.linalg.blas import dgemm

from ensembed.numerics.row_matrices import Array64

# Columns per product: fewer would wait for the memory, more would make a space of the same size converge later.
_BLOCK = 32
# A pair has converged when |S v - lambda v| is below this part of its eigenvalue; the eigenvalue's own error is of the
# order of the square of that.
_TOLERANCE = 1e-9
# ... or of this part of the largest eigenvalue, if its own is smaller: rounding leaves at least 1e-15 of that.
_SMALL = 1e-4
# A pair has nearly converged at this many times the allowed residual.
_NEARLY = 1e3
# Steps after random vectors have joined the block, in which no eigenvalue may appear that was missed before.
_PROBES = 3
# How much larger the space is when the small problem is solved again.
_GROWTH = 1.2
# Up to this part of the matrix's size, a search is not given up: it has cost less than a twelfth of LAPACK's time.
_TRIAL = 1 / 18
# A vector that shrinks by more than this when its part in the space is subtracted has lost too many digits.
_CANCELLED = 1e-4


def block_lanczos(S: Array64, k: int, limit: int, *, block: int = _BLOCK) -> tuple[Array64, Array64] | None:
    """Return the k largest eigenvalues of a symmetric matrix S [D, D], descending, and their eigenvectors [D, k].

    All blocks are kept orthogonal to each other, so nothing is found twice. A block of b random vectors sees at most
    b copies of an equal eigenvalue. So when all k have nearly converged, as many new random vectors join the block,
    and the k must still be the largest after a few more steps; otherwise the search continues with the wider block.

    Args:
        S: a symmetric matrix.
        k: the number of eigenvalues.
        limit: the largest space, in vectors of length D. The search is given up as soon as the number of pairs that
            have nearly converged, extrapolated, does not reach k within it.
        block: the number of vectors multiplied at a time.

    Returns:
        The pairs, or None if they do not converge within the limit.
    """
    space = _Space(S, min(limit, len(S)), np.random.default_rng(0))
    check = max(k + 3 * block, 5 * k // 4)
    size = converged = 0
    candidate: Array64 | None = None
    space.widen(block)
    while space.expand():
        if space.size < check:
            continue
        values, Y, residuals = space.largest(k)
        excess = residuals / _allowed(values)
        count = int(np.count_nonzero(excess <= _NEARLY))
        if count < k or (candidate is not None and excess.max() > 1):
            rate = (count - converged) / (space.size - size)
            if space.size > _TRIAL * len(S) and size and (k - count) > rate * (limit - space.size):
                return None
            size, converged, candidate = space.size, count, None
            check = max(size + space.width, int(_GROWTH * size))
        elif candidate is None or (np.abs(values - candidate) > _NEARLY * _allowed(values)).any():
            candidate = values
            space.widen(space.width)
            check = space.size + _PROBES * space.width
        else:
            vectors = space.vectors(Y)
            R = dgemm(1.0, S if S.flags.f_contiguous else S.T, vectors) - vectors * values
            right = (np.linalg.norm(R, axis=0) <= 10 * _allowed(values)).all()
            return (values, vectors) if right else None
    return None


def _allowed(values: Array64) -> Array64:
    """Return the residual that each pair may have."""
    return np.asarray(_TOLERANCE * np.maximum(np.abs(values), _SMALL * np.abs(values).max()))


class _Space:
    """An orthonormal basis Q of a growing space, and H = Q' S Q."""

    def __init__(self, S: Array64, limit: int, generator: np.random.Generator) -> None:
        # BLAS takes Fortran order without a copy, and S is its own transpose.
        self._S = S if S.flags.f_contiguous else S.T
        self._generator = generator
        # In Fortran order the first m columns are one piece of memory and go into BLAS as they are.
        self._Q = np.empty((len(S), limit), order="F")
        self._H = np.zeros((limit, limit), order="F")
        self._next = np.empty((len(S), 0), order="F")
        self._coupling = np.zeros((0, 0))
        self._scale = 0.0
        self.size = 0

    @property
    def width(self) -> int:
        """Width of the block that is multiplied next."""
        return int(self._next.shape[1])

    def widen(self, columns: int) -> None:
        """Add random vectors to the block that is multiplied next."""
        fresh = self._generator.standard_normal((len(self._S), columns))
        fresh, _ = self._orthonormal(np.asfortranarray(fresh), [self._Q[:, : self.size], self._next])
        self._next = np.asfortranarray(np.hstack([self._next, fresh]))

    def expand(self) -> bool:
        """Take the next block into the space and multiply it; return False if the limit has no room for it."""
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

    def largest(self, k: int) -> tuple[Array64, Array64, Array64]:
        """Return the k largest eigenvalues of H, descending, their vectors [m, k] and their residuals in S."""
        m, b = self.size, len(self._coupling.T)
        values, Y = eigh(self._H[:m, :m], subset_by_index=(m - k, m - 1), driver="evr", check_finite=False)
        values, Y = values[::-1], np.asfortranarray(Y[:, ::-1])
        R = dgemm(1.0, self._coupling, Y[m - b :])
        return values, Y, np.sqrt(np.einsum("ij,ij->j", R, R))

    def vectors(self, Y: Array64) -> Array64:
        """Return the vectors [D, k] with the coordinates Y [m, k]."""
        return np.asarray(dgemm(1.0, self._Q[:, : self.size], Y))

    def _orthonormal(self, W: Array64, bases: list[Array64]) -> tuple[Array64, Array64]:
        """Return an orthonormal basis of W [D, b], orthogonal to the bases, and its triangular factor [b, b]."""
        factor, whole = np.eye(W.shape[1]), max(self._scale, 1.0 if self.size == 0 else 0.0)
        for _ in range(4):
            for basis in bases:
                if basis.shape[1]:
                    W = dgemm(-1.0, basis, dgemm(1.0, basis, W, trans_a=True), beta=1.0, c=W, overwrite_c=True)
            basis_of_W, R = qr(W, mode="economic", overwrite_a=True, check_finite=False)
            W, factor = np.asfortranarray(basis_of_W, np.float64), R @ factor
            # A column of which little is left is mostly rounding, and not yet orthogonal to the rest: repeat.
            if np.abs(R.diagonal()).min() > _CANCELLED * whole:
                break
            whole = 1.0
        return W, factor
