"""How much of what one member says another can predict.

Of two encoders the better one predicts more of the other than the other of it: it is the more sufficient one (Darrin et
al. 2024, "When is an Embedding Model More Promising than Another?"). What the words of a sentence predict by themselves
is taken out of every view first, since weak encoders share it, and share it as noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.support.progress import Progress

Matrix64 = NDArray[np.float64]
Matrix32 = NDArray[np.float32]

FOLDS = 3
LEXICAL_RIDGE = 1e-2
RIDGES = (1e-2, 1e-1, 0.3, 1.0, 3.0)
"""Of the prediction. All ridges are in parts of the mean eigenvalue."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """How well J members predict each other on rows that the prediction was not fitted on.

    Attributes:
        errors: [n, J, J] the squared error of row's vector j as predicted from its vector i.
        sizes: [n, J] the squared length of its vector j.
    """

    errors: Matrix64
    sizes: Matrix64

    def explained(self, counts: Matrix64) -> Matrix64:
        """R^2 [b, J, J] where row r counts `counts[b, r]` times: b bootstrap samples at once; the diagonal is 1."""
        J = self.sizes.shape[1]
        errors = (counts @ self.errors.reshape(-1, J * J)).reshape(-1, J, J)
        sizes = counts @ self.sizes
        R = 1 - errors / np.maximum(sizes, np.finfo(float).tiny)[:, None, :]
        R[:, np.arange(J), np.arange(J)] = 1.0
        return np.asarray(R)


def lead(R: Matrix64) -> Matrix64:
    """How much more each member predicts of its strongest rival than that of it [..., J], from R^2 [..., J, J].

    A rival is any other member, the strongest the one with the least difference. (In the mean over the others a weak
    member would seem to lead that has a still weaker relative among them.)

    Example:
        >>> lead(np.array([[1.0, 0.5], [0.25, 1.0]]))
        array([ 0.25, -0.25])
    """
    J = R.shape[-1]
    if J == 1:
        return np.zeros(R.shape[:-1])
    differences = np.where(np.eye(J, dtype=bool), np.inf, R - R.swapaxes(-1, -2))
    return np.asarray(differences.min(axis=-1))


def known(R: Matrix64, best: int) -> Matrix64:
    """How much of the best each member predicts [J], in parts of what the best predicts of it, at most 1.

    Example:
        >>> known(np.array([[1.0, 0.5], [0.25, 1.0]]), 0)
        array([1. , 0.5])
    """
    of_best, by_best = np.maximum(R[:, best], 0.0), np.maximum(R[best], 0.0)
    return np.asarray(of_best / np.maximum(np.maximum(of_best, by_best), np.finfo(float).tiny))


def predictions(
    whitened: Sequence[Matrix64], lexical: Matrix64 | None, rng: np.random.Generator, progress: Progress
) -> Predictions:
    """Predict every view from every other by ridge regression, in folds.

    The strength of the ridge is the one, of `RIDGES`, with the least error over all folds, for each pair of members.

    Args:
        whitened: views of the same n sentences, [n, k_j], softly whitened, rows of length one.
        lexical: [n, l] what to take out of them first.
        rng: deals the rows out to the folds.
        progress: told of members.
    """
    prepared = [_beyond(X, lexical).astype(np.float32) for X in whitened]
    n, J = len(prepared[0]), len(prepared)
    starts = np.cumsum([0, *(Z.shape[1] for Z in prepared)])[:-1]
    # In single precision: the errors are means of thousands of rows, and the ridge keeps the regression far from noise.
    Z = np.hstack(prepared)
    order = rng.permutation(n)
    folds = [np.sort(part) for part in np.array_split(order, FOLDS)]
    errors = np.zeros((n, J, J))
    progress("sufficiency", 0, J)
    for i, X in enumerate(prepared):
        _predict(X, Z, folds, starts, errors[:, i])
        progress("sufficiency", i + 1, J)
    sizes = np.add.reduceat(np.square(Z, dtype=np.float64), starts, axis=1)
    return Predictions(errors, sizes)


def _predict(
    X: Matrix32, Z: Matrix32, folds: Sequence[NDArray[np.int64]], starts: NDArray[Any], errors: Matrix64
) -> None:
    """Fill in errors [n, J] of predicting all views Z [n, D] from X [n, d].

    In the eigenvectors of a fold's second moment a ridge only divides, so that all strengths share one decomposition,
    and the total error of a strength follows from second moments: rows are predicted once, with the chosen one.
    """
    moments = [(X[test].T @ X[test], X[test].T @ Z[test]) for test in folds]
    own, cross = (sum(one[k] for one in moments) for k in (0, 1))
    losses, solved = np.zeros((len(RIDGES), len(starts))), []
    for own_test, cross_test in moments:
        values, V = np.linalg.eigh(own - own_test)
        fitted, held_out, among = V.T @ (cross - cross_test), V.T @ cross_test, V.T @ own_test @ V
        ridges = [np.maximum(values, 0) + max(ridge * values.mean(), np.finfo(np.float32).tiny) for ridge in RIDGES]
        for loss, ridge in zip(losses, ridges, strict=True):
            W = fitted / ridge[:, None]
            loss += np.add.reduceat((W * (among @ W - 2 * held_out)).sum(axis=0, dtype=np.float64), starts)
        solved.append((V, fitted, ridges))
    best = losses.argmin(axis=0)
    columns = np.repeat(best, np.diff([*starts, Z.shape[1]]))
    for test, (V, fitted, ridges) in zip(folds, solved, strict=True):
        W = V @ (fitted / np.stack(ridges, axis=1)[:, columns])
        errors[test] = np.add.reduceat(np.square(Z[test] - X[test] @ W, dtype=np.float64), starts, axis=1)


def _beyond(Z: Matrix64, lexical: Matrix64 | None) -> Matrix64:
    """A view, centred, without what the lexical features explain of it."""
    Z = Z - Z.mean(axis=0)
    if lexical is None or lexical.shape[1] == 0:
        return np.asarray(Z)
    L = lexical - lexical.mean(axis=0)
    G = L.T @ L
    G[np.diag_indices(len(G))] += max(LEXICAL_RIDGE * np.trace(G) / len(G), np.finfo(float).tiny)
    Z = Z - L @ np.linalg.solve(G, L.T @ Z)
    return np.asarray(Z - Z.mean(axis=0))
