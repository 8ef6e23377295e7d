"""Whitening, the largest eigenvalues, signs and ranks."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ensembed.errors import DimensionError
from ensembed.numerics.eigen import Whitening, effective_rank, fix_signs, supported_eigh, top_eigh
from ensembed.numerics.moments import Moments

Array: TypeAlias = NDArray[np.float64]
RESOLUTION = 1e-11


def _covariance(values: list[float], seed: int = 0) -> Array:
    """A symmetric matrix with these eigenvalues."""
    Q = _rotation(len(values), seed)
    S: Array = (Q * np.array(values)) @ Q.T
    return np.asarray((S + S.T) / 2)


def _rotation(d: int, seed: int = 0) -> Array:
    return np.asarray(np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0])


@pytest.mark.parametrize("k", [1, 2, 4, 5, 6, 9, 10])
def test_top_eigh_is_the_end_of_the_whole_spectrum(k: int) -> None:
    X = np.random.default_rng(0).standard_normal((10, 10))
    S = X + X.T  # negative eigenvalues too
    values, vectors = top_eigh(S, k)
    assert values.shape == (k,)
    assert vectors.shape == (10, k)
    assert oracles.error(values, np.linalg.eigvalsh(S)[::-1][:k]) < 1e-12
    assert oracles.error(vectors.T @ vectors, np.eye(k)) < 1e-12
    assert oracles.error(S @ vectors, vectors * values) < 1e-12


@pytest.mark.parametrize("values", [[0.0] * 9, [1.0] * 9, [1.0] * 5 + [-1.0] * 4, [1.0] + [0.0] * 8])
@pytest.mark.parametrize("k", [1, 2, 4, 9])
def test_top_eigh_copes_with_equal_eigenvalues(values: list[float], k: int) -> None:
    S = _covariance(values)
    found, vectors = top_eigh(S, k)
    np.testing.assert_allclose(found, values[:k], atol=1e-12)
    assert oracles.error(vectors.T @ vectors, np.eye(k)) < 1e-12
    np.testing.assert_allclose(S @ vectors, vectors * found, atol=1e-12)


@pytest.mark.parametrize("ridge", [0.0, 0.5, 100.0])
@pytest.mark.parametrize(("values", "rank"), [
    ([1.0], 1), ([5.0, 2.0, 1.0], 3), ([1.0, 1e-6], 2), ([3.0, 1.0, 0.0, 0.0], 2),
    ([1.0, 1e-13, 0.0], 1), ([1e-20, 1e-21], 2),
])  # fmt: skip
def test_the_whitener_whitens_the_range_and_leaves_the_rest_out(values: list[float], rank: int, ridge: float) -> None:
    S = _covariance(values)
    ridge *= values[0]
    W = Whitening.of(S, ridge, RESOLUTION).matrix
    assert W.shape == (len(values), rank)
    assert oracles.error(W.T @ (S + ridge * np.eye(len(S))) @ W, np.eye(rank)) < 1e-8
    null = _rotation(len(values))[:, rank:]
    np.testing.assert_allclose(null.T @ W, 0, atol=1e-7 * np.abs(W).max())


@pytest.mark.parametrize(("values", "rank"), [
    ([1.0, 1.0, 1.0], 3), ([1.0, 1e-10, 1e-12], 2), ([1e-30, 1e-30], 2), ([1.0, 0.0], 1),
    ([0.0, 0.0], 0), ([-1.0, -2.0], 0),
])  # fmt: skip
def test_the_rank_counts_what_can_be_told_from_zero(values: list[float], rank: int) -> None:
    assert effective_rank(np.diag(values), RESOLUTION) == rank


@settings(max_examples=50)
@given(seed=st.integers(0, 999), d=st.integers(1, 6), k=st.integers(1, 6), data=st.data())
def test_fixed_signs_do_not_depend_on_the_input_signs(seed: int, d: int, k: int, data: Any) -> None:  # noqa: ANN401 - hypothesis has no public type for it
    V = np.random.default_rng(seed).standard_normal((d, k))
    flips = np.array(data.draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=k, max_size=k)))
    fixed = fix_signs(V)
    np.testing.assert_array_equal(fixed, fix_signs(V * flips))
    np.testing.assert_array_equal(np.abs(fixed), np.abs(V))
    assert (fixed[np.abs(fixed).argmax(axis=0), np.arange(k)] > 0).all()
    assert (fixed / V == (fixed / V)[0]).all()  # a column flips as a whole


def test_columns_of_zeros_keep_their_zeros() -> None:
    np.testing.assert_array_equal(fix_signs(np.array([[0.0, -2.0], [0.0, 1.0]])), [[0.0, 2.0], [0.0, -1.0]])


@pytest.mark.parametrize(("centred", "rank"), [(True, 4), (False, 5)])
def test_more_dimensions_than_the_rows_support_name_the_rank(centred: bool, rank: int) -> None:
    rows = np.random.default_rng(0).standard_normal((5, 8)) + 3
    moments = Moments.of_views([rows])
    S = moments.covariance + (0 if centred else np.outer(moments.mean, moments.mean))
    values, V = supported_eigh(S, rank, moments, "svd", centred=centred)
    expected, _ = top_eigh(S, rank)
    np.testing.assert_array_equal(values, expected)
    assert oracles.error(S @ V, V * values) < 1e-10
    for k in (rank + 1, 8, 9):
        message = f"svd with dim={k}: 5 sentences with 8 columns support at most dim={rank}"
        with pytest.raises(DimensionError, match=message) as raised:
            supported_eigh(S, k, moments, "svd", centred=centred)
        assert raised.value.supported == rank


def test_directions_that_are_rounding_are_not_supported() -> None:
    S = _covariance([3.0, 2.0, 1e-13, 1e-14])
    moments = Moments(100, np.zeros(4), 100 * S)
    with pytest.raises(DimensionError, match="at most dim=2"):
        supported_eigh(S, 3, moments, "svd")
