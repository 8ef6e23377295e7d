from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import texts

from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import InputError
from ensembed.testing import check_encoder


@pytest.mark.parametrize(("dim", "seed"), [(1, 0), (2, 1), (32, -5), (300, 2**63 - 1), (7, -(2**63))])
def test_the_demo_encoder_keeps_the_contract(dim: int, seed: int) -> None:
    check_encoder(DemoEncoder(dim, seed))


def test_the_vectors_are_the_same_on_every_machine_and_in_every_version() -> None:
    vectors = DemoEncoder(3, seed=1).encode(["A cat sleeps."])
    np.testing.assert_allclose(vectors, [[0.4635, 0.6969, 0.0094]], atol=1e-4)


@given(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=9), st.randoms())
def test_the_order_and_case_of_words_does_not_matter(words: list[str], shuffler: random.Random) -> None:
    shuffled = shuffler.sample(words, len(words))
    X = DemoEncoder(5).encode([" ".join(words), "  ".join(shuffled).upper()])
    np.testing.assert_allclose(X[0], X[1], atol=1e-6)


@given(st.lists(texts))
def test_every_text_has_a_finite_vector(given_texts: list[str]) -> None:
    assert np.isfinite(DemoEncoder(3).encode(given_texts)).all()


def test_a_sentence_is_the_mean_of_its_words() -> None:
    one, two, both = DemoEncoder(8).encode(["one", "two", "one two"])
    np.testing.assert_allclose(both, (one + two) / 2, atol=1e-6)


def test_a_sentence_without_words_is_zero() -> None:
    assert not DemoEncoder(3).encode(["", " \t "]).any()


def test_sentences_that_share_words_are_alike() -> None:
    a, b, c = DemoEncoder(200).encode(["the cat sleeps here", "the cat sleeps there", "stock prices fell sharply"])
    assert np.corrcoef(a, b)[0, 1] > 0.5 > abs(np.corrcoef(a, c)[0, 1])


def test_another_seed_is_another_encoder() -> None:
    encoders = [DemoEncoder(4, seed) for seed in (0, 1, -1)]
    assert len({encoder.spec.key for encoder in encoders}) == 3
    assert len({encoder.encode(["word"]).tobytes() for encoder in encoders}) == 3
    assert DemoEncoder(4, 1, name="mine").spec.key == encoders[1].spec.key
    assert DemoEncoder(4, 1, name="mine").spec.name == "mine"


@pytest.mark.parametrize("dim", [0, -1, 65537])
def test_dim_out_of_range_is_refused(dim: int) -> None:
    with pytest.raises(InputError, match=f"from 1 to 65536, not {dim}"):
        DemoEncoder(dim)


@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1])
def test_a_seed_that_is_too_large_is_refused_at_once(seed: int) -> None:
    with pytest.raises(InputError, match=f"64 bits, unlike {seed}"):
        DemoEncoder(4, seed)
