"""SIF and uSIF against slow programs of their own: plain loops over words, and numpy's SVD of all sentence vectors."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wordfreq
from make_words import glove_text, small_vectors
from numpy.typing import NDArray

from ensembed.corpora.corpus import ListCorpus, TextCorpus
from ensembed.encoders import model_files
from ensembed.encoders.words import word_pooling
from ensembed.encoders.words.word_pooling import CommonComponents, Frequencies, Pooling, usif_a
from ensembed.encoders.words.words_encoder import WordsEncoder
from ensembed.errors import InputError, MissingError

VECTORS = small_vectors()
_NAMES = np.array(["the", "man", "dog", "runs", "snow", "guitar", "word7", "word9", "of", "stock", "prices", "unknown"])
_DRAW = np.random.default_rng(5)
CORPUS = [" ".join(_DRAW.choice(_NAMES, size=_DRAW.integers(1, 12), p=np.arange(12, 0, -1) / 78)) for _ in range(200)]
SENTENCES = [*CORPUS[:5], "the", "the the the", "nothing here", "", "A man: the DOG!"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_bytes(glove_text(VECTORS))
    return path


def words_of(sentence: str) -> list[str]:
    return [word for word in re.findall(r"\w+", sentence.lower()) if word in VECTORS]


def oracle(sentences: list[str], pooling: Pooling, corpus: list[str]) -> NDArray[np.float64]:
    """The papers, word by word and sentence by sentence."""
    if pooling.frequencies == "corpus":
        counts = Counter(word for sentence in corpus for word in words_of(sentence))
        total = sum(counts.values())
        p = {word: (counts[word] or 0.5) / total for word in VECTORS}
        listed = [count / total for count in counts.values()]
    else:
        p = {word: wordfreq.word_frequency(word, "en") for word in VECTORS}
        listed = list(wordfreq.get_frequency_dict("en").values())
    if pooling.kind == "sif":
        a = pooling.a or 1e-3
        weights = {word: a / (a + p[word]) for word in VECTORS}
    else:
        n = pooling.length or np.mean([len(words_of(sentence)) for sentence in corpus])
        threshold = 1 - (1 - 1 / len(listed)) ** n
        alpha = sum(q > threshold for q in listed) / len(listed)
        a = (1 - alpha) / (alpha * len(listed) / 2)
        weights = {word: a / (a / 2 + p[word]) for word in VECTORS}

    def mean(sentence: str) -> NDArray[np.float64]:
        words = words_of(sentence)
        if not words:
            return np.zeros(16)
        rows = np.array([VECTORS[word] for word in words], np.float64)
        if pooling.kind == "usif" and pooling.rescale is not False:
            rows = rows / np.linalg.norm(rows, axis=0)
        total = np.zeros(16)
        for word, row in zip(words, rows, strict=True):
            total = total + weights[word] * row
        return total / len(words)

    count = {"sif": 1, "usif": 5}[pooling.kind] if pooling.components is None else pooling.components
    _, sigma, right = np.linalg.svd(np.array([mean(sentence) for sentence in corpus]))
    result = []
    for sentence in sentences:
        v = mean(sentence)
        for i in range(count):
            share = sigma[i] ** 2 / sum(sigma[:count] ** 2) if pooling.kind == "usif" else 1.0
            v = v - share * (right[i] @ v) * right[i]
        result.append(v)
    return np.array(result)


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "sif"},
        {"kind": "sif", "a": 1e-2},
        {"kind": "sif", "components": 0},
        {"kind": "sif", "components": 3, "frequencies": "corpus"},
        {"kind": "usif"},
        {"kind": "usif", "rescale": False},
        {"kind": "usif", "rescale": True, "length": 11},
        {"kind": "usif", "components": 2, "rescale": False, "length": 3.5},
        {"kind": "usif", "frequencies": "corpus", "length": 1.2},
        {"kind": "usif", "frequencies": "corpus", "rescale": False, "components": 0, "length": 1.2},
    ],
    ids=str,
)
def test_vectors_equal_those_of_the_papers(settings: dict[str, Any], path: Path) -> None:
    pooling = Pooling(**settings)
    encoder = WordsEncoder(path, pooling=pooling, corpus=CORPUS if pooling.uses_corpus else None)
    np.testing.assert_allclose(encoder.encode(SENTENCES), oracle(SENTENCES, pooling, CORPUS), rtol=0, atol=2e-6)


def test_fit_does_not_depend_on_batches_of_the_corpus(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = WordsEncoder(path, pooling=Pooling("usif", frequencies="corpus"), corpus=CORPUS).encode(SENTENCES)
    monkeypatch.setattr(word_pooling, "_SENTENCES", 3)
    monkeypatch.setattr(word_pooling, "_CHARACTERS", 40)
    monkeypatch.setattr(word_pooling, "_BLOCK", 4)
    monkeypatch.setenv("ENSEMBED_CACHE", str(path.parent / "other"))
    cut = WordsEncoder(path, pooling=Pooling("usif", frequencies="corpus"), corpus=CORPUS).encode(SENTENCES)
    np.testing.assert_allclose(cut, whole, rtol=0, atol=1e-6)


def test_zero_dimensions_and_single_words_give_finite_vectors(tmp_path: Path) -> None:
    path = tmp_path / "zeros.txt"
    path.write_text("a 1 0 2\nb 3 0 4\nc 0 0 0\n")
    pooling = Pooling("usif", components=0, length=1)
    vectors = WordsEncoder(path, pooling=pooling).encode(["a b", "a", "c", "a a"])
    assert np.isfinite(vectors).all()
    assert (vectors[:, 1] == 0).all()
    assert (vectors[2] == 0).all()
    assert vectors[1, 0] == vectors[1, 2] > 0  # a single word keeps its signs only


def test_components_equal_those_of_an_svd_up_to_its_rank() -> None:
    X = np.random.default_rng(0).standard_normal((50, 2)) @ np.random.default_rng(1).standard_normal((2, 6))
    for piecewise in (False, True):
        found = CommonComponents.of(X.T @ X, 4, piecewise=piecewise)
        _, sigma, right = np.linalg.svd(X)
        assert found.directions.shape == (2, 6)
        np.testing.assert_allclose(np.abs(found.directions @ right[:2].T), np.eye(2), atol=1e-9)
        np.testing.assert_allclose(found.shares, sigma[:2] ** 2 / (sigma[:2] ** 2).sum() if piecewise else [1, 1])
    assert np.abs(CommonComponents.of(X.T @ X, 2, piecewise=False).removed_from(X)).max() < 1e-9


def test_usif_parameter_equals_the_one_by_hand() -> None:
    p = np.array([0.4, 0.3, 0.2, 0.06, 0.04])
    # 1 - 0.8^2 = 0.36: one of five words is frequent; (1 - 0.2) / (0.2 * 2.5).
    assert usif_a(p, 2) == pytest.approx(1.6)
    for tiny in ([1.0], [0.5, 0.5], [0.1, 0.9]):
        for length in (0.1, 1, 11, 1000):
            assert 0 < usif_a(np.array(tiny), length) < np.inf


def test_corpus_frequencies_ignore_case_and_give_unseen_words_half_a_token() -> None:
    frequencies = Frequencies.of_corpus([("The", 3), ("the", 5), ("dog", 2)], "abc")
    assert [frequencies.probability(word) for word in ("the", "THE", "dog", "cat")] == [0.8, 0.8, 0.2, 0.05]
    assert sorted(frequencies.probabilities()) == [0.2, 0.8]
    assert frequencies.source == "corpus abc"


def test_wordfreq_frequencies_are_those_of_the_package() -> None:
    frequencies = Frequencies.of_wordfreq("en")
    probability = frequencies.probability
    assert probability("the") == wordfreq.word_frequency("the", "en") > probability("guitar") > 0
    assert probability("zzzqqqx") == 0
    assert len(frequencies.probabilities()) > 100_000
    assert re.fullmatch(r"wordfreq \d+\.\d+(\.\d+)? en", frequencies.source)
    with pytest.raises(InputError, match="wordfreq has no language 'xx'; it has: ar"):
        Frequencies.of_wordfreq("xx")


def test_language_that_wordfreq_cannot_split_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jieba", None)
    monkeypatch.delitem(sys.modules, "wordfreq.chinese", raising=False)
    with pytest.raises(MissingError, match=r"wordfreq cannot read 'zh' here: .*jieba"):
        Frequencies.of_wordfreq("zh")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "max"}, "pooling is one of mean, sif, usif, not 'max'"),
        ({"kind": "mean", "a": 1e-3}, "pooling=mean has no use for a=0.001"),
        ({"kind": "mean", "components": 0}, "pooling=mean has no use for components=0"),
        ({"kind": "sif", "length": 3.0}, "pooling=sif has no use for length"),
        ({"kind": "sif", "rescale": False}, "pooling=sif has no use for rescale"),
        ({"kind": "usif", "a": 1e-3}, "pooling=usif has no use for a"),
        ({"kind": "sif", "a": 0.0}, "a must be a number above 0"),
        ({"kind": "sif", "a": float("nan")}, "a must be a number above 0"),
        ({"kind": "usif", "length": float("inf")}, "length must be a number above 0"),
        ({"kind": "sif", "components": -1}, "components must be at least 0, not -1"),
        ({"kind": "sif", "frequencies": "google"}, "frequencies is one of wordfreq, corpus"),
        ({"kind": "sif", "frequencies": "corpus", "lang": "en"}, "frequencies=corpus has no use for lang=en"),
    ],
)
def test_useless_or_invalid_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Pooling(**settings)


def test_a_corpus_that_was_read_before_is_not_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "_TICK_NS", 0)
    corpus = path.with_name("corpus.txt")
    corpus.write_text("\n".join(CORPUS))
    pooling = Pooling("usif", frequencies="corpus")
    first = WordsEncoder(path, pooling=pooling, corpus=corpus)
    monkeypatch.setattr(TextCorpus, "read_from", None)
    assert WordsEncoder(path, pooling=pooling, corpus=corpus).spec == first.spec


def test_a_corpus_of_several_files_is_read_again_when_one_of_them_changes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "_TICK_NS", 0)
    folder = path.with_name("corpus")
    folder.mkdir()
    (folder / "a.txt").write_text("\n".join(CORPUS))
    (folder / "b.txt").write_text("the dog\n")
    pooling = Pooling("sif", frequencies="corpus")
    for corpus in (folder, folder / "*.txt"):
        before = WordsEncoder(path, pooling=pooling, corpus=corpus).spec.key
        (folder / "a.txt").write_text("\n".join([*CORPUS, f"the man {corpus.name}"]))
        assert WordsEncoder(path, pooling=pooling, corpus=corpus).spec.key != before


def test_corpus_without_known_words_is_refused(path: Path) -> None:
    for pooling in (Pooling("sif"), Pooling("usif"), Pooling("sif", frequencies="corpus")):
        with pytest.raises(InputError, match="the list of sentences holds no word that the vectors know"):
            WordsEncoder(path, pooling=pooling, corpus=ListCorpus(["zzz qqq", "???"]))
