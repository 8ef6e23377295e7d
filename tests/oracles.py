"""Slow, obvious float64 versions of every formula, and how to compare with them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


def moments(X: Array) -> tuple[Array, Array]:
    """The mean [D] and the scatter matrix [D, D], entry by entry of every row."""
    rows = [[float(x) for x in row] for row in X]
    columns = range(len(rows[0]))
    mean = [sum(row[i] for row in rows) / len(rows) for i in columns]
    scatter = [[sum((row[i] - mean[i]) * (row[k] - mean[k]) for row in rows) for k in columns] for i in columns]
    return np.array(mean), np.array(scatter)


def unit(X: Array) -> Array:
    """Rows of length one; zero rows stay zero."""
    X = np.asarray(X, np.float64)
    return np.array([row / np.linalg.norm(row) if row.any() else row for row in X])


def conc(views: Sequence[Array]) -> Array:
    """`[^F_1; ...; ^F_J]`."""
    return np.hstack([unit(view) for view in views])


def avg(views: Sequence[Array]) -> Array:
    """`sum_j ^F_j / J`, padded with zeros at the end."""
    width = max(view.shape[1] for view in views)
    padded = [np.pad(unit(view), ((0, 0), (0, width - view.shape[1]))) for view in views]
    return np.asarray(sum(padded) / len(views))


def svd(train: Sequence[Array], views: Sequence[Array], d: int) -> tuple[Array, Array]:
    """The vectors [n, d] of the views and the variances [d]: numpy's SVD of the centred matrix."""
    X = conc(train)
    _, values, Vt = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    return (conc(views) - X.mean(axis=0)) @ Vt[:d].T, values[:d] ** 2 / len(X)


def blocks(views: Sequence[Array], tau: float) -> tuple[Array, Array]:
    """A and B of the eigenproblem A theta = rho B theta: the off-diagonal blocks, the regularised diagonal ones."""
    centred = [np.asarray(view, np.float64) - np.mean(view, axis=0, dtype=np.float64) for view in views]
    A = np.block([[np.zeros((x.shape[1], y.shape[1])) if x is y else x.T @ y for y in centred] for x in centred])
    diagonal = [x.T @ x / len(x) for x in centred]
    B = scipy.linalg.block_diag(*[S + tau / len(S) * np.trace(S) * np.eye(len(S)) for S in diagonal])
    return A / len(centred[0]), B


def gcca(train: Sequence[Array], views: Sequence[Array], d: int, tau: float) -> tuple[Array, Array]:
    """The vectors [n, d] and rho [d]: scipy's generalised eigenproblem on the whole matrices; B must be regular."""
    A, B = blocks(train, tau)
    rho, theta = scipy.linalg.eigh(A, B)
    return _project(train, views, theta[:, ::-1][:, :d]), rho[::-1][:d]


def gcca_in_range(train: Sequence[Array], views: Sequence[Array], d: int, tau: float) -> tuple[Array, Array]:
    """As `gcca`, in the directions in which the views vary: B may be singular."""
    bases = []
    for view in train:
        centred = np.asarray(view, np.float64) - np.mean(view, axis=0, dtype=np.float64)
        _, values, Vt = np.linalg.svd(centred, full_matrices=False)
        bases.append(Vt[: np.count_nonzero(values > 1e-5 * values[0])].T)
    basis = scipy.linalg.block_diag(*bases)
    A, B = blocks(train, tau)
    rho, theta = scipy.linalg.eigh(basis.T @ A @ basis, basis.T @ B @ basis)
    return _project(train, views, basis @ theta[:, ::-1][:, :d]), rho[::-1][:d]


def cca_correlations(X: Array, Y: Array) -> Array:
    """The canonical correlations of two views: the cosines of the angles between their column spaces."""
    Q1, Q2 = (np.linalg.qr(Z - Z.mean(axis=0))[0] for Z in (X, Y))
    return np.linalg.svd(Q1.T @ Q2, compute_uv=False)


def up_projection(X: Array, matrix: Array) -> Array:
    """`P F(s)` for every row, P being [d, d_j]."""
    return np.array([[sum(p * x for p, x in zip(ps, row, strict=True)) for ps in matrix] for row in X])


def error(found: Array, expected: Array) -> float:
    """The largest difference, relative to the largest entry."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    if found.shape != expected.shape:
        raise AssertionError(f"shape {found.shape} instead of {expected.shape}")
    if not found.size:
        return 0.0
    return float(np.abs(found - expected).max() / max(float(np.abs(expected).max()), 1e-300))


def error_up_to_signs(found: Array, expected: Array) -> float:
    """As `error`, every column with the sign that fits best."""
    found = np.asarray(found, np.float64)
    return error(found * np.where((found * expected).sum(axis=0) < 0, -1.0, 1.0), expected)


def gram_error(found: Array, expected: Array) -> float:
    """As `error`, of the Gram matrices Z Z', which do not change when dimensions are rotated or flipped."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    return error(found @ found.T, expected @ expected.T)


def separated(spectrum: Array, gap: float = 1e-3) -> bool:
    """Whether neighbours in a falling spectrum are far enough apart for single columns to be compared."""
    return bool((-np.diff(spectrum) > gap * np.abs(spectrum).max()).all())


def _project(train: Sequence[Array], views: Sequence[Array], theta: Array) -> Array:
    """`sum_j Theta_j (F_j(s) - mu_j)`."""
    centred = [view - np.mean(one, axis=0, dtype=np.float64) for one, view in zip(train, views, strict=True)]
    return np.asarray(np.hstack(centred) @ theta)


def hsic(X: Array, Y: Array) -> float:
    """The unbiased HSIC as a U-statistic: means of products over pairs, triples and quadruples of distinct rows."""
    K, L = X @ X.T, Y @ Y.T
    n = len(K)
    twos = np.mean([K[i, j] * L[i, j] for i, j in permutations(range(n), 2)])
    threes = np.mean([K[i, j] * L[i, q] for i, j, q in permutations(range(n), 3)])
    fours = np.mean([K[i, j] * L[q, r] for i, j, q, r in permutations(range(n), 4)])
    return float(twos - 2 * threes + fours)


def cka(X: Array, Y: Array) -> float:
    """Debiased linear CKA of rows of length one."""
    X, Y = unit(X), unit(Y)
    return hsic(X, Y) / float(np.sqrt(hsic(X, X) * hsic(Y, Y)))


def cosine_correlation(X: Array, Y: Array) -> float:
    """Pearson's r between the cosines of all pairs of rows."""
    X, Y = unit(X), unit(Y)
    pairs = list(combinations(range(len(X)), 2))
    return float(np.corrcoef([X[i] @ X[j] for i, j in pairs], [Y[i] @ Y[j] for i, j in pairs])[0, 1])


def neighbour_overlap(X: Array, Y: Array, k: int) -> float:
    """The mean part of their k nearest rows, by cosine, that rows share."""
    shared = 0
    for i in range(len(X)):
        nearest = []
        for Z in (unit(X), unit(Y)):
            others = [j for j in range(len(Z)) if j != i]
            nearest.append(set(sorted(others, key=lambda j: (-round(float(Z[i] @ Z[j]), 10), j))[:k]))
        shared += len(nearest[0] & nearest[1])
    return shared / (k * len(X))
