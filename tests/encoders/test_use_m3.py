"""Universal Sentence Encoder multilingual: SentencePiece's pieces, the network by a slow oracle, and the real model."""

from __future__ import annotations

import base64
import json
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_use_m3 import ORDERS, PIECES, double_array, tiny_arrays, write_arrays, write_sentencepiece, write_use_m3
from numpy.typing import NDArray

from ensembed.encoders import open_encoder
from ensembed.encoders.sentencepiece_model import Rules, SentencePieceModel, SentencePieceTokenizer, read_sentencepiece
from ensembed.encoders.use_m3_encoder import UseM3Encoder
from ensembed.errors import EncoderError, InputError

GOLDEN = json.loads((Path(__file__).parent / "golden" / "use_m3.json").read_text(encoding="utf-8"))["cases"]

# --- the tokenizer ----------------------------------------------------------------------------------------------------


def tokenizer_of(pieces: Mapping[str, float], rules: Mapping[str, str] | None = None) -> SentencePieceTokenizer:
    listed = [("<unk>", 0.0, 2), *((piece, score, 1) for piece, score in pieces.items())]
    return SentencePieceTokenizer(SentencePieceModel(listed, Rules(double_array(rules) if rules else b""), 1, 2))


def segmentations(text: str, pieces: frozenset[str]) -> list[list[str]]:
    """Every way to write the text as pieces and unknown characters, which are no pieces."""
    if not text:
        return [[]]
    heads = [text[:n] for n in range(1, len(text) + 1) if text[:n] in pieces]
    heads += [] if text[:1] in pieces else [text[:1]]
    return [[head, *tail] for head in heads for tail in segmentations(text[len(head) :], pieces)]


def test_rules_of_random_bytes_fail_by_an_error_of_the_package() -> None:
    """A trie may lead out of itself only for texts that nothing looks up when it is read."""
    refused = 0
    for seed in range(100):
        chance = np.random.default_rng(seed)
        size = int(chance.integers(1, 600))
        units = chance.integers(0, 512, size).astype("<u4") | chance.integers(0, size, size).astype("<u4") << 10
        try:
            rules = Rules((4 * size).to_bytes(4, "little") + units.tobytes() + chance.bytes(100) + b"\0")
        except (ValueError, IndexError, EncoderError):  # which `read_sentencepiece` names
            continue
        try:
            rules.apply("é ü 中文 \U0001f600 ab")
        except EncoderError:
            refused += 1
    assert refused


@given(
    st.dictionaries(st.text("▁ab", min_size=1, max_size=4), st.floats(-20, -0.1), max_size=10),
    st.text("abc ", min_size=1, max_size=9),
)
def test_no_segmentation_has_a_greater_score(pieces: dict[str, float], text: str) -> None:
    names, tokenizer = ["<unk>", *pieces], tokenizer_of(pieces)
    prepared = "▁".join(["", *text.split()])
    unknown = min(pieces.values(), default=0.0) - 10
    best = max(segmentations(prepared, frozenset(pieces)), key=lambda s: sum(pieces.get(p, unknown) for p in s))
    ids = tokenizer.encode(text)
    # A run of unknown characters is one piece, so that only the known ones can be compared.
    score = sum(pieces[names[i]] for i in ids if i)
    expected = sum(pieces[piece] for piece in best if piece in pieces)
    count = len(prepared) - sum(len(names[i]) for i in ids if i)
    assert math.isclose(score + count * unknown, expected + sum(p not in pieces for p in best) * unknown, abs_tol=1e-6)
    assert all(a or b for a, b in pairwise(ids))


@given(st.text("ab é\t中e\u0301ａ▁", max_size=30))
def test_words_that_are_known_change_nothing(text: str) -> None:
    rules = {"ａ": "a", "e\u0301": "é", "\t": " "}
    pieces = {"▁": -3.0, "a": -2.0, "b": -2.0, "▁ab": -2.5, "é": -1.0, "ba": -3.0}
    tokenizer = tokenizer_of(pieces, rules)
    whole = tokenizer_of({**pieces, "▁a▁b▁a": -90.0}, rules)  # with such a piece, words cannot be taken apart
    assert tokenizer._by_word
    assert not whole._by_word
    assert tokenizer.encode(text) == tokenizer.encode(text) == whole.encode(text)


def test_texts_without_spaces_are_not_kept() -> None:
    tokenizer = tokenizer_of({"▁": -3.0, "a": -2.0, "中": -2.0})
    for i in range(20):
        ids = tokenizer.first_ids(f"a a{i}" + "中" * 10_000, 128)
        assert ids == tokenizer.first_ids(f"a a{i}" + "中" * 10_000, 128)
    assert sum(map(len, tokenizer._known)) < 100


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("", ""),
        (" \t ", ""),
        ("a", "▁a"),
        ("  a \t b ", "▁a▁b"),
        ("ａ\0ｂ", "▁aｂ"),
        ("ae\u0301e", "▁aée"),
        ("a▁▁ b▁", "▁a▁▁▁b"),
    ],
)
def test_normalisation_is_that_of_the_library(text: str, normalized: str, tmp_path: Path) -> None:
    write_use_m3(tmp_path)
    assert SentencePieceTokenizer(read_sentencepiece(tmp_path / "sp.model", "")).normalize(text) == normalized


def test_pieces_of_the_user_win_and_control_symbols_never_match() -> None:
    tokenizer = SentencePieceTokenizer(SentencePieceModel(PIECES, Rules(b""), 1, 2))
    assert tokenizer.encode("a[X]b") == [4, 5, 3, 6]
    assert tokenizer.encode("<s>") == [4, 0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-3]), "it ends within"),
        (lambda path: path.write_bytes(b""), "there is no piece"),
        (lambda path: write_sentencepiece(path, PIECES, {}, kind=2), "is of kind 2, not of the unigram kind"),
        (lambda path: write_sentencepiece(path, PIECES, {}, prefix=0), "puts no space in front"),
        (lambda path: write_sentencepiece(path, PIECES, {}, strip=0), "keeps runs of spaces"),
        (lambda path: write_sentencepiece(path, [("a" * 129, 0.0, 1)], {}), "has 129 characters"),
        (lambda path: write_sentencepiece(path, [("a", math.nan, 1)], {}), "the score nan"),
        (lambda path: write_sentencepiece(path, [("a", 0.0, 1)], {}), "begin and end of a text are pieces 1 and 2"),
    ],
)
def test_a_damaged_model_is_refused(change: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    write_use_m3(tmp_path)
    change(tmp_path / "sp.model")
    with pytest.raises(EncoderError, match=rf"sp.model is no SentencePiece model, or damaged .*{reason}"):
        open_encoder(f"use-m3:{tmp_path}")


# --- the network, on a tiny model with random weights -----------------------------------------------------------------


def vector_by_hand(arrays: Mapping[str, NDArray[Any]], ids: Sequence[int]) -> NDArray[np.float64]:
    """One sentence, token by token, in float64: slow and obvious."""
    a = {name: array.astype(np.float64) for name, array in arrays.items()}

    def norm(x: NDArray[np.float64], scale: NDArray[np.float64], shift: NDArray[np.float64]) -> NDArray[np.float64]:
        result: NDArray[np.float64] = (x - x.mean()) / np.sqrt(x.var() + a["eps"]) * scale + shift
        return result

    E = np.array([a[f"q{i % 17 + 1}"][i // 17] * a["scale"][i % 17] + a["lo"][i % 17] for i in ids])

    def joined(name: str) -> NDArray[np.float64]:
        return np.concatenate([a[f"{name}{n}"] for n in ORDERS], axis=-1)

    features = [E]
    # One norm over what all branches get.
    inputs = np.array([norm(e @ joined("proj") + joined("proj_b"), joined("ln_g"), joined("ln_b")) for e in E])
    for n, X in zip(ORDERS, np.split(inputs, 3, axis=1), strict=True):
        for layer in "12":
            around = np.pad(X, (((n - 1) // 2, n // 2), (0, 0)))  # so that the result has as many tokens
            windows = np.array([around[t : t + n].ravel() for t in range(len(X))])
            X = np.maximum(windows @ a[f"w{layer}_{n}"] + a[f"b{layer}_{n}"], 0) + X
        features.append(X)
    F = np.array([norm(row, a["ln_g"], a["ln_b"]) for row in np.concatenate(features, axis=1)])
    y = (F @ a["cnn_W"] + a["cnn_b"]).sum(axis=0) / np.sqrt(len(ids))
    y = np.maximum(y @ a["p1"] + np.maximum(y @ a["d0"], 0) @ a["d1"], 0)
    z: NDArray[np.float64] = np.tanh(y @ a["p3"] + np.maximum(y @ a["d2"], 0) @ a["d3"])
    z /= np.sqrt(max(float(z @ z), float(a["eps"])))
    return z


@given(sentences=st.lists(st.text("ab: 中é\t", max_size=40), max_size=6))
def test_vectors_are_those_of_the_formulas(sentences: list[str], tiny: UseM3Encoder) -> None:
    ids = [[1, *tiny._tokenizer.encode(sentence), 2] for sentence in sentences]
    expected = [vector_by_hand(tiny_arrays(), row) for row in ids]
    np.testing.assert_allclose(tiny.encode(sentences), np.array(expected).reshape(-1, 5), atol=2e-5)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> UseM3Encoder:
    return UseM3Encoder(write_use_m3(tmp_path_factory.mktemp("tiny")), revision="tiny")


def test_batches_threads_and_lengths(tiny: UseM3Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = ["ab " * n for n in range(12)]
    expected = tiny.encode(sentences)
    monkeypatch.setattr("ensembed.encoders.use_m3_encoder._ROWS", 8)
    folder = write_use_m3(tmp_path)
    for threads in (1, 2, None):
        encoder = UseM3Encoder(folder, revision="tiny", threads=threads)
        np.testing.assert_allclose(encoder.encode(sentences), expected, atol=1e-6)
    short = open_encoder(f"use-m3:{folder}?max_length=3")
    assert short.spec.max_length == 3
    np.testing.assert_array_equal(short.encode(["a a a"]), short.encode(["a a a b"]))
    with pytest.raises(InputError, match="max_length is 0"):
        open_encoder(f"use-m3:{folder}?max_length=0")
    with pytest.raises(InputError, match="threads is 0"):
        UseM3Encoder(folder, revision="tiny", threads=0)


def lying_npz(path: Path, header: bytes) -> None:
    """Replace the first table by one with this header and few bytes."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            lie = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"1234"
            archive.writestr(name, lie if name == "q1.npy" else content)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-30]), "damaged"),
        (lambda path: path.write_bytes(b"PK"), "damaged"),
        (
            lambda path: write_arrays(path, {k: v for k, v in tiny_arrays().items() if k != "d3"}),
            "does not hold d3.npy",
        ),
        (lambda path: write_arrays(path, {**tiny_arrays(), "d3": np.zeros((3, 5))}), "do not fit together"),
        (lambda path: write_arrays(path, {**tiny_arrays(), "d3": np.array(["x"])}), "holds <U1, not plain numbers"),
        (
            lambda path: lying_npz(path, b"{'descr': '|u1', 'fortran_order': False, 'shape': (9999999999, 6), }\n"),
            "cannot reshape",
        ),
        (lambda path: lying_npz(path, b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n"), "holds object"),
        (lambda path: write_arrays(path, {**tiny_arrays(), "bits": np.zeros(10**8, np.uint8)}), "unpacks to"),
        (lambda path: path.unlink(), "cannot be read"),
    ],
)
def test_damaged_weights_are_refused(change: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    write_use_m3(tmp_path)
    change(tmp_path / "weights.npz")
    with pytest.raises(EncoderError, match=rf"weights.npz .*{reason}"):
        UseM3Encoder(tmp_path, revision="x")


def test_files_of_different_models_are_refused(tmp_path: Path) -> None:
    write_use_m3(tmp_path)
    write_sentencepiece(tmp_path / "sp.model", [*PIECES, *((f"p{i}", -1.0, 1) for i in range(30))], {})
    with pytest.raises(EncoderError, match=r"41 pieces but weights\.npz only 34 token vectors"):
        open_encoder(f"use-m3:{tmp_path}")


# --- the real model ---------------------------------------------------------------------------------------------------


@pytest.mark.real
def test_pieces_and_vectors_of_the_real_model_are_those_of_the_originals(pulled: Callable[[str], Path]) -> None:
    pulled("use-m3")
    encoder = open_encoder("use-m3")
    assert isinstance(encoder, UseM3Encoder)
    for case in GOLDEN:
        assert encoder._tokenizer.encode(case["sentence"]) == case["ids"], case["sentence"]
    cases = [case for case in GOLDEN if "vector" in case]
    expected = [np.frombuffer(base64.b64decode(case["vector"]), "<f4") for case in cases]
    vectors = encoder.encode([case["sentence"] for case in cases])
    np.testing.assert_allclose(vectors[:, :64], expected, atol=1e-6)
