"""Missing members: what they add is predicted from the others, by the formula, and never worse than dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ensembed.errors import InputError, ModelError
from ensembed.methods import GCCA, SVD, Auto, Concat, Method
from ensembed.methods.meta import Meta
from ensembed.methods.prediction import MOST_COLUMNS, Predictor, added_columns, fit_predictor

CHANCE = np.random.default_rng(1)
N = 1500
MEANING = CHANCE.standard_normal((N, 10))
VIEWS = [
    (MEANING @ CHANCE.standard_normal((10, d)) + 0.3 * CHANCE.standard_normal((N, d)) + 0.5).astype(np.float32)
    for d in (12, 9, 7)
]
METHODS: list[Method] = [
    Concat(),
    SVD(dim=8),
    GCCA(dim=6),
    Auto(weights=(1.0, 0.5, 0.2), whitened=(1, 2)),
    Auto(weights=(1.0, 0.0, 0.2)),
]


def _added(meta: Meta, views: list[NDArray[np.float32]], j: int) -> NDArray[np.float32]:
    """What one member adds to the result, alone."""
    return meta.transform([view if i == j else None for i, view in enumerate(views)])


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_missing_member_is_predicted_by_ridge_regression_on_what_the_others_add(method: Method) -> None:
    meta = method.fit(VIEWS)
    predictor = fit_predictor(meta, VIEWS)
    assert predictor is not None
    places = added_columns(meta)
    for j in meta.counted:
        parts = {i: _added(meta, VIEWS, i)[:, place.result].astype(float) for i, place in places.items()}
        known = np.hstack([parts[i] for i in meta.counted if i != j])
        x, y = known - known.mean(0), parts[j] - parts[j].mean(0)
        penalty = predictor.strength * np.square(x).sum() / x.shape[1]
        predicted = parts[j].mean(0) + x @ np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T @ y)
        expected = meta.transform([None if i == j else view for i, view in enumerate(VIEWS)]).astype(float)
        expected[:, places[j].result] += predictor.gains[j] * predicted
        completed = predictor.complete(meta, {j})
        assert completed.counted == tuple(i for i in meta.counted if i != j)
        found = completed.transform([None if i == j else view for i, view in enumerate(VIEWS)])
        np.testing.assert_allclose(found, expected, atol=2e-3)
        dropped, kept = predictor.agreements[j]
        assert kept >= dropped
        assert kept > dropped + 0.05  # all views come from one meaning


def test_several_members_can_be_missing_but_not_all() -> None:
    meta = Concat().fit(VIEWS)
    predictor = fit_predictor(meta, VIEWS)
    assert predictor is not None
    only = predictor.complete(meta, {0, 2})
    assert only.counted == (1,)
    assert only.transform([None, VIEWS[1], None]).shape == (N, 28)
    assert predictor.complete(meta, set()) is meta
    with pytest.raises(InputError, match="no member is left"):
        predictor.complete(meta, {0, 1, 2})
    alone = predictor.alone[0]
    assert alone.cheap > alone.member


@pytest.mark.parametrize("number", [-1.0, np.nan, np.inf])
def test_a_covariance_of_no_sentences_is_an_error_that_says_so(number: float) -> None:
    meta = Concat().fit(VIEWS)
    predictor = fit_predictor(meta, VIEWS)
    assert predictor is not None
    damaged = replace(predictor, covariance=np.full_like(predictor.covariance, number))
    with pytest.raises(ModelError, match="predictor of missing members is damaged"):
        damaged.complete(meta, {1})
    with pytest.raises(ModelError, match="predictor of missing members is damaged"):
        replace(predictor, strength=1e308, covariance=predictor.covariance * 1e6).complete(meta, {1})


def test_there_is_none_without_enough_sentences_or_members() -> None:
    few = [view[:900] for view in VIEWS]
    assert fit_predictor(Concat().fit(few), few) is None
    assert fit_predictor(Concat().fit(VIEWS[:1]), VIEWS[:1]) is None
    wide = [CHANCE.standard_normal((1000, MOST_COLUMNS // 2 + 1)).astype(np.float32)] * 2
    assert fit_predictor(Concat().build([wide[0].shape[1]] * 2), wide) is None


def test_what_is_saved_comes_back_and_what_is_not_so_is_refused() -> None:
    meta = SVD(dim=5).fit(VIEWS)
    predictor = fit_predictor(meta, VIEWS)
    assert predictor is not None
    facts, tensors = predictor.saved()

    def take(name: str, *shape: int) -> NDArray[Any]:
        assert tensors[name].shape == shape
        return tensors[name]

    def restored(**changes: Any) -> Predictor:  # noqa: ANN401 - facts of all types
        changed: Mapping[str, Any] = facts | changes
        return Predictor.restored(changed, meta, take)

    again = restored()
    np.testing.assert_array_equal(
        again.complete(meta, {1}).transform([VIEWS[0], None, VIEWS[2]]),
        predictor.complete(meta, {1}).transform([VIEWS[0], None, VIEWS[2]]),
    )
    changes: dict[str, Any]
    for changes in (
        {"gains": [1.0]},
        {"gains": ["1", 1.0, 1.0]},
        {"strength": float("nan")},
        {"strength": -1.0},
        {"agreements": [[0.5]] * 3},
        {"alone": []},
    ):
        with pytest.raises((ValueError, TypeError)):
            restored(**changes)
    tensors["covariance"] = np.full_like(tensors["covariance"], np.nan)
    with pytest.raises(ValueError, match="numbers that are not finite"):
        restored()
