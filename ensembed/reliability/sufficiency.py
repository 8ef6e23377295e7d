"""How much of what one member says another can predict: the better one is more sufficient (Darrin et al. 2024).

Views are softly whitened: half of the mean is subtracted, and every principal direction divided by its standard
deviation to the power `POWER`. For predictions the whole mean is subtracted, and what words predict by themselves is
removed from every view, since weak encoders share it as noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.numerics.eigen import top_eigh
from ensembed.numerics.row_matrices import unit_rows
from ensembed.support.progress import Progress

Matrix64 = NDArray[np.float64]
Matrix32 = NDArray[np.float32]

POWER = 0.25
"""0 changes no direction, 1 whitens. Chosen on STS-B dev: 0.5 gives more on text like the corpus, less on other."""
SUBTRACTED = 0.5
"""The part of the mean that is subtracted from whitened vectors. Chosen on STS-B dev, where 0.3 to 0.6 do as well: with
text like the corpus 0 gains less, above all in pairs, and with other text, whose mean is another one, 1 does."""
RIDGE = 1e-3
"""Added to the variances, in parts of their mean: directions without variance are not blown up."""
LARGEST = 1024
"""Leading directions that get a factor of their own: some thousand rows do not tell more apart."""
FOLDS = 3
LEXICAL_RIDGE = 1e-2
_TINY = np.finfo(float).tiny
RIDGES = (1e-2, 1e-1, 0.3, 1.0, 3.0)
"""Ridges that are tried for a prediction. All ridges are in parts of the mean eigenvalue."""

DIRECTIONS = 32
"""Leading directions of a view that are predicted and that predict. All of them would favour long vectors and noise."""

# The constants of `standing_parts`, chosen on STS-B dev with some encoders and judged with others: results/field.md.
LEAD = 0.05
"""A lead of this part of what both members predict of each other is one unit of standing."""
DIMENSIONS = 0.5
"""A member whose effective dimension is larger by e to this power stands one unit higher."""
LENGTH = 0.15
"""A member whose neighbours are this much less alike in length stands one unit higher. Layers from the middle of a
network, and encoders that were not trained for cosines, put sentences of one length side by side."""
MOST_LENGTH = 2.0
"""The largest part of a standing that length decides."""
WORDS = 0.1
"""A member whose cosines correlate by this much less with the words' stands one unit higher."""
MOST_WORDS = 1.0
"""The largest part of a standing that words decide. An encoder that follows words more than good encoders do is
probably weak. One that follows them less need not be good: weak encoders do that, too."""
# What two members predict of each other counts as at least this much: without it, noise would decide between two
# members that predict nothing of each other.
_LEAST_KNOWN = 0.02


def lead(R: Matrix64, *, antisymmetric: bool = False) -> Matrix64:
    """Return how much more each member predicts of its strongest rival than that of it [..., J], from R^2 [..., J, J].

    A rival is any other member. (With the mean over all rivals, a weak member with a still weaker copy would lead.)
    `antisymmetric` values are differences already, such as standings.

    Example:
        >>> lead(np.array([[1.0, 0.5], [0.25, 1.0]]))
        array([ 0.25, -0.25])
    """
    J = R.shape[-1]
    if J == 1:
        return np.zeros(R.shape[:-1])
    differences = np.where(np.eye(J, dtype=bool), np.inf, R if antisymmetric else R - R.swapaxes(-1, -2))
    return np.asarray(differences.min(axis=-1))


@dataclass(frozen=True, eq=False)
class Surface:
    """How far the cosines of J members depend on what sentences look like.

    Attributes:
        words: [J] the correlation of a member's cosines with those of the words.
        length: [J] by which part the lengths of near sentences differ less than those of random ones.
    """

    words: Matrix64
    length: Matrix64


def standing_parts(R: Matrix64, dimensions: Matrix64, surface: Surface | None) -> Matrix64:
    """Return the parts [..., 4, J, J] whose sum is how far each member i stands above each member j.

    They are the lead (how much more of j member i predicts than j of i, in parts of both together), the effective
    dimensions, and how much less the cosines of i depend on the lengths of sentences and on shared words. A unit is
    about two points of correlation with people's judgements. All parts are antisymmetric.

    Args:
        R: [..., J, J] the part of member j that member i predicts.
        dimensions: [J] the effective dimensions of the members.
        surface: how far their cosines depend on words and length; None where the sentences are not known.

    Example:
        >>> surface = Surface(words=np.array([0.5, 0.4]), length=np.array([0.1, 0.4]))
        >>> R = np.array([[1.0, 0.42], [0.38, 1.0]])
        >>> standing_parts(R, np.array([50.0, 50.0]), surface)[:, 0, 1].round(3)  # of the first above the second
        array([ 1.,  0.,  2., -1.])
    """
    other, size = R.swapaxes(-1, -2), np.log(dimensions)
    parts = np.zeros((*R.shape[:-2], 4, *R.shape[-2:]))
    parts[..., 0, :, :] = (R - other) / np.maximum(R + other, _LEAST_KNOWN) / LEAD
    parts[..., 1, :, :] = (size[:, None] - size[None, :]) / DIMENSIONS
    if surface is not None:
        length, words = surface.length, surface.words
        parts[..., 2, :, :] = np.clip((length[None, :] - length[:, None]) / LENGTH, -MOST_LENGTH, MOST_LENGTH)
        parts[..., 3, :, :] = np.clip((words[None, :] - words[:, None]) / WORDS, -MOST_WORDS, MOST_WORDS)
    return parts


def explained(
    whitened: Sequence[Matrix64], lexical: Matrix64 | None, resamples: int, rng: np.random.Generator, progress: Progress
) -> Matrix64:
    """Predict every view from every other by ridge regression, in folds; return R^2 [1 + resamples, J, J].

    The first is that of all rows; the others are those of bootstrap samples. The diagonal is 1.

    The strength of the ridge is the one, of `RIDGES`, with the least error over all folds, for each pair of members.

    Args:
        whitened: views of the same n sentences, [n, k_j], softly whitened, rows of length one.
        lexical: [n, l] the features to remove first.
        resamples: number of bootstrap samples.
        rng: assigns the rows to the folds, and draws the samples.
        progress: receives the members that are done.
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
    counts = np.vstack([np.ones(n), rng.poisson(1.0, (resamples, n))])
    R = 1 - (counts @ errors.reshape(-1, J * J)).reshape(-1, J, J) / np.maximum(counts @ sizes, _TINY)[:, None, :]
    R[:, np.arange(J), np.arange(J)] = 1.0
    return np.asarray(R)


def _predict(
    X: Matrix32, Z: Matrix32, folds: Sequence[NDArray[np.int64]], starts: NDArray[Any], errors: Matrix64
) -> None:
    """Fill in errors [n, J] of predicting all views Z [n, D] from X [n, d].

    All strengths share one decomposition of a fold's second moment; rows are predicted once, with the chosen one.
    """
    moments = [(X[test].T @ X[test], X[test].T @ Z[test]) for test in folds]
    own, cross = (sum(products[k] for products in moments) for k in (0, 1))
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
    """Return a view, centred, without what the lexical features explain of it."""
    Z = Z - Z.mean(axis=0)
    if lexical is None or lexical.shape[1] == 0:
        return np.asarray(Z)
    L = lexical - lexical.mean(axis=0)
    G = L.T @ L
    G[np.diag_indices(len(G))] += max(LEXICAL_RIDGE * np.trace(G) / len(G), np.finfo(float).tiny)
    Z = Z - L @ np.linalg.solve(G, L.T @ Z)
    return np.asarray(Z - Z.mean(axis=0))


@dataclass(frozen=True, eq=False)
class SoftWhitening:
    """A soft whitening of vectors of d dimensions.

    Attributes:
        mean: [d] the mean of the rows it was estimated on.
        subtracted: [d] the part of it that is subtracted.
        axes: [d, k] the leading principal directions.
        factors: [k] the factors of these directions.
        rest: the factor of all other directions.
        dimensions: the effective dimension of the rows: e to the entropy of the shares of variance (Roy and Vetterli
            2007); at least 1.
    """

    mean: Matrix64
    subtracted: Matrix64
    axes: Matrix64
    factors: Matrix64
    rest: float
    dimensions: float

    @classmethod
    def of(cls, X: Matrix64) -> SoftWhitening:
        """Estimate the whitening of rows X [n, d].

        Example:
            >>> X = np.random.default_rng(0).standard_normal((10_000, 3)) * [1.0, 3.0, 9.0] + 5
            >>> spread = ((X - X.mean(axis=0)) @ SoftWhitening.of(X).matrix).std(axis=0)
            >>> (spread[1:] / spread[:-1]).round(1)  # 3 to the power of 0.75
            array([2.3, 2.3])
        """
        n, d = X.shape
        mean = X.mean(axis=0)
        C, k = X - mean, min(d, LARGEST)
        if n >= d:
            values, axes = top_eigh(C.T @ C / n, k)
            values = np.maximum(values, 0.0)
        else:  # the products of rows have the same spectrum, and there are fewer of them
            values, rows = top_eigh(C @ C.T / n, min(k, n))
            kept = values > np.finfo(float).eps * n * max(float(values[0]), 0.0)
            values = values[kept]
            axes = (C.T @ rows[:, kept]) / np.sqrt(n * values)
        total = float(np.square(C).sum()) / n
        ridge = max(RIDGE * total / d, np.finfo(float).tiny)
        left = max(total - float(values.sum()), 0.0) / max(d - len(values), 1)
        shares = values[values > 0] / max(float(values.sum()), _TINY)
        dimensions = float(np.exp(-(shares * np.log(shares)).sum()))
        factors, rest = (values + ridge) ** (-POWER / 2), float((left + ridge) ** (-POWER / 2))
        return cls(mean, SUBTRACTED * mean, axes, factors, rest, dimensions)

    @property
    def matrix(self) -> Matrix64:
        """The matrix [d, d] by which directions change; symmetric, so that no sign of an eigenvector counts."""
        matrix = (self.axes * (self.factors - self.rest)) @ self.axes.T
        matrix[np.diag_indices(len(matrix))] += self.rest
        return np.asarray(matrix)

    def apply(self, X: Matrix64) -> Matrix64:
        """Return rows X [n, d], whitened, of length one."""
        return np.asarray(unit_rows((X - self.subtracted) @ self.matrix))

    def leading(self, X: Matrix64) -> Matrix64:
        """Return rows X [n, d], centred and whitened, along the leading directions only [n, at most `DIRECTIONS`]."""
        return np.asarray(unit_rows(((X - self.mean) @ self.axes) * self.factors)[:, :DIRECTIONS])
