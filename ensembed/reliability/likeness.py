"""How alike encoders are on a corpus, without labels: linear CKA, correlation of cosines, overlap of neighbours.

All three look at rows of length one, since the cosine is what embeddings are compared with: the length of a vector
(how many rare words a sentence has, for a mean of static vectors) is no part of the figures. All three are symmetric,
and do not change when a view is rotated or scaled.

An encoder that tells no sentences apart (a constant view, zeros) has 0 in all three with everything, itself included.
A single zero vector has cosine 0 with every other and no neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError, ViewError
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import Matrix, Views, batches, check_views, non_finite, unit_rows
from ensembed.support.checks import check_whole
from ensembed.support.progress import Progress, silent

Matrix64 = NDArray[np.float64]

LEAST_ROWS = 4
"""Fewer rows have no unbiased HSIC: it divides by n - 3."""

# Rows read at a time.
_BLOCK = 4096
# Cosines in memory at a time, over all views: 32 MB.
_COSINES = 1 << 22
# An HSIC of a view with itself below this part of its biased one is rounding: the rows are all equally far apart.
_NOISE = 1e-12
# Cosines of float32 vectors are off by some 1e-8; a spread, squared, of less than this is no spread.
_LEAST_VARIANCE = 1e-14
# Equal vectors must tie, whichever place of a matrix product their cosine came from.
_DECIMALS = 10


@dataclass(frozen=True)
class Pair:
    """How alike two encoders are; the attributes are those of `Comparison`."""

    first: str
    second: str
    cka: float
    cosines: float
    overlap: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """How alike J encoders are.

    Attributes:
        names: what the encoders are called.
        cka: [J, J] linear CKA, debiased, over all rows, in [-1, 1]; near 0 for views that have nothing in common.
        cosines: [J, J] Pearson's r between the cosines of all pairs of sampled sentences.
        overlap: [J, J] the mean part that two encoders share of the nearest neighbours of a sampled sentence.
        rows: how many sentences there were.
        sampled: how many of them `cosines` and `overlap` are about.
        neighbours: how many nearest neighbours a sentence has in `overlap`.
        seed: of the sample.
    """

    names: tuple[str, ...]
    cka: Matrix64
    cosines: Matrix64
    overlap: Matrix64
    rows: int
    sampled: int
    neighbours: int
    seed: int

    @property
    def chance(self) -> float:
        """The overlap of neighbours that are drawn by lot."""
        return self.neighbours / (self.sampled - 1)

    @property
    def mute(self) -> tuple[str, ...]:
        """The encoders that tell no sentences apart, so that their figures are 0."""
        told = zip(self.names, self.cka.diagonal(), self.cosines.diagonal(), strict=True)
        return tuple(name for name, cka, cosines in told if cka == 0 or cosines == 0)

    @property
    def pairs(self) -> list[Pair]:
        """Every pair once, the most alike by CKA first."""
        found = [
            Pair(name, self.names[j], float(self.cka[i, j]), float(self.cosines[i, j]), float(self.overlap[i, j]))
            for i, name in enumerate(self.names)
            for j in range(i + 1, len(self.names))
        ]
        return sorted(found, key=lambda pair: pair.cka, reverse=True)


def compare(
    views: Sequence[Any],
    *,
    names: Sequence[str] | None = None,
    among: NDArray[np.integer[Any]] | None = None,
    rows: int = 2000,
    neighbours: int = 10,
    seed: int = 0,
    progress: Progress = silent,
) -> Comparison:
    """Compare what encoders say about the same sentences.

    Two passes over the views, in memory that does not depend on the number of rows, and all pairs of a sample.

    Linear CKA is `HSIC(X, Y) / sqrt(HSIC(X, X) HSIC(Y, Y))` (Kornblith et al. 2019). The usual estimate of HSIC,
    `||X'Y||_F^2` of centred views, makes any two views alike unless n is much larger than their dimensions: two random
    views of d columns have a CKA of about d / n. Here it is the unbiased one of Song et al. (2012), as in Nguyen et al.
    (2021).

    Args:
        views: row-aligned arrays [n, d_j], memory maps or stored views, at least two.
        names: what to call them; by default `view 0`, `view 1` and so on.
        among: [m] the numbers of the rows to look at, rising; by default all. A sentence that the corpus repeats should
            count once: to any two encoders its repetitions are alike.
        rows: how many of them to sample for the cosines and the neighbours; all if there are no more.
        neighbours: how many nearest neighbours of a sentence to look at, by cosine, among the sampled ones. Of equally
            near ones the first count.
        seed: of the sample.
        progress: told of rows.

    Example:
        >>> X = np.random.default_rng(0).standard_normal((100, 8))
        >>> found = compare([X, X[:, ::-1], np.ones((100, 3))])
        >>> found.cka.round(6) + 0.0
        array([[1., 1., 0.],
               [1., 1., 0.],
               [0., 0., 0.]])
        >>> found.mute
        ('view 2',)
    """
    checked = check_views(views)
    if len(checked) < 2:
        raise InputError("there is one view alone: comparing takes at least two")
    names = [f"view {j}" for j in range(len(checked))] if names is None else list(names)
    if len(names) != len(checked):
        raise InputError(f"there are {len(checked)} views and {len(names)} names: {names}")
    check_whole("rows", rows, LEAST_ROWS)
    check_whole("neighbours", neighbours, 1)
    check_whole("seed", seed, 0)
    chosen = _chosen(among, checked[0].shape[0])
    check_sample(len(chosen), rows, neighbours)
    sample = chosen
    if rows < len(chosen):
        sample = np.sort(np.random.default_rng(seed).choice(chosen, rows, replace=False))
    cka = _cka([_UnitRows(view, chosen, j) for j, view in enumerate(checked)], progress)
    sampled = [_UnitRows(view, sample, j)[:] for j, view in enumerate(checked)]
    cosines, overlap = _pairwise(sampled, neighbours, progress)
    return Comparison(tuple(names), cka, cosines, overlap, len(chosen), len(sample), neighbours, seed)


def check_sample(distinct: int, rows: int, neighbours: int) -> None:
    """Raise an InputError unless so many distinct sentences are enough, with so many sampled and looked at."""
    if distinct < LEAST_ROWS:
        raise InputError(f"comparing takes at least {LEAST_ROWS} distinct sentences, got {distinct}")
    sampled = min(rows, distinct)
    if neighbours >= sampled:
        raise InputError(
            f"{sampled} sampled sentences have at most {sampled - 1} neighbours each, not {neighbours}: "
            "ask for fewer neighbours or more rows, or take a larger corpus"
        )


class _UnitRows:
    """Some rows of a view, each of length one, in float64: float32 would add rounding that a narrow cone shows."""

    def __init__(self, view: Matrix, rows: NDArray[np.int64], number: int) -> None:
        self.shape = (len(rows), view.shape[1])
        self.dtype = np.dtype(np.float64)
        self._view = view
        self._rows = rows
        self._number = number

    def __getitem__(self, rows: slice, /) -> Matrix64:
        chosen = self._rows[rows]
        result = np.empty((len(chosen), self.shape[1]))
        done = 0
        # Chosen rows may lie far apart: what lies between them is not read in one piece.
        while done < len(chosen):
            first = int(chosen[done])
            end = int(np.searchsorted(chosen, first + _BLOCK))
            stretch = np.asarray(self._view[first : int(chosen[end - 1]) + 1])
            X = stretch[chosen[done:end] - first].astype(np.float64)
            if not np.isfinite(X).all():
                raise ViewError(non_finite([stretch], first, [self._number]))
            result[done:end] = unit_rows(X)
            done = end
        return result


def _chosen(among: NDArray[np.integer[Any]] | None, n: int) -> NDArray[np.int64]:
    """The numbers of the rows to look at, checked."""
    rows = np.arange(n) if among is None else np.asarray(among)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise InputError(f"among is a list of row numbers, not {rows.dtype} of shape {rows.shape}")
    rows = rows.astype(np.int64)
    if len(rows) == 0:
        return rows
    if rows[0] < 0 or rows[-1] >= n or not (np.diff(rows) > 0).all():
        raise InputError(f"among must rise from 0 to at most {n - 1}: the views have {n} rows")
    return rows


def _cka(views: Views, progress: Progress) -> Matrix64:
    """Debiased linear CKA [J, J].

    The unbiased HSIC leaves the diagonals out of the two Gram matrices K and L [n, n]. In terms of centred views, whose
    Gram matrices have rows that sum to zero, it is (up to a factor that CKA does not see)

        ||X'Y||_F^2 - n / (n - 2) sum_i p_i q_i + sum_i p_i sum_i q_i / ((n - 1) (n - 2))

    where p_i and q_i are the squared lengths of the centred rows, and an inner product: Cauchy and Schwarz bound CKA.
    """
    moments = Moments.of_views(views, Pass(progress=progress))
    n, J = moments.n, len(views)
    ends = np.cumsum([view.shape[1] for view in views])
    columns = [slice(int(end) - view.shape[1], int(end)) for view, end in zip(views, ends, strict=True)]
    biased = np.array([[np.square(moments.scatter[a, b]).sum() for b in columns] for a in columns])
    sums, products = np.zeros(J), np.zeros((J, J))
    done = 0
    for blocks in batches(views, _BLOCK):
        centred = [block - moments.mean[a] for block, a in zip(blocks, columns, strict=True)]
        P = np.stack([np.einsum("ij,ij->i", X, X) for X in centred], axis=1)
        sums += P.sum(axis=0)
        products += P.T @ P
        done += len(P)
        progress("centred lengths", done, n)
    hsic = biased - products * (n / (n - 2)) + np.outer(sums, sums) / ((n - 1) * (n - 2))
    varies = np.array([moments.varies(a) for a in columns])
    return _correlation(hsic, varies & (hsic.diagonal() > _NOISE * biased.diagonal()))


def _pairwise(sample: Sequence[Matrix64], k: int, progress: Progress) -> tuple[Matrix64, Matrix64]:
    """Correlation of cosines [J, J] and overlap of the k nearest neighbours [J, J] of rows [n, d_j] of length one."""
    J, n = len(sample), len(sample[0])
    moments, shared = Moments.zero(J), np.zeros((J, J))
    for start, cosines in _cosine_blocks(sample):
        own = start + np.arange(cosines.shape[1])
        later = np.arange(n) > own[:, None]  # every pair once
        moments += Moments.of(cosines[:, later].T)
        # A row is no neighbour of its own, and a zero row, as near to everything, has none.
        cosines[:, np.arange(len(own)), own] = -np.inf
        near = [_nearest(C, k) for C in cosines]
        for j, X in enumerate(sample):
            near[j][~X[own].any(axis=1)] = False
        shared += [[np.count_nonzero(a & b) for b in near] for a in near]
        progress("cosines", start + len(own), n)
    varies = moments.covariance.diagonal() > _LEAST_VARIANCE
    overlap = np.where(np.outer(varies, varies), shared / (k * n), 0.0)
    return _correlation(moments.scatter, varies), overlap


def _cosine_blocks(sample: Sequence[Matrix64]) -> Iterator[tuple[int, Matrix64]]:
    """Row number and cosines [J, b, n] of b rows with all rows."""
    n = len(sample[0])
    size = max(1, _COSINES // (len(sample) * n))
    for start in range(0, n, size):
        yield start, np.stack([np.round(X[start : start + size] @ X.T, _DECIMALS) for X in sample])


def _nearest(C: Matrix64, k: int) -> NDArray[np.bool_]:
    """Where [b, n] the k largest entries of each row of C [b, n] are; of equal ones the first count."""
    least = np.partition(C, C.shape[1] - k, axis=1)[:, -k, None]
    above, level = least < C, least == C
    room = k - above.sum(axis=1, keepdims=True)
    return np.asarray(above | (level & (np.cumsum(level, axis=1) <= room)))


def _correlation(S: Matrix64, counts: NDArray[np.bool_]) -> Matrix64:
    """The entries of S [J, J] over the roots of its diagonal's; 0 for what does not count."""
    scale = np.sqrt(np.where(counts, S.diagonal(), 1.0))
    # The bounds hold by Cauchy and Schwarz, but for rounding.
    return np.where(np.outer(counts, counts), np.clip(S / np.outer(scale, scale), -1.0, 1.0), 0.0)
