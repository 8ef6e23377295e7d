"""The pieces against their definitions: tf-idf and its SVD, ridge regression in folds, near pairs, weights."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ensembed.reliability import agreement, sufficiency
from ensembed.reliability.lexical import Lexical, lexical_features
from ensembed.reliability.sufficiency import SoftWhitening
from ensembed.support.progress import silent

SENTENCES = [
    f"the {a} {b} {c}" for a in ("red", "blue", "old") for b in ("dog", "cat", "fox") for c in ("runs", "eats")
]


def _unit(X: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


def _normal(seed: int, n: int, d: int) -> NDArray[Any]:
    return np.random.default_rng(seed).standard_normal((n, d))


def test_tfidf_is_that_of_the_formula() -> None:
    words = ["red dog dog", "red cat", "dog cat cat", "fox"]
    # fox is in one sentence only and does not count: its row is zero.
    documents = {"red": 2, "dog": 2, "cat": 2}
    counts = np.array([[1, 2, 0], [1, 0, 1], [0, 1, 2], [0, 0, 0]])
    idf = np.array([np.log(5 / (1 + documents[word])) + 1 for word in ("red", "dog", "cat")])
    X = np.where(counts > 0, (1 + np.log(np.maximum(counts, 1))) * idf, 0)
    X[:3] = _unit(X[:3])
    pairs = np.array([[0, 1], [0, 2], [1, 2], [0, 3], [0, 0]])
    found = Lexical(words)
    part = found._parts[0].toarray()
    np.testing.assert_allclose((part[pairs[:, 0]] * part[pairs[:, 1]]).sum(1), (X @ X.T)[pairs[:, 0], pairs[:, 1]])
    assert found.cosines(pairs)[3] == 0


def test_letters_are_found_inside_words() -> None:
    lexical = Lexical(["running", "runner", "runs", "zebra"])
    near, far = lexical.cosines(np.array([[0, 1], [0, 3]]))
    assert near > 0.1
    assert far == 0


def test_the_short_features_keep_cosines_as_an_exact_svd_does() -> None:
    lexical = Lexical(SENTENCES)
    short = lexical.features(0, 6)
    assert short.shape == (18, 12)
    for part, found in zip(lexical._parts, (short[:, :6], short[:, 6:]), strict=True):
        U, S, _ = np.linalg.svd(part.toarray(), full_matrices=False)
        exact = _unit(U[:, :6] * S[:6])
        np.testing.assert_allclose(found @ found.T, exact @ exact.T, atol=1e-6)
    np.testing.assert_array_equal(short, Lexical(SENTENCES).features(0, 6))


@pytest.mark.parametrize("sentences", [["one", "two", "three"], ["", " ", "!"], ["狗在跑", "猫在跑", "狗在吃"]])
def test_sentences_that_share_nothing_have_no_features(sentences: list[str]) -> None:
    lexical = Lexical(sentences)
    assert np.isfinite(lexical.features(0)).all()
    assert np.isfinite(lexical.cosines(np.array([[0, 1], [1, 2]]))).all()


def test_explained_is_that_of_ridge_regressions() -> None:
    common = _normal(0, 120, 5)
    views = [_unit(common @ _normal(1 + j, 5, d) + (0.2 + j) * _normal(5 + j, 120, d)) for j, d in enumerate((6, 8))]
    found = sufficiency.explained(views, None, 0, np.random.default_rng(3), silent)[0]
    Z = [X - X.mean(axis=0) for X in views]
    folds = [np.sort(one) for one in np.array_split(np.random.default_rng(3).permutation(120), sufficiency.FOLDS)]
    for i, j in ((0, 1), (1, 0)):
        errors = []
        for ridge in sufficiency.RIDGES:
            total = 0.0
            for test in folds:
                train = np.setdiff1d(np.arange(120), test)
                G = Z[i][train].T @ Z[i][train]
                W = np.linalg.solve(G + ridge * np.trace(G) / len(G) * np.eye(len(G)), Z[i][train].T @ Z[j][train])
                total += np.square(Z[j][test] - Z[i][test] @ W).sum()
            errors.append(total)
        assert found[i, j] == pytest.approx(1 - min(errors) / np.square(Z[j]).sum(), abs=1e-5)


def test_what_is_lexical_is_regressed_out() -> None:
    L = _normal(0, 300, 4)
    Z = sufficiency._beyond(_unit(L @ _normal(1, 4, 6) + 0.3 * _normal(2, 300, 6)), L)
    before = sufficiency._beyond(_unit(L @ _normal(1, 4, 6) + 0.3 * _normal(2, 300, 6)), None)
    assert np.abs(L.T @ Z).max() < 0.1 * np.abs(L.T @ before).max()


def test_a_soft_whitening_is_that_of_the_formula() -> None:
    X = _unit(_normal(0, 400, 6) * np.arange(1, 7) + 3)
    values, axes = np.linalg.eigh(np.cov(X.T, bias=True))
    factors = (values + sufficiency.RIDGE * values.mean()) ** (-sufficiency.POWER / 2)
    mean, M = X.mean(axis=0), (axes * factors) @ axes.T
    found = SoftWhitening.of(X)
    np.testing.assert_allclose(found.apply(X), _unit((X - mean / 2) @ M), atol=1e-9)
    leading, centred = found.leading(X), _unit((X - mean) @ M)
    np.testing.assert_allclose(leading @ leading.T, centred @ centred.T, atol=1e-9)
    shares = values / values.sum()
    assert found.dimensions == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))


def test_effective_dimension_counts_directions_of_equal_variance_and_is_1_for_a_constant() -> None:
    X = np.random.default_rng(0).standard_normal((20_000, 7)) @ np.eye(7, 12)
    assert SoftWhitening.of(X).dimensions == pytest.approx(7, abs=0.01)
    assert SoftWhitening.of(np.ones((50, 3))).dimensions == 1.0


@pytest.mark.parametrize("n", [40, 12, 2])
def test_a_wide_view_keeps_its_leading_directions(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sufficiency, "LARGEST", 5)
    X = _unit(_normal(0, n, 20))
    found = SoftWhitening.of(X)
    assert found.leading(X).shape == (n, min(n - 1, 5))
    # Beyond the leading directions all others count alike.
    beyond = np.linalg.svd(found.axes.T)[2][found.axes.shape[1] :]
    np.testing.assert_allclose(beyond @ found.matrix, found.rest * beyond, atol=1e-9)
    assert np.isfinite(found.apply(X)).all()


def test_near_pairs_are_those_of_a_plain_search(monkeypatch: pytest.MonkeyPatch) -> None:
    views = [_unit(_normal(seed, 40, 6) + 1) for seed in (0, 1)]
    queries = np.arange(0, 40, 3)
    expected: dict[tuple[int, int], int] = {}
    for X in views:
        Z = _unit(X - X.mean(axis=0))
        for place, q in enumerate(queries):
            for other in [int(o) for o in np.argsort(-(Z @ Z[q])) if o != q][:3]:
                pair = (min(int(q), other), max(int(q), other))
                expected[pair] = min(place, expected.get(pair, place))
    monkeypatch.setattr(agreement, "_COSINES", 40 * 5)  # several blocks
    near = agreement.near_pairs(agreement.near_sentences(views, queries, 3, silent), [0, 1])
    assert {
        tuple(pair): owner for pair, owner in zip(near.pairs.tolist(), near.owner.tolist(), strict=True)
    } == expected


def test_correlations_of_resampled_queries() -> None:
    C, owner = _normal(0, 3, 200), np.arange(200) % 20
    counts = np.random.default_rng(1).poisson(1.0, (4, 20)).astype(float)
    r, spread = agreement.correlations(C, owner, counts)
    for b in range(4):
        repeated = np.repeat(C, counts[b][owner].astype(int), axis=1)
        np.testing.assert_allclose(r[b], np.corrcoef(repeated), atol=1e-10)
        np.testing.assert_allclose(spread[b], repeated.std(axis=1), atol=1e-10)


def _agreeing(*with_best: float) -> NDArray[Any]:
    """Correlations of members that agree with each other only as far as both agree with the first."""
    own = np.array([1.0, *with_best])
    r = np.outer(own, own)
    np.fill_diagonal(r, 1.0)
    return r


def _weights(standing: list[float], r: NDArray[Any], spread: list[float]) -> NDArray[Any]:
    return np.asarray(agreement.weight_factors(0, np.array(standing), r, np.array(spread), 0.0).prod(axis=1))


def test_weights_follow_standing_and_spread() -> None:
    weights = _weights([0.0, 1.0, -2.0, 9.0], np.eye(4), [0.3, 0.15, 0.3, 0.3])
    np.testing.assert_allclose(weights, [1.0, 2 * np.exp(-agreement.EQUAL), 1.0, 0.0])
    np.testing.assert_array_equal(_weights([0.0, 1.0], np.eye(2), [0.0, 0.3]), [1.0, 0.0])
    np.testing.assert_array_equal(_weights([0.0, 1.0], np.eye(2), [0.3, 0.0]), [1.0, 0.0])


def test_members_far_below_the_best_count_by_their_agreement_with_it() -> None:
    weights = _weights([0.0, 4.0, 4.0, 4.0], _agreeing(0.9, 0.6, 0.3), [0.3] * 4)
    truth = np.array([0.9, 0.6, 0.3]) / agreement.TRUST
    odds = truth / (1 - truth**2) / (agreement.TRUST / (1 - agreement.TRUST**2))
    expected = np.minimum(odds, agreement.LARGEST_WEIGHT) * np.exp(-4 * agreement.BELOW)
    np.testing.assert_allclose(weights[1:], expected)
    assert weights[1] > weights[2] > weights[3] > np.exp(-4 * agreement.EQUAL)


def test_a_narrow_range_of_the_best_members_cosines_is_widened() -> None:
    r, standing, spread = _agreeing(0.5), np.array([0.0, 9.0]), np.array([0.1, 0.1])
    narrow, wide = (agreement.weight_factors(0, standing, r, spread, level) for level in (0.9, 0.0))
    wider = agreement.SPREAD / 0.1
    assert wide[1, 0] > narrow[1, 0]  # over a wider range members agree more
    assert narrow[1, 2] == 1.0
    assert wide[1, 2] == pytest.approx(wider / np.sqrt(1 + 0.25 * (wider**2 - 1)))


def test_members_with_the_same_errors_share_a_weight() -> None:
    apart = _weights([0.0, 1.0, 1.0], _agreeing(0.7, 0.7), [0.3] * 3)
    r = _agreeing(0.7, 0.7)
    r[1, 2] = r[2, 1] = 1.0
    alike = _weights([0.0, 1.0, 1.0], r, [0.3] * 3)
    np.testing.assert_allclose(alike[1:], apart[1:] / 2, rtol=1e-6)


def test_standings_add_up_leads_dimensions_length_and_words() -> None:
    R = np.array([[1.0, 0.4, -0.1], [0.2, 1.0, 0.3], [0.1, 0.6, 1.0]])
    np.testing.assert_allclose(sufficiency.lead(R), [0.2 - 0.0 - 0.4, -0.3, 0.2])
    plain = sufficiency.standing_parts(R, np.full(3, 20.0), None)
    assert not plain[1:].any()
    assert plain[0, 0, 1] == pytest.approx(0.2 / 0.6 / sufficiency.LEAD)
    surface = sufficiency.Surface(words=np.array([0.5, 0.2, 0.45]), length=np.array([0.1, 0.15, 0.9]))
    parts = sufficiency.standing_parts(R, np.array([20.0, 40.0, 20.0]), surface)
    np.testing.assert_allclose(parts, -parts.swapaxes(1, 2))
    np.testing.assert_array_equal(parts[0], plain[0])
    assert parts[1, 1, 0] == pytest.approx(np.log(2) / sufficiency.DIMENSIONS)
    assert parts[2, 0, 1] == pytest.approx(0.05 / sufficiency.LENGTH)
    assert parts[2, 0, 2] == sufficiency.MOST_LENGTH
    assert parts[3, 0, 1] == -sufficiency.MOST_WORDS
    assert parts[3, 2, 0] == pytest.approx(0.05 / sufficiency.WORDS)
    standing = parts.sum(axis=0)
    np.testing.assert_allclose(sufficiency.lead(standing, antisymmetric=True)[0], min(standing[0, 1], standing[0, 2]))
    many = sufficiency.standing_parts(np.stack([R, R.T]), np.array([20.0, 40.0, 20.0]), surface)
    np.testing.assert_array_equal(many[0], parts)
    np.testing.assert_array_equal(many[1, 0], -parts[0])


def test_random_pairs_are_added_for_every_query() -> None:
    queries = np.arange(0, 40, 3)
    rows = agreement.near_sentences([_unit(_normal(0, 40, 6))], queries, 3, silent)
    near = agreement.near_pairs(rows, [0])
    both = agreement.near_pairs(rows, [0], np.random.default_rng(0))
    np.testing.assert_array_equal(both.pairs[: len(near.pairs)], near.pairs)
    assert near.near == both.near == len(near.pairs)
    random, owner = both.pairs[both.near :], both.owner[both.near :]
    np.testing.assert_array_equal(random[:, 1], queries[owner])
    assert (random[:, 0] != random[:, 1]).all()
    assert 4 * len(queries) < len(random) <= 5 * len(queries)


class Text(str):
    """A text whose end can be observed."""


def test_long_texts_do_not_stay_in_memory() -> None:
    texts = tuple(Text(f"{word} " * 10_000) for word in ("dog", "cat", "dog", "cow"))
    ends = [weakref.ref(text) for text in texts]
    features = lexical_features(texts)
    assert features is lexical_features(texts)
    assert np.array_equal(features.lengths, Lexical(texts).lengths)
    del texts
    gc.collect()
    assert [end() for end in ends] == [None] * 4
