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
from ensembed.reliability import Reliability, reliability
from ensembed.reliability.estimate import _best
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


def _figures(found: Reliability) -> list[Array]:
    return [found.sufficiency, found.lead, found.agreement, found.weights]


def test_who_knows_most_is_found() -> None:
    found = _plain()
    assert found.names[found.best] == "good"
    assert list(np.argsort(-found.lead)) == [1, 2, 0]
    assert found.sure == 1.0
    assert found.weights[1] == 1.0
    assert 0 < found.weights[0] < found.weights[2] < 1
    assert found.mute == ()
    assert found.copies == (0, 1, 2)
    assert not found.lexical
    assert (found.sentences, found.seed) == (N, 0)
    assert 4 * 300 < found.pairs <= 5 * 300  # two queries may be neighbours of each other
    for low, value, high in (
        (found.lead_low, found.lead, found.lead_high),
        (found.weights_low, found.weights, found.weights_high),
    ):
        assert (low <= value).all()
        assert (value <= high).all()
    assert (found.lead_low < found.lead_high).all()
    assert found.lead[1] == pytest.approx(-found.lead[2])  # what one leads by, its strongest rival trails by
    np.testing.assert_array_equal(found.sufficiency.diagonal(), 1)
    assert found.agreement[1] == 1
    assert found.whitened == (0, 2)
    assert found.decided == "lead"


def test_two_members_are_enough() -> None:
    bad, good, _ = _members()
    found = reliability([bad, good], **QUICK)
    assert found.best == 1
    assert found.sure == 1.0
    assert 0 < found.weights[0] < 0.5


def test_equals_are_not_told_apart() -> None:
    twins = [_member(12, seed) for seed in (10, 30)]
    found = reliability(twins, **QUICK)
    assert found.mute == ()
    assert found.lead_high.min() > found.lead_low.max() - 0.02
    assert abs(found.lead[0]) < 0.02


def test_one_member_counts_whatever_it_says() -> None:
    for view in (_members()[0][:3], np.ones((90, 2))):
        found = reliability([view])
        assert found.weights.tolist() == found.weights_low.tolist() == [1.0]
        assert (found.best, found.mute, found.copies, found.lead.tolist()) == (0, (), (0,), [0.0])


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
    found = reliability(views, names=names, **QUICK)
    assert found.mute == (kind,)
    assert found.weights[place] == found.weights_high[place] == found.lead[place] == 0
    assert found.names[found.best] == "good"
    others = [j for j in range(4) if j != place]
    np.testing.assert_allclose(found.weights[others], _plain().weights, atol=1e-6)
    np.testing.assert_allclose(found.lead[others], _plain().lead, atol=1e-5)
    assert found.pairs == _plain().pairs


def test_several_useless_members_at_once() -> None:
    found = reliability([*_members(), *USELESS.values()], names=["bad", "good", "fair", *USELESS], **QUICK)
    assert found.mute == tuple(USELESS)
    np.testing.assert_allclose(found.weights[:3], _plain().weights, atol=1e-6)


def test_a_copy_shares_the_weight_and_is_looked_at_once() -> None:
    rotation, _ = np.linalg.qr(_normal(7, 24, 24))
    for which in range(3):
        views = _members()
        found = reliability([*views, 7 * views[which] @ rotation], **QUICK)
        assert found.copies == (0, 1, 2, which)
        assert found.best in (1, 3)
        expected = np.append(_plain().weights, _plain().weights[which])
        expected[[which, 3]] /= 2
        np.testing.assert_allclose(found.weights, expected, rtol=1e-5)
        np.testing.assert_allclose(found.lead, _plain().lead[[0, 1, 2, which]], atol=1e-5)
        assert found.sufficiency[3, which] == 1


def test_a_chain_of_near_copies_is_one_member() -> None:
    """Each says the same as the next, but the first not the same as the last."""
    X = _members()[1]
    step = 0.04 * X.std() * _normal(70, N, 24)
    chain = [X + k * step for k in range(5)]
    assert reliability([chain[0], chain[-1]], **QUICK).copies == (0, 1)
    assert reliability([*chain, _members()[2]], **QUICK).copies == (0, 0, 0, 0, 0, 5)


def test_without_words_two_members_that_disagree_count_the_same() -> None:
    found = reliability([_members()[1], USELESS["random"]], **QUICK)
    assert found.mute == ()
    assert found.weights.tolist() == found.whitened_weights.tolist() == [1.0, 1.0]
    assert found.decided == "nothing"
    assert found.whitened == ()


def test_copies_of_noise_do_not_outvote() -> None:
    """That two say the same confirms neither."""
    good, noise = _members()[1], USELESS["random"]
    found = reliability([noise, good, 2 * noise], **QUICK)
    assert found.decided == "nothing"
    assert found.copies == (0, 1, 0)
    np.testing.assert_allclose(found.weights, [0.5, 1, 0.5])
    assert reliability([noise, 2 * noise, good, _members()[2]], **QUICK).mute == ("view 0", "view 1")


def test_a_relative_does_not_lift_a_weak_member() -> None:
    """A weak member predicts all of its own shorter form, which in the mean over rivals looked like a lead."""
    weak, good = _member(9, 10), _member(11, 11)
    relatives = [weak @ _normal(60 + j, 24, 12) for j in range(2)]
    found = reliability([weak, good, *relatives], **QUICK)
    assert found.copies == (0, 1, 2, 3)
    assert found.best == 1
    alone = reliability([weak, good], **QUICK)
    # Nor do relatives count several times: what they say beyond the best they say together.
    together = (found.whitened_weights / found.whitened_weights[1])[[0, 2, 3]].sum()
    assert together < 1.5 * alone.whitened_weights[0] / alone.whitened_weights[1]


def test_words_that_say_nothing_do_not_decide() -> None:
    twins = [_member(12, seed) for seed in (10, 30)]
    apart = [chr(0x4E00 + i) for i in range(N)]  # no two sentences share a word
    found, swapped = (reliability(views, sentences=apart, **QUICK) for views in (twins, twins[::-1]))
    assert found.best == found.lead.argmax()
    assert swapped.best == swapped.lead.argmax() != found.best


def test_all_constant_is_an_error() -> None:
    with pytest.raises(ViewError, match="none of the 2 views tells any two of 900 sentences apart"):
        reliability([USELESS["constant"], USELESS["zero"]])


def test_only_directions_matter() -> None:
    views = _members()
    rotation, _ = np.linalg.qr(_normal(3, 24, 24))
    lengths = np.random.default_rng(4).uniform(0.1, 10, (N, 1))
    changed = [1e-6 * views[0], lengths * views[1] @ rotation, np.hstack([views[2], np.zeros((N, 3))])]
    found = reliability(changed, names=["bad", "good", "fair"], **QUICK)
    for one, other in zip(_figures(found), _figures(_plain()), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_the_order_of_members_does_not_matter() -> None:
    order = [2, 0, 1]
    found = reliability([_members()[j] for j in order], **QUICK)
    np.testing.assert_allclose(found.weights, _plain().weights[order], atol=1e-5)
    np.testing.assert_allclose(found.weights_high, _plain().weights_high[order], atol=1e-4)
    np.testing.assert_allclose(found.lead, _plain().lead[order], atol=1e-5)


def test_seeds_and_samples_agree() -> None:
    again = reliability(_members(), **QUICK)
    for one, other in zip(_figures(again), _figures(_plain()), strict=True):
        np.testing.assert_array_equal(one, other)
    for seed in range(3):
        found = reliability(_members(), rows=400, seed=seed, **QUICK)
        assert found.sentences == 400
        assert list(np.argsort(-found.lead)) == [1, 2, 0]
        np.testing.assert_allclose(found.weights, _plain().weights, atol=0.1)


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
    found = reliability([shallow[0], deep, some], sentences=SENTENCES, **QUICK)
    assert found.lexical
    assert found.best == 1
    plain = reliability([shallow[0], deep, some], **QUICK)
    assert found.sufficiency[0, 2] < plain.sufficiency[0, 2] - 0.1


def test_words_confirm_one_of_two_members() -> None:
    bag = DemoEncoder(dim=32).encode(SENTENCES)
    found = reliability([USELESS["random"], bag], sentences=SENTENCES, names=["random", "bag"], **QUICK)
    assert found.mute == ("random",)
    assert found.weights.tolist() == [0.0, 1.0]
    assert found.best == 1


def test_repeated_sentences_count_once(tmp_path: Path) -> None:
    texts = SENTENCES[:120]
    encoders = [DemoEncoder(dim=16, seed=seed) for seed in range(2)]
    once = reliability([one.encode(texts) for one in encoders], sentences=texts, **QUICK)
    assert once.sentences == 120
    repeated = [*texts[:60], *texts[:30], *texts[60:], *texts[90:]]
    corpus = ListCorpus(repeated)
    stored = ViewStore(tmp_path, shard_rows=16).embed_all(corpus, encoders)
    for views, sentences in ((stored, corpus), ([one.encode(repeated) for one in encoders], repeated)):
        found = reliability(views, sentences=sentences, **QUICK)
        assert found.sentences == 120
        for one, other in zip(_figures(found), _figures(once), strict=True):
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
    found = reliability(views, rows=60, **QUICK)
    assert found.sentences == 60
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
        ([np.ones((49, 2))] * 2, {}, "at least 50 distinct sentences to find out, got 49"),
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
        ([_normal(0, 60, 2), _normal(0, 61, 2)], {}, "rows must be aligned"),
    ],
)
def test_what_cannot_be_estimated(views: list[Array], options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        reliability(views, **options)


def test_fifty_sentences_and_more_dimensions_than_rows() -> None:
    found = reliability([_member(known, 10 + j, 50, 80) for j, known in enumerate(KNOWN)], **QUICK)
    assert np.isfinite(np.concatenate([one.ravel() for one in _figures(found)])).all()
    assert found.names[found.best] == "view 1"


def test_a_weak_member_is_not_mute() -> None:
    """Among near pairs alone a weak member seems to disagree: pairs are there because one of two errs."""
    weak, good = _member(4, 10), _member(16, 11)
    found = reliability([weak, good], **QUICK)
    assert found.mute == ()
    assert found.best == 1
    assert found.lead_low[1] > 0


def test_of_members_that_lead_alike_the_one_that_follows_the_words_least_is_the_best() -> None:
    leads = np.array([[0.1, 0.095, -0.195], [0.1, 0.08, -0.18]])
    words = np.array([0.7, 0.3, 0.1])
    assert _best(leads, words).tolist() == [1, 0]
    assert _best(leads, None).tolist() == [0, 0]
