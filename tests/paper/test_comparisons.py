"""Paired tests: against the hardest member, p-values by hand, Holm's correction, and when nothing could count."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensembed.errors import InputError
from ensembed.paper.experiments.bootstrap import ALPHA, Resampled, holm, paired_p
from ensembed.paper.findings import MEAN
from ensembed.sts import Score


def test_comparison_uses_the_best_member_of_each_data_set_and_metric() -> None:
    def scores(values: Mapping[str, tuple[float, float]]) -> dict[str, Score]:
        return {name: Score(*pair) for name, pair in values.items()}

    points = {
        "meta": scores({"one": (0.8, 0.8), "two": (0.8, 0.8), MEAN: (0.8, 0.8)}),
        "a": scores({"one": (0.7, 0.6), "two": (0.5, 0.5), MEAN: (0.6, 0.55)}),
        "b": scores({"one": (0.6, 0.7), "two": (0.6, 0.6), MEAN: (0.6, 0.65)}),
    }
    noise = np.random.default_rng(0).normal(size=(3, 100, 2)) / 100
    resampled = Resampled(
        points,
        {
            label: {name: np.array([pair.pearson, pair.spearman]) + own for name, pair in found.items()}
            for (label, found), own in zip(points.items(), noise, strict=True)
        },
    )
    tests = {(test.dataset, test.metric): test for test in resampled.comparisons(["meta"], ["a", "b"])}
    assert {key: test.member for key, test in tests.items()} == {
        ("one", "pearson"): "a",
        ("one", "spearman"): "b",
        ("two", "pearson"): "b",
        ("two", "spearman"): "b",
        (MEAN, "pearson"): "a",  # equal: the first
        (MEAN, "spearman"): "b",
    }
    for (name, metric), test in tests.items():
        column = ["pearson", "spearman"].index(metric)
        ours, theirs = (resampled.scores[label][name][:, column] for label in ("meta", test.member))
        assert test.difference == pytest.approx(0.8 - getattr(points[test.member][name], metric))
        assert (test.low, test.high) == pytest.approx(np.quantile(ours - theirs, [0.025, 0.975]))


@pytest.mark.parametrize("metas", [1, 2, 5, 7])
def test_comparisons_refuse_too_few_resamples(metas: int) -> None:
    def comparisons(resamples: int) -> list[float]:
        labels = [f"meta:{i}" for i in range(metas)]
        level = dict.fromkeys(labels, 0.9) | {"single": 0.1}
        resampled = Resampled(
            {label: {"toy": Score(one, one)} for label, one in level.items()},
            {label: {"toy": np.full((resamples, 2), one)} for label, one in level.items()},
        )
        return [test.p_holm for test in resampled.comparisons(labels, ["single"])]

    with pytest.raises(InputError, match=f"resamples are too few to compare {metas} .*; take at least {40 * metas}"):
        comparisons(40 * metas - 1)
    assert max(comparisons(40 * metas)) < ALPHA


def test_p_counts_the_rarer_side_twice() -> None:
    assert paired_p(np.array([-1.0] * 5 + [1.0] * 94)) == pytest.approx(0.12)
    assert paired_p(np.array([1.0] * 5 + [-1.0] * 94)) == pytest.approx(0.12)
    assert paired_p(np.array([1.0, -1.0] * 50)) == 1.0
    assert paired_p(np.array([0.0] * 10 + [1.0] * 89)) == pytest.approx(0.22)


def test_holm_by_hand() -> None:
    # 4 x 0.005, 3 x 0.01, 2 x 0.03, and 1 x 0.04, which may not fall below the one before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.4, 0.9, 0.5]) == [1.0, 1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([0.02, 0.02]) == [0.04, 0.04]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_rejects_as_its_steps_do(p_values: list[float]) -> None:
    corrected = holm(p_values)
    for level in (0.01, 0.05, 0.5):
        rejected = set[int]()
        for step, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
            if p_values[index] * (len(p_values) - step) > level:
                break
            rejected.add(index)
        assert {i for i, p in enumerate(corrected) if p <= level} == rejected
