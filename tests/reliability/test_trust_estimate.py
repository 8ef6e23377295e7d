"""Members that know more or less of a hidden truth: their order, what useless ones do, and what must change nothing."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders import DemoEncoder
from ensembed.errors import InputError, ViewError
from ensembed.methods import Auto
from ensembed.reliability import Reliability, reliability
from ensembed.views import ViewStore

Array: TypeAlias = NDArray[Any]
N = 900
KNOWN = (9, 16, 12)  # how much of the truth members know; the second is the best
QUICK: dict[str, Any] = {"queries": 300, "resamples": 40}


def _normal(seed: int, n: int, d: int) -> Array:
    return np.random.default_rng(seed).standard_normal((n, d))


@cache
def _truth(n: int = N) -> Array:
    """Meanings in clusters, some tight, some loose, so that near sentences are near to different degrees."""
    loose = np.random.default_rng(2).uniform(0.1, 1.0, (n, 1))
    return _normal(0, n // 6 + 1, 16)[np.arange(n) % (n // 6 + 1)] + loose * _normal(1, n, 16)


def _member(known: int, seed: int, n: int = N, d: int = 24) -> Array:
    """A part of the truth, with errors of its own, turned into another space."""
    turned, _ = np.linalg.qr(_normal(seed, d, known))
    return np.asarray((_truth(n)[:, :known] + 0.2 * _normal(seed + 50, n, known)) @ turned.T)


def _members(n: int = N) -> list[Array]:
    return [_member(known, 10 + j, n) for j, known in enumerate(KNOWN)]


@cache
def _plain() -> Reliability:
    return reliability(_members(), names=["bad", "good", "fair"], **QUICK)


def _figures(estimate: Reliability) -> list[Array]:
    return [estimate.sufficiency, estimate.lead, estimate.agreement, estimate.weights]


def test_the_member_that_knows_most_is_the_best() -> None:
    estimate = _plain()
    assert estimate.names[estimate.best] == "good"
    assert list(np.argsort(-estimate.lead)) == [1, 2, 0]
    assert 0.9 < estimate.sure < 1
    assert estimate.weights[1] == 1.0
    assert 0 < estimate.weights[0] < estimate.weights[2] < 1
    assert estimate.mute == ()
    assert estimate.copies == (0, 1, 2)
    assert not estimate.lexical
    assert (estimate.sentences, estimate.seed) == (N, 0)
    assert 2 * 5 * 300 < estimate.pairs < 4 * 5 * 300  # near under any member, and random; some are the same
    for low, value, high in (
        (estimate.lead_low, estimate.lead, estimate.lead_high),
        (estimate.weights_low, estimate.whitened_weights, estimate.weights_high),
    ):
        assert (low <= value).all()
        assert (value <= high).all()
    assert (estimate.lead_low < estimate.lead_high).all()
    assert estimate.lead[1] == pytest.approx(-estimate.lead[2])  # what one leads by, its strongest rival trails by
    np.testing.assert_array_equal(estimate.sufficiency.diagonal(), 1)
    assert estimate.agreement[1] == 1
    assert estimate.whitened == (0, 2)
    assert estimate.decided in ("lead", "level")  # the second best is not far behind


def test_standings_add_up_to_their_parts() -> None:
    estimate = reliability([*_members(), np.ones((N, 3))], **QUICK)
    np.testing.assert_allclose(estimate.standing_parts.sum(axis=1), estimate.standing, atol=1e-9)
    assert estimate.standing_parts[3].tolist() == [0.0] * 4  # it says nothing
    assert not estimate.standing_parts[:, 2:].any()  # the sentences are not known


def test_two_members_are_enough() -> None:
    bad, good, _ = _members()
    estimate = reliability([bad, good], **QUICK)
    assert estimate.best == 1
    assert estimate.sure > 0.6
    assert 0 < estimate.weights[0] < 0.5


def test_equal_members_give_no_certain_best() -> None:
    twins = [_member(12, seed) for seed in (10, 30)]
    estimate = reliability(twins, **QUICK)
    assert estimate.mute == ()
    assert estimate.lead_high.min() > estimate.lead_low.max() - 0.02
    assert abs(estimate.lead[0]) < 0.02
    assert estimate.decided == "level"
    assert 0.5 < estimate.sure < 0.6
    assert min(estimate.weights) > 0.7  # the choice that can lose least


def test_a_single_member_has_weight_1() -> None:
    for view in (_members()[0][:3], np.ones((90, 2))):
        estimate = reliability([view])
        assert estimate.weights.tolist() == estimate.weights_low.tolist() == [1.0]
        assert (estimate.best, estimate.mute, estimate.copies, estimate.lead.tolist()) == (0, (), (0,), [0.0])


USELESS = {
    "random": _normal(99, N, 20),
    "constant": np.full((N, 5), 0.3, np.float32),
    "zero": np.zeros((N, 2)),
    "shuffled": _member(16, 11)[np.random.default_rng(5).permutation(N)],
}


@pytest.mark.parametrize("kind", USELESS)
@pytest.mark.parametrize("place", [0, 3])
def test_a_useless_member_is_mute_and_changes_nothing(kind: str, place: int) -> None:
    views, names = _members(), ["bad", "good", "fair"]
    views.insert(place, USELESS[kind])
    names.insert(place, kind)
    estimate = reliability(views, names=names, **QUICK)
    assert estimate.mute == (kind,)
    assert estimate.weights[place] == estimate.weights_high[place] == estimate.lead[place] == 0
    assert estimate.names[estimate.best] == "good"
    others = [j for j in range(4) if j != place]
    np.testing.assert_allclose(estimate.weights[others], _plain().weights, atol=1e-6)
    np.testing.assert_allclose(estimate.lead[others], _plain().lead, atol=1e-5)
    assert estimate.pairs == _plain().pairs


def test_several_useless_members_at_once() -> None:
    estimate = reliability([*_members(), *USELESS.values()], names=["bad", "good", "fair", *USELESS], **QUICK)
    assert estimate.mute == tuple(USELESS)
    np.testing.assert_allclose(estimate.weights[:3], _plain().weights, atol=1e-6)


def test_a_copy_shares_the_weight_and_is_looked_at_once() -> None:
    rotation, _ = np.linalg.qr(_normal(7, 24, 24))
    for which in range(3):
        views = _members()
        estimate = reliability([*views, 7 * views[which] @ rotation], **QUICK)
        assert estimate.copies == (0, 1, 2, which)
        assert estimate.best in (1, 3)
        expected = np.append(_plain().weights, _plain().weights[which])
        expected[[which, 3]] /= 2
        np.testing.assert_allclose(estimate.weights, expected, rtol=1e-5)
        np.testing.assert_allclose(estimate.lead, _plain().lead[[0, 1, 2, which]], atol=1e-5)
        assert estimate.sufficiency[3, which] == 1


def test_a_chain_of_near_copies_is_one_member() -> None:
    """Each says the same as the next, but the first not the same as the last."""
    X = _members()[1]
    step = 0.04 * X.std() * _normal(70, N, 24)
    chain = [X + k * step for k in range(5)]
    assert reliability([chain[0], chain[-1]], **QUICK).copies == (0, 1)
    assert reliability([*chain, _members()[2]], **QUICK).copies == (0, 0, 0, 0, 0, 5)


def test_without_words_two_members_that_disagree_count_the_same() -> None:
    estimate = reliability([_members()[1], USELESS["random"]], **QUICK)
    assert estimate.mute == ()
    assert estimate.weights.tolist() == estimate.whitened_weights.tolist() == [1.0, 1.0]
    assert estimate.decided == "nothing"
    assert estimate.whitened == ()


def test_copies_of_noise_do_not_outweigh_a_good_member() -> None:
    """That two say the same confirms neither."""
    good, noise = _members()[1], USELESS["random"]
    estimate = reliability([noise, good, 2 * noise], **QUICK)
    assert estimate.decided == "nothing"
    assert estimate.copies == (0, 1, 0)
    np.testing.assert_allclose(estimate.weights, [0.5, 1, 0.5])
    assert reliability([noise, 2 * noise, good, _members()[2]], **QUICK).mute == ("view 0", "view 1")


def test_a_similar_weaker_member_does_not_make_a_weak_member_the_best() -> None:
    """A weak member predicts all of its own shorter form, which in the mean over rivals looked like a lead."""
    weak, good = _member(9, 10), _member(11, 11)
    relatives = [weak @ _normal(60 + j, 24, 12) for j in range(2)]
    estimate = reliability([weak, good, *relatives], **QUICK)
    assert estimate.copies == (0, 1, 2, 3)
    assert estimate.best == 1
    alone = reliability([weak, good], **QUICK)
    # Nor do relatives count several times: what they say beyond the best they say together.
    together = (estimate.whitened_weights / estimate.whitened_weights[1])[[0, 2, 3]].sum()
    assert together < 1.5 * alone.whitened_weights[0] / alone.whitened_weights[1]


def test_words_that_say_nothing_do_not_decide() -> None:
    twins = [_member(12, seed) for seed in (10, 30)]
    apart = [chr(0x4E00 + i) for i in range(N)]  # no two sentences share a word
    estimate, swapped = (reliability(views, sentences=apart, **QUICK) for views in (twins, twins[::-1]))
    assert estimate.best == estimate.lead.argmax()
    assert swapped.best == swapped.lead.argmax() != estimate.best


def test_all_constant_is_an_error() -> None:
    with pytest.raises(ViewError, match="none of the 2 views tells any two of 900 sentences apart"):
        reliability([USELESS["constant"], USELESS["zero"]])


def test_only_directions_matter() -> None:
    views = _members()
    rotation, _ = np.linalg.qr(_normal(3, 24, 24))
    lengths = np.random.default_rng(4).uniform(0.1, 10, (N, 1))
    changed = [1e-6 * views[0], lengths * views[1] @ rotation, np.hstack([views[2], np.zeros((N, 3))])]
    estimate = reliability(changed, names=["bad", "good", "fair"], **QUICK)
    for one, other in zip(_figures(estimate), _figures(_plain()), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_the_order_of_members_does_not_matter() -> None:
    order = [2, 0, 1]
    estimate = reliability([_members()[j] for j in order], **QUICK)
    np.testing.assert_allclose(estimate.weights, _plain().weights[order], atol=1e-5)
    np.testing.assert_allclose(estimate.weights_high, _plain().weights_high[order], atol=1e-4)
    np.testing.assert_allclose(estimate.lead, _plain().lead[order], atol=1e-5)


def test_seeds_and_samples_agree() -> None:
    again = reliability(_members(), **QUICK)
    for one, other in zip(_figures(again), _figures(_plain()), strict=True):
        np.testing.assert_array_equal(one, other)
    for seed in range(3):
        estimate = reliability(_members(), rows=400, seed=seed, **QUICK)
        assert estimate.sentences == 400
        assert list(np.argsort(-estimate.lead)) == [1, 2, 0]
        np.testing.assert_allclose(estimate.weights, _plain().weights, atol=0.1)


def test_intervals_narrow_with_more_rows() -> None:
    few, many = (reliability(_members(n), **QUICK) for n in (200, N))
    assert ((few.lead_high - few.lead_low) > 1.3 * (many.lead_high - many.lead_low)).all()


SENTENCES = [f"w{i % 60} w{i * 7 % 61} w{i * 13 % 59} w{i // 3}" for i in range(N)]


def test_what_words_explain_is_left_out() -> None:
    """Two bags of words predict each other; the one encoder that knows more is still the best."""
    bags = [DemoEncoder(dim=32, seed=seed).encode(SENTENCES) for seed in (1, 2)]
    deep = np.hstack([bags[0] / bags[0].std(), _truth()])
    shallow = [bags[0] / bags[0].std() + 0.5 * _normal(3, N, 32), bags[1] / bags[1].std() + 0.3 * _normal(4, N, 32)]
    some = np.hstack([shallow[1], _truth()[:, :8] + 0.5 * _normal(5, N, 8)])
    estimate = reliability([shallow[0], deep, some], sentences=SENTENCES, **QUICK)
    assert estimate.lexical
    assert estimate.best == 1
    plain = reliability([shallow[0], deep, some], **QUICK)
    assert estimate.sufficiency[0, 2] < plain.sufficiency[0, 2] - 0.1


def test_words_confirm_one_of_two_members() -> None:
    bag = DemoEncoder(dim=32).encode(SENTENCES)
    estimate = reliability([USELESS["random"], bag], sentences=SENTENCES, names=["random", "bag"], **QUICK)
    assert estimate.mute == ("random",)
    assert estimate.weights.tolist() == [0.0, 1.0]
    assert estimate.best == 1


def test_repeated_sentences_count_once(tmp_path: Path) -> None:
    texts = SENTENCES[:120]
    encoders = [DemoEncoder(dim=16, seed=seed) for seed in range(2)]
    once = reliability([one.encode(texts) for one in encoders], sentences=texts, **QUICK)
    assert once.sentences == 120
    repeated = [*texts[:60], *texts[:30], *texts[60:], *texts[90:]]
    corpus = ListCorpus(repeated)
    stored = ViewStore(tmp_path, shard_rows=16).embed_all(corpus, encoders)
    for views, sentences in ((stored, corpus), ([one.encode(repeated) for one in encoders], repeated)):
        estimate = reliability(views, sentences=sentences, **QUICK)
        assert estimate.sentences == 120
        for one, other in zip(_figures(estimate), _figures(once), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


class _Watched:
    """A view of many rows, of which most must not be read."""

    def __init__(self) -> None:
        self.shape, self.dtype, self.read = (10_000_000, 4), np.dtype(np.float32), 0

    def __getitem__(self, rows: slice) -> Array:
        self.read += rows.stop - rows.start
        return _normal(rows.start, rows.stop - rows.start, 4).astype(np.float32)


def test_a_large_corpus_is_not_read_whole() -> None:
    views = [_Watched(), _Watched()]
    estimate = reliability(views, rows=60, **QUICK)
    assert estimate.sentences == 60
    assert views[0].read < 20_000


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_is_reported_with_view_and_row(bad: float) -> None:
    views = _members()
    views[1][70, 1] = bad
    with pytest.raises(ViewError, match="view 1 holds NaN or Inf in row 70"):
        reliability(views)


@pytest.mark.parametrize(
    ("views", "options", "says"),
    [
        (
            [np.ones((49, 2))] * 2,
            {},
            "needed to find out which of 2 members to trust, got 49",
        ),
        ([_normal(0, 60, 2)] * 2, {"sentences": ["same"] * 60}, "got 1: take a larger corpus"),
        ([_normal(0, 60, 2)] * 2, {"sentences": ["a"] * 59}, "59 sentences for views of 60 rows"),
        ([_normal(0, 60, 2)] * 2, {"names": ["a"]}, "2 views need 2 different names"),
        ([_normal(0, 60, 2)] * 2, {"names": ["a", "a"]}, "2 views need 2 different names"),
        ([_normal(0, 60, 2)] * 2, {"sentences": iter(["a"] * 60)}, "a list or a corpus, not a list_iterator"),
        ([_normal(0, 60, 2)] * 2, {"rows": 49}, "rows must be a whole number of at least 50, not 49"),
        ([_normal(0, 60, 2)] * 2, {"queries": 0}, "queries must be"),
        ([_normal(0, 60, 2)] * 2, {"neighbours": 1.5}, "neighbours must be"),
        ([_normal(0, 60, 2)] * 2, {"resamples": 0}, "resamples must be"),
        ([_normal(0, 60, 2)] * 2, {"seed": -1}, "seed must be"),
        ([_normal(0, 60, 2)] * 2, {"needed": "all"}, "needed must be a whole number of at least 0, not 'all'"),
        ([_normal(0, 60, 2), _normal(0, 61, 2)], {}, "rows must be aligned"),
    ],
)
def test_reliability_refuses_bad_views_and_options(views: list[Array], options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        reliability(views, **options)


def test_fifty_sentences_and_more_dimensions_than_rows() -> None:
    estimate = reliability([_member(known, 10 + j, 50, 80) for j, known in enumerate(KNOWN)], **QUICK)
    assert np.isfinite(np.concatenate([one.ravel() for one in _figures(estimate)])).all()
    assert estimate.names[estimate.best] == "view 1"


def test_a_weak_member_is_not_mute() -> None:
    """Among near pairs alone a weak member seems to disagree: pairs are there because one of two errs."""
    weak, good = _member(4, 10), _member(16, 11)
    estimate = reliability([weak, good], **QUICK)
    assert estimate.mute == ()
    assert estimate.best == 1
    assert estimate.lead_low[1] > 0


def test_too_few_sentences_prefer_no_member_and_say_so() -> None:
    """With 80 sentences of encoders of some hundred dimensions the wrong member leads in all bootstrap samples."""
    members = [_member(known, 10 + j, 80, 300) for j, known in enumerate(KNOWN)]
    narrow = np.hstack([members[2], np.full((80, 1), 3 * np.abs(members[2]).max())])
    estimate = reliability([*members[:2], narrow], **QUICK)
    assert (estimate.decided, estimate.needed, estimate.sure) == ("too few", 301, 0.0)
    assert estimate.whitened == ()
    np.testing.assert_array_equal(estimate.whitened_weights, estimate.weights)
    assert estimate.weights[2] == estimate.weights.max() == 1  # its cosines lie close together
    with pytest.warns(RuntimeWarning, match="80 distinct sentences are too few .* takes 300"):
        meta = Auto().fit(members)
    assert meta.method["decided"] == "too few"
    assert min(meta.method["weights"]) > 0.5
    assert "trusted" not in meta.method
    assert reliability(members, needed=50, **QUICK).decided in ("lead", "level")


def test_weights_are_the_products_of_their_factors() -> None:
    estimate = _plain()
    np.testing.assert_allclose(estimate.factors.prod(axis=1), estimate.whitened_weights)
    copied = reliability([*_members(), 2 * _members()[0], np.ones((N, 3))], **QUICK)
    np.testing.assert_allclose(copied.factors.prod(axis=1), copied.whitened_weights, atol=1e-12)
    assert copied.factors[0, 2] == pytest.approx(copied.factors[3, 2])
