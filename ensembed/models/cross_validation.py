"""Choosing by cross-validation, on nothing but cosines and scores.

A choice is judged by the squared error, on other pairs, of the best line from its cosines to the scores. Unlike
Pearson's r it has a value for every pair, so that a few pairs give the standard error of a difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError

Vector = NDArray[np.float64]
Rows = NDArray[np.int64]

SHRINKAGE = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
"""How strongly fitted weights are held to the label-free ones: the larger, the more."""

_FOLDS = 5
# How often the gain is measured with new folds: with few pairs, one division into folds says little.
_REPEATS = 4
# The gain that replaces the label-free choice, in standard errors.
_ERRORS = 1.0
# How many standard errors below zero correlations are before scores count as distances rather than noise.
_CLEARLY = 3.0
# Cosines whose variance is below this differ by rounding only.
_CONSTANT = 1e-20


@dataclass(frozen=True)
class Choice:
    """The candidate that was chosen.

    Attributes:
        fixed: the place of a fixed candidate, or None where weights were fitted.
        weights: fitted weights of the members' cosines; the largest is 1.
        shrinkage: how strongly fitted weights were held to the label-free ones.
    """

    fixed: int | None
    weights: tuple[float, ...] | None = None
    shrinkage: float | None = None


@dataclass(frozen=True)
class Verdict:
    """The result of cross-validation.

    Attributes:
        choice: the first candidate, unless another is better by more than its standard error.
        gain: how much smaller the best choice's error is on other pairs, in parts of the scores' variance; can be < 0.
        error: the standard error of the gain.
    """

    choice: Choice
    gain: float
    error: float


@dataclass(frozen=True, eq=False)
class Candidates:
    """The cosines of labelled pairs under everything that can be chosen.

    Attributes:
        fixed: [n, K] under candidates with nothing to fit; the first is kept unless another is better.
        members: [n, J] under the members, whose weights can be fitted; [n, 0] where they may not.
        weights: [J] the label-free weights.
        groups: [n] the same number for pairs of the same two texts, which share a fold; None where all pairs differ.
    """

    fixed: Vector
    members: Vector
    weights: Vector
    groups: Rows | None = None

    def predict(self, choice: Choice, rows: Rows | slice = slice(None)) -> Vector:
        """Return the cosines [n] under a choice, up to a factor."""
        if choice.fixed is None:
            return np.asarray(self.members[rows] @ np.array(choice.weights))
        return np.asarray(self.fixed[rows, choice.fixed])

    def grouped(self, rows: Rows) -> Rows:
        """Return the groups of these pairs, numbered from 0 in the order in which they appear."""
        if self.groups is None:
            return np.arange(len(rows))
        _, first, places = np.unique(self.groups[rows], return_index=True, return_inverse=True)
        numbers: Rows = np.argsort(np.argsort(first))[places]
        return numbers


def decide(candidates: Candidates, scores: Vector, *, rows: Rows | None = None, seed: int = 0) -> Verdict:
    """Choose on these pairs, and measure the gain of choosing.

    The choosing itself is cross-validated: each fold repeats it on the other pairs. The first candidate stays unless
    the gain over it exceeds its standard error. Pairs of the same two texts are held out together and count as one.

    Args:
        candidates: the cosines under every candidate.
        scores: [n] the scores of the pairs.
        rows: the places of the pairs to use; None for all.
        seed: seed of the folds.
    """
    rows = np.arange(len(scores)) if rows is None else rows
    rng = np.random.default_rng(seed)
    groups = candidates.grouped(rows)
    differences = np.zeros(len(rows))
    for _ in range(_REPEATS):
        for known, held in folds(groups, rng):
            choices = (Choice(0), _best(candidates, scores, rows[known], rng))
            cosines = np.stack([candidates.predict(choice, rows) for choice in choices], axis=1)
            errors = line_errors(cosines, scores[rows], known, held)
            differences[held] += errors[:, 0] - errors[:, 1]
    differences /= _REPEATS * scores[rows].var()
    gain, error = float(differences.mean()), standard_error(differences, groups)
    choice = _best(candidates, scores, rows, rng) if gain > _ERRORS * error else Choice(0)
    return Verdict(choice, gain, error)


def check_direction(candidates: Candidates, scores: Vector) -> None:
    """Raise an InputError if every candidate correlates negatively with the scores, and the median one clearly."""
    r = correlations(candidates.fixed, scores)
    middle = float(np.median(r))
    n = len(np.unique(candidates.grouped(np.arange(len(scores)))))
    # Fisher's transformation: the correlation of n pairs has a standard error of about 1 / sqrt(n - 3).
    doubt = np.arctanh(np.clip(middle, -1 + 1e-12, 1 - 1e-12)) * np.sqrt(max(n - 3, 0)) >= -_CLEARLY
    if r.max() < 0 and not doubt:
        raise InputError(
            f"the scores of the {len(scores)} labelled pairs fall where texts are more similar (whatever is tried, the "
            f"correlation with the cosines is negative: {middle:.2f}); larger must mean more similar: negate distances"
        )


def _best(candidates: Candidates, scores: Vector, rows: Rows, rng: np.random.Generator) -> Choice:
    """Return the candidate with the smallest cross-validated error on these pairs.

    Only a candidate that correlates with the scores, and better than the first one, can replace the first.
    """
    y, fixed, members = scores[rows], candidates.fixed[rows], candidates.members[rows]
    strengths = SHRINKAGE if members.shape[1] else ()
    errors = np.zeros(fixed.shape[1] + len(strengths))
    for known, held in folds(candidates.grouped(rows), rng):
        fitted = [fit_weights(members[known], y[known], candidates.weights, strength) for strength in strengths]
        columns = np.column_stack([fixed, *(members @ weights for weights in fitted)])
        errors += line_errors(columns, y, known, held).sum(axis=0)
    fitted = [fit_weights(members, y, candidates.weights, strength) for strength in strengths]
    r = correlations(np.column_stack([fixed, *(members @ weights for weights in fitted)]), y)
    allowed = r > max(r[0], 0.0)
    allowed[0] = True
    best = int(np.argmin(np.where(allowed, errors, np.inf)))  # the first, and so the label-free one, among equals
    if best < fixed.shape[1]:
        return Choice(best)
    place = best - fixed.shape[1]
    return Choice(None, tuple(fitted[place].tolist()), SHRINKAGE[place])


def fit_weights(cosines: Vector, scores: Vector, weights: Vector, strength: float) -> Vector:
    """Return the weights [J] of the members' cosines [n, J] that predict the scores [n] best; the largest is 1.

    Least squares find the combination with the highest Pearson correlation: it minimises

        |y - C w|^2 + strength * n * sum_j var_j (w_j - s w0_j)^2   over w >= 0, s >= 0,

    y and C less their means, w0 the label-free `weights` [J] and var_j the variance of a member's cosines. Where
    nothing correlates, the label-free weights are returned.
    """
    from scipy.optimize import nnls  # takes longer to import than all the rest of the core

    n, J = cosines.shape
    C, y = cosines - cosines.mean(axis=0), scores - scores.mean()
    hold = np.sqrt(strength * n) * C.std(axis=0)
    system = np.block([[C, np.zeros((n, 1))], [np.diag(hold), -(hold * weights)[:, None]]])
    w = nnls(system, np.concatenate([y, np.zeros(J)]))[0][:J]
    w = w if w.max() > 0 else weights
    return np.asarray(w / w.max())


def line_errors(cosines: Vector, scores: Vector, known: Rows, held: Rows) -> Vector:
    """Return squared errors [held, K] of the lines fitted on the known pairs; lines that fall are made constant."""
    X, y = cosines[known], scores[known]
    mean, level, variance = X.mean(axis=0), y.mean(), X.var(axis=0)
    covariance = (X - mean).T @ (y - level) / len(y)
    slopes = np.divide(covariance, variance, out=np.zeros(len(mean)), where=variance > _CONSTANT)
    predicted = level + (cosines[held] - mean) * np.maximum(slopes, 0)
    return np.asarray((scores[held, None] - predicted) ** 2)


def correlations(cosines: Vector, scores: Vector) -> Vector:
    """Return Pearson's r [K] of cosines [n, K] with scores [n]; 0 where the cosines are constant."""
    C, y = cosines - cosines.mean(axis=0), scores - scores.mean()
    variances = (C * C).mean(axis=0)
    lengths = np.sqrt(variances * (y @ y) * len(y))
    varies = (variances > _CONSTANT) & (lengths > 0)
    return np.asarray(np.divide(C.T @ y, lengths, out=np.zeros(len(lengths)), where=varies))


def standard_error(values: Vector, groups: Rows) -> float:
    """Return the standard error of the mean of values [n], which may depend on each other within groups [n]."""
    sums = np.bincount(groups, values - values.mean())
    n, G = len(values), len(sums)
    return float(np.sqrt(G / (G - 1) * (sums @ sums)) / n) if G > 1 else float("inf")


def folds(groups: Rows, rng: np.random.Generator) -> Iterator[tuple[Rows, Rows]]:
    """Divide pairs at random into folds, groups [n] kept together; yield the places of the others and of its own."""
    order = rng.permutation(groups.max() + 1)
    parts = [np.flatnonzero(np.isin(groups, part)) for part in np.array_split(order, _FOLDS)]
    for i, held in enumerate(parts):
        yield np.concatenate([*parts[:i], *parts[i + 1 :]]), held
