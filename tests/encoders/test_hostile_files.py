"""Files of encoders that someone made to break a reader: every one is refused by an error that names it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_onnx import write_onnx
from make_static import make_static, small_tokenizer
from make_words import small_vectors, wink_json
from safetensors.numpy import save_file

from ensembed.encoders import open_encoder
from ensembed.encoders.onnx_files import read_settings
from ensembed.errors import EncoderError, EnsembedError, InputError, ModelError
from ensembed.models.saved_model import read_model

DEEP = "[" * 10**5 + "]" * 10**5


@pytest.mark.parametrize(
    "file",
    ["config.json", "modules.json", "sentence_bert_config.json", "tokenizer_config.json", "1_Pooling/config.json"],
)
def test_deeply_nested_settings_of_a_transformer(tmp_path: Path, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(DEEP)
    with pytest.raises(EncoderError, match=f"{Path(file).name} is not JSON.*nested"):
        read_settings(tmp_path)


def test_deeply_nested_config_of_model2vec(tmp_path: Path) -> None:
    save_file({"embeddings": np.ones((3, 2), np.float32)}, tmp_path / "model.safetensors")
    small_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(DEEP)
    with pytest.raises(EncoderError, match=r"config\.json is not JSON.*nested"):
        open_encoder(f"model2vec:{tmp_path}")


def test_deeply_nested_config_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(DEEP)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="cannot be read: its lists and objects are nested more than"):
        read_model(tmp_path)
    for depth in (200, 500, 800, 900, 950, 990):  # some can be parsed, but not written again
        (tmp_path / "config.json").write_text(
            json.dumps({"format": 1})[:-1] + ', "a":' + "[" * depth + "]" * depth + "}"
        )
        with pytest.raises(ModelError):
            read_model(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"dimensions": -1},
        {"dimensions": 10**400},
        {"dimensions": True},
        {"dimensions": 1.5},
        {"size": 10**400},
        {"vectors": {"a": [10**400] * 6}},
        {"vectors": {"a": DEEP}},
        {"vectors": {"a": []}},
    ],
    ids=lambda change: f"{next(iter(change))} {str(change)[-9:]}",
)
def test_wink_files_with_senseless_values(tmp_path: Path, change: dict[str, Any]) -> None:
    facts = json.loads(wink_json(small_vectors()))
    path = tmp_path / "wink.json"
    path.write_text(json.dumps(change | {k: v for k, v in facts.items() if k not in change}))
    if "vectors" in change:  # they come last
        path.write_text(json.dumps({k: v for k, v in facts.items() if k != "vectors"} | change))
    with pytest.raises(EncoderError, match=r"wink\.json"):
        open_encoder(f"words:{path}")


@pytest.mark.parametrize("data", [b'{"\xff', b'{"dimensions": 3, "a\xc3": 1}', b'{"a": ' + DEEP.encode()])
def test_wink_files_that_are_no_text(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "wink.json").write_bytes(data)
    with pytest.raises(EnsembedError, match=r"wink\.json"):
        open_encoder(f"words:{tmp_path / 'wink.json'}?format=wink")


def write_tensor(path: Path, name: str, shape: list[int], data: bytes, dtype: str = "F32") -> None:
    header = json.dumps({name: {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


@pytest.mark.parametrize("shape", [[2**63, 0], [0, 2**64 - 1], [2**40, 0, 2**40], [0], [], [1] * 70])
@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_tensors_of_impossible_shapes(tmp_path: Path, shape: list[int], dtype: str) -> None:
    make_static(tmp_path)
    data = bytes(int(np.prod([min(size, 2) for size in shape])) * (4 if dtype == "F32" else 2))
    write_tensor(tmp_path / "model.safetensors", "vectors", shape, data, dtype)
    with pytest.raises(EnsembedError):
        open_encoder(f"static:{tmp_path}")


@pytest.mark.parametrize("header", [b"\xff\xfe", b'{"\xff":1}', DEEP.encode(), b'{"a":' * 1000, b""])
@pytest.mark.parametrize("said", [None, 2**63, 2**64 - 1])
def test_damaged_headers_of_safetensors(tmp_path: Path, header: bytes, said: int | None) -> None:
    make_static(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header) if said is None else said) + header)
    with pytest.raises(EncoderError, match=r"model\.safetensors"):
        open_encoder(f"static:{tmp_path}")


@pytest.mark.parametrize("pad", [10**400, -5, 255, 256, True])
def test_padding_token_beyond_the_positions(tmp_path: Path, pad: int) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"max_position_embeddings": 256, "model_type": "roberta", "pad_token_id": pad})
    )
    assert read_settings(tmp_path).positions in (253, 254)


def test_a_senseless_length_is_refused(tmp_path: Path) -> None:
    write_onnx(tmp_path)
    for length in (10**30, -1):
        with pytest.raises(InputError, match="max_length must be"):
            open_encoder(f"onnx:{tmp_path}?max_length={length}")
