"""What the files beside an exported model say of its use, and how long texts are cut."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_onnx import make_onnx, oracle, small_graph, write_json, write_onnx
from make_st import write_st
from make_static import small_tokenizer

from ensembed.encoders import open_encoder
from ensembed.encoders.onnx_files import read_settings
from ensembed.encoders.token_ids import first_ids
from ensembed.errors import EncoderError, InputError
from ensembed.testing import SENTENCES, check_encoder

# --- settings ---------------------------------------------------------------------------------------------------------

LEGACY = {
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": False,
    "pooling_mode_max_tokens": False,
    "pooling_mode_mean_sqrt_len_tokens": False,
}


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({**LEGACY, "pooling_mode_cls_token": True}, "cls"),
        ({**LEGACY, "pooling_mode_max_tokens": True}, "max"),
        ({**LEGACY, "pooling_mode_mean_tokens": True}, "mean"),
        ({**LEGACY, "pooling_mode_lasttoken": True}, "last"),
        ({**LEGACY}, "mean"),
        ({"embedding_dimension": 8, "pooling_mode": "cls", "include_prompt": True}, "cls"),
        ({"embedding_dimension": 8, "pooling_mode": ["lasttoken"]}, "last"),
        (None, "mean"),
    ],
)
def test_pooling_is_read_from_files_of_sentence_transformers(
    tmp_path: Path, config: dict[str, Any] | None, pooling: str
) -> None:
    write_onnx(tmp_path)
    if config is not None:
        write_json(tmp_path / "1_Pooling" / "config.json", config)
    encoder = open_encoder(f"onnx:{tmp_path}?max_length=256")
    assert encoder.spec.pooling == pooling
    np.testing.assert_allclose(encoder.encode(SENTENCES), oracle(pooling), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"pooling_mode_weightedmean_tokens": True}, "weightedmean"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "mean_sqrt_len_tokens"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "cls and mean"),
        ({"pooling_mode": ["mean", "max"]}, "mean and max"),
        ({"pooling_mode": "attention"}, "attention"),
        ({"pooling_mode": 7}, "7"),
    ],
)
def test_a_pooling_that_we_lack_is_named(tmp_path: Path, config: dict[str, Any], words: str) -> None:
    write_onnx(tmp_path)
    write_json(tmp_path / "1_Pooling" / "config.json", config)
    with pytest.raises(EncoderError, match=rf"1_Pooling/config.json asks for pooling by {words}, which onnx: lacks"):
        open_encoder(f"onnx:{tmp_path}")
    assert open_encoder(f"onnx:{tmp_path}?pooling=cls").spec.pooling == "cls"


def modules(*kinds: str) -> list[dict[str, Any]]:
    """A `modules.json` as sentence-transformers 6 writes it."""
    paths = ["" if kind == "Transformer" else f"{i}_{kind}" for i, kind in enumerate(kinds)]
    kind = "sentence_transformers.sentence_transformer.modules.{}.{}"
    return [
        {"idx": i, "name": str(i), "path": path, "type": kind.format(name.lower(), name)}
        for i, (name, path) in enumerate(zip(kinds, paths, strict=True))
    ]


def test_only_normalize_modules_may_follow_the_pooling(tmp_path: Path) -> None:
    write_onnx(tmp_path, outputs=("last_hidden_state", "sentence_embedding"))
    write_json(tmp_path / "modules.json", modules("Transformer", "Pooling", "Normalize"))
    write_json(tmp_path / "1_Pooling" / "config.json", {"pooling_mode": "mean"})
    encoder = open_encoder(f"onnx:{tmp_path}?max_length=256")
    assert encoder.spec.normalize
    expected = oracle() / np.linalg.norm(oracle(), axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, rtol=1e-5, atol=1e-5)
    check_encoder(encoder)
    write_json(tmp_path / "modules.json", modules("Transformer", "Pooling", "Dense", "Normalize"))
    for query in ("", "?pooling=mean"):
        with pytest.raises(EncoderError, match=r"puts a Dense module \(2_Dense\) behind the transformer"):
            open_encoder(f"onnx:{tmp_path}{query}")
    assert open_encoder(f"onnx:{tmp_path}?pooling=model").spec.pooling == "model"


@pytest.mark.parametrize(
    ("files", "max_length", "positions"),
    [
        ({}, None, None),
        ({"config.json": {"max_position_embeddings": 512, "model_type": "bert"}}, 512, 512),
        ({"config.json": {"max_position_embeddings": 514, "model_type": "xlm-roberta", "pad_token_id": 1}}, 512, 512),
        ({"config.json": {"max_position_embeddings": 514, "model_type": "mpnet"}}, 512, 512),
        ({"config.json": {"max_position_embeddings": -1, "model_type": "xlnet"}}, None, None),
        ({"sentence_bert_config.json": {"max_seq_length": 128, "do_lower_case": False}}, 128, None),
        ({"sentence_bert_config.json": {}, "tokenizer_config.json": {"model_max_length": 64}}, 64, None),
        ({"tokenizer_config.json": {"model_max_length": 10**30}, "tokenizer.json": {"truncation": None}}, None, None),
        ({"tokenizer_config.json": {}, "tokenizer.json": {"truncation": {"max_length": 99}}}, 99, None),
        ({"tokenizer_config.json": {"model_max_length": 1e30}, "config.json": {"max_position_embeddings": 7}}, 7, 7),
        (
            {
                "sentence_bert_config.json": {"max_seq_length": 32},
                "tokenizer_config.json": {"model_max_length": 64},
                "tokenizer.json": {"truncation": {"max_length": 99}},
                "config.json": {"max_position_embeddings": 512},
            },
            *(32, 512),
        ),
        (
            {"tokenizer_config.json": {"model_max_length": 8192}, "config.json": {"max_position_embeddings": 512}},
            *(512, 512),
        ),
    ],
)
def test_max_length_is_read_from_the_files(
    tmp_path: Path, files: dict[str, Any], max_length: int | None, positions: int | None
) -> None:
    for name, data in files.items():
        write_json(tmp_path / name, data)
    settings = read_settings(tmp_path)
    assert (settings.max_length, settings.positions) == (max_length, positions)


def test_lengths_out_of_range_are_refused(tmp_path: Path) -> None:
    write_onnx(tmp_path)
    assert open_encoder(f"onnx:{tmp_path}").spec.max_length == 512
    for length in (-1, 0, 2, 1_000_001, 10**20):
        with pytest.raises(InputError, match=f"max_length must be from 3 to 1000000, not {length}"):
            open_encoder(f"onnx:{tmp_path}?max_length={length}")
    with pytest.raises(EncoderError, match="failed"):  # no file says that it has 256 positions
        open_encoder(f"onnx:{tmp_path}").encode(["a " * 1000])
    write_json(tmp_path / "config.json", {"max_position_embeddings": 256})
    with pytest.raises(InputError, match="max_length must be from 3 to 256, not 257"):
        open_encoder(f"onnx:{tmp_path}?max_length=257")
    short = open_encoder(f"onnx:{tmp_path}?max_length=5")
    np.testing.assert_allclose(short.encode(SENTENCES), oracle(max_length=5), rtol=1e-5, atol=1e-5)


def test_do_lower_case_of_sentence_transformers_is_applied(tmp_path: Path) -> None:
    from tokenizers import normalizers

    write_onnx(tmp_path)
    tokenizer = small_tokenizer()
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    upper, lower = ["A DOG RUNS."], ["a dog runs."]
    cased = open_encoder(f"onnx:{tmp_path}?max_length=99")
    assert not np.allclose(cased.encode(upper), cased.encode(lower))
    write_json(tmp_path / "sentence_bert_config.json", {"max_seq_length": 99, "do_lower_case": True})
    encoder = open_encoder(f"onnx:{tmp_path}")
    assert np.array_equal(encoder.encode(upper), cased.encode(lower))
    assert encoder.spec.key != cased.spec.key


# --- prompts ----------------------------------------------------------------------------------------------------------

PROMPT = {"prompts": {"sts": "a report: ", "query": "query: "}, "default_prompt_name": "sts"}
ABOUT = "config_sentence_transformers.json"


def test_the_default_prompt_is_put_before_every_sentence(tmp_path: Path) -> None:
    folder, plain = write_onnx(tmp_path / "prompted"), write_onnx(tmp_path / "plain")
    write_json(folder / ABOUT, PROMPT)
    encoder = open_encoder(f"onnx:{folder}?max_length=256")
    expected = open_encoder(f"onnx:{plain}?max_length=256").encode([f"a report: {sentence}" for sentence in SENTENCES])
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-6)
    assert encoder.spec.prompt == "a report: "
    assert encoder.spec.key == open_encoder(f"onnx:{plain}?max_length=256&prefix=a report: ").spec.key
    check_encoder(encoder)
    # A prefix stands behind it, as with st:.
    both = open_encoder(f"onnx:{folder}?max_length=256&prefix=so ")
    assert both.spec.prompt == "a report: so "
    assert np.array_equal(both.encode(["a dog"]), encoder.encode(["so a dog"]))


@pytest.mark.parametrize(
    "about",
    [
        PROMPT,
        {"prompts": PROMPT["prompts"], "default_prompt_name": None},
        {"prompts": PROMPT["prompts"]},
        {"prompts": {"query": "query: "}, "default_prompt_name": "query"},
        {"prompts": {"sts": ""}, "default_prompt_name": "sts"},
        {},
    ],
)
def test_the_prompt_is_the_one_of_sentence_transformers(tmp_path: Path, about: dict[str, Any]) -> None:
    folder = write_st(tmp_path / "model")
    (folder / "model.onnx").write_bytes(small_graph().SerializeToString())
    write_json(folder / ABOUT, about)
    library, ours = open_encoder(f"st:{folder}").spec, open_encoder(f"onnx:{folder}").spec
    assert ours.prompt == library.prompt
    assert (ours.prompt == "") == (about.get("default_prompt_name") is None or about["prompts"] == {"sts": ""})


def test_a_prompt_that_is_not_pooled_is_refused(tmp_path: Path) -> None:
    write_onnx(tmp_path)
    write_json(tmp_path / "1_Pooling" / "config.json", {"pooling_mode": "mean", "include_prompt": False})
    open_encoder(f"onnx:{tmp_path}")  # without a prompt nothing is left out
    write_json(tmp_path / ABOUT, PROMPT)
    for query in ("", "?pooling=mean"):
        with pytest.raises(EncoderError, match=r"leaves the default prompt 'a report: ' out of the pooling.* with st:"):
            open_encoder(f"onnx:{tmp_path}{query}")


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"prompts": {}, "default_prompt_name": "sts"}, "has no prompt 'sts'"),
        ({"default_prompt_name": "sts"}, "has no prompt 'sts'"),
        ({"prompts": ["sts"], "default_prompt_name": "sts"}, "has no prompt 'sts'"),
        ({"prompts": {"sts": 3}, "default_prompt_name": "sts"}, "has a prompt 'sts' that is no text: 3"),
        ({"prompts": {}, "default_prompt_name": []}, r"has no prompt \[\]"),
        ([], "holds a JSON list, not an object"),
    ],
)
def test_malformed_prompts_are_refused(tmp_path: Path, about: Any, message: str) -> None:  # noqa: ANN401 - whatever JSON holds
    write_onnx(tmp_path)
    write_json(tmp_path / ABOUT, about)
    with pytest.raises(EncoderError, match=f"{ABOUT} {message}"):
        open_encoder(f"onnx:{tmp_path}")


# --- long texts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unit", ["word ", "a", ".", " ", "e\u0301", "東京", "dogs " * 99 + "x" * 5000, " " * 3000 + "two dogs, ", "\u0301"]
)
def test_the_beginning_of_a_long_text_has_its_first_tokens(unit: str) -> None:
    tokenizer = small_tokenizer()
    for length in (8, 200):
        tokenizer.enable_truncation(length)
        for size in (4000, 4097, 30_000, 90_000):
            text = (unit * (size // len(unit) + 1))[:size]
            assert first_ids(tokenizer, ["a", text, "b"], length) == [
                tokenizer.encode(each).ids for each in ("a", text, "b")
            ]


def test_ten_megabytes_of_punctuation_are_quick(tmp_path: Path) -> None:
    encoder = open_encoder(make_onnx(tmp_path))
    start = time.perf_counter()
    vectors = encoder.encode([". , " * 2_500_000, ". , " * 25_000])
    assert time.perf_counter() - start < 5  # all of it takes 15 s and 4 GB
    assert np.array_equal(vectors[0], vectors[1])
