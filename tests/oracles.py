"""Slow, obvious float64 versions of every formula, and how to compare with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def weighted(views: Sequence[Array], weights: Sequence[float]) -> list[Array]:
    """Unit rows times the root of each weight, the largest of which is taken as 1; members of weight 0 are left out."""
    top = max(weights)
    return [(w / top) ** 0.5 * unit(view) for view, w in zip(views, weights, strict=True) if w > 0]


def weighted_conc(views: Sequence[Array], weights: Sequence[float]) -> Array:
    """`[sqrt(w_1) ^F_1; ...; sqrt(w_J) ^F_J]`."""
    return np.hstack(weighted(views, weights))


def weighted_avg(views: Sequence[Array], weights: Sequence[float]) -> Array:
    """`sum_j sqrt(w_j) ^F_j / J`, padded with zeros at the end."""
    scaled = weighted(views, weights)
    width = max(view.shape[1] for view in scaled)
    return np.asarray(sum(np.pad(view, ((0, 0), (0, width - view.shape[1]))) for view in scaled) / len(scaled))


def weighted_svd(train: Sequence[Array], views: Sequence[Array], weights: Sequence[float], d: int) -> Array:
    """The vectors [n, d] of the views: numpy's SVD of the centred weighted concatenation."""
    X = weighted_conc(train, weights)
    Vt = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2]
    return np.asarray((weighted_conc(views, weights) - X.mean(axis=0)) @ Vt[:d].T)


def weighted_gcca(
    train: Sequence[Array], views: Sequence[Array], weights: Sequence[float], d: int, tau: float
) -> Array:
    """`sum_j sqrt(w_j) Theta_j (F_j - mu_j)`: every member's part of `gcca`, then their weighted sum."""
    kept = [j for j, w in enumerate(weights) if w > 0]
    A, B = blocks([train[j] for j in kept], tau)
    theta = scipy.linalg.eigh(A, B)[1][:, ::-1][:, :d]
    total, start = np.zeros((len(views[0]), d)), 0
    for j in kept:
        part = theta[start : start + train[j].shape[1]]
        start += len(part)
        total += (weights[j] / max(weights)) ** 0.5 * (views[j] - np.mean(train[j], axis=0, dtype=np.float64)) @ part
    return total


def auto(train: Sequence[Array], views: Sequence[Array], weights: Sequence[float], d: int) -> tuple[Array, Array]:
    """The vectors [n, d] and the mean squares [d]: numpy's SVD of the weighted concatenation, not centred."""
    X = weighted_conc(train, weights)
    _, values, Vt = np.linalg.svd(X, full_matrices=False)
    return weighted_conc(views, weights) @ Vt[:d].T, values[:d] ** 2 / len(X)


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


def network(x: Array, layers: Sequence[tuple[Array, Array]], activation: str) -> Array:
    """One vector through layers (matrix, bias), entry by entry; the last one has no activation."""
    values = [float(value) for value in x]
    for number, (matrix, bias) in enumerate(layers):
        values = [
            sum(v * float(row[k]) for v, row in zip(values, matrix, strict=True)) + float(bias[k])
            for k in range(len(bias))
        ]
        if number < len(layers) - 1:
            values = [max(v, 0.0) if activation == "relu" else float(np.tanh(v)) for v in values]
    return np.array(values)


def reconstruction_loss(name: str, y: Array, x: Array, temperature: float = 1.0) -> float:
    """How far a reconstruction y is from x, one vector each."""
    if name == "mse":
        return float(sum((a - b) ** 2 for a, b in zip(y, x, strict=True)) / len(x))
    if name == "mae":
        return float(sum(abs(a - b) for a, b in zip(y, x, strict=True)) / len(x))
    if name == "cos":
        return float((1 - np.dot(x, y) / (np.linalg.norm(x) * np.linalg.norm(y))) ** 2)
    p, q = (np.exp(v / temperature) / np.exp(v / temperature).sum() for v in (x, y))
    return float(sum(a * np.log(a / b) for a, b in zip(p, q, strict=True)))


def autoencoder_loss(
    views: Sequence[Array],
    encoders: Sequence[Callable[[Array], Array]],
    decoders: Sequence[Callable[[Array], Array]],
    loss: Callable[[Array, Array], float],
    kind: str,
    kept: Array,
) -> float:
    """The mean over rows of an autoencoder's loss, row by row; kept [J, n] says which views a row has."""
    J, total = len(views), 0.0
    for row, x in enumerate(zip(*views, strict=True)):
        there = [j for j in range(J) if kept[j, row]]
        codes = {j: encoders[j](x[j]) for j in range(J)}
        if kind == "cross":
            total += sum(loss(decoders[k](codes[j]), x[k]) for j in there for k in range(J))
        elif kind == "averaged":
            total += sum(loss(decoders[k](np.mean([codes[j] for j in there], axis=0)), x[k]) for k in range(J))
        elif kind == "concatenated":
            code = np.concatenate([codes[j] * (j in there) for j in range(J)])
            total += sum(loss(decoders[k](code), x[k]) for k in range(J))
        elif kind == "decoupled":
            total += sum(loss(decoders[j](codes[j]), x[j]) for j in there)
            total += sum(float(np.mean((codes[i] - codes[j]) ** 2)) for i, j in combinations(there, 2))
        else:
            raise ValueError(kind)
    return total / len(views[0])


def linear_autoencoder(train: Sequence[Array], views: Sequence[Array], d: int) -> tuple[Array, Array, float]:
    """The vectors [n, d], the spectrum [d] and the least loss of the cross-view autoencoder without hidden layers.

    Every view is centred, divided by sqrt(d_j), and used to predict all of them by least squares. What d numbers can
    carry of the predictions is in the leading right singular vectors of these, put on top of each other.
    """
    centred = [(view - view.mean(axis=0)) / np.sqrt(view.shape[1]) for view in _wide(train)]
    new = [
        (view - one.mean(axis=0)) / np.sqrt(view.shape[1]) for view, one in zip(_wide(views), _wide(train), strict=True)
    ]
    X = np.hstack(centred)
    coefficients = [np.linalg.lstsq(x, X, rcond=1e-5)[0] for x in centred]
    stacked = np.vstack([x @ B for x, B in zip(centred, coefficients, strict=True)])
    _, values, Vt = np.linalg.svd(stacked, full_matrices=False)
    vectors = sum(x @ B @ Vt[:d].T for x, B in zip(new, coefficients, strict=True))
    least = len(train) * (X**2).sum() - (values[:d] ** 2).sum()
    return np.asarray(vectors), values[:d] ** 2 / len(X), float(least / len(X))


def _wide(views: Sequence[Array]) -> list[Array]:
    """The same in float64."""
    return [np.asarray(view, np.float64) for view in views]


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


SLOW: dict[str, Callable[[Any, Sequence[Array], Sequence[Array]], Array]] = {
    "auto": lambda method, train, views: auto(train, views, method.weights, method.dim)[0],
    "conc": lambda _method, _train, views: conc(views),
    "avg": lambda _method, _train, views: avg(views),
    "svd": lambda method, train, views: svd(train, views, method.dim)[0],
    "gcca": lambda method, train, views: gcca(train, views, method.dim, method.tau)[0],
    "ae": lambda method, train, views: linear_autoencoder(train, views, method.dim)[0],
    "up": lambda method, _train, views: up_projection(views[0], up_matrix(method.seed, method.dim, views[0].shape[1])),
}
"""The vectors [n, d] of views under every method by name, fitted on the views `train`. A new method adds its own."""


def up_matrix(seed: int, d: int, columns: int) -> Array:
    """The random matrix [d, columns] of an up-projection."""
    bound = columns**-0.5
    return np.random.default_rng(seed).uniform(-bound, bound, (d, columns))
