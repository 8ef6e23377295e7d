from __future__ import annotations

import base64
import json
import math
import pickle
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_use_lite import KONA, STACK, TINY_VOCABULARY, tiny_constants, write_use_lite
from numpy.typing import NDArray

from ensembed.encoders import open_encoder
from ensembed.encoders.sentencepiece_unigram import MAX_CHARACTERS, UnigramTokenizer
from ensembed.encoders.use_lite_encoder import UseLiteEncoder
from ensembed.errors import EncoderError, InputError

Vocabulary = Sequence[tuple[str, float | None]]

GOLDEN = json.loads((Path(__file__).parent / "golden" / "use_lite.json").read_text(encoding="utf-8"))
SENTENCES = [case["sentence"] for case in GOLDEN["cases"]]

# --- the tokenizer ----------------------------------------------------------------------------------------------------

UNKNOWN = ("�", 0.0)


def original_ids(vocabulary: Vocabulary, text: str) -> list[int]:
    """The TF.js tokenizer's `encode`, line by line, on a vocabulary with one reserved id: slow and obvious."""
    pieces = {piece: (score or 0.0, i) for i, (piece, score) in enumerate(vocabulary) if i > 0}
    symbols = unicodedata.normalize("NFKC", text)
    symbols = "▁" + symbols.replace(" ", "▁") if symbols else ""
    lattice: list[list[tuple[int, float, int]]] = [[] for _ in range(len(symbols) + 1)]
    for start in range(len(symbols)):
        ends = [end for end in range(start + 1, len(symbols) + 1) if symbols[start:end] in pieces]
        for end in ends:
            lattice[end].append((start, *pieces[symbols[start:end]]))
        if not ends:
            lattice[start + 1].append((start, 0.0, 0))
    best = [0.0] * (len(symbols) + 1)
    words = [0] * (len(symbols) + 1)
    for end, arrivals in enumerate(lattice):
        for start, score, i in sorted(arrivals):
            if best[end] == 0 or score + best[start] >= best[end]:
                best[end] = score + best[start]
                words[end] = i
    ids: list[int] = []
    end = len(symbols)
    while end > 0:
        ids.append(words[end])
        end -= len(vocabulary[words[end]][0])
    ids.reverse()
    return [i for at, i in enumerate(ids) if i != 0 or at == 0 or ids[at - 1] != 0]


def segmentations(text: str, pieces: frozenset[str]) -> list[list[str]]:
    """Every way to write the text as pieces."""
    if not text:
        return [[]]
    heads = [text[:n] for n in range(1, len(text) + 1) if text[:n] in pieces]
    return [[head, *tail] for head in heads for tail in segmentations(text[len(head) :], pieces)]


scores = st.none() | st.sampled_from([0.0, -1.0, -1.5, -2.0, -3.0, 30.0]) | st.floats(-20, 5)
vocabularies = st.dictionaries(st.text("▁ab:é", min_size=1, max_size=4), scores, max_size=12)


@given(vocabularies, st.text("ab:é 中\t", max_size=24))
def test_ids_are_those_of_the_original_for_any_scores(pieces: dict[str, float | None], text: str) -> None:
    vocabulary = [UNKNOWN, *pieces.items()]
    assert UnigramTokenizer(vocabulary, reserved=1).encode(text) == original_ids(vocabulary, text)


@given(
    st.dictionaries(st.text("▁ab", min_size=2, max_size=4), st.floats(-20, -0.1), max_size=10),
    st.tuples(*[st.floats(-20, -0.1)] * 3),
    st.text("ab ", min_size=1, max_size=8),
)
def test_no_segmentation_has_a_greater_score(
    pieces: dict[str, float], singles: tuple[float, float, float], text: str
) -> None:
    score = {**pieces, **dict(zip("▁ab", singles, strict=True))}
    names = [UNKNOWN[0], *score]
    ids = UnigramTokenizer([UNKNOWN, *score.items()], reserved=1).encode(text)
    best_pieces = [names[i] for i in ids]
    prepared = "▁" + text.replace(" ", "▁")
    assert "".join(best_pieces) == prepared
    best = max(sum(score[p] for p in s) for s in segmentations(prepared, frozenset(score)))
    assert math.isclose(sum(score[p] for p in best_pieces), best, abs_tol=1e-9)


HAND_MADE = [UNKNOWN, ("<s>", 0.0), ("▁", -3.0), ("a", -2.0), ("b", -2.0), ("ab", -1.0), ("▁a", -1.0), ("aa", -4.0)]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []),
        (" ", [2, 2]),
        ("a", [6]),
        ("ab", [6, 4]),
        ("b ab", [2, 4, 6, 4]),
        ("baa", [2, 4, 3, 3]),  # "a"+"a" and "aa" both score -4: the shorter last piece wins
        ("中", [2, 0]),
        ("中中中b中", [2, 0, 4, 0]),
        ("\t\n", [2, 0]),
        ("ａｂ", [6, 4]),  # NFKC makes full-width letters plain
        ("\u00a0a", [2, 6]),  # and a no-break space a space
        ("<s>", [2, 0]),  # reserved pieces do not match
    ],
)
def test_ids_match_examples_made_by_hand(text: str, ids: list[int]) -> None:
    assert UnigramTokenizer(HAND_MADE, reserved=2).encode(text) == ids


def test_the_later_of_two_equal_pieces_counts() -> None:
    assert UnigramTokenizer([UNKNOWN, ("▁", -1.0), ("a", -1.0), ("a", -9.0)], reserved=1).encode("a") == [1, 3]


@pytest.mark.parametrize("unit", ["ab ", "中", "\u0301\u0316", "ﷺ"])
def test_of_ten_million_characters_only_the_first_are_looked_at(unit: str) -> None:
    tokenizer = UnigramTokenizer(HAND_MADE, reserved=2)
    text = unit * (10_000_000 // len(unit))
    with patch.object(unicodedata, "normalize", wraps=unicodedata.normalize) as first_step:
        assert tokenizer.encode(text) == tokenizer.encode(text[:MAX_CHARACTERS])
    assert [len(call.args[1]) for call in first_step.call_args_list] == [MAX_CHARACTERS] * 2


# --- the network, on a tiny model with random weights -----------------------------------------------------------------


def forward_by_the_graph(constants: dict[str, NDArray[Any]], ids: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """The graph's nodes one after the other, in float64, with padding and mask as it has them: slow and obvious."""
    c = {name: array.astype(np.float64) for name, array in constants.items()}
    longest = max(1, *map(len, ids))
    mask = np.array([[position < len(i) for position in range(longest)] for i in ids])
    E = np.array([[c["module/Embeddings_en"][i] for i in (*row, *[0] * (longest - len(row)))] for row in ids])
    E *= mask[..., None]
    angle = np.arange(longest)[:, None] * c[f"{STACK}/Layer_0/AddTimingSignal/TimingSignal/ExpandDims_1"]
    timing = np.concatenate([np.sin(angle), np.cos(angle)], axis=1)
    X = E + (E + timing) * mask[..., None]
    for layer in range(2):
        variables = f"{KONA}/Encode/Layer_{layer}/TransformerLayer"
        attention = f"module/Encoder_en/KonaTransformer/Encode/Layer_{layer}/TransformerLayer/MultiheadAttention"
        graph = f"{STACK}/Layer_{layer}/TransformerLayer"

        def variable(name: str, variables: str = variables) -> NDArray[np.float64]:
            return c[f"{variables}/{name}/ConcatPartitions/concat"]

        def norm(
            X: NDArray[np.float64], prefix: str, variable: Callable[[str], NDArray[np.float64]] = variable
        ) -> NDArray[np.float64]:
            centred = X - X.mean(-1, keepdims=True)
            scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
            scale = variable(f"{prefix}layer_prepostprocess/layer_norm/layer_norm_scale")
            result: NDArray[np.float64] = scaled * scale
            return result + variable(f"{prefix}layer_prepostprocess/layer_norm/layer_norm_bias")

        qkv = norm(X, "") @ c[f"{attention}/qkv_transform_single/kernel/part_0"][0, 0]
        qkv += variable("MultiheadAttention/qkv_transform_single/bias")
        heads = []
        for q, k, v in zip(*[np.split(part, 4, axis=-1) for part in np.split(qkv, 3, axis=-1)], strict=True):
            logits = (q * c[f"{graph}/MultiheadAttention/mul/y"]) @ k.swapaxes(1, 2) - 1e9 * ~mask[:, None, :]
            A = np.exp(logits - logits.max(-1, keepdims=True))
            heads.append(A / A.sum(-1, keepdims=True) @ v)
        mixed = np.concatenate(heads, axis=-1) @ c[f"{attention}/output_transform_single/kernel/part_0"][0, 0]
        mixed += variable("MultiheadAttention/output_transform_single/bias")
        if layer == 0:
            X = X @ variable("dense/kernel") + variable("dense/bias")
        X = X + mixed
        hidden = norm(X, "FFN/") @ c[f"{graph}/FFN/conv1/Tensordot/Reshape_1"] + variable("FFN/conv1/bias")
        X = X + np.maximum(hidden, 0) @ c[f"{graph}/FFN/conv2/Tensordot/Reshape_1"] + variable("FFN/conv2/bias")
    pooled = (X * mask[..., None]).sum(1) / np.maximum(mask.sum(1), 1)[:, None]
    layer_name = "module/Encoder_en/hidden_layers/tanh_layer_0"
    Z: NDArray[np.float64] = np.tanh(pooled @ c[f"{layer_name}/weights"] + c[f"{layer_name}/bias"])
    Z /= np.sqrt(np.maximum((Z**2).sum(1, keepdims=True), 1e-12))
    return Z


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> UseLiteEncoder:
    folder = write_use_lite(tmp_path_factory.mktemp("tiny"), tiny_constants())
    return UseLiteEncoder(folder, revision="tiny", max_length=16)


texts = st.lists(st.text("ab: 中", max_size=30), max_size=8)


@given(sentences=texts)
def test_vectors_are_those_of_the_graph(tiny: UseLiteEncoder, sentences: list[str]) -> None:
    tokenizer = UnigramTokenizer(TINY_VOCABULARY)
    ids = [tokenizer.encode(sentence)[:16] for sentence in sentences]
    expected = forward_by_the_graph(tiny_constants(), ids) if ids else np.empty((0, 5))
    actual = tiny.encode(sentences)
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, atol=2e-5)


def test_spec_describes_the_tiny_model(tiny: UseLiteEncoder, tmp_path: Path) -> None:
    assert (tiny.spec.name, tiny.spec.dim, tiny.spec.max_length, tiny.spec.normalize) == ("use-lite", 5, 16, True)
    shorter = UseLiteEncoder(write_use_lite(tmp_path, tiny_constants()), name="other", revision="tiny", max_length=3)
    assert shorter.spec.name == "other"
    assert shorter.spec.key != tiny.spec.key
    np.testing.assert_array_equal(shorter.encode(["aaaaaa"]), shorter.encode(["aaaaaaaaaa"]))


def test_several_threads_give_the_same_vectors(
    tiny: UseLiteEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ensembed.encoders.use_lite_encoder._ROWS", 8)
    folder = write_use_lite(tmp_path, tiny_constants())
    sentences = ["a" * n for n in range(12)]
    for threads in (2, None):
        encoder = UseLiteEncoder(folder, revision="tiny", max_length=16, threads=threads)
        np.testing.assert_allclose(encoder.encode(sentences), tiny.encode(sentences), atol=1e-6)
        assert encoder.encode([]).shape == (0, 5)


def test_an_encoder_can_be_sent_to_another_process(tiny: UseLiteEncoder) -> None:
    copy = pickle.loads(pickle.dumps(tiny))  # noqa: S301 - our own bytes
    np.testing.assert_array_equal(copy.encode(["ab a", ""]), tiny.encode(["ab a", ""]))


# --- what can be wrong with the files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["model.json", "vocab.json", "group1-shard2of2"])
def test_a_missing_file_is_named(tmp_path: Path, file: str) -> None:
    (write_use_lite(tmp_path, tiny_constants()) / file).unlink()
    with pytest.raises(EncoderError, match=f"{file} cannot be read.*pull the encoder again"):
        UseLiteEncoder(tmp_path, revision="tiny", max_length=16)


@pytest.mark.parametrize("file", ["model.json", "vocab.json"])
@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe\x00", b"12", b"[1, 2]", b'{"weightsManifest": [3]}', b'["a"]']
)
def test_a_damaged_json_file_is_named(tmp_path: Path, file: str, content: bytes) -> None:
    (write_use_lite(tmp_path, tiny_constants()) / file).write_bytes(content)
    with pytest.raises(EncoderError, match=f"{file}.*pull the encoder again"):
        UseLiteEncoder(tmp_path, revision="tiny", max_length=16)


def test_a_cut_shard_is_reported(tmp_path: Path) -> None:
    shard = write_use_lite(tmp_path, tiny_constants()) / "group1-shard2of2"
    shard.write_bytes(shard.read_bytes()[:-4])
    with pytest.raises(EncoderError, match=r"hold \d+ bytes but model.json describes \d+"):
        UseLiteEncoder(tmp_path, revision="tiny", max_length=16)


def test_a_missing_constant_is_named(tmp_path: Path) -> None:
    constants = tiny_constants()
    del constants["module/Embeddings_en"]
    with pytest.raises(EncoderError, match="no constant 'module/Embeddings_en'"):
        UseLiteEncoder(write_use_lite(tmp_path, constants), revision="tiny", max_length=16)


def test_a_constant_of_another_shape_is_reported(tmp_path: Path) -> None:
    constants = tiny_constants()
    constants["module/Embeddings_en"] = constants["module/Embeddings_en"][:, :7]
    with pytest.raises(EncoderError, match="do not fit together"):
        UseLiteEncoder(write_use_lite(tmp_path, constants), revision="tiny", max_length=16)


def test_a_quantised_model_is_refused(tmp_path: Path) -> None:
    model = write_use_lite(tmp_path, tiny_constants()) / "model.json"
    data = json.loads(model.read_text())
    data["weightsManifest"][0]["weights"][0]["quantization"] = {"dtype": "uint8", "scale": 0.1, "min": 0}
    model.write_text(json.dumps(data))
    with pytest.raises(EncoderError, match="quantization"):
        UseLiteEncoder(tmp_path, revision="tiny", max_length=16)


def test_more_pieces_than_token_vectors_are_reported(tmp_path: Path) -> None:
    (write_use_lite(tmp_path, tiny_constants()) / "vocab.json").write_text(json.dumps([["a", 0]] * 15))
    with pytest.raises(EncoderError, match="15 pieces but the model only 14"):
        UseLiteEncoder(tmp_path, revision="tiny", max_length=16)


@pytest.mark.parametrize(("name", "value"), [("max_length", 0), ("max_length", 17), ("threads", 0)])
def test_a_parameter_out_of_range_is_named(tmp_path: Path, name: str, value: int) -> None:
    write_use_lite(tmp_path, tiny_constants())
    parameters: dict[str, Any] = {"max_length": 16, name: value}
    with pytest.raises(InputError, match=f"{name} is {value}"):
        UseLiteEncoder(tmp_path, revision="tiny", **parameters)


def key(folder: Path) -> str:
    return open_encoder(f"use-lite:{folder}?max_length=16").spec.key


def test_key_depends_only_on_the_files_that_are_read(tmp_path: Path) -> None:
    before = key(write_use_lite(tmp_path, tiny_constants()))
    (tmp_path / "README.md").write_text("# About")
    (tmp_path / "group1-shard3of2").write_bytes(b"of another model")
    assert key(tmp_path) == before
    for file in ("model.json", "vocab.json"):
        (tmp_path / file).write_text((tmp_path / file).read_text() + "\n")
        assert key(tmp_path) != before
        before = key(tmp_path)
    data = bytearray((tmp_path / "group1-shard2of2").read_bytes())
    data[-4] ^= 1
    (tmp_path / "group1-shard2of2").write_bytes(data)
    assert key(tmp_path) != before


@pytest.mark.parametrize("content", ["{", "{}", "3", '{"weightsManifest": [{}]}', '{"weightsManifest": 3}'])
def test_folder_without_a_model_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match="absent is not a folder"):
        open_encoder(f"use-lite:{tmp_path / 'absent'}")
    with pytest.raises(EncoderError, match=r"model\.json cannot be read"):
        open_encoder(f"use-lite:{tmp_path}")
    write_use_lite(tmp_path, tiny_constants())
    (tmp_path / "model.json").write_text(content)
    with pytest.raises(EncoderError, match=r"model\.json is not"):
        open_encoder(f"use-lite:{tmp_path}")


# --- the real files ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def golden_vectors() -> NDArray[np.float32]:
    return np.stack([np.frombuffer(base64.b64decode(case["vector"]), "<f4") for case in GOLDEN["cases"]])


@pytest.fixture
def real(pulled: Callable[[str], Path]) -> UseLiteEncoder:
    return UseLiteEncoder(pulled("use-lite"), revision="test")


@pytest.mark.real
@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: ascii(case["sentence"])[:24])
def test_ids_are_those_of_the_original(pulled: Callable[[str], Path], case: dict[str, Any]) -> None:
    vocabulary = json.loads((pulled("use-lite") / "vocab.json").read_text(encoding="utf-8"))
    assert UnigramTokenizer(vocabulary).encode(case["sentence"]) == case["ids"]


@pytest.mark.real
def test_vectors_are_those_of_the_original(real: UseLiteEncoder, golden_vectors: NDArray[np.float32]) -> None:
    assert np.abs(real.encode(SENTENCES) - golden_vectors).max() < 2e-6


@pytest.mark.real
def test_a_vector_does_not_depend_on_its_batch(real: UseLiteEncoder, golden_vectors: NDArray[np.float32]) -> None:
    alone = np.concatenate([real.encode([sentence]) for sentence in SENTENCES])
    assert np.abs(alone - golden_vectors).max() < 2e-6
    order = np.random.default_rng(0).permutation(len(SENTENCES))
    shuffled = real.encode([SENTENCES[i] for i in order])
    assert np.abs(shuffled - alone[order]).max() < 2e-6


@pytest.mark.real
def test_only_the_beginning_of_a_huge_sentence_is_looked_at(real: UseLiteEncoder) -> None:
    text = "all work and no play " * 500_000
    with patch.object(unicodedata, "normalize", wraps=unicodedata.normalize) as first_step:
        np.testing.assert_allclose(real.encode([text]), real.encode([text[:2100]]), atol=2e-6)
    assert [len(call.args[1]) for call in first_step.call_args_list] == [MAX_CHARACTERS, 2100]
