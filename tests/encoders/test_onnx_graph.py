"""The reader of ONNX files, against the onnx package."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_onnx import small_graph
from onnx import TensorProto, helper, numpy_helper

from ensembed.encoders.onnx_files import GraphFacts, read_graph
from ensembed.errors import EncoderError

SMALL = small_graph().SerializeToString()


def facts_of(model: onnx.ModelProto, folder: Path) -> GraphFacts:
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return read_graph(folder / "model.onnx")


def one_node(op: str, *, domain: str = "", **attributes: object) -> onnx.ModelProto:
    """A graph of one node: it need not run."""
    node = helper.make_node(op, ["x"], ["y"], domain=domain, **attributes)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    return helper.make_model(helper.make_graph([node], "one", values[:1], values[1:]))


def test_the_facts_are_those_that_the_onnx_package_reads(tmp_path: Path) -> None:
    model = small_graph()
    facts = facts_of(model, tmp_path)
    assert facts.operations == {node.op_type for node in model.graph.node}
    casts = {a.i for node in model.graph.node for a in node.attribute if a.name == "to"}
    assert facts.types == {tensor.data_type for tensor in model.graph.initializer} | casts
    assert facts.external == ()
    assert not facts.rounds


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_half_precision_is_noticed(tmp_path: Path, dtype: type[np.floating]) -> None:
    assert facts_of(small_graph(dtype=dtype), tmp_path).rounds == (dtype is np.float16)


@pytest.mark.parametrize(
    ("op", "rounds"),
    [
        *[(op, True) for op in ("DynamicQuantizeLinear", "QuantizeLinear", "MatMulInteger", "QLinearMatMul")],
        *[(op, True) for op in ("DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QAttention")],
        *[(op, True) for op in ("MatMulNBits", "QGemm")],
        *[(op, False) for op in ("MatMul", "Gemm", "DequantizeLinear", "Quick", "LayerNormalization")],
    ],
)
def test_rounding_operations_are_noticed(tmp_path: Path, op: str, rounds: bool) -> None:
    facts = facts_of(one_node(op, domain="com.microsoft"), tmp_path)
    assert facts.operations == {op}
    assert facts.rounds == rounds


def test_constants_casts_subgraphs_and_functions_count(tmp_path: Path) -> None:
    half = numpy_helper.from_array(np.zeros(3, np.float16))
    assert facts_of(one_node("Constant", value=half), tmp_path).rounds
    assert facts_of(one_node("Cast", to=TensorProto.FLOAT16), tmp_path).rounds
    assert not facts_of(one_node("Cast", to=TensorProto.FLOAT), tmp_path).rounds
    assert not facts_of(
        one_node("Softmax", axis=10), tmp_path
    ).rounds  # 10 is the number of float16, but of no type here
    inner = one_node("If", then_branch=one_node("DynamicQuantizeLinear").graph, else_branch=one_node("Relu").graph)
    outer = facts_of(one_node("Loop", body=inner.graph), tmp_path)
    assert outer.operations == {"Loop", "If", "DynamicQuantizeLinear", "Relu"}
    assert outer.rounds
    model = one_node("mine", domain="here")
    nodes = [helper.make_node("QuantizeLinear", ["x"], ["y"])]
    model.functions.append(helper.make_function("here", "mine", ["x"], ["y"], nodes, [helper.make_opsetid("", 17)]))
    assert facts_of(model, tmp_path).operations == {"mine", "QuantizeLinear"}


def test_other_files_with_weights_are_found(tmp_path: Path) -> None:
    onnx.save_model(
        small_graph(), tmp_path / "model.onnx", save_as_external_data=True, location="model.onnx_data", size_threshold=0
    )
    assert read_graph(tmp_path / "model.onnx").external == ("model.onnx_data",)


@pytest.mark.parametrize("place", ["../secret", "/etc/passwd", "a/../../b", "..\\secret", ""])
def test_weights_outside_of_the_folder_are_refused(tmp_path: Path, place: str) -> None:
    model = small_graph()
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=place)
    with pytest.raises(EncoderError, match="outside of its own folder"):
        facts_of(model, tmp_path)


@given(st.integers(0, len(SMALL) - 1))
def test_incomplete_file_is_refused(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    path = tmp_path_factory.mktemp("torn") / "model.onnx"
    path.write_bytes(SMALL[:size])
    # The last fields of a model are its opsets: what ends before them may still be a whole graph.
    if size < len(SMALL) - 32:
        with pytest.raises(EncoderError, match="no ONNX file, or incomplete"):
            read_graph(path)


def test_random_damage_raises_only_encoder_errors(tmp_path: Path) -> None:
    rng = random.Random(0)  # noqa: S311 - the same numbers in every run
    path = tmp_path / "model.onnx"
    for _ in range(300):
        data = bytearray(SMALL)
        for _ in range(rng.randint(1, 40)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        with contextlib.suppress(EncoderError):
            read_graph(path)


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", b"\x00" * 64, b"\xff" * 64, b"version https://git-lfs.github.com"]
)
def test_file_of_another_format_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(EncoderError, match=r"model\.onnx is no ONNX file"):
        read_graph(path)
    with pytest.raises(EncoderError, match="cannot be read"):
        read_graph(tmp_path / "absent.onnx")


def test_two_gigabytes_are_skipped(tmp_path: Path) -> None:
    model = one_node("MatMul").graph.SerializeToString()
    # A tensor whose raw data are a hole in the file.
    size = 2 << 30
    tensor = b"\x10\x01\x4a" + varint(size)
    graph = model + b"\x2a" + varint(len(tensor) + size) + tensor
    with (tmp_path / "model.onnx").open("wb") as file:
        file.write(b"\x3a" + varint(len(graph) + size) + graph)
        file.truncate(file.tell() + size)
    facts = read_graph(tmp_path / "model.onnx")
    assert facts == GraphFacts(frozenset({"MatMul"}), frozenset({TensorProto.FLOAT}), ())


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
