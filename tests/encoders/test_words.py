"""Word vectors as an encoder: tokens, options, keys, the contract."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_words import all_formats, make_words, small_vectors
from numpy.typing import NDArray

from ensembed.corpora.corpus import ListCorpus, TextCorpus
from ensembed.encoders import Encoder, open_encoder
from ensembed.encoders import model_files as remembered_module
from ensembed.encoders.words import word_pooling, word_vectors
from ensembed.encoders.words.word_pooling import Pooling
from ensembed.encoders.words.word_vectors import WordFinder
from ensembed.encoders.words.words_encoder import WordsEncoder
from ensembed.errors import CorpusError, EncoderError, InputError, MissingError
from ensembed.support.machine import cache_dir
from ensembed.testing import check_encoder

VECTORS = small_vectors()
CORPUS = [
    "A man is playing a guitar.",
    "Two dogs run through the snow.",
    "Stock prices fell after the report.",
    "The cat sleeps on the sofa.",
    "The men said the word.",
    "One woman plays while two cats run.",
]


@pytest.fixture
def name(tmp_path: Path) -> str:
    return make_words(tmp_path)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(CORPUS))
    return path


def mean(*words: str) -> NDArray[np.float64]:
    return np.asarray(np.mean([VECTORS[word] for word in words], axis=0, dtype=np.float64))


def tokens(sentence: str, vocabulary: str) -> list[str]:
    words = vocabulary.split()
    finder = WordFinder(lambda word: words.index(word) if word in words else -1)
    return [words[row] for rows in finder.find(sentence) for row in rows]


@pytest.mark.parametrize("options", ["?pooling=sif&corpus={}", "?pooling=usif&corpus={}&frequencies=corpus"])
def test_sif_and_usif_keep_the_contract(options: str, name: str, corpus: Path) -> None:
    check_encoder(open_encoder(name + options.format(corpus)))


@pytest.mark.parametrize(
    ("sentence", "vocabulary", "expected"),
    [
        ("The dog, the DOG!", "the dog", "the dog the dog"),
        ("The May may", "The the may May", "The May may"),
        ("don't can't won't isn't", "do can will is not n't", "do n't can n't will n't is n't"),
        ("don't DON’T", "do not", "do not do not"),
        ("don't", "don't do n't", "don't"),
        (
            "the dog's bone; they'll say I'm 'quoted'",
            "dog 's bone they 'll i 'm quoted",
            "dog 's bone they 'll i 'm quoted",
        ),
        ("the dog's", "dog", "dog"),
        ("well-known state-of-the-art", "well-known well known state art", "well-known state art"),
        ("a-b's", "a b 's", "a b 's"),
        ("12,50 3.14 1990s 7", "12,50 3 14 1990s 7", "12,50 3 14 1990s 7"),
        ("U.S. and U.K.-based", "u.s. and u.k based", "u.s. and based"),
        ("in the U.S.", "u.s.", "u.s."),
        ("AT&T and R&D/IT", "at&t r d it", "at&t r d it"),
        ("New_York _ a_b", "New_York a b", "New_York a b"),
        ("caf\u00e9 cafe\u0301", "caf\u00e9", "caf\u00e9 caf\u00e9"),
        ("हिन्दी भाषा।", "हिन्दी भाषा", "हिन्दी भाषा"),
        ("... - ' , ()", ". , -", ""),
        ("end.Start well...then", "end start well then", "end start well then"),
        ("x" * 300 + " dog " + "dog-" * 200, "dog", "dog " * 201),
    ],
)
def test_finder_splits_sentences_into_known_words(sentence: str, vocabulary: str, expected: str) -> None:
    assert tokens(sentence, vocabulary) == expected.split()


def test_cache_of_tokens_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_vectors, "_MOST_CACHED", 10)
    finder = WordFinder(len)
    for i in range(100):
        assert list(finder.find(f"word{i}")) == [(len(f"word{i}"),)]
    assert finder.rows_of.cache_info().currsize == 10


def test_mean_is_over_known_words(name: str) -> None:
    sentences = ["The dogs run, unknownword!", "Don't the well-known dogs' cats run?", "unknownword", "", "12,50"]
    expected: list[NDArray[Any]] = [
        mean("The", "dogs", "run"),
        mean("do", "n't", "the", "well-known", "dogs", "cats", "run"),
        np.zeros(16),
        np.zeros(16),
        VECTORS["12,50"],
    ]
    np.testing.assert_allclose(open_encoder(name).encode(sentences), expected, rtol=0, atol=1e-6)


def test_a_sentence_longer_than_a_block_is_summed_in_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    words = list(VECTORS)[50:150]
    sentences = [" ".join(generator.choice(words, size)) for size in (5, 1000, 1, 0, 99, 100, 101, 3)]
    encoder = open_encoder(name)
    whole = encoder.encode(sentences)
    monkeypatch.setattr(word_pooling, "_BLOCK", 100)
    np.testing.assert_allclose(encoder.encode(sentences), whole, rtol=0, atol=1e-6)
    expected = [mean(*sentence.split()) if sentence else np.zeros(16) for sentence in sentences]
    np.testing.assert_allclose(whole, expected, rtol=0, atol=1e-6)


def test_word_of_ten_megabytes_is_split_and_encoded(name: str) -> None:
    assert np.isfinite(open_encoder(name).encode(["a-" * 5_000_000])).all()


@pytest.mark.parametrize("option", ["word2vec", "fasttext", "word2vec-bin", "wink", "glove"])
def test_format_option_overrides_detection(option: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    path.write_bytes(all_formats(VECTORS)[option][1])
    named, detected = open_encoder(f"words:{path}?format={option}"), open_encoder(f"words:{path}")
    assert named.spec.key == detected.spec.key
    wrong = "glove" if option != "glove" else "wink"
    with pytest.raises(EncoderError, match="vectors"):
        open_encoder(f"words:{path}?format={wrong}").encode(["the"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("pooling=max", "'max' is not a value for pooling"),
        ("format=csv", "'csv' is not a value for format"),
        ("components=x", "'x' is not a value for components"),
        ("sorting=1", "has no option 'sorting'; it has: pooling, corpus"),
        ("pooling=sif", r"pooling=sif removes .* add corpus=FILE, .* or components=0 to leave it in"),
        ("pooling=usif", "pooling=usif removes"),
        ("pooling=sif&components=0&frequencies=corpus", "add corpus=FILE, or frequencies=wordfreq"),
        ("corpus=text.txt", "has no use for a corpus: leave it out, or choose pooling=sif or usif"),
        ("pooling=sif&components=0&corpus=text.txt", "has no use for a corpus"),
        ("a=1", "pooling=mean has no use for a=1.0"),
    ],
)
def test_options_are_checked_before_any_file_is_touched(options: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_encoder(f"words:absent.txt?{options}")


def test_missing_files_and_languages_are_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file of word vectors absent\.txt"):
        open_encoder("words:absent.txt")
    with pytest.raises(InputError, match="is a folder"):
        open_encoder(f"words:{tmp_path}")
    with pytest.raises(InputError, match="has no path: write words:PATH"):
        open_encoder("words:")
    with pytest.raises(CorpusError, match=r"there is no corpus file 'absent\.txt'"):
        open_encoder(f"{name}?pooling=sif&corpus=absent.txt")
    empty = tmp_path / "empty.txt"
    empty.write_text(" \n")
    with pytest.raises(CorpusError, match="holds no sentence"):
        open_encoder(f"{name}?pooling=sif&corpus={empty}")
    with pytest.raises(InputError, match="has 16 dimensions: components cannot be 17"):
        open_encoder(f"{name}?pooling=sif&components=17&corpus={empty}")
    with pytest.raises(InputError, match="wordfreq has no language 'tlh'"):
        open_encoder(f"{name}?pooling=sif&components=0&lang=tlh")


def test_mean_works_without_wordfreq_and_sif_says_what_to_install(
    name: str, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wordfreq", None)
    open_encoder(name)
    open_encoder(f"{name}?pooling=usif&frequencies=corpus&corpus={corpus}")
    with pytest.raises(MissingError, match=r"needs wordfreq; install it with: pip install 'ensembed\[words\]'"):
        open_encoder("words:absent.txt?pooling=sif&components=0")


def test_key_changes_with_settings_that_change_the_numbers_only(name: str, corpus: Path) -> None:
    other = corpus.with_name("other.txt")
    other.write_text("\n".join(CORPUS[:-1]))
    settings = [
        "",
        "pooling=sif&components=0",
        f"pooling=sif&corpus={corpus}",
        f"pooling=sif&corpus={other}",
        f"pooling=sif&corpus={corpus}&a=0.01",
        f"pooling=sif&corpus={corpus}&components=2",
        f"pooling=sif&corpus={corpus}&frequencies=corpus",
        f"pooling=sif&corpus={corpus}&lang=de",
        f"pooling=usif&corpus={corpus}",
        f"pooling=usif&corpus={corpus}&length=50",
        f"pooling=usif&corpus={corpus}&rescale=false",
        f"pooling=usif&corpus={corpus}&components=1",
        f"pooling=usif&corpus={corpus}&frequencies=corpus",
        f"pooling=usif&corpus={other}&frequencies=corpus&components=0",
        f"pooling=usif&corpus={corpus}&frequencies=corpus&components=0",
    ]
    encoders = [open_encoder(f"{name}?{options}") for options in settings]
    assert len({encoder.spec.key for encoder in encoders}) == len(settings)
    rows = np.array([encoder.encode(["The two men, while the cat sleeps on the sofa."])[0] for encoder in encoders])
    assert len(np.unique(rows, axis=0)) == len(settings)
    same = {
        "pooling=mean": "",
        f"pooling=sif&corpus={corpus}&a=1e-3&components=1&frequencies=wordfreq&lang=en": settings[2],
        f"pooling=usif&corpus={corpus}&components=5&rescale=true": settings[8],
    }
    for written, meant in same.items():
        assert open_encoder(f"{name}?{written}").spec.key == encoders[settings.index(meant)].spec.key


def test_key_depends_on_content_and_not_on_paths(name: str, corpus: Path, tmp_path: Path) -> None:
    path = Path(name.removeprefix("words:"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for file in (path, corpus):
        (elsewhere / f"other-{file.name}").write_bytes(file.read_bytes())
    here = open_encoder(f"{name}?pooling=usif&corpus={corpus}")
    there = open_encoder(f"words:{elsewhere}/other-vectors.txt?pooling=usif&corpus={elsewhere}/other-corpus.txt")
    assert here.spec.key == there.spec.key
    for given in (CORPUS, ListCorpus(CORPUS), TextCorpus(corpus), corpus):
        assert WordsEncoder(path, pooling="usif", corpus=given).spec.key == here.spec.key
    path.write_bytes(path.read_bytes().replace(b"guitar ", b"gitarre "))
    assert open_encoder(f"{name}?pooling=usif&corpus={corpus}").spec.key != here.spec.key


def test_fit_is_cached_and_a_damaged_cache_is_replaced(
    name: str, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered_module, "_TICK_NS", -(10**18))
    whole = f"{name}?pooling=usif&corpus={corpus}&frequencies=corpus"

    def opened() -> tuple[Encoder, set[str]]:
        labels: set[str] = set()
        return open_encoder(whole, progress=lambda label, *_: labels.add(label.partition(" ")[0])), labels

    first, labels = opened()
    assert labels == {"hash", "convert", "count", "common"}
    with monkeypatch.context() as patch:
        patch.setattr(word_pooling, "count_words", None)
        patch.setattr(word_pooling, "second_moment", None)
        patch.setattr(TextCorpus, "__iter__", None)
        second, labels = opened()
    assert labels == set()
    assert np.array_equal(first.encode(CORPUS), second.encode(CORPUS))
    fits = list((cache_dir() / "words" / "fitted").iterdir())
    assert len(fits) == 2
    for damage in (lambda data: data[:-30], lambda _: b"", lambda _: b"not a fit"):
        for fit in fits:
            fit.write_bytes(damage(fit.read_bytes()))
        third, labels = opened()
        assert labels == {"count", "common"}
        assert np.array_equal(first.encode(CORPUS), third.encode(CORPUS))


def test_corpus_that_changes_during_a_pass_is_refused(name: str, corpus: Path) -> None:
    def change(label: str, _done: int, _total: int | None, /) -> None:
        if label == "common components":
            with corpus.open("a") as file:
                file.write("\nmore")

    with pytest.raises(CorpusError, match="changed while it was being read"):
        open_encoder(f"{name}?pooling=sif&corpus={corpus}", progress=change)


def test_common_options_apply_to_word_vectors(name: str) -> None:
    encoder = open_encoder(f"{name}?truncate_dim=4&normalize=true&prefix=the ")
    expected = mean("the", "dog")[:4]
    np.testing.assert_allclose(encoder.encode(["dog"])[0], expected / np.linalg.norm(expected), atol=1e-6)


@pytest.mark.real
def test_glove_is_pulled_and_pooled(pulled: Callable[[str], Path], corpus: Path) -> None:
    pulled("glove")
    plain, usif = open_encoder("glove"), open_encoder(f"glove?pooling=usif&corpus={corpus}")
    assert plain.spec.revision == usif.spec.revision
    # The file's own numbers for "dog", "the" and "well-known".
    dog = plain.encode(["dog"])[0]
    np.testing.assert_allclose(dog[:4], [0.30817, 0.30938, 0.52803, -0.92543], atol=1e-6)
    assert plain.similarity(["a dog"], ["a puppy"]) > plain.similarity(["a dog"], ["a senator"])
    assert usif.encode(["a dog"]).shape == (1, 100)
    check_encoder(usif)


def test_encoder_accepts_a_pooling_object(name: str) -> None:
    path = Path(name.removeprefix("words:"))
    encoder = WordsEncoder(path, pooling=Pooling("sif", components=3), corpus=CORPUS)
    assert encoder.spec.name == f"words:{path}"
    assert dict(encoder.spec.extra)["components"] == "3"
