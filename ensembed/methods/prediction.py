"""Predict what a missing member would add to a meta-embedding from what the other members add.

One pass over some sentences gives the mean and the covariance of what all members add. From these follows the best
linear prediction of any members from any others, so that a few megabytes serve whichever members are missing. The
prediction becomes part of the projections of the members that are there: the result is an ordinary meta-embedding, in
which the missing members do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from ensembed.corpora.corpus import Corpus
from ensembed.errors import InputError, ModelError
from ensembed.methods.meta import Meta, Placement, Projection
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import Array64, Views, unit_rows
from ensembed.reliability.search_agreement import Trial

LEAST_ROWS = 1000
"""With fewer sentences a prediction is not reliable."""
_ROWS = 8000  # sentences in the sample: more hardly improve a covariance of a thousand columns
_HELD_OUT, _MOST_HELD_OUT = 1 / 5, 1500
_STRENGTHS = (0.01, 0.1, 0.5)
MOST_COLUMNS = 4096
"""The most columns of a covariance that is saved (32 MB); models with more have no predictor."""


@dataclass(frozen=True)
class Alone:
    """What one member keeps of the whole model's neighbours, as recall@10 on sentences that were not fitted on.

    Attributes:
        gain: the factor of the predictions of all others.
        member: what the member's own vectors keep.
        cheap: what its vectors with those predictions keep.
    """

    gain: float
    member: float
    cheap: float


@dataclass(frozen=True, eq=False)
class Predictor:
    """Mean and covariance of what the members add to a meta-embedding, and how well they predict each other.

    Attributes:
        mean: [K] the mean of what the members add, side by side, in the order of the ensemble.
        covariance: [K (K + 1) / 2] their covariance: the rows of its upper triangle.
        strength: the penalty of the ridge regression, as a part of the mean variance of its columns.
        gains: for each member, the factor of its prediction: the part of what it adds that the others explain, on
            sentences that were not fitted on; 0 drops a member whose prediction keeps no more neighbours.
        agreements: for each member, the recall@10 of the whole model's neighbours with that member dropped, and
            predicted, on sentences that were not fitted on.
        alone: for each member, what a model that encodes with it alone and predicts all others keeps.
        rows: the number of sentences.
    """

    mean: NDArray[np.float32]
    covariance: NDArray[np.float32]
    strength: float
    gains: tuple[float, ...]
    agreements: tuple[tuple[float, float], ...]
    alone: tuple[Alone, ...]
    rows: int

    def complete(self, meta: Meta, absent: Collection[int]) -> Meta:
        """Return the meta-embedding in which the absent members do not count and are predicted from the others.

        Raises:
            InputError: no member is left.
            ModelError: the mean and the covariance cannot be those of any sentences, as in a damaged model.
        """
        present = [j for j in meta.counted if j not in absent]
        missing = [j for j in meta.counted if j in absent]
        if not present:
            raise InputError("no member is left to predict the others from")
        if not missing:
            return meta
        places = added_columns(meta)
        known = np.concatenate([np.arange(places[j].own.start, places[j].own.stop) for j in present])
        whole = np.zeros((len(self.mean), len(self.mean)))
        whole[np.triu_indices(len(self.mean))] = self.covariance
        whole += np.triu(whole, 1).T
        mean = self.mean.astype(np.float64)
        if not (np.isfinite(mean).all() and np.isfinite(whole).all()):
            raise _damaged("it has numbers that are not finite")
        try:
            solved = _ridge(whole[np.ix_(known, known)], self.strength)
        except ValueError as error:  # LinAlgError is one
            raise _damaged(f"its covariance is not positive definite ({error})") from error
        onto = np.eye(meta.dim)
        changes = {j: np.zeros((meta.dim, meta.dim)) for j in present}
        constant = np.zeros(meta.dim)
        for j in missing:
            place = places[j]
            gain = self.alone[present[0]].gain if len(missing) > 1 and len(present) == 1 else self.gains[j]
            W = gain * solved(whole[known][:, place.own])
            constant[place.result] += gain * mean[place.own] - mean[known] @ W
            start = 0
            for i in present:
                width = places[i].own.stop - places[i].own.start
                changes[i][places[i].result, place.result] += W[start : start + width]
                start += width
        projections: list[Projection] = [Placement(0, projection.columns, 0.0) for projection in meta.projections]
        for i in present:
            network = meta.projections[i].as_network(meta.dim).onto(onto + changes[i])
            projections[i] = network if i != present[0] else network.shifted(constant)
        return replace(meta, projections=tuple(projections), leading=None)

    def saved(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
        """Return what a saved model keeps: facts for `config.json`, and tensors by name."""
        facts = {
            "strength": self.strength,
            "gains": list(self.gains),
            "agreements": [list(pair) for pair in self.agreements],
            "alone": [[alone.gain, alone.member, alone.cheap] for alone in self.alone],
            "rows": self.rows,
        }
        return facts, {"mean": self.mean, "covariance": self.covariance}

    @classmethod
    def restored(cls, facts: Mapping[str, Any], meta: Meta, take: Callable[..., NDArray[Any]]) -> Predictor:
        """Return the predictor of a meta-embedding from what was saved; `take` is that of `Projection.restored`."""
        columns = max((place.own.stop for place in added_columns(meta).values()), default=0)
        if columns > MOST_COLUMNS:
            raise ValueError(f"a predictor of {columns} columns")
        members, gains, agreements = len(meta.projections), facts["gains"], facts["agreements"]
        alone = facts["alone"]
        numbers = [facts["strength"], *gains, *(value for group in (*agreements, *alone) for value in group)]
        if any(type(number) not in (int, float) or not np.isfinite(number) for number in numbers):
            raise ValueError(f"a predictor has the numbers {numbers}")
        if (
            len(gains) != members
            or [len(group) for group in (*agreements, *alone)] != [2] * members + [3] * members
            or facts["strength"] <= 0
        ):
            raise ValueError(f"a predictor of {len(gains)} members where there are {members}")
        mean, covariance = take("mean", columns), take("covariance", columns * (columns + 1) // 2)
        if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
            raise ValueError("a predictor has numbers that are not finite")
        return cls(
            mean,
            covariance,
            float(facts["strength"]),
            tuple(map(float, gains)),
            tuple((float(dropped), float(predicted)) for dropped, predicted in agreements),
            tuple(Alone(*map(float, numbers)) for numbers in alone),
            int(facts["rows"]),
        )


@dataclass(frozen=True)
class Added:
    """The columns of what one member adds: its own, of all members side by side, and those of the result."""

    own: slice
    result: slice


def added_columns(meta: Meta) -> dict[int, Added]:
    """Return the columns of what each member that counts adds."""
    places, start = {}, 0
    for j in meta.counted:
        projection = meta.projections[j]
        result = slice(projection.start, min(projection.start + projection.output_columns, meta.dim))
        places[j] = Added(slice(start, start + result.stop - result.start), result)
        start = places[j].own.stop
    return places


def fit_predictor(meta: Meta, views: Views, sentences: Corpus | None = None, *, how: Pass = Pass()) -> Predictor | None:
    """Fit a predictor on a sample of the rows; None where there are too few rows, too many columns, or one member.

    The strength is the one that keeps most of the neighbours of the whole model on held-out sentences. A prediction is
    multiplied by the part of the variance that it explains there. Without this factor more neighbours of the whole
    model are kept. But if the members that are left are better than the whole model, their vectors are pulled further
    towards it.

    Args:
        meta: the meta-embedding.
        views: the members' views.
        sentences: their sentences, of which repeated ones count once.
        how: how the passes run.
    """
    places = added_columns(meta)
    columns = max((place.own.stop for place in places.values()), default=0)
    rows = views[0].shape[0]
    if len(places) < 2 or rows < LEAST_ROWS or columns > MOST_COLUMNS:
        return None
    from ensembed.reliability.trust_estimate import sample_rows, sample_vectors  # loading a model does without

    sample = sample_rows(rows, sentences, _ROWS, 0)
    if len(sample) < LEAST_ROWS:
        return None
    sampled = [sample_vectors(view, sample, j, unit=False).astype(np.float32) for j, view in enumerate(views)]
    parts = _added(meta, sampled)
    order = np.random.default_rng(0).permutation(len(sample))
    held_out = order < min(len(sample) * _HELD_OUT, _MOST_HELD_OUT)
    quiet = Pass(precision=how.precision, threads=how.threads, device=how.device)
    fitted, rest = (Moments.of_views([part[chosen] for part in parts], quiet) for chosen in (~held_out, held_out))
    check = _Check.of(meta, [view[held_out] for view in sampled])
    recalls = []
    for done, strength in enumerate(_STRENGTHS):
        trying = _predictor(fitted, strength, [1.0] * len(views))
        recalls.append(sum(check.recall(check.predicted(trying, j)) for j in meta.counted))
        how.progress("prediction", done + 1, len(_STRENGTHS))
    strength = _STRENGTHS[int(np.argmax(recalls))]
    gains, agreements = [0.0] * len(views), [(0.0, 0.0)] * len(views)
    alone = [Alone(0.0, 0.0, 0.0)] * len(views)
    trying = _predictor(fitted, strength, [1.0] * len(views))
    for j in meta.counted:
        gains[j], dropped, predicted = check.gain_and_recalls(trying, j)
        agreements[j] = (dropped, predicted)
        gain, _, cheap = check.gain_and_recalls(trying, *(i for i in meta.counted if i != j))
        alone[j] = Alone(gain, check.recall(check.views[j]), cheap)
    chosen = _predictor(fitted + rest, strength, gains)
    return replace(chosen, agreements=tuple(agreements), alone=tuple(alone))


@dataclass(frozen=True, eq=False)
class _Check:
    """Held-out sentences, on which a model without some members is compared with the whole model."""

    meta: Meta
    views: list[NDArray[np.float32]]
    whole: NDArray[np.float32]
    trial: Trial

    @classmethod
    def of(cls, meta: Meta, views: list[NDArray[np.float32]]) -> _Check:
        whole = meta.transform(views)
        return cls(meta, views, whole, Trial.of(whole).half(0))

    def gain_and_recalls(self, predictor: Predictor, *absent: int) -> tuple[float, float, float]:
        """Return the gain of the absent members' prediction, and the recalls without it and with it."""
        dropped = self.dropped(*absent)
        truth, guess = self.whole - dropped, self.predicted(predictor, *absent) - dropped
        variance = np.square(truth - truth.mean(axis=0)).sum()
        gain = float(np.clip(1 - np.square(truth - guess).sum() / variance, 0, 1)) if variance > 0 else 0.0
        without, predicted = self.recall(dropped), self.recall(dropped + np.float32(gain) * guess)
        return (gain, without, predicted) if predicted > without else (0.0, without, without)

    def dropped(self, *absent: int) -> NDArray[np.float32]:
        return self.meta.transform([None if i in absent else view for i, view in enumerate(self.views)])

    def predicted(self, predictor: Predictor, *absent: int) -> NDArray[np.float32]:
        completed = predictor.complete(self.meta, absent)
        return completed.transform([view if i in completed.counted else None for i, view in enumerate(self.views)])

    def recall(self, rows: NDArray[np.float32]) -> float:
        return self.trial.recall(rows, rows)


def _added(meta: Meta, views: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
    """Return what each member that counts adds to the result."""
    added = []
    for j, place in added_columns(meta).items():
        out = np.zeros((len(views[j]), meta.dim), np.float32)
        meta.projections[j].add_to(out, unit_rows(views[j]) if meta.normalize else views[j])
        added.append(np.ascontiguousarray(out[:, place.result]))
    return added


def _predictor(moments: Moments, strength: float, gains: Sequence[float]) -> Predictor:
    triangle = moments.covariance[np.triu_indices(len(moments.mean))].astype(np.float32)
    nothing = ((0.0, 0.0),) * len(gains)
    alone = (Alone(1.0, 0.0, 0.0),) * len(gains)
    return Predictor(moments.mean.astype(np.float32), triangle, strength, tuple(gains), nothing, alone, moments.n)


def _damaged(problem: str) -> ModelError:
    way_out = "fit the model again, or go on without the missing members (missing='drop')"
    return ModelError(f"the model's predictor of missing members is damaged: {problem}; {way_out}")


def _ridge(covariance: Array64, strength: float) -> Callable[[Array64], Array64]:
    """Return a function that solves for right-hand sides."""
    penalty = strength * float(np.trace(covariance)) / len(covariance)
    if not np.isfinite(penalty):
        raise ValueError(f"a strength of {strength:g} is too large for it")
    factor = cho_factor(covariance + max(penalty, 1e-12) * np.eye(len(covariance)))
    return lambda right: np.asarray(cho_solve(factor, right))
