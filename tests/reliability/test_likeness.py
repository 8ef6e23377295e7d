"""How alike encoders are: the formulas, what must not change them, and what has no answer."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ensembed.reliability.likeness
import ensembed.reliability.trust_estimate
from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders import DemoEncoder
from ensembed.errors import InputError, ViewError
from ensembed.reliability.likeness import Comparison, compare
from ensembed.views import ViewStore

Array: TypeAlias = NDArray[Any]
MEASURES = ("cka", "cosines", "overlap")
QUICK = settings(max_examples=25)


def _normal(seed: int, n: int, d: int) -> Array:
    return np.random.default_rng(seed).standard_normal((n, d))


def _related(seed: int, n: int = 40, dims: tuple[int, ...] = (6, 5, 9)) -> list[Array]:
    """Views with something in common, off centre, of uneven rows and scales."""
    common = _normal(seed, n, 4)
    return [common @ _normal(seed + 1 + j, 4, d) + 0.5 * _normal(seed + 9 + j, n, d) + j for j, d in enumerate(dims)]


def _matrices(comparison: Comparison) -> Array:
    return np.stack([getattr(comparison, measure) for measure in MEASURES])


@pytest.mark.parametrize(("n", "dims"), [(4, (3, 2)), (5, (9, 2)), (9, (4, 20)), (12, (3, 3))])
def test_the_figures_are_those_of_the_formulas(n: int, dims: tuple[int, int]) -> None:
    views = _related(n, n, dims)
    comparison = compare(views, neighbours=2)
    for i, j in product(range(2), repeat=2):
        assert comparison.cka[i, j] == pytest.approx(oracles.cka(views[i], views[j]), abs=1e-9)
        assert comparison.cosines[i, j] == pytest.approx(oracles.cosine_correlation(views[i], views[j]), abs=1e-8)
        assert comparison.overlap[i, j] == pytest.approx(oracles.neighbour_overlap(views[i], views[j], 2), abs=1e-12)


def test_ties_go_to_the_first_rows_as_in_the_formula() -> None:
    views = [np.random.default_rng(seed).integers(0, 2, (30, 3)).astype(np.float32) + 0.5 for seed in range(2)]
    for k in (1, 3, 29):
        comparison = compare(views, neighbours=k).overlap[0, 1]
        assert comparison == pytest.approx(oracles.neighbour_overlap(views[0], views[1], k), abs=1e-12)
    assert comparison == 1.0  # all others are neighbours


def test_the_number_of_blocks_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    views = _related(3, 50)
    whole = compare(views)
    monkeypatch.setattr(ensembed.reliability.likeness, "_COSINES", 3 * 50 * 7)
    monkeypatch.setattr(ensembed.reliability.likeness, "_BLOCK", 6)
    monkeypatch.setattr(ensembed.reliability.trust_estimate, "_BLOCK", 6)
    np.testing.assert_allclose(_matrices(compare(views)), _matrices(whole), atol=1e-12)


@QUICK
@given(seed=st.integers(0, 10**6), n=st.integers(4, 60), k=st.integers(1, 3), dims=st.tuples(*[st.integers(1, 9)] * 3))
def test_symmetric_bounded_and_one_on_the_diagonal(seed: int, n: int, k: int, dims: tuple[int, ...]) -> None:
    comparison = compare(_related(seed, n, dims), neighbours=k)
    for matrix, low in zip(_matrices(comparison), (-1, -1, 0), strict=True):
        np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
        assert (matrix >= low).all()
        assert (matrix <= 1).all()
        for j, value in enumerate(matrix.diagonal()):
            # In one dimension rows of length one are all alike, or nearly so.
            assert value == pytest.approx(1.0, abs=1e-9) or (dims[j] == 1 and value == 0)


@QUICK
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-20, 0.1, 3.0, 1e20]))
def test_rotating_and_scaling_a_view_changes_nothing(seed: int, scale: float) -> None:
    X, Y, _ = _related(seed)
    rotation, _ = np.linalg.qr(_normal(seed, Y.shape[1], Y.shape[1]))
    expected = compare([X, Y], neighbours=5)
    np.testing.assert_allclose(
        _matrices(compare([X, scale * (Y @ rotation)], neighbours=5)), _matrices(expected), atol=1e-9
    )
    lengths = np.random.default_rng(seed).uniform(0.1, 10, (len(Y), 1))  # each row its own: only cosines count
    np.testing.assert_allclose(_matrices(compare([X, lengths * Y], neighbours=5)), _matrices(expected), atol=1e-9)


@QUICK
@given(seed=st.integers(0, 10**6), order=st.permutations(range(3)))
def test_permuting_encoders_permutes_the_matrices(seed: int, order: list[int]) -> None:
    views = _related(seed)
    comparison = compare([views[j] for j in order], names=[f"n{j}" for j in order])
    expected = _matrices(compare(views))[:, order][:, :, order]
    np.testing.assert_allclose(_matrices(comparison), expected, atol=1e-12)
    assert comparison.names == tuple(f"n{j}" for j in order)


@QUICK
@given(seed=st.integers(0, 10**6))
def test_permuting_sentences_changes_nothing(seed: int) -> None:
    views = _related(seed)
    order = np.random.default_rng(seed).permutation(len(views[0]))
    np.testing.assert_allclose(_matrices(compare([X[order] for X in views])), _matrices(compare(views)), atol=1e-9)


@pytest.mark.parametrize("centre", [0.0, 3.0])
def test_views_without_anything_in_common_are_near_zero_and_chance(centre: float) -> None:
    """At n = 2 d, where the biased CKA of random views is far from 0."""
    d, n, k = 200, 400, 10
    views = [_normal(seed, n, d) + centre for seed in range(4)]
    centred = [X - X.mean(axis=0) for X in views]
    biased = np.sum((centred[0].T @ centred[1]) ** 2) / np.prod([np.linalg.norm(X.T @ X) for X in centred[:2]])
    assert biased > 0.3
    comparison = compare(views, neighbours=k)
    off = ~np.eye(4, dtype=bool)
    assert np.abs(comparison.cka[off]).max() < 0.02
    # Off centre, how far along the common direction a sentence lies moves all its cosines: n draws, not n squared.
    assert np.abs(comparison.cosines[off]).max() < (0.1 if centre else 0.02)
    assert comparison.chance == pytest.approx(k / (n - 1))
    assert np.abs(comparison.overlap[off] - comparison.chance).max() < 0.01


def test_the_debiased_estimate_does_not_move_with_the_number_of_rows() -> None:
    """Half of the columns in common: CKA is 1/2 whatever n is."""
    X = _normal(0, 6000, 120)
    for n in (160, 1000, 6000):
        comparison = compare([X[:n, :80], X[:n, 40:]], rows=100)
        assert comparison.cka[0, 1] == pytest.approx(0.5, abs=0.03)


def test_known_examples() -> None:
    """The corners of a square: one column sees left and right, the other up and down."""
    square = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    left, up = square[:, :1], square[:, 1:]
    comparison = compare([left, up, square, 7 * left], neighbours=1)
    # U-centred, every pair of corners is +1 on the side it shares, and the diagonals are -1 for both.
    assert comparison.cka[0, 3] == pytest.approx(1.0)
    assert comparison.cosines[0, 3] == pytest.approx(1.0)
    assert comparison.cosines[0, 1] == pytest.approx(-0.5)
    assert comparison.cka[0, 1] == pytest.approx(-0.5)
    assert comparison.cka[0, 2] == pytest.approx(0.5)
    assert comparison.overlap[0, 1] == 0.0  # the left neighbour of a corner is not its upper one
    assert comparison.overlap[0, 3] == 1.0


@pytest.mark.parametrize(
    "mute",
    [
        np.zeros((40, 3)),
        np.ones((40, 3), np.float32),
        np.outer(np.linspace(0.1, 9, 40), [0.3, -0.7, 1.1]).astype(np.float32),  # of many lengths, in one direction
        np.eye(40),  # all equally far apart
        np.full((40, 1), 3),
    ],
)
def test_a_constant_view_is_like_no_other(mute: Array) -> None:
    X, Y, _ = _related(0)
    comparison = compare([X, mute, Y, mute], names=["x", "mute", "y", "also"])
    assert (_matrices(comparison)[:, [1, 3]] == 0).all()
    assert (_matrices(comparison)[:, 0, 2] != 0).all()
    assert comparison.mute == ("mute", "also")
    np.testing.assert_allclose(_matrices(comparison)[:, ::2, ::2], _matrices(compare([X, Y])), atol=1e-12)


def test_one_differing_sentence_does_not_make_views_alike() -> None:
    """Off its diagonal the Gram matrix is a sum of a term per row: HSIC has nothing to divide by."""
    odd = np.ones((10, 1))
    odd[3] = -1
    comparison = compare([odd, _normal(0, 10, 4)], neighbours=2)
    assert (comparison.cka[0] == 0).all()
    assert np.isfinite(_matrices(comparison)).all()


def test_zero_rows_have_no_neighbours() -> None:
    X, Y = _related(1)[:2]
    X[::4] = 0
    comparison = compare([X, Y, X], neighbours=3)
    assert np.isfinite(_matrices(comparison)).all()
    assert comparison.overlap[0, 0] == pytest.approx(0.75)
    assert comparison.overlap[0, 2] == pytest.approx(0.75)
    assert comparison.cosines[0, 2] == pytest.approx(1.0)


def test_the_sample_depends_on_the_seed_and_cka_uses_all_rows() -> None:
    views = _related(5, 300)
    one, same, other = (compare(views, rows=50, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(_matrices(one), _matrices(same))
    np.testing.assert_array_equal(one.cka, other.cka)
    assert one.cosines[0, 1] != other.cosines[0, 1]
    assert (one.rows, one.sampled, one.seed) == (300, 50, 1)
    assert compare(views, rows=300).sampled == compare(views).sampled == 300


def test_rows_may_be_chosen() -> None:
    views = _related(6, 90)
    among = np.r_[3:20:2, 40:90:3]
    comparison = compare(views, among=among, neighbours=4)
    expected = compare([X[among] for X in views], neighbours=4)
    np.testing.assert_allclose(_matrices(comparison), _matrices(expected), atol=1e-12)
    assert comparison.rows == len(among)


def test_stored_views_are_read_in_stretches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensembed.reliability.likeness, "_BLOCK", 7)
    monkeypatch.setattr(ensembed.reliability.trust_estimate, "_BLOCK", 7)
    corpus = ListCorpus([f"{a} {b} {c}" for a in "abcd" for b in "efgh" for c in "ijkl"])
    encoders = [DemoEncoder(dim=8, seed=seed) for seed in range(2)]
    views = ViewStore(tmp_path, shard_rows=5).embed_all(corpus, encoders)
    reports: list[tuple[str, int, int | None]] = []
    comparison = compare(views, rows=20, progress=lambda *report: reports.append(report))
    np.testing.assert_allclose(
        _matrices(comparison), _matrices(compare([np.asarray(view) for view in views], rows=20)), atol=1e-12
    )
    # Words that are random vectors for both: what they have in common is which sentences share words.
    assert comparison.cka[0, 1] > 0.4
    last = {label: (done, total) for label, done, total in reports}
    assert last == {"moments": (64, 64), "centred lengths": (64, 64), "cosines": (20, 20)}


def test_pairs_are_sorted_by_cka() -> None:
    X, Y, Z = _related(2)
    comparison = compare([X, Y, 2 * X, Z], names=["x", "y", "x2", "z"])
    assert (comparison.pairs[0].first, comparison.pairs[0].second) == ("x", "x2")
    values = [pair.cka for pair in comparison.pairs]
    assert values == sorted(values, reverse=True)
    assert len(values) == 6
    assert comparison.pairs[0].overlap == comparison.overlap[0, 2]


@pytest.mark.parametrize(
    ("views", "options", "says"),
    [
        ([np.ones((9, 2))], {}, "at least two"),
        ([np.ones((9, 2)), np.ones((8, 2))], {}, "rows must be aligned"),
        ([np.ones((3, 2))] * 2, {"neighbours": 1}, "at least 4 distinct sentences, got 3"),
        ([np.ones((0, 2))] * 2, {}, "got 0"),
        ([np.ones((9, 2))] * 2, {}, "9 sampled sentences have at most 8 neighbours each, not 10"),
        ([np.ones((99, 2))] * 2, {"rows": 10}, "more rows"),
        ([np.ones((9, 2))] * 2, {"rows": 3}, "rows must be a whole number of at least 4"),
        ([np.ones((9, 2))] * 2, {"neighbours": 0}, "neighbours must be"),
        ([np.ones((9, 2))] * 2, {"seed": -1}, "seed must be"),
        ([np.ones((9, 2))] * 2, {"names": ["a"]}, "2 views and 1 names"),
        ([np.ones((9, 2))] * 2, {"among": np.array([0, 1, 1, 2])}, "rise from 0 to at most 8"),
        ([np.ones((9, 2))] * 2, {"among": np.array([0, 1, 2, 9])}, "rise from 0 to at most 8"),
        ([np.ones((9, 2))] * 2, {"among": np.ones(9, bool)}, "row numbers"),
        ([np.ones((9, 2))] * 2, {"among": []}, "at least 4 distinct sentences, got 0"),
    ],
)
def test_compare_refuses_bad_views_and_options(views: list[Array], options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        compare(views, **options)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_is_reported_with_view_and_row(bad: float) -> None:
    X, Y = _normal(0, 90, 3), _normal(1, 90, 3)
    Y[70, 1] = bad
    with pytest.raises(ViewError, match="view 1 holds NaN or Inf in row 70"):
        compare([X, Y], among=np.arange(1, 90, 3))
