"""Choosing by cross-validation, on invented cosines."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ensembed.errors import InputError
from ensembed.models.cross_validation import (
    Candidates,
    Choice,
    _best,
    check_direction,
    correlations,
    decide,
    fit_weights,
    folds,
    line_errors,
    standard_error,
)
from ensembed.models.tuning import LabelledPairs


def only(fixed: NDArray[np.float64], groups: NDArray[np.int64] | None = None) -> Candidates:
    """Nothing to choose from but these."""
    return Candidates(fixed, np.zeros((len(fixed), 0)), np.ones(1), groups)


def test_fitted_weights_are_least_squares_held_to_the_known_ones() -> None:
    rng = np.random.default_rng(0)
    C = rng.standard_normal((4000, 3))
    y = C @ [2.0, 0.5, -0.1] + 0.1 * rng.standard_normal(4000) + 7
    np.testing.assert_allclose(fit_weights(C, y, np.ones(3), 1e-9), [1, 0.25, 0], atol=0.01)
    np.testing.assert_allclose(fit_weights(C, y, np.array([0.2, 1, 1]), 1e6), [0.2, 1, 1], atol=0.01)
    between = fit_weights(C, y, np.array([0.2, 1, 0.1]), 1.0)
    assert 0.25 < between[1] / between[0] < 5
    np.testing.assert_array_equal(fit_weights(C, -C.sum(axis=1), np.array([0.5, 1, 1]), 0.1), [0.5, 1, 1])


def test_errors_are_those_of_the_line_through_other_pairs() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 50))
    y += x
    known, held = np.arange(40), np.arange(40, 50)
    slope, level = np.polyfit(x[:40], y[:40], 1)
    errors = line_errors(np.stack([x, -x, np.ones(50)], axis=1), y, known, held)
    np.testing.assert_allclose(errors[:, 0], (y[held] - slope * x[held] - level) ** 2)
    for flat in (1, 2):  # no line falls, and a constant says nothing
        np.testing.assert_allclose(errors[:, flat], (y[held] - y[:40].mean()) ** 2)


def test_every_pair_is_held_out_once() -> None:
    dealt = list(folds(np.arange(13), np.random.default_rng(0)))
    assert sorted(np.concatenate([held for _, held in dealt]).tolist()) == list(range(13))
    for known, held in dealt:
        assert sorted([*known, *held]) == list(range(13))


def test_many_random_candidates_do_not_replace_the_first() -> None:
    """Of hundreds of random candidates some suit any few scores; that is not taken for a gain."""
    kept = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        scores = rng.standard_normal(30)
        useful = scores + rng.standard_normal(30)
        fixed = np.column_stack([useful, rng.standard_normal((30, 300))])
        kept += decide(Candidates(fixed, np.zeros((30, 0)), np.ones(1)), scores).choice.fixed == 0
    assert kept >= 18


def test_candidate_with_a_negative_correlation_is_never_chosen() -> None:
    """Held out, a weak start looks worse than a constant does: what falls must not be taken for a constant."""
    weak = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        scores = rng.standard_normal(40)
        start = 0.05 * scores + rng.standard_normal(40)
        falling = -scores[:, None] + rng.standard_normal((40, 5))
        weak += bool(start @ scores > 0)
        assert decide(only(np.column_stack([start, falling])), scores).choice == Choice(0)
    assert weak > 15
    # Nor are weights that were fitted to nothing: least squares find none, and what is left are the label-free ones.
    members = -scores[:, None] + 0.5 * rng.standard_normal((40, 2))
    candidates = Candidates(start[:, None], members, np.ones(2))
    assert decide(candidates, scores).choice == Choice(0)


def test_chosen_candidate_correlates_better_than_the_first() -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        scores = rng.standard_normal(25)
        fixed = 0.4 * scores[:, None] + rng.standard_normal((25, 8))
        choice = decide(only(fixed), scores).choice
        r = [float(np.corrcoef(fixed[:, k], scores)[0, 1]) for k in range(8)]
        np.testing.assert_allclose(correlations(fixed, scores), r)
        assert choice.fixed == 0 or r[choice.fixed or 0] > max(r[0], 0)
    assert correlations(np.ones((25, 1)), scores) == [0]


def test_pairs_of_the_same_texts_are_held_out_together() -> None:
    labels = [(float(i), f"a {i % 11}", f"b {i % 11}") for i in range(33)]
    labels += [(40.0, "b 3", "a 3"), (41.0, "b 3", "a 4")]  # the other way round, and another pair
    pairs = LabelledPairs.of(labels)
    assert len(set(pairs.groups.tolist())) == 12
    assert pairs.groups[3] == pairs.groups[33] != pairs.groups[34]
    groups = only(np.zeros((35, 1)), pairs.groups).grouped(np.arange(35)[::-1])
    assert groups[:3].tolist() == [0, 1, 2]
    for known, held in folds(groups, np.random.default_rng(0)):
        assert not set(groups[known]) & set(groups[held])
        assert sorted([*known, *held]) == list(range(35))


def test_repeated_pairs_do_not_make_the_gain_more_certain() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(20)
    usual = float(values.std(ddof=1) / np.sqrt(20))
    assert standard_error(values, np.arange(20)) == pytest.approx(usual)
    # Ten times the same pairs are no surer than the pairs once.
    assert standard_error(np.tile(values, 10), np.tile(np.arange(20), 10)) == pytest.approx(usual)
    scores, fixed = rng.standard_normal(12), rng.standard_normal((12, 60))
    verdict = decide(only(np.tile(fixed, (10, 1)), np.tile(np.arange(12), 10)), np.tile(scores, 10))
    leaking = decide(only(np.tile(fixed, (10, 1))), np.tile(scores, 10))
    assert verdict.choice == Choice(0)
    assert leaking.choice != Choice(0)  # what happens if every copy is taken for a pair of its own


def test_scores_are_refused_as_distances_only_when_clearly_negative() -> None:
    rng = np.random.default_rng(0)
    check_direction(only(-0.2 * np.arange(20.0)[:, None] + 10 * rng.standard_normal((20, 3))), np.arange(20.0))
    check_direction(only(np.column_stack([-np.arange(20.0), np.ones(20)])), np.arange(20.0))
    falling = np.column_stack([rng.standard_normal((20, 3)) - np.arange(20.0)[:, None], -(np.arange(20.0) ** 2)])
    with pytest.raises(InputError, match="negate distances"):
        check_direction(only(falling), np.arange(20.0))


def test_candidate_that_correlates_less_than_the_first_is_not_chosen_whatever_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal(40)
    fixed = np.column_stack([scores + noise * rng.standard_normal(40) for noise in (0.5, 2.0)])

    def second(cosines: NDArray[np.float64], _: object, __: object, held: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.tile([1.0, 0.0], (len(held), 1))[:, : cosines.shape[1]]

    monkeypatch.setattr("ensembed.models.cross_validation.line_errors", second)
    assert _best(only(fixed), scores, np.arange(40), rng) == Choice(0)
    assert _best(only(fixed[:, ::-1]), scores, np.arange(40), rng) == Choice(1)
