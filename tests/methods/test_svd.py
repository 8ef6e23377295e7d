"""SVD against numpy's SVD of the centred matrix."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
from method_views import KINDS, SHAPES, TYPES, best_cut, cast, make_views

from ensembed.errors import DimensionError, InputError, ViewError
from ensembed.methods import SVD
from ensembed.numerics.moments import Moments


def _rank(variances: np.ndarray) -> int:
    return int(np.count_nonzero(variances > 1e-11 * variances[0]))


@pytest.mark.parametrize(("seed", "dtype"), [(0, "float32"), (1, "float64")])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "dims"), SHAPES)
def test_svd_is_that_of_the_centred_concatenation(
    n: int, dims: tuple[int, ...], kind: str, seed: int, dtype: str
) -> None:
    train = [view.astype(dtype) for view in make_views(n, dims, kind, seed)]
    new = [view.astype(dtype) for view in make_views(11, dims, "zero row", seed + 10)]
    slow = [(views, *oracles.svd(train, views, sum(dims))) for views in (train, new)]
    variances = slow[0][2]
    rank = _rank(variances)
    for d in {1, best_cut(variances[:rank]), rank}:
        meta = SVD(dim=d).fit(train)
        assert meta.spectrum is not None
        for views, all_columns, all_variances in slow:
            expected, spectrum = all_columns[:, :d], all_variances[:d]
            assert oracles.error(meta.spectrum, spectrum) < (1e-6 if dtype == "float32" else 1e-12)
            assert oracles.gram_error(meta.transform(views), expected) < 1e-5
            if oracles.separated(spectrum):
                assert oracles.error_up_to_signs(meta.transform(views), expected) < 1e-5


@pytest.mark.parametrize("kind", TYPES)
def test_svd_takes_every_type(kind: str) -> None:
    whole = [np.random.default_rng(j).integers(0, 256, (50, dim)).astype(float) for j, dim in enumerate((5, 3))]
    views = [cast(X, kind) for X in whole]
    expected, spectrum = oracles.svd(whole, whole, 8)
    meta = SVD(dim=8).fit(views)
    assert meta.spectrum is not None
    assert oracles.error(meta.spectrum, spectrum) < 1e-6
    assert oracles.gram_error(meta.transform(views), expected) < 1e-5


def test_svd_of_one_view_of_unit_rows_is_pca() -> None:
    X = oracles.unit(make_views(100, (6,))[0])
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    meta = SVD(dim=3).fit([X])
    assert meta.spectrum is not None
    assert oracles.error(meta.spectrum, values[:-4:-1]) < 1e-10
    assert oracles.error_up_to_signs(meta.transform([X]), (X - X.mean(axis=0)) @ vectors[:, :-4:-1]) < 1e-6


def test_the_training_vectors_have_mean_zero_and_the_spectrum_as_uncorrelated_variances() -> None:
    views = make_views(500, (7, 5))
    meta = SVD(dim=6).fit(views)
    Z = meta.transform(views).astype(np.float64)
    assert meta.spectrum is not None
    assert np.abs(Z.mean(axis=0)).max() < 1e-6
    assert oracles.error(Z.T @ Z / 500, np.diag(meta.spectrum)) < 1e-6


def test_permuting_the_members_leaves_the_gram_matrix() -> None:
    a, b, c = make_views(80, (6, 4, 9))
    Z = SVD(dim=5).fit([a, b, c]).transform([a, b, c])
    permuted = SVD(dim=5).fit([c, a, b]).transform([c, a, b])
    assert oracles.gram_error(permuted, Z) < 1e-6


def test_scaling_rows_changes_nothing_because_they_are_normalised_first() -> None:
    a, b = make_views(80, (6, 4))
    scales = np.random.default_rng(0).uniform(0.1, 10, (80, 1))
    assert (
        oracles.error(SVD(dim=5).fit([scales * a, b]).transform([a, b]), SVD(dim=5).fit([a, b]).transform([a, b]))
        < 1e-5
    )


def test_the_dimension_is_that_of_the_largest_view_by_default() -> None:
    views = make_views(80, (6, 9, 4))
    meta = SVD().fit(views)
    assert meta.dim == 9
    assert meta.rows == 80
    assert meta.view_dims == (6, 9, 4)


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize(("n", "dims", "kind", "largest"), [
    (50, (6, 4), "full", 10),
    (50, (6, 4), "deficient", 7),
    (50, (6, 4), "duplicated columns", 9),
    (50, (6, 4), "zero column", 9),
    (5, (6, 4), "full", 4),
    (2, (6, 4), "full", 1),
])  # fmt: skip
def test_too_many_dimensions_are_refused_and_the_largest_named_works(
    n: int, dims: tuple[int, ...], kind: str, largest: int, precision: str
) -> None:
    views = make_views(n, dims, kind)
    for d in (largest + 1, 100):
        with pytest.raises(DimensionError, match=f"svd with dim={d}: {n} .* at most dim={largest}$"):
            SVD(dim=d).fit(views, precision=precision)  # type: ignore[arg-type] # one of the words it takes
    meta = SVD(dim=largest).fit(views, precision=precision)  # type: ignore[arg-type] # one of the words it takes
    assert np.linalg.matrix_rank(meta.transform(views)) == largest


def test_the_default_dimension_is_refused_too_when_the_data_does_not_support_it() -> None:
    with pytest.raises(DimensionError, match="at most dim=3"):
        SVD().fit(make_views(4, (6, 4)))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6, np.float32(0.1)])
def test_rows_that_are_all_the_same_teach_nothing(value: float) -> None:
    with pytest.raises(ViewError, match="every row of the views is the same"):
        SVD(dim=1).fit([np.full((99, 3), value), np.full((99, 2), -value)])


def test_rows_that_differ_in_length_only_teach_nothing() -> None:
    scales = np.random.default_rng(0).uniform(0.1, 10, 5000)
    with pytest.raises(ViewError, match="every row of the views is the same"):
        SVD(dim=1).fit([np.outer(scales, [0.3, -1.7, 2.2]).astype(np.float32)])


def test_constant_rows_in_merged_moments_teach_nothing() -> None:
    halves = [Moments.of(np.full((n, 2), 0.1)) for n in (3, 700)]
    with pytest.raises(ViewError, match="every row of the views is the same"):
        SVD(dim=1).solve(halves[0] + halves[1], [2])


@pytest.mark.parametrize("dim", [0, -1, 2.5, "3", float("nan")])
def test_a_dimension_that_is_none_is_refused(dim: int) -> None:
    with pytest.raises(InputError, match="dim must be a whole number of at least 1"):
        SVD(dim=dim)
