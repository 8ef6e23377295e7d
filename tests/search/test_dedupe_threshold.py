"""The threshold that is found without labels: known on known distributions, refused where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from ensembed.encoders.base import FloatArray
from ensembed.errors import InputError
from ensembed.numerics.row_matrices import unit_rows
from ensembed.search.groups import find_threshold, star_groups


def random_rows(n: int, dim: int, seed: int = 0) -> FloatArray:
    return unit_rows(np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32))


def planted(n: int, copies: int, noise: float, dim: int = 24) -> FloatArray:
    """Random rows, and noisy copies of the first of them behind."""
    U = random_rows(n, dim)
    extra = U[:copies] + noise * random_rows(copies, dim, seed=1)
    return np.concatenate([U, unit_rows(extra)])


@pytest.mark.parametrize("dim", [24, 96])
@pytest.mark.parametrize("false_pairs", [0.1, 0.01])
def test_unrelated_rows_make_about_as_many_pairs_as_allowed(dim: int, false_pairs: float) -> None:
    U = random_rows(4000, dim)
    found = find_threshold(U, false_pairs=false_pairs, rows=4000)
    C = U @ U.T
    np.fill_diagonal(C, 0)
    there = (found.value <= C).sum() / len(U)
    assert abs(np.log(there / false_pairs)) < np.log(3)


def test_the_threshold_separates_planted_duplicates_from_the_rest() -> None:
    U = planted(3000, 600, 0.3)
    found = find_threshold(U)
    of, _ = star_groups(U, found.value)
    assert found.value < 0.95
    right = of[3000:] == np.arange(600)
    assert right.mean() > 0.98
    assert (of[:3000] != np.arange(3000)).sum() <= 6  # 0.001 per row are 3 of them


def test_duplicates_hardly_change_the_threshold() -> None:
    clean, full = find_threshold(random_rows(3000, 24)).value, find_threshold(planted(3000, 1500, 0.3)).value
    assert abs(clean - full) < 0.02


def test_a_threshold_reports_expected_and_observed_neighbours() -> None:
    found = find_threshold(planted(3000, 600, 0.2), rows=1000)
    assert found.rows == 1000
    assert found.false_pairs == 1e-3
    counts = [unrelated for _, unrelated, _ in found.levels]
    assert counts == [100, 10, 1, 0.1, 0.01, 0.001]
    by_count = {unrelated: (cosine, there) for cosine, unrelated, there in found.levels}
    assert by_count[100][1] == pytest.approx(100, rel=0.1)  # where it was fitted it fits
    assert by_count[0.001][0] == pytest.approx(found.value)
    assert by_count[0.001][1] > 0.2  # the duplicates: 1,200 of 3,600 rows have one


def test_fewer_false_pairs_raise_the_threshold_and_the_seed_fixes_it() -> None:
    U = planted(2000, 200, 0.3)
    values = [find_threshold(U, false_pairs=allowed, rows=500).value for allowed in (0.1, 0.01, 0.001)]
    assert values == sorted(values)
    assert find_threshold(U, rows=500, seed=1) == find_threshold(U, rows=500, seed=1)
    assert find_threshold(U, rows=500, seed=1).value != find_threshold(U, rows=500, seed=2).value


def test_a_threshold_is_found_for_few_rows() -> None:
    assert 0.3 < find_threshold(random_rows(100, 24)).value < 1


@pytest.mark.parametrize(
    ("U", "says"),
    [
        (random_rows(99, 8), "99 distinct sentences are too few"),
        (np.ones((200, 1), np.float32), "tell too little apart"),
        (np.zeros((200, 4), np.float32), "tell too little apart"),
    ],
)
def test_cosines_without_a_tail_raise(U: FloatArray, says: str) -> None:
    with pytest.raises(InputError, match=says):
        find_threshold(U)


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, float("nan")])
def test_false_pairs_must_be_between_zero_and_one(value: float) -> None:
    with pytest.raises(InputError, match="false_pairs"):
        find_threshold(random_rows(200, 8), false_pairs=value)
