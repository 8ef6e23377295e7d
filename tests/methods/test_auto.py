"""The recommended method."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracles
import pytest
from method_views import KINDS, SHAPES, Array, make_views

from ensembed.errors import DimensionError, InputError, ViewError
from ensembed.methods import SVD, Auto
from ensembed.methods.meta import Network
from ensembed.numerics.moments import Moments
from ensembed.reliability import reliability
from ensembed.reliability.sufficiency import SoftWhitening
from ensembed.reliability.trust_estimate import sample_rows

pytestmark = pytest.mark.usefixtures("one_thread")


def weights_for(dims: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(1 / (1 + j) for j in range(len(dims)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "dims"), SHAPES)
def test_it_projects_on_the_leading_directions_of_the_second_moment(n: int, dims: tuple[int, ...], kind: str) -> None:
    views, weights = make_views(n, dims, kind), weights_for(dims)
    new = make_views(11, dims, seed=1)
    meta = Auto(3, weights).fit(views)
    vectors, spectrum = oracles.auto(views, new, weights, 3)
    assert oracles.gram_error(meta.transform(new), vectors) < 1e-5
    assert meta.spectrum is not None
    assert oracles.error(meta.spectrum, spectrum) < 1e-9
    assert meta.rows == n


@pytest.mark.parametrize(("n", "dims"), SHAPES)
def test_as_many_dimensions_as_there_are_keep_all_dot_products(n: int, dims: tuple[int, ...]) -> None:
    views, weights = make_views(n, dims), weights_for(dims)
    rank = min(n, sum(dims))
    whole = oracles.weighted_conc(views, weights)
    assert oracles.gram_error(Auto(rank, weights).fit(views).transform(views), whole) < 1e-5
    assert oracles.gram_error(Auto(None, weights).fit(views).transform(views), whole) < 1e-6


def test_no_projection_of_that_size_keeps_dot_products_better() -> None:
    views = make_views(200, (12, 9))
    weights = (1.0, 0.4)
    whole = oracles.weighted_conc(views, weights)

    def lost(Z: Array) -> float:
        return float(np.linalg.norm(whole @ whole.T - np.asarray(Z, float) @ np.asarray(Z, float).T))

    mine = lost(Auto(4, weights).fit(views).transform(views))
    assert mine < lost(SVD(4, weights).fit(views).transform(views))
    for seed in range(5):
        Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((21, 4)))[0]
        assert mine < lost(whole @ Q)


@pytest.mark.parametrize(("n", "dims", "rank"), [(50, (4, 3), 7), (5, (9, 7), 5)])
def test_more_dimensions_than_the_data_supports_are_refused(n: int, dims: tuple[int, ...], rank: int) -> None:
    views = make_views(n, dims)
    with pytest.raises(DimensionError, match=f"{n} sentences with {sum(dims)} columns support at most dim={rank}") as e:
        Auto(rank + 1, (1, 1)).fit(views)
    assert e.value.supported == rank
    assert Auto(rank, (1, 1)).fit(views).dim == rank
    views[1][:] = views[0][:, : dims[1]] = 2.0
    with pytest.raises(DimensionError, match=r"auto with dim=40: .* support at most dim="):
        Auto(40, (1, 1)).fit(views)


def test_a_corpus_of_one_sentence_many_times_has_one_dimension() -> None:
    views = [np.ones((9, 3)), np.ones((9, 4))]
    assert Auto(1, (1, 1)).fit(views).dim == 1
    with pytest.raises(DimensionError, match="support at most dim=1"):
        Auto(2, (1, 1)).fit(views)
    with pytest.raises(ViewError, match="every row of the views is zero"):
        Auto(1, (1, 1)).fit([np.zeros((9, 3)), np.zeros((9, 4))])


def test_moments_of_halves_are_enough() -> None:
    views, weights = make_views(100, (6, 4)), (1.0, 0.5)
    halves = [Moments.of_views([v[part] for v in views], normalize=True) for part in (slice(50), slice(50, None))]
    merged = Auto(4, weights).solve(halves[0] + halves[1], [6, 4])
    assert oracles.error(merged.transform(views), Auto(4, weights).fit(views).transform(views)) < 1e-5
    assert Auto(None, weights).solve(halves[0], [6, 4]).dim == 10


@pytest.mark.parametrize("dim", [0, -1, 2.5, "8"])
def test_what_is_no_dimension_is_refused(dim: Any) -> None:  # noqa: ANN401 - none of them is one
    with pytest.raises(InputError, match=f"dim must be a whole number of at least 1, not {dim!r}"):
        Auto(dim)


def whitened_conc(views: list[Array], new: list[Array], weights: tuple[float, ...], whitened: tuple[int, ...]) -> Array:
    """The formula: every view of length one, some softly whitened on the corpus, side by side."""
    parts = []
    for j, (view, other, weight) in enumerate(zip(views, new, weights, strict=True)):
        X, Y = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (view, other))
        parts.append(np.sqrt(weight / max(weights)) * (SoftWhitening.of(X).apply(Y) if j in whitened else Y))
    return np.hstack(parts)


@pytest.mark.parametrize(("n", "dims"), SHAPES)
def test_whitened_members_are_those_of_the_formula(n: int, dims: tuple[int, ...]) -> None:
    views, new, weights = make_views(n, dims), make_views(n, dims, seed=1), weights_for(dims)
    whitened = tuple(range(1, len(dims)))
    expected = whitened_conc(views, new, weights, whitened)
    meta = Auto(None, weights, whitened).fit(views)
    assert meta.dim == sum(dims)
    assert oracles.error(meta.transform(new), expected) < 1e-5
    d = min(3, n, sum(dims))
    corpus = whitened_conc(views, views, weights, whitened)
    V = np.linalg.svd(corpus, full_matrices=False)[2][:d].T
    short = Auto(d, weights, whitened).fit(views)
    assert oracles.gram_error(short.transform(new), expected @ V) < 1e-5
    assert short.spectrum is not None
    assert oracles.error(short.spectrum, np.linalg.svd(corpus)[1][:d] ** 2 / n) < 1e-6


def test_by_reliability_all_but_the_best_are_whitened() -> None:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((60, 12))[np.arange(300) % 60] + 0.5 * rng.standard_normal((300, 12))
    views = [truth[:, :known] + 0.2 * rng.standard_normal((300, known)) for known in (8, 12)]
    found = reliability(views)
    meta = Auto().fit(views)
    assert found.best == meta.method["trusted"] == 1
    assert meta.method["whitened"] == [0]
    assert meta.method["weights"] == found.whitened_weights.tolist()
    assert [isinstance(one, Network) for one in meta.projections] == [True, False]
    assert oracles.error(meta.transform(views), Auto().trusting(found).fit(views).transform(views)) == 0


def test_what_cannot_be_whitened() -> None:
    views = make_views(50, (4, 3))
    with pytest.raises(InputError, match="whitened has place 2, but there are 2 members"):
        Auto(weights=(1, 1), whitened=(2,)).fit(views)
    for weights in ("equal", "reliability", (1, 1)):
        with pytest.raises(InputError, match="whitened has place 2, but there are 2 members"):
            Auto(weights=weights, whitened=(2,)).check([3, 2])
    Auto(weights="equal", whitened=(1,)).check([3, 2])
    with pytest.raises(InputError, match="a place of `whitened` must be a whole number of at least 0, not -1"):
        Auto(weights=(1, 1), whitened=(-1,))
    with pytest.raises(InputError, match="have moments of their own: call `fit`"):
        Auto(2, (1, 1), (1,)).solve(Moments.of_views(views), [4, 3])
    left_out = Auto(weights=(1, 0), whitened=(1,)).fit(views)
    assert left_out.dim == 4


def test_it_has_no_knobs_to_turn() -> None:
    assert Auto() == Auto(dim=None, weights="reliability")
    assert Auto().to_json() == {"name": "auto", "dim": None, "weights": "reliability"}


def test_a_row_that_no_whitening_was_estimated_on_is_named_by_its_number() -> None:
    views = make_views(12_000, (4, 3))
    sampled = sample_rows(12_000, None, 10_000, 0)
    bad = next(row for row in range(9_000, 12_000) if row not in sampled)
    views[1][bad] = np.nan
    with pytest.raises(ViewError, match=f"view 1 holds NaN or Inf in row {bad};"):
        Auto(dim=3, weights=(1.0, 0.5), whitened=(1,)).fit(views)


def test_rows_are_counted_if_only_whitenings_were_estimated_on_them() -> None:
    views = make_views(60, (6, 4))
    assert Auto(weights=(1.0, 0.5), whitened=(1,)).fit(views).rows == 60
    assert Auto(weights=(1.0, 0.5)).fit(views).rows == 0
