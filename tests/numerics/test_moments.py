"""Moments are those of the formula, and a commutative monoid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ensembed.errors import InputError, ViewError
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass

Array: TypeAlias = NDArray[Any]
QUICK = settings(max_examples=40)
CENTRES = st.sampled_from([0.0, 1.0, -10.0])


def _rows(seed: int, n: int, D: int, centre: float) -> Array:
    generator = np.random.default_rng(seed)
    return generator.standard_normal((n, D)) @ generator.standard_normal((D, D)) + centre


def _error(found: Moments, expected: Moments) -> float:
    """The largest relative error; the scatter's is relative to the spread, however far off the mean is."""
    assert found.n == expected.n
    return max(oracles.error(found.mean, expected.mean), oracles.error(found.scatter, expected.scatter))


@pytest.mark.parametrize("centre", [0.0, 5.0, 1e4])
@pytest.mark.parametrize(("n", "D"), [(1, 3), (2, 1), (7, 4), (50, 3)])
def test_moments_are_the_sums_of_the_formula(n: int, D: int, centre: float) -> None:
    X = _rows(n, n, D, centre)
    mean, scatter = oracles.moments(X)
    found = Moments.of(X)
    assert found.n == n
    assert oracles.error(found.mean, mean) < 1e-13
    assert np.abs(found.scatter - scatter).max() <= 1e-12 * max(1.0, np.abs(scatter).max())
    np.testing.assert_array_equal(found.scatter, found.scatter.T)
    np.testing.assert_allclose(found.covariance, found.scatter / n)


@pytest.mark.parametrize("normalize", [False, True])
def test_views_are_concatenated(normalize: bool) -> None:
    views = [_rows(0, 9000, 3, 2.0), _rows(1, 9000, 2, -1.0)]  # more than two blocks
    found = Moments.of_views(views, normalize=normalize)
    whole = np.hstack([oracles.unit(view) for view in views] if normalize else views)
    centred = whole - whole.mean(axis=0)
    assert oracles.error(found.mean, whole.mean(axis=0)) < 1e-13
    assert oracles.error(found.scatter, centred.T @ centred) < 1e-12


@QUICK
@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=5),
    D=st.integers(1, 5),
    centre=CENTRES,
    seed=st.integers(0, 999),
)
def test_merging_in_any_order_and_grouping_gives_the_moments_of_all_rows(
    sizes: Sequence[int], D: int, centre: float, seed: int
) -> None:
    X = _rows(seed, sum(sizes) + 2, D, centre)
    parts = np.split(X, np.cumsum(sizes))
    order = np.random.default_rng(seed).permutation(len(parts))
    each = [Moments.of(part) for part in parts]
    whole = Moments.of(X)
    assert _error(reduce(Moments.__add__, each), whole) < 1e-12
    assert _error(reduce(Moments.__add__, [each[i] for i in order]), whole) < 1e-12
    assert _error(reduce(lambda right, left: left + right, each[::-1]), whole) < 1e-12  # grouped from the right


@QUICK
@given(sizes=st.lists(st.integers(50, 200), min_size=1, max_size=5), seed=st.integers(0, 999))
def test_merging_keeps_its_digits_far_from_zero(sizes: Sequence[int], seed: int) -> None:
    """A mean of 1e4 is known to 2e-12 only: parts must be large enough for the spread in them to count more."""
    X = np.random.default_rng(seed).standard_normal((sum(sizes) + 50, 3)) + 1e4
    each = [Moments.of(part) for part in np.split(X, np.cumsum(sizes))]
    centred = X - X.mean(axis=0)
    for merged in (reduce(Moments.__add__, each), reduce(Moments.__add__, each[::-1]), Moments.of(X)):
        assert oracles.error(merged.mean, X.mean(axis=0)) < 1e-14
        assert oracles.error(merged.scatter, centred.T @ centred) < 1e-12


@QUICK
@given(sizes=st.tuples(*[st.integers(1, 40)] * 3), centre=CENTRES, seed=st.integers(0, 999))
def test_addition_is_associative_and_commutative(sizes: tuple[int, int, int], centre: float, seed: int) -> None:
    a, b, c = (Moments.of(_rows(seed + i, n, 3, centre * (i + 1))) for i, n in enumerate(sizes))
    assert _error((a + b) + c, a + (b + c)) < 1e-12
    assert _error(a + b, b + a) < 1e-12


@QUICK
@given(n=st.integers(0, 40), centre=CENTRES, seed=st.integers(0, 999))
def test_zero_is_neutral_to_the_bit(n: int, centre: float, seed: int) -> None:
    moments = Moments.of(_rows(seed, n, 3, centre))
    for same in (moments + Moments.zero(3), Moments.zero(3) + moments):
        assert same.n == moments.n
        np.testing.assert_array_equal(same.mean, moments.mean)
        np.testing.assert_array_equal(same.scatter, moments.scatter)


def test_moments_of_no_rows_add_up_to_moments_of_no_rows() -> None:
    nothing = Moments.zero(2) + Moments.of(np.zeros((0, 2)))
    assert nothing.n == 0
    assert not nothing.mean.any()
    assert not nothing.covariance.any()


def test_merging_does_not_change_the_parts() -> None:
    a, b = Moments.of(_rows(0, 9, 3, 1.0)), Moments.of(_rows(1, 9, 3, 1.0))
    before = [x.copy() for m in (a, b) for x in (m.mean, m.scatter)]
    a + b
    for x, y in zip(before, [x for m in (a, b) for x in (m.mean, m.scatter)], strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("centre", [0.0, 3.0, 100.0])
def test_float32_products_are_right_to_a_millionth(centre: float) -> None:
    X = _rows(0, 20_000, 12, centre).astype(np.float32)
    exact, quick = Moments.of(X), Moments.of(X, Pass(precision="float32"))
    assert quick.resolution > exact.resolution
    sizes = np.sqrt(np.outer(np.diag(exact.scatter), np.diag(exact.scatter)))
    assert np.abs((quick.scatter - exact.scatter) / sizes).max() < 1e-6
    spread = np.sqrt(np.diag(exact.covariance)) + np.abs(exact.mean)
    assert (np.abs(quick.mean - exact.mean) / spread).max() < 1e-6


def test_a_sum_of_moments_has_the_coarser_resolution() -> None:
    X = _rows(0, 9, 3, 1.0)
    quick = Moments.of(X, Pass(precision="float32"))
    assert (quick + Moments.of(X)).resolution == (Moments.of(X) + quick).resolution == quick.resolution
    assert (Moments.zero(3) + quick).resolution == quick.resolution


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_number_of_threads_changes_rounding_at_most(threads: int) -> None:
    X = _rows(0, 9000, 40, 7.0)
    assert _error(Moments.of(X, Pass(threads=threads)), Moments.of(X)) < 1e-13


def test_a_first_block_that_is_far_from_the_rest_costs_no_digits() -> None:
    X = _rows(0, 12_000, 4, 0.0)
    X[:5000] += 1e4
    centred = X - X.mean(axis=0)
    assert oracles.error(Moments.of(X).scatter, centred.T @ centred) < 1e-12


@pytest.mark.parametrize("kind", ["float16", "float32", "int32", "uint8", "bool", ">f8", "Fortran", "strided"])
def test_every_type_and_layout_gives_the_same_moments(kind: str) -> None:
    whole = np.random.default_rng(0).integers(0, 2 if kind == "bool" else 200, (100, 6)).astype(float)
    X: Array = np.asfortranarray(whole) if kind == "Fortran" else whole
    X = np.repeat(whole, 2, axis=1)[:, ::2] if kind == "strided" else X if kind == "Fortran" else whole.astype(kind)
    X.setflags(write=False)
    assert _error(Moments.of(X), Moments.of(whole)) < 1e-12


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_nan_and_inf_are_named_by_view_and_row(bad: float, precision: Any) -> None:  # noqa: ANN401 - one of the words it takes
    views = [_rows(j, 9000, 3, 0.0) for j in range(2)]
    views[1][8500, 2] = bad
    with pytest.raises(ViewError, match="view 1 holds NaN or Inf in row 8500;"):
        Moments.of_views(views, Pass(precision=precision))


def test_values_too_large_to_sum_are_refused() -> None:
    with pytest.raises(ViewError, match="the rows from 0 on hold values too large"):
        Moments.of(np.array([[1e300], [1.7e308], [1.7e308]]))


def test_columns_must_match() -> None:
    with pytest.raises(ViewError, match="moments of 2 and of 3 columns do not add up"):
        Moments.zero(2) + Moments.zero(3)


def test_rows_must_be_aligned_even_where_one_would_spread_over_all() -> None:
    with pytest.raises(ViewError, match="view 1 has 1 rows, view 0 has 9"):
        Moments.of_views([np.ones((9, 2)), np.ones((1, 2))])


@pytest.mark.parametrize("X", [np.ones(3), np.ones((2, 2, 2)), np.array([["a"]])])
def test_views_that_are_no_matrices_are_refused(X: Array) -> None:
    with pytest.raises(ViewError, match="view 0"):
        Moments.of(X)


@pytest.mark.parametrize("precision", ["float16", None, ["float32"]])
def test_an_unknown_precision_is_refused(precision: Any) -> None:  # noqa: ANN401 - none of them is one
    with pytest.raises(InputError, match=f"precision is 'float64' or 'float32', not {re.escape(repr(precision))}"):
        Moments.of(np.ones((3, 2)), Pass(precision=precision))


def test_columns_vary_if_they_do_by_more_than_rounding() -> None:
    X = np.full((1000, 4), 1e4)
    X[:, 1] += np.random.default_rng(0).standard_normal(1000)
    X[:, 2] *= 1 + 1e-12 * np.arange(1000)
    moments = Moments.of(X)
    assert [moments.varies(slice(j, j + 1)) for j in range(4)] == [False, True, False, False]
    assert moments.varies()
    assert not moments.varies(slice(2, 4))
    assert not Moments.zero(3).varies()
