"""Choosing by cross-validation, on nothing but cosines and scores.

A choice is judged by the squared error of the best line from its cosine to the score, the line drawn on other pairs
than those it is judged on: on all pairs that error is 1 - r^2 of the scores' variance, r being Pearson's. Unlike r, it
has a value for every pair, so that the doubt about a difference of two choices can be told from a few pairs already.
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
# How often pairs are dealt anew into folds when the gain is measured: with few pairs, one dealing tells little.
_DEALINGS = 4
# The gain that is asked for before the label-free choice is given up, in standard errors.
_ERRORS = 1.0
# How many standard errors correlations have to be below zero before the scores are taken for distances: noise is not
# to be.
_CLEARLY = 3.0
# Cosines whose variance is below this differ by rounding.
_CONSTANT = 1e-20


@dataclass(frozen=True)
class Choice:
    """What was chosen.

    Attributes:
        fixed: the place of a fixed candidate, or None where weights were fitted.
        weights: of the members' cosines, where they were fitted; the largest is 1.
        shrinkage: how strongly those were held to the label-free ones.
    """

    fixed: int | None
    weights: tuple[float, ...] | None = None
    shrinkage: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What cross-validation says.

    Attributes:
        choice: the first candidate, unless another is better by more than its standard error.
        gain: how much smaller the error of the best choice is on pairs it was not made on, as a part of the scores'
            variance; negative where choosing does harm.
        error: the standard error of the gain.
    """

    choice: Choice
    gain: float
    error: float


@dataclass(frozen=True, eq=False)
class Candidates:
    """The cosines of labelled pairs under everything that can be chosen.

    Attributes:
        fixed: [n, K] under candidates that are what they are; the first is kept unless another is better.
        members: [n, J] under the members, whose weights can be fitted; [n, 0] where they may not.
        weights: [J] the label-free weights.
        groups: [n] the same number for pairs of the same two texts, which are never told apart by a fold; None where no
            two pairs are.
    """

    fixed: Vector
    members: Vector
    weights: Vector
    groups: Rows | None = None

    def predict(self, choice: Choice, rows: Rows | slice = slice(None)) -> Vector:
        """What a choice says [n], up to a factor."""
        if choice.fixed is not None:
            column: Vector = self.fixed[rows, choice.fixed]
            return column
        mixed: Vector = self.members[rows] @ np.array(choice.weights)
        return mixed

    def grouped(self, rows: Rows) -> Rows:
        """The groups of these pairs, numbered from 0 in the order in which they appear."""
        if self.groups is None:
            return np.arange(len(rows))
        _, first, places = np.unique(self.groups[rows], return_index=True, return_inverse=True)
        numbers: Rows = np.argsort(np.argsort(first))[places]
        return numbers


def decide(candidates: Candidates, scores: Vector, *, rows: Rows | None = None, seed: int = 0) -> Verdict:
    """Choose on these pairs, and say whether that is worth it.

    The choosing itself, not only its result, is cross-validated: in each fold it is done again from the start on the
    other pairs, so that having many candidates to choose from is no advantage. The first candidate stays unless the
    gain over it is larger than its standard error. Pairs of the same two texts are held out together, and count as one
    where it is said how sure the gain is.

    Args:
        candidates: what can be chosen.
        scores: [n] of the pairs.
        rows: which pairs are known; None for all.
        seed: of how pairs are dealt into folds.
    """
    rows = np.arange(len(scores)) if rows is None else rows
    rng = np.random.default_rng(seed)
    groups = candidates.grouped(rows)
    differences = np.zeros(len(rows))
    for _ in range(_DEALINGS):
        for known, held in folds(groups, rng):
            choice = _best(candidates, scores, rows[known], rng)
            for sign, one in ((1, Choice(0)), (-1, choice)):
                cosines = candidates.predict(one, rows)[:, None]
                differences[held] += sign * line_errors(cosines, scores[rows], known, held)[:, 0] / _DEALINGS
    differences /= scores[rows].var()
    gain, error = float(differences.mean()), standard_error(differences, groups)
    choice = _best(candidates, scores, rows, rng) if gain > _ERRORS * error else Choice(0)
    return Verdict(choice, gain, error)


def check_direction(candidates: Candidates, scores: Vector) -> None:
    """Refuse scores that fall where the cosines rise.

    Raises:
        InputError: every candidate correlates negatively with them, and the middle one beyond doubt.
    """
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
    """What has the smallest cross-validated error on these pairs.

    Only what correlates with their scores, and better than the first candidate does, can replace that: as no falling
    line is drawn, what falls would otherwise look like a constant, and a constant may look better than a weak start.
    """
    y = scores[rows]
    fixed = candidates.fixed[rows]
    members = candidates.members[rows]
    strengths = SHRINKAGE if members.shape[1] else ()
    errors = np.zeros(fixed.shape[1] + len(strengths))
    for known, held in folds(candidates.grouped(rows), rng):
        found = [fit_weights(members[known], y[known], candidates.weights, strength) for strength in strengths]
        columns = np.column_stack([fixed, *(members @ weights for weights in found)])
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
    """The weights [J] of the members' cosines [n, J] that say the scores [n] best, held to what is known of them.

    Least squares find the combination with the highest Pearson correlation: it minimises

        |y - C w|^2 + strength * n * sum_j var_j (w_j - s w0_j)^2   over w >= 0, s >= 0,

    y and C less their means, w0 the label-free weights and var_j the variance of a member's cosines.

    Args:
        cosines: of the members.
        scores: of the pairs.
        weights: [J] w0.
        strength: of the hold.

    Returns:
        The weights; the largest is 1. `weights` where nothing correlates.
    """
    from scipy.optimize import nnls  # takes longer to import than all the rest of the core

    n, J = cosines.shape
    C, y = cosines - cosines.mean(axis=0), scores - scores.mean()
    hold = np.sqrt(strength * n) * C.std(axis=0)
    system = np.block([[C, np.zeros((n, 1))], [np.diag(hold), -(hold * weights)[:, None]]])
    found = nnls(system, np.concatenate([y, np.zeros(J)]))[0][:J]
    found = found if found.max() > 0 else weights
    result: Vector = found / found.max()
    return result


def line_errors(cosines: Vector, scores: Vector, known: Rows, held: Rows) -> Vector:
    """Squared errors [held, K] of the lines from cosines [n, K] to scores [n] that suit the known pairs best.

    A line that falls is not drawn: similar texts are to have the larger cosine.
    """
    X, y = cosines[known], scores[known]
    mean, level = X.mean(axis=0), y.mean()
    variance = X.var(axis=0)
    slopes = np.divide(
        (X - mean).T @ (y - level) / len(y), variance, out=np.zeros(len(mean)), where=variance > _CONSTANT
    )
    said = level + (cosines[held] - mean) * np.maximum(slopes, 0)
    errors: Vector = (scores[held, None] - said) ** 2
    return errors


def correlations(cosines: Vector, scores: Vector) -> Vector:
    """Pearson's r [K] of cosines [n, K] with scores [n]; 0 where the cosines are constant."""
    C, y = cosines - cosines.mean(axis=0), scores - scores.mean()
    variances = (C * C).mean(axis=0)
    lengths = np.sqrt(variances * (y @ y) * len(y))
    r: Vector = np.divide(C.T @ y, lengths, out=np.zeros(len(lengths)), where=(variances > _CONSTANT) & (lengths > 0))
    return r


def standard_error(values: Vector, groups: Rows) -> float:
    """Of the mean of values [n], of which those of one group may be alike; groups [n] are numbered from 0.

    Where every value is a group of its own, this is the usual one.
    """
    sums = np.bincount(groups, values - values.mean())
    n, G = len(values), len(sums)
    return float(np.sqrt(G / (G - 1) * (sums @ sums)) / n) if G > 1 else float("inf")


def folds(groups: Rows, rng: np.random.Generator) -> Iterator[tuple[Rows, Rows]]:
    """Deal pairs into folds, those of a group together: for each the places of the other pairs, and its own.

    Args:
        groups: [n] numbered from 0.
        rng: which deals.
    """
    parts = [
        np.flatnonzero(np.isin(groups, dealt)) for dealt in np.array_split(rng.permutation(groups.max() + 1), _FOLDS)
    ]
    for i, held in enumerate(parts):
        yield np.concatenate([*parts[:i], *parts[i + 1 :]]), held
