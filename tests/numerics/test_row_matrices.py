"""Rows of length one, and row-aligned batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import coo_array, csr_matrix

from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import ViewError
from ensembed.numerics.row_matrices import batches, check_views, unit_rows
from ensembed.views import ViewStore

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


def test_zero_rows_stay_zero() -> None:
    X = np.array([[0, 0], [3, 4]], np.float32)
    np.testing.assert_array_equal(unit_rows(X), np.array([[0, 0], [0.6, 0.8]], np.float32))


@pytest.mark.parametrize(("dtype", "size"), [
    (np.float32, 1e-42), (np.float32, 1e-30), (np.float32, 1e30), (np.float32, 3e38),
    (np.float64, 1e-320), (np.float64, 1e-200), (np.float64, 1e300),
    (np.float16, 6e-8), (np.float16, 6e4),
])  # fmt: skip
def test_tiny_and_huge_rows_get_length_one(dtype: type[np.floating[Any]], size: float) -> None:
    X = (np.array([[1, -1, 1, 0], [0, 0, 0, 1]]) * size).astype(dtype)
    Z = unit_rows(X)
    np.testing.assert_allclose(np.linalg.norm(Z, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(Z[1], [0, 0, 0, 1])


@given(arrays(np.float32, st.tuples(st.integers(0, 5), st.integers(1, 6)), elements=FINITE))
def test_every_other_row_has_length_one_and_its_direction(X: Any) -> None:  # noqa: ANN401 - an array that hypothesis draws
    Z = unit_rows(X)
    expected = [1.0 if row.any() else 0.0 for row in X]
    np.testing.assert_allclose(np.linalg.norm(Z.astype(np.float64), axis=1), expected, rtol=1e-6)
    assert oracles.error(Z, oracles.unit(X) if len(X) else X) < 1e-6
    assert (np.sign(Z) * np.sign(X) >= 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_unit_rows_makes_a_row_with_nan_or_inf_all_nan_and_leaves_the_others_alone(bad: float) -> None:
    Z = unit_rows(np.array([[1.0, bad, 2.0], [0.0, 3.0, 4.0]]))
    assert np.isnan(Z[0]).all()
    np.testing.assert_allclose(Z[1], [0, 0.6, 0.8])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int64, np.bool_, ">f4"])
def test_the_result_is_float32_or_wider_and_the_input_is_left_alone(dtype: Any) -> None:  # noqa: ANN401 - any type of numpy's
    X = np.eye(3).astype(dtype)
    X.setflags(write=False)
    assert unit_rows(X).dtype == (np.float64 if dtype is np.float64 else np.float32)
    np.testing.assert_array_equal(unit_rows(X), np.eye(3))


def test_unit_rows_of_no_rows_is_empty() -> None:
    assert unit_rows(np.zeros((0, 3), np.float32)).shape == (0, 3)


@pytest.mark.parametrize(("n", "sizes"), [(0, []), (3, [3]), (4, [4]), (9, [4, 4, 1])])
def test_batches_are_aligned_and_cover_every_row_once(n: int, sizes: list[int]) -> None:
    X, Y = np.arange(n * 2).reshape(n, 2), np.arange(n)[:, None]
    found = list(batches([X, Y], 4))
    assert [len(x) for x, _ in found] == sizes
    for x, y in found:
        np.testing.assert_array_equal(x[:, 0], 2 * y[:, 0])
    assert np.concatenate([y for _, y in found] or [Y]).ravel().tolist() == list(range(n))


def test_views_are_taken_as_they_are_and_lists_become_arrays(tmp_path: Path) -> None:
    X = np.ones((2, 3), np.float32)
    stored = ViewStore(tmp_path).embed(ListCorpus(["one", "two"]), DemoEncoder(4))
    checked = check_views([X, stored, [[1, 2], [3, 4]]])
    assert checked[0] is X
    assert checked[1] is stored
    assert checked[2].shape == (2, 2)


class _Tensor:
    """What torch says when it is asked for an array of what is on a GPU, or has a gradient."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.shape = (2, 3)
        self.dtype = "torch.float32"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:  # noqa: ANN401 - numpy's own
        raise self._error


@pytest.mark.parametrize(
    ("views", "message"),
    [
        ([], "at least one view"),
        (np.ones((2, 3)), r"got one matrix of shape \(2, 3\): write \[X\]"),
        ([np.ones((2, 3)), np.ones(2)], r"view 1 has shape \(2,\)"),
        ([np.ones((2, 3)), np.ones((2, 3, 1))], r"view 1 has shape \(2, 3, 1\)"),
        ([np.ones((2, 0))], r"view 0 has shape \(2, 0\)"),
        ([[1.0, 2.0]], r"view 0 has shape \(2,\)"),
        ([np.ones((2, 3)), np.ones((3, 3))], "view 1 has 3 rows, view 0 has 2"),
        ([[["a", "b"]]], "view 0 holds <U1"),
        ([np.ones((2, 3), complex)], "view 0 holds complex128"),
        ([np.ones((2, 3), object)], "view 0 holds object"),
        ([[[1, 2], [3]]], "view 0 is not a matrix but a list: "),
        ([np.ones((2, 3)), _Tensor(TypeError("use cpu()"))], r"view 1 is not a matrix but a _Tensor: use cpu\(\)"),
        ([_Tensor(RuntimeError("use detach()"))], r"view 0 is not a matrix but a _Tensor: use detach\(\)"),
        ([np.ones((2, 3)), csr_matrix(np.eye(2))], r"view 1 is a sparse csr_matrix; views are dense: .*toarray\(\)"),
        ([coo_array(np.eye(2))], "view 0 is a sparse coo_array"),
    ],
)
def test_views_that_do_not_fit_are_named(views: Any, message: str) -> None:  # noqa: ANN401 - none of them is one
    with pytest.raises(ViewError, match=message):
        check_views(views)


def test_one_stored_view_is_not_a_list_of_views(tmp_path: Path) -> None:
    with pytest.raises(ViewError, match=r"write \[X\]"):
        check_views(ViewStore(tmp_path).embed(ListCorpus(["one", "two"]), DemoEncoder(4)))  # type: ignore[arg-type] # it is refused
