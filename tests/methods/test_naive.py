"""Concatenation, averaging and the random up-projection."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracles
import pytest
from method_views import KINDS, SHAPES, TYPES, Array, cast, make_views

from ensembed.errors import InputError, ViewError
from ensembed.methods import Average, Concat, UpProjection
from ensembed.numerics.row_matrices import unit_rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "dims"), SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_concat_and_average_are_the_formulas(n: int, dims: tuple[int, ...], kind: str, dtype: str) -> None:
    views = [view.astype(dtype) for view in make_views(n, dims, kind)]
    assert oracles.error(Concat().fit(views).transform(views), oracles.conc(views)) < 1e-6
    assert oracles.error(Average().fit(views).transform(views), oracles.avg(views)) < 1e-6


@pytest.mark.parametrize("kind", TYPES)
def test_concat_and_average_take_every_type(kind: str) -> None:
    whole = [np.random.default_rng(j).integers(0, 256, (20, dim)).astype(float) for j, dim in enumerate((5, 3))]
    views = [cast(X, kind) for X in whole]
    assert oracles.error(Concat().fit(views).transform(views), oracles.conc(whole)) < 1e-6
    assert oracles.error(Average().fit(views).transform(views), oracles.avg(whole)) < 1e-6


def test_the_cosine_of_concatenations_is_the_mean_of_the_members_cosines() -> None:
    views = make_views(30, (6, 4, 9))
    Z = unit_rows(Concat().fit(views).transform(views))
    members = [oracles.unit(view) @ oracles.unit(view).T for view in views]
    assert oracles.error(Z @ Z.T, np.mean(members, axis=0)) < 1e-6


def test_permuting_the_members_permutes_the_blocks_of_a_concatenation() -> None:
    a, b, c = make_views(30, (6, 4, 9))
    Z = Concat().fit([a, b, c]).transform([a, b, c])
    permuted = Concat().fit([c, a, b]).transform([c, a, b])
    np.testing.assert_array_equal(permuted, np.hstack([Z[:, 10:], Z[:, :6], Z[:, 6:10]]))


def test_averaging_pads_the_shorter_views_with_zeros_at_the_end() -> None:
    meta = Average().fit([np.ones((1, 1)), np.ones((1, 3))])
    np.testing.assert_array_equal(meta.transform([[[5.0]], [[0.0, 0.0, 0.0]]]), [[0.5, 0.0, 0.0]])


@pytest.mark.parametrize("method", [Concat(), Average()])
def test_zero_rows_stay_zero(method: Concat | Average) -> None:
    views: list[Array] = [np.zeros((2, 3)), np.zeros((2, 4), np.int8)]
    assert not method.fit(views).transform(views).any()


def test_an_up_projection_is_a_product_with_a_uniform_matrix() -> None:
    X = np.random.default_rng(0).standard_normal((5, 7))
    meta = UpProjection(dim=4, seed=3).fit([X])
    P = meta.transform([np.eye(7)]).T
    assert oracles.error(meta.transform([X]), oracles.up_projection(X, P)) < 1e-6
    expected = np.random.default_rng(3).uniform(-1 / np.sqrt(7), 1 / np.sqrt(7), (4, 7))
    assert oracles.error(P, expected) < 1e-6


def test_up_projections_fill_the_interval_and_no_more() -> None:
    P = UpProjection(dim=2000).fit([np.ones((1, 16))]).transform([np.eye(16)])
    assert np.abs(P).max() <= 0.25
    assert np.abs(P).max() > 0.249
    assert abs(P.mean()) < 0.01
    assert abs(P.std() - 0.5 / np.sqrt(12)) < 0.002


def test_up_projections_of_different_seeds_differ_and_of_equal_seeds_do_not() -> None:
    X = np.ones((1, 16))
    one, same, other = (UpProjection(8, seed).fit([X]).transform([X]) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 0.01


def test_an_up_projection_takes_one_view() -> None:
    with pytest.raises(ViewError, match="one view, got 2"):
        UpProjection(8).fit([np.ones((1, 3)), np.ones((1, 3))])


@pytest.mark.parametrize("seed", [-1, 1.5, "1", None])
def test_an_up_projection_refuses_what_is_no_seed(seed: Any) -> None:  # noqa: ANN401 - none of them is one
    with pytest.raises(InputError, match=f"seed must be a whole number of at least 0, not {seed!r}"):
        UpProjection(8, seed=seed)


@pytest.mark.parametrize("dim", [None, 0, 2.5, "8"])
def test_an_up_projection_needs_a_dimension(dim: Any) -> None:  # noqa: ANN401 - none of them is one
    with pytest.raises(InputError, match=f"dim must be a whole number of at least 1, not {dim!r}"):
        UpProjection(dim=dim)
