"""GCCA against scipy's generalised eigenproblem, and the facts that define it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import oracles
import pytest
import scipy.linalg
from method_views import KINDS, SHAPES, TYPES, Array, best_cut, cast, make_views

from ensembed.errors import DimensionError, InputError, ViewError
from ensembed.methods import GCCA, Meta
from ensembed.methods.gcca import positive
from ensembed.methods.weights import Weights
from ensembed.numerics.moments import Moments

SEVERAL = [(n, dims) for n, dims in SHAPES if len(dims) > 1]


def _spectrum(meta: Meta) -> Array:
    assert meta.spectrum is not None
    return meta.spectrum


@pytest.mark.parametrize(
    ("tau", "dtype"),
    [(0.0, "float32"), (0.0, "float64"), (1e-2, "float32"), (1.0, "float64"), (10.0, "float32"), (100.0, "float64")],
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "dims"), SEVERAL)
def test_gcca_is_the_generalised_eigenproblem(n: int, dims: tuple[int, ...], kind: str, tau: float, dtype: str) -> None:
    train = [view.astype(dtype) for view in make_views(n, dims, kind)]
    new = [view.astype(dtype) for view in make_views(11, dims, "zero row", seed=10)]
    slow = [(views, *oracles.gcca_in_range(train, views, sum(dims), tau)) for views in (train, new)]
    everything = slow[0][2]
    positive = int(np.count_nonzero(everything > 1e-6 * everything[0]))
    for d in {1, best_cut(everything[:positive]), len(everything)}:
        meta = GCCA(dim=d, tau=tau).fit(train)
        assert math.isclose(everything[0], _spectrum(meta)[0], rel_tol=1e-9)
        for views, all_columns, all_rho in slow:
            expected, rho = all_columns[:, :d], all_rho[:d]
            assert oracles.error(_spectrum(meta), rho) < 1e-7
            # Where the cut goes through equal eigenvalues (-1, many times, with few rows) the last ones may be any.
            if d == len(everything) or everything[d - 1] - everything[d] > 1e-2 * everything[0]:
                assert oracles.gram_error(meta.transform(views), expected) < 1e-5
            if oracles.separated(rho, 1e-2):
                assert oracles.error_up_to_signs(meta.transform(views), expected) < 1e-5


# Without a penalty the right-hand side must be regular.
@pytest.mark.parametrize(("kind", "tau"), [("full", 0.0), *itertools.product(KINDS, [1e-2, 1.0, 10.0, 100.0])])
@pytest.mark.parametrize(("n", "dims"), SEVERAL)
def test_rho_is_that_of_scipy_on_the_whole_matrices(n: int, dims: tuple[int, ...], kind: str, tau: float) -> None:
    if tau == 0:
        n += sum(dims)
    views = make_views(n, dims, kind)
    A, B = oracles.blocks(views, tau)
    rho = scipy.linalg.eigh(A, B, eigvals_only=True)[::-1]
    positive = int(np.count_nonzero(rho > 1e-6 * rho[0]))
    assert oracles.error(_spectrum(GCCA(dim=positive, tau=tau).fit(views)), rho[:positive]) < 1e-7


@pytest.mark.parametrize("kind", TYPES)
def test_gcca_takes_every_type(kind: str) -> None:
    whole = [np.random.default_rng(j).integers(0, 256, (50, dim)).astype(float) for j, dim in enumerate((5, 3))]
    views = [cast(X, kind) for X in whole]
    expected, rho = oracles.gcca(whole, whole, 3, tau=1.0)
    meta = GCCA(dim=3, tau=1.0).fit(views)
    assert oracles.error(_spectrum(meta), rho) < 1e-7
    assert oracles.gram_error(meta.transform(views), expected) < 1e-5


@pytest.mark.parametrize("J", [2, 3, 4])
def test_identical_views_correlate_at_one_with_each_of_the_others(J: int) -> None:
    X = make_views(100, (5,))[0]
    factors = [(-1) ** j * (j + 1.0) for j in range(J)]
    meta = GCCA(dim=5, tau=0.0).fit([factor * X + j for j, factor in enumerate(factors)])
    np.testing.assert_allclose(_spectrum(meta), J - 1, rtol=1e-10)


@pytest.mark.parametrize(("n", "dims"), [(100, (6, 4)), (50, (3, 9)), (40, (5, 5))])
def test_two_views_without_regularisation_are_classical_cca(n: int, dims: tuple[int, int]) -> None:
    X, Y = make_views(n, dims)
    meta = GCCA(dim=min(dims), tau=0.0).fit([X, Y])
    assert oracles.error(_spectrum(meta), oracles.cca_correlations(X, Y)) < 1e-10
    # The two projections of a dimension really correlate at rho.
    x, y = meta.transform([X, None]), meta.transform([None, Y])
    found = [np.corrcoef(x[:, k], y[:, k])[0, 1] for k in range(min(dims))]
    assert oracles.error(np.array(found), _spectrum(meta)) < 1e-5


@pytest.mark.parametrize("tau", [0.0, 1.0, 10.0])
def test_theta_has_length_one_in_the_regularised_metric(tau: float) -> None:
    views = make_views(100, (6, 4, 3))
    meta = GCCA(dim=6, tau=tau).fit(views)
    theta = _theta(meta)
    A, B = oracles.blocks(views, tau)
    assert oracles.error(theta.T @ B @ theta, np.eye(6)) < 1e-5
    assert oracles.error(theta.T @ A @ theta, np.diag(_spectrum(meta))) < 1e-5


def test_the_training_vectors_have_mean_zero() -> None:
    views = make_views(500, (7, 5))
    Z = GCCA(dim=6, tau=1.0).fit(views).transform(views).astype(np.float64)
    assert np.abs(Z.mean(axis=0)).max() < 1e-6 * np.abs(Z).max()


def test_permuting_the_members_leaves_the_gram_matrix() -> None:
    a, b, c = make_views(80, (6, 4, 9))
    Z = GCCA(dim=4).fit([a, b, c]).transform([a, b, c])
    permuted = GCCA(dim=4).fit([c, a, b]).transform([c, a, b])
    assert oracles.gram_error(permuted, Z) < 1e-5


@pytest.mark.parametrize("tau", [0.0, 1.0, 10.0])
def test_rotating_scaling_and_moving_a_view_changes_nothing(tau: float) -> None:
    a, b, c = make_views(80, (6, 4, 9))
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0]
    Z = GCCA(dim=4, tau=tau).fit([a, b, c]).transform([a, b, c])
    for other in (a @ Q, 1e-3 * a, 1e3 * a, -a, a + 7):
        same = GCCA(dim=4, tau=tau).fit([other, b, c]).transform([other, b, c])
        assert oracles.gram_error(same, Z) < 1e-5


def test_inputs_are_not_length_normalised() -> None:
    a, b = make_views(80, (6, 4))
    scales = np.random.default_rng(0).uniform(0.1, 10, (80, 1))
    assert oracles.error(_spectrum(GCCA(dim=3).fit([scales * a, b])), _spectrum(GCCA(dim=3).fit([a, b]))) > 1e-2


def test_rho_falls_as_tau_grows() -> None:
    views = make_views(80, (6, 4, 9))
    tops = [_spectrum(GCCA(dim=1, tau=tau).fit(views))[0] for tau in (0.0, 1e-2, 1.0, 10.0, 100.0)]
    assert all(low < high for low, high in zip(tops[1:], tops[:-1], strict=True))
    assert tops[0] <= 2


def test_the_dimension_is_that_of_the_largest_view_and_tau_ten_by_default() -> None:
    views = make_views(80, (6, 9, 4))
    meta = GCCA().fit(views)
    assert meta.dim == 9
    np.testing.assert_array_equal(meta.transform(views), GCCA(dim=9, tau=10.0).fit(views).transform(views))


@pytest.mark.parametrize("tau", [0.0, 10.0])
@pytest.mark.parametrize(("n", "dims", "kind", "ranks"), [
    (50, (6, 4), "full", [6, 4]),
    (50, (6, 4), "deficient", [3, 4]),
    (50, (6, 4), "duplicated columns", [5, 4]),
    (50, (6, 4), "constant column", [5, 4]),
    (5, (6, 3), "full", [4, 3]),
    (2, (6, 4), "full", [1, 1]),
])  # fmt: skip
def test_too_many_dimensions_are_refused_and_the_largest_named_works(
    n: int, dims: tuple[int, ...], kind: str, ranks: list[int], tau: float
) -> None:
    views, largest = make_views(n, dims, kind), sum(ranks)
    for d in (largest + 1, 100):
        with pytest.raises(DimensionError) as caught:
            GCCA(dim=d, tau=tau).fit(views)
        assert str(caught.value).endswith(f"{n} sentences in views of rank {ranks} support at most dim={largest}")
    assert GCCA(dim=largest, tau=tau).fit(views).transform(views).shape == (n, largest)


def test_one_view_alone_cannot_correlate() -> None:
    with pytest.raises(ViewError, match="at least two"):
        GCCA().fit(make_views(20, (4,)))


@pytest.mark.parametrize(
    ("weights", "dims"), [("equal", (4,)), ("reliability", (4,)), ((1.0,), (4,)), ((1.0, 0.0), (4, 3))]
)
def test_a_single_member_is_refused_before_anything_is_encoded(weights: Weights, dims: tuple[int, ...]) -> None:
    GCCA(weights="reliability").check((4, 3))
    with pytest.raises(ViewError, match="at least two"):
        GCCA(weights=weights).check(dims)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
def test_a_constant_view_is_named(value: float) -> None:
    with pytest.raises(ViewError, match="view 1 is the same in every row"):
        GCCA(dim=1).fit([*make_views(20, (4,)), np.full((20, 3), value)])


def test_a_constant_view_is_named_in_merged_moments_too() -> None:
    generator = np.random.default_rng(0)
    parts = [Moments.of(np.hstack([generator.standard_normal((n, 2)), np.full((n, 2), 0.1)])) for n in (3, 700)]
    with pytest.raises(ViewError, match="view 1 is the same in every row"):
        GCCA(dim=1).solve(parts[0] + parts[1], [2, 2])


@pytest.mark.parametrize(("values", "precision"), [(1e200, "float64"), (1e30, "float32")])
def test_values_whose_squares_overflow_are_refused(values: float, precision: str) -> None:
    a, b = make_views(20, (4, 3))
    with pytest.raises(ViewError, match=f"too large for {precision}"):
        GCCA(dim=1).fit([a, values * b], precision=precision)  # type: ignore[arg-type] # one of the words it takes


@pytest.mark.parametrize("dims", [(8, 6), (5, 5), (4, 3, 6)])
def test_dimensions_beyond_agreement_are_counted_apart(dims: tuple[int, ...]) -> None:
    views = make_views(500, dims)
    rho = _spectrum(GCCA(dim=sum(dims), tau=1.0).fit(views))
    assert abs(rho.sum()) < 1e-9
    assert positive(rho) < sum(dims)
    assert (rho[: positive(rho)] > 1e-9).all()
    assert (rho[positive(rho) :] < 1e-9).all()
    if (
        len(dims) == 2
    ):  # two views correlate in no more directions than the smaller has; the others are zero or mirrored
        assert positive(rho) == min(dims)


@pytest.mark.parametrize("tau", [-1.0, -1e-9, math.nan, math.inf, pytest.param(10**400, id="huge"), "10", None])
def test_a_tau_that_is_none_is_refused(tau: float) -> None:
    with pytest.raises(InputError, match=f"tau must be a number that is not negative, not {tau!r}"):
        GCCA(tau=tau)


@pytest.mark.parametrize("dim", [0, -1, 2.5, "3"])
def test_a_dimension_that_is_none_is_refused(dim: int) -> None:
    with pytest.raises(InputError, match="dim must be a whole number of at least 1"):
        GCCA(dim=dim)


def _theta(meta: Meta) -> Array:
    """[D, d] the projections, taken out of what they do to unit vectors."""
    zero = [np.zeros((1, dim)) for dim in meta.view_dims]
    parts = []
    for j, dim in enumerate(meta.view_dims):
        views = [np.eye(dim) if i == j else np.zeros((dim, d)) for i, d in enumerate(meta.view_dims)]
        parts.append(meta.transform(views).astype(np.float64) - meta.transform(zero))
    return np.vstack(parts)
