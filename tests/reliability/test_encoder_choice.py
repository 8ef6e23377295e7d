"""Choosing among encoders: budgets, copies, and when an ensemble is worth it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ensembed.errors import InputError
from ensembed.reliability import Reliability
from ensembed.reliability.agreement import weight_factors
from ensembed.reliability.encoder_choice import POINTS, TRUTH, choose, expected
from ensembed.reliability.trust_estimate import CONFIDENCE


def estimate_of(standing: list[float], r: float = 0.6, **facts: Any) -> Reliability:  # noqa: ANN401 - any field
    """An estimate of members that stand so far below the first, and whose cosines correlate by r."""
    below = np.array(standing)
    J = len(below)
    return Reliability(
        names=tuple("abcdef"[:J]),
        sentences=1000,
        lexical=True,
        seed=0,
        standings=below[None, :] - below[:, None],
        correlations=np.where(np.eye(J, dtype=bool), 1.0, r),
        **{"copies": tuple(range(J)), **facts},
    )


def test_members_that_are_level_gain_and_a_weak_one_adds_nothing() -> None:
    choice = choose(estimate_of([0.0, 0.2, 4.0]), [1.0, 1.0, 1.0], [4, 5, 6])
    assert choice.ranking == (0, 1, 2)
    assert choice.best.members == (0, 1)
    assert choice.best.dim == 9
    assert choice.helps
    assert choice.adds[0] > choice.adds[1] > choice.adds[2]
    assert choice.adds[2] < 0.002
    assert choice.better[0] == pytest.approx(1 / (1 + np.exp(-CONFIDENCE * 0.2)))
    assert choice.better[2] is None
    assert choice.alone.members == (0,)
    assert choice.alone.gain == pytest.approx(0.0)


def test_no_ensemble_of_a_strong_and_a_weak_encoder_or_of_two_that_always_agree() -> None:
    for estimate in (estimate_of([0.0, 6.0]), estimate_of([0.0, 0.1], r=1.0)):
        choice = choose(estimate, [1.0, 1.0], [4, 5])
        assert not choice.helps
        assert choice.best.members == (0,)


def test_budget_members_and_equal_gains_bound_the_choice() -> None:
    estimate = estimate_of([0.0, 0.0, 0.0, 0.5])
    assert len(choose(estimate, [1.0] * 4, [4] * 4, members=2).best.members) == 2
    assert choose(estimate, [5.0, 1.0, 1.0, 1.0], [4] * 4, members=2).best.members == (1, 2)  # the cheaper of equals
    assert choose(estimate, [5.0, 9.0, 2.0, 2.0], [4] * 4, budget=4.5).best.members == (2, 3)
    with pytest.raises(InputError, match="the cheapest, c, costs 2; raise the budget"):
        choose(estimate, [5.0, 9.0, 2.0, 3.0], [4] * 4, budget=1.0)
    with pytest.raises(InputError, match="members must be a whole number of at least 1, not 0"):
        choose(estimate, [1.0] * 4, [4] * 4, members=0)


def test_copies_and_members_that_say_nothing_are_left_out() -> None:
    choice = choose(estimate_of([0.0, 0.0, 0.2, 0.0], copies=(0, 0, 2, 3), mute=("d",)), [1.0] * 4, [4] * 4)
    assert choice.ranking == (0, 2)


def test_expectations_are_those_of_the_formula() -> None:
    assert expected(estimate_of([0.0, 1.0]), [1]) == pytest.approx(TRUTH - POINTS)
    beside = weight_factors(0, np.array([0.0, 1.0]), np.array([[1.0, 0.6], [0.6, 1.0]]), np.ones(2), 0.0)
    w, r = beside.prod(axis=1)[1], 1 - 0.2 * 0.4
    pair = (TRUTH + w * (TRUTH - POINTS)) / np.sqrt(1 + w**2 + 2 * w * r)
    assert expected(estimate_of([0.0, 1.0]), [0, 1]) == pytest.approx(pair)
    assert expected(estimate_of([0.0, 1.0]), [1, 0]) == pytest.approx(pair)
