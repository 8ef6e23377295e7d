"""Maps between views: each kind against its obvious formula, and the figures against views whose relation is known."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from ensembed.errors import InputError, ViewError
from ensembed.methods.encoder_map_fitting import apply_projection, fit_map
from ensembed.methods.encoder_maps import KINDS, Blend, Canonical, LocalRidge, MapKind, Procrustes, ReducedRank, Ridge
from ensembed.methods.meta import Local
from ensembed.numerics.moments import Moments
from ensembed.numerics.regions import find_regions, nearest_region
from ensembed.numerics.row_matrices import unit_rows

CHANCE = np.random.default_rng(0)
N, D, E = 400, 12, 9
X = unit_rows(CHANCE.standard_normal((N, D)) @ np.diag(np.linspace(2, 0.3, D)) + 0.3).astype(np.float32)
Y = unit_rows(X @ CHANCE.standard_normal((D, E)) + 0.2 * CHANCE.standard_normal((N, E)) + 0.5).astype(np.float32)


def solved(kind: MapKind, X: NDArray[np.float32], Y: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the rows that a map fitted on all rows gives of the same rows."""
    centres = find_regions(X, kind.regions)
    own = nearest_region(X, centres)
    moments = [Moments.of_views([X[own == k], Y[own == k]]) for k in range(kind.regions)]
    return np.asarray(apply_projection(kind.solve(moments, X.shape[1], centres), X))


def ridge_oracle(strength: float) -> NDArray[np.float64]:
    """Ridge regression as a least squares problem with more rows."""
    x, y = X.astype(float) - X.mean(0, float), Y.astype(float) - Y.mean(0, float)
    penalty = np.sqrt(strength * np.square(x).sum() / D)
    W = np.linalg.lstsq(np.vstack([x, penalty * np.eye(D)]), np.vstack([y, np.zeros((D, E))]), rcond=None)[0]
    return np.asarray(Y.mean(0, float) + x @ W)


@pytest.mark.parametrize("strength", [1e-6, 0.03, 1.0])
def test_ridge_is_least_squares_with_a_penalty(strength: float) -> None:
    np.testing.assert_allclose(solved(Ridge(strength), X, Y), ridge_oracle(strength), atol=2e-5)


@pytest.mark.parametrize("columns", [E, D, D + 5])
def test_procrustes_finds_a_rotation_and_its_factor_for_unequal_dimensions(columns: int) -> None:
    Q = np.linalg.qr(CHANCE.standard_normal((max(D, columns), max(D, columns))))[0]
    rotated = (0.7 * X @ Q[:D, :columns] + 0.1).astype(np.float32)
    if columns >= D:  # padded: nothing is lost
        np.testing.assert_allclose(solved(Procrustes(), X, rotated), rotated, atol=1e-5)
    W = Procrustes().solve([Moments.of_views([X, rotated])], D, find_regions(X, 1)).layers[0].matrix.astype(float)
    square = W.T @ W if columns < D else W @ W.T
    np.testing.assert_allclose(square, square[0, 0] * np.eye(min(D, columns)), atol=1e-6)


def test_the_kinds_between_have_their_neighbours_as_limits() -> None:
    np.testing.assert_allclose(solved(Blend(0.03, 1.0), X, Y), solved(Ridge(0.03), X, Y), atol=1e-6)
    np.testing.assert_allclose(solved(Blend(0.03, 0.0), X, Y), solved(Procrustes(), X, Y), atol=1e-6)
    np.testing.assert_allclose(solved(ReducedRank(0.03, E), X, Y), solved(Ridge(0.03), X, Y), atol=1e-5)
    np.testing.assert_allclose(solved(Canonical(1e-9, 1.0), X, Y), solved(Ridge(1e-9), X, Y), atol=1e-4)
    x, y = X.astype(float) - X.mean(0, float), Y.astype(float) - Y.mean(0, float)
    (wx, Vx), (wy, Vy) = np.linalg.eigh(x.T @ x / N), np.linalg.eigh(y.T @ y / N)
    back, forth = ((V / np.sqrt(w + 0.3 * w.mean())) @ V.T for w, V in ((wx, Vx), (wy, Vy)))
    U, R, Vt = np.linalg.svd(back @ (x.T @ y / N) @ forth, full_matrices=False)
    expected = Y.mean(0, float) + x @ back @ (U * R**0.25) @ Vt @ (Vy * np.sqrt(wy)) @ Vy.T
    np.testing.assert_allclose(solved(Canonical(0.3, 0.25), X, Y), expected, atol=1e-5)
    alike = solved(LocalRidge(0.03, 1e9, 3), X, Y)  # no region may differ from the common map
    np.testing.assert_allclose(alike, solved(Ridge(0.03), X, Y), atol=1e-3)
    assert np.linalg.matrix_rank(solved(ReducedRank(0.03, 2), X, Y) - Y.mean(0), tol=1e-3) == 2


def test_regions_find_what_no_linear_map_can() -> None:
    bent = unit_rows(np.abs(X - X.mean(0)) @ CHANCE.standard_normal((D, E))).astype(np.float32)
    errors = [np.square(solved(kind, X, bent) - bent).sum() for kind in (Ridge(0.001), LocalRidge(0.001, 5.0, 6))]
    assert errors[1] < 0.9 * errors[0]


def test_rows_do_not_depend_on_their_batch() -> None:
    moments, centres = [Moments.of_views([X[:200], Y[:200]]), Moments.of_views([X[200:], Y[200:]])], find_regions(X, 2)
    local = LocalRidge(0.03, 50.0, 2).solve(moments, D, centres)
    assert isinstance(local, Local)
    whole = apply_projection(local, X)
    parts = np.vstack([apply_projection(local, X[i : i + 7]) for i in range(0, N, 7)])
    np.testing.assert_allclose(parts, whole, atol=1e-6)
    np.testing.assert_array_equal(apply_projection(local.truncated(3), X[:5]), whole[:5, :3])
    with pytest.raises(InputError, match="--kind ridge"):
        local.as_network(E)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_views_that_say_nothing_are_an_error(kind: MapKind) -> None:
    flat = np.ones((50, D), np.float32)
    with pytest.raises(ViewError, match="nothing to learn"):
        kind.solve([Moments.of_views([flat, Y[:50]])] * kind.regions, D, find_regions(X, kind.regions))


def test_the_figure_is_one_for_a_rotation_and_chance_for_noise() -> None:
    Q = np.linalg.qr(CHANCE.standard_normal((D, D)))[0].astype(np.float32)
    exact = fit_map(X, X @ Q)
    assert exact.kind == Procrustes()  # the simplest of several that are as good
    assert exact.translated.recall_10.value > 0.99
    assert exact.unlike.recall_10.value > 0.99
    assert exact.kept.recall_10.value > 0.99
    assert exact.translated.correlation.low > 0.999
    noise = fit_map(X, CHANCE.standard_normal((N, 40)).astype(np.float32))
    assert noise.translated.recall_10.value < 0.06  # 10 of 399, although in-sample it would be far more
    assert noise.translated.itself.value < 0.05
    assert noise.translated.recall_10.low <= noise.translated.recall_10.value <= noise.translated.recall_10.high


def test_text_unlike_the_sample_is_translated_worse() -> None:
    """Each region of the source has a relation of its own, which a map that never saw the region cannot know."""
    centres = np.eye(4, 24) * 6
    which = np.arange(800) % 4
    rows = unit_rows(centres[which] + CHANCE.standard_normal((800, 24))).astype(np.float32)
    turns = [np.linalg.qr(CHANCE.standard_normal((24, 24)))[0] for _ in range(4)]
    turned = np.array([row @ turns[k] for row, k in zip(rows, which, strict=True)], np.float32)
    fitted = fit_map(rows, turned)
    assert fitted.kind.regions > 1
    assert fitted.unlike.recall_10.high < fitted.translated.recall_10.low
    assert fitted.translated.expected(100_000) < fitted.translated.recall_10.value


def test_rows_that_all_point_one_way_can_be_mapped() -> None:
    lengths = np.abs(CHANCE.standard_normal((N, 1))).astype(np.float32)
    fitted = fit_map(lengths, np.hstack([lengths, 1 - lengths]), kinds=(Ridge(1e-6),))
    assert fitted.unlike == fitted.translated  # there is no text unlike the others


def test_too_few_sentences_are_an_error() -> None:
    with pytest.raises(InputError, match="150 distinct sentences are too few"):
        fit_map(X[:150], Y[:150])


def test_parameters_may_be_numbers_of_numpy() -> None:
    kind = LocalRidge(np.float32(0.5), np.float64(10), np.int64(2))
    assert json.loads(json.dumps(kind.to_json())) == {"kind": "local", "strength": 0.5, "own": 10.0, "count": 2}
