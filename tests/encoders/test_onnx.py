"""`onnx:DIR`, on small graphs that the test makes, against the same network in numpy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from make_onnx import INPUTS, POOLINGS, make_onnx, oracle, small_graph, write_json, write_onnx
from make_static import VOCABULARY, small_tokenizer
from onnx import TensorProto

from ensembed.encoders import open_encoder
from ensembed.encoders.onnx_files import read_graph
from ensembed.errors import EncoderError, InputError
from ensembed.testing import SENTENCES, check_encoder

NO_TYPES = {name: kind for name, kind in INPUTS.items() if name != "token_type_ids"}
NO_MASK = {"input_ids": TensorProto.INT64}

# --- graphs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_are_those_of_the_network_in_numpy(tmp_path: Path, pooling: str) -> None:
    encoder = open_encoder(f"onnx:{write_onnx(tmp_path)}?pooling={pooling}&max_length=256")
    np.testing.assert_allclose(encoder.encode(SENTENCES), oracle(pooling), rtol=1e-5, atol=1e-5)
    assert encoder.spec.pooling == pooling
    check_encoder(encoder)


@pytest.mark.parametrize(
    "how",
    [
        {"inputs": NO_TYPES},
        {"inputs": NO_MASK},
        {"inputs": INPUTS | {"position_ids": TensorProto.INT64}},
        {"inputs": dict.fromkeys(INPUTS, TensorProto.INT32)},
        {"inputs": NO_TYPES | {"attention_mask": TensorProto.FLOAT}},
        {"inputs": NO_TYPES | {"attention_mask": TensorProto.BOOL}},
        {"shape": (1, "length")},
        {"shape": ("batch", 200)},
        {"shape": (1, 200), "inputs": NO_TYPES},
        {"outputs": ("token_embeddings",)},
        {"outputs": ("sentence_embedding", "last_hidden_state")},
        {"outputs": ("output_0",)},
    ],
    ids=str,
)
def test_graphs_with_other_inputs_give_the_same_vectors(tmp_path: Path, how: dict[str, Any]) -> None:
    encoder = open_encoder(f"onnx:{write_onnx(tmp_path, **how)}?pooling=max&max_length=200")
    np.testing.assert_allclose(encoder.encode(SENTENCES), oracle("max", max_length=200), rtol=1e-5, atol=1e-5)
    check_encoder(encoder)


def test_graph_with_a_sentence_embedding_pools_itself(tmp_path: Path) -> None:
    both = write_onnx(tmp_path / "both", outputs=("last_hidden_state", "sentence_embedding"))
    only = write_onnx(tmp_path / "only", outputs=("sentence_embedding",))
    for name in (f"onnx:{both}?max_length=256", f"onnx:{both}?pooling=model&max_length=256", f"onnx:{only}"):
        encoder = open_encoder(name if "?" in name else f"{name}?max_length=256")
        assert encoder.spec.pooling == "model"
        np.testing.assert_allclose(encoder.encode(SENTENCES), oracle("cls"), rtol=1e-5, atol=1e-5)
    check_encoder(encoder)
    assert open_encoder(f"onnx:{both}?pooling=mean").spec.pooling == "mean"
    write_json(both / "1_Pooling" / "config.json", {"pooling_mode": "mean"})
    assert open_encoder(f"onnx:{both}").spec.pooling == "mean"
    write_json(only / "1_Pooling" / "config.json", {"pooling_mode": "mean"})
    assert open_encoder(f"onnx:{only}").spec.pooling == "model"
    with pytest.raises(InputError, match="leave pooling out"):
        open_encoder(f"onnx:{only}?pooling=mean")
    with pytest.raises(
        InputError, match=r"no output for pooling=model; of one token it makes last_hidden_state \(1, 1"
    ):
        open_encoder(f"onnx:{write_onnx(tmp_path / 'neither')}?pooling=model")


def test_sentences_without_a_token_are_zero(tmp_path: Path) -> None:
    write_onnx(tmp_path, special=False)
    for pooling in POOLINGS:
        encoder = open_encoder(f"onnx:{tmp_path}?max_length=256&pooling={pooling}")
        np.testing.assert_allclose(encoder.encode(SENTENCES), oracle(pooling, special=False), rtol=1e-5, atol=1e-5)
        assert not encoder.encode([" "]).any()
        check_encoder(encoder)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"inputs": INPUTS | {"past_key_values.0.key": TensorProto.FLOAT}}, "wants past_key_values.0.key; a sentence"),
        ({"inputs": NO_TYPES | {"attention_mask": TensorProto.DOUBLE}}, "wants attention_mask"),
        ({"shape": (4, "length")}, r"takes input_ids of shape \[4, 'length'\]; export it"),
        ({"shape": ("batch", 64), "inputs": NO_MASK}, "and no attention_mask; export it"),
    ],
)
def test_graph_with_unknown_inputs_is_refused(tmp_path: Path, how: dict[str, Any], message: str) -> None:
    with pytest.raises(EncoderError, match=message):
        open_encoder(f"onnx:{write_onnx(tmp_path, **how)}")


def test_graphs_without_tokens_or_vectors_are_refused(tmp_path: Path) -> None:
    write_onnx(tmp_path)
    model = onnx.load(tmp_path / "model.onnx")
    for node in model.graph.node:
        node.input[:] = ["pixels" if name == "input_ids" else name for name in node.input]
    model.graph.input[0].name = "pixels"
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(EncoderError, match="wants pixels"):
        open_encoder(f"onnx:{tmp_path}")
    values = [onnx.helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "l"]) for name in ("input_ids", "y")]
    values[1].type.tensor_type.ClearField("shape")
    node = onnx.helper.make_node("Shape", ["input_ids"], ["y"])
    graph = onnx.helper.make_graph([node], "shape", [values[0]], [values[1]])
    opset = [onnx.helper.make_opsetid("", 17)]
    (tmp_path / "model.onnx").write_bytes(
        onnx.helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    )
    with pytest.raises(EncoderError, match=r"no output for pooling=mean; of one token it makes y \(2,\)"):
        open_encoder(f"onnx:{tmp_path}")


# --- arithmetic that rounds -------------------------------------------------------------------------------------------


def quantized(folder: Path) -> Path:
    from onnxruntime.quantization import quantize_dynamic

    write_onnx(folder)
    quantize_dynamic(folder / "model.onnx", folder / "model_quantized.onnx")
    return folder / "model_quantized.onnx"


def test_int8_and_half_precision_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    import onnxruntime

    int8 = quantized(tmp_path)
    write_onnx(tmp_path, file="half.onnx", dtype=np.float16)
    for file, tolerance in ((int8, 0.5), (tmp_path / "half.onnx", 0.05)):
        assert read_graph(file).rounds
        encoder = open_encoder(f"onnx:{tmp_path}?file={file.name}&max_length=256")
        check_encoder(encoder, tolerance=0)
        np.testing.assert_allclose(encoder.encode(SENTENCES), oracle(), atol=tolerance)
    # That is no gift: two sentences in one run of the int8 graph change each other. (Of the half precision graph this
    # was not seen on the machines we have: there the check above would hold in batches, too.)
    session = onnxruntime.InferenceSession(int8, providers=["CPUExecutionProvider"])
    ids = np.array([[2, 5, 6, 3], [2, 9, 10, 3]])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    together = session.run(None, feeds)[0][0]
    alone = session.run(None, {name: array[:1] for name, array in feeds.items()})[0][0]
    assert np.abs(together - alone).max() > 1e-3


# --- files ------------------------------------------------------------------------------------------------------------


def test_model_file_is_chosen_by_option_usual_name_or_being_the_only_one(tmp_path: Path) -> None:
    write_onnx(tmp_path, file="strange.onnx", seed=3)
    only = open_encoder(f"onnx:{tmp_path}").spec
    write_onnx(tmp_path, file="onnx/model_int8.onnx", seed=2)
    with pytest.raises(
        InputError, match=r"say which, as file=onnx/model_int8.onnx: onnx/model_int8.onnx, strange.onnx"
    ):
        open_encoder(f"onnx:{tmp_path}")
    write_onnx(tmp_path, file="onnx/model.onnx", seed=1)
    nested = open_encoder(f"onnx:{tmp_path}").spec
    write_onnx(tmp_path, file="model.onnx", seed=0)
    assert open_encoder(f"onnx:{tmp_path}?file=onnx/model.onnx").spec.key == nested.key
    assert open_encoder(f"onnx:{tmp_path}?file=strange.onnx").spec.key == only.key
    asked = open_encoder(f"onnx:{tmp_path}?file=onnx/model_int8.onnx")
    assert len({only.key, nested.key, asked.spec.key, open_encoder(f"onnx:{tmp_path}").spec.key}) == 4
    with pytest.raises(
        InputError, match=r"has no file 'model_fp16.onnx'; it has: model.onnx, onnx/model.onnx, onnx/mod"
    ):
        open_encoder(f"onnx:{tmp_path}?file=model_fp16.onnx")
    with pytest.raises(InputError, match=rf"model.onnx is a file; write onnx:{tmp_path}\?file=model.onnx"):
        open_encoder(f"onnx:{tmp_path / 'model.onnx'}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty has no ONNX file"):
        open_encoder(f"onnx:{tmp_path / 'empty'}")


def test_key_depends_on_the_weights(tmp_path: Path) -> None:
    name = make_onnx(tmp_path)
    folder = tmp_path / "small"
    key = open_encoder(name).spec.key
    (folder / "README.md").write_text("Read me.")
    write_json(folder / "config.json", {"max_position_embeddings": 256})
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode": "mean"})
    assert open_encoder(name, threads=1).spec.key == key
    (folder / "model.onnx").rename(folder / "renamed.onnx")
    assert open_encoder(name).spec.key == key
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode": "cls"})
    assert open_encoder(name).spec.key != key
    assert open_encoder(f"{name}&pooling=mean").spec.key == key
    write_json(folder / "modules.json", [{"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"}])
    assert open_encoder(f"{name}&pooling=mean").spec.key != key
    (folder / "modules.json").unlink()
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + "\n")
    assert open_encoder(f"{name}&pooling=mean").spec.key != key


def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    inside = write_onnx(tmp_path / "inside")
    folder = write_onnx(tmp_path / "outside")
    data = folder / "model.onnx_data"
    onnx.save_model(
        small_graph(), folder / "model.onnx", save_as_external_data=True, location=data.name, size_threshold=100
    )
    encoder = open_encoder(f"onnx:{folder}")
    assert np.array_equal(encoder.encode(SENTENCES), open_encoder(f"onnx:{inside}").encode(SENTENCES))
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert open_encoder(f"onnx:{copy}").spec.key == encoder.spec.key
    content = bytearray((copy / data.name).read_bytes())
    content[0] ^= 1
    (copy / data.name).write_bytes(content)
    assert open_encoder(f"onnx:{copy}").spec.key != encoder.spec.key
    (copy / data.name).write_bytes(content[:100])
    with pytest.raises(EncoderError, match="cannot be opened"):
        open_encoder(f"onnx:{copy}")
    data.unlink()
    with pytest.raises(InputError, match=r"model\.onnx_data cannot be read"):
        open_encoder(f"onnx:{folder}")


@pytest.mark.parametrize(
    "file", ["model.onnx", "tokenizer.json", "config.json", "modules.json", "1_Pooling/config.json"]
)
def test_damaged_files_are_named(tmp_path: Path, file: str) -> None:
    write_onnx(tmp_path)
    write_json(tmp_path / "config.json", {"max_position_embeddings": 256, "model_type": "bert"})
    write_json(tmp_path / "modules.json", [{"type": "sentence_transformers.models.Transformer", "path": ""}])
    write_json(tmp_path / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    open_encoder(f"onnx:{tmp_path}")
    whole = (tmp_path / file).read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-40], b"", b"\xff\xfe", b"3", b"[3]"):
        (tmp_path / file).write_bytes(content)
        with pytest.raises(EncoderError, match=file):
            open_encoder(f"onnx:{tmp_path}")
    if file == "tokenizer.json":
        (tmp_path / file).unlink()
        with pytest.raises((EncoderError, InputError), match=file):
            open_encoder(f"onnx:{tmp_path}")


def test_a_graph_with_weights_of_wrong_shapes_is_refused(tmp_path: Path) -> None:
    model = small_graph()
    model.graph.initializer[3].dims[:] = [4, 16]
    write_onnx(tmp_path)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(EncoderError, match=r"cannot be (opened|run)"):
        open_encoder(f"onnx:{tmp_path}")


def test_options_are_checked_before_files() -> None:
    for query, message in {
        "pooling=median": "'median' is not a value for pooling",
        "max_length=x": "'x' is not a value for max_length",
        "batch_size=2": "has no option 'batch_size'; it has: pooling, max_length, file, prefix",
    }.items():
        with pytest.raises(InputError, match=message):
            open_encoder(f"onnx:nowhere?{query}")


# --- real models ------------------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize("name", ["minilm", "minilm-int8"])
def test_a_model_of_the_catalogue_in_a_folder_is_the_same(
    tmp_path: Path, pulled: Callable[[str], Path], name: str
) -> None:
    folder = pulled(name)
    (tmp_path / "onnx").mkdir()
    shutil.copy(folder / "tokenizer.json", tmp_path)
    (tmp_path / "onnx" / "model_quantized.onnx").symlink_to(folder / "model.onnx")
    known = open_encoder(name)
    encoder = open_encoder(f"onnx:{tmp_path}?max_length=256")
    assert encoder.spec.key == known.spec.key
    assert np.array_equal(encoder.encode(SENTENCES), known.encode(SENTENCES))
    # As in the repository of the model: the tokenizer's file says 128, which sentence-transformers does not heed.
    assert open_encoder(f"onnx:{tmp_path}").spec.max_length == 128
    write_json(tmp_path / "sentence_bert_config.json", {"max_seq_length": 256})
    assert open_encoder(f"onnx:{tmp_path}").spec.key == known.spec.key
    for pooling in ("cls", "max", "last"):
        check_encoder(open_encoder(f"onnx:{tmp_path}?pooling={pooling}"))


def test_the_vocabulary_has_every_letter() -> None:
    assert small_tokenizer().encode("Quiz 7!").ids.count(VOCABULARY.index("[UNK]")) == 0
