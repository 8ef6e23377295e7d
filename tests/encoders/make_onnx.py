"""Small transformers in ONNX form, and the same network in numpy."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from make_static import DIM, VOCABULARY, small_tokenizer
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from ensembed.testing import SENTENCES

POSITIONS = 256
INPUTS = {"input_ids": TensorProto.INT64, "attention_mask": TensorProto.INT64, "token_type_ids": TensorProto.INT64}


def weights(seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Embeddings of tokens, positions and segments, and the three matrices of one attention head."""
    rng = np.random.default_rng(seed)
    shapes = {"tokens": len(VOCABULARY), "positions": POSITIONS, "segments": 2, "query": DIM, "key": DIM, "value": DIM}
    return {name: rng.standard_normal((rows, DIM), np.float32) for name, rows in shapes.items()}


def hidden_states(ids: Sequence[int], seed: int = 0) -> NDArray[np.float64]:
    """The network in numpy, on one sentence: no batch, no padding, no mask."""
    w = {name: array.astype(np.float64) for name, array in weights(seed).items()}
    X = w["tokens"][list(ids)] + w["positions"][: len(ids)] + w["segments"][0]
    scores = np.exp(X @ w["query"] @ (X @ w["key"]).T / DIM)
    attention = scores / scores.sum(axis=1, keepdims=True)
    return np.asarray(X + attention @ (X @ w["value"]))


def small_graph(
    *,
    inputs: dict[str, int] = INPUTS,
    shape: tuple[Any, Any] = ("batch", "length"),
    outputs: Sequence[str] = ("last_hidden_state",),
    dtype: type[np.floating[Any]] = np.float32,
    seed: int = 0,
) -> onnx.ModelProto:
    """The network as a graph.

    Args:
        inputs: which of BERT's inputs it has, `position_ids` included, and of what type.
        shape: what it says of their shape.
        outputs: `last_hidden_state`, or any other name for the same; `sentence_embedding` is the first token's vector.
        dtype: of weights and activations.
        seed: of the weights.
    """
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    constants: dict[str, Any] = {name: array.astype(dtype) for name, array in weights(seed).items()}
    constants |= {"zero": np.int64(0), "one": np.int64(1), "axis": np.array([1]), "scale": dtype(DIM)}
    constants |= {"no": dtype(-10000), "yes": dtype(1), "length_axis": np.array([1])}
    nodes: list[onnx.NodeProto] = []

    def node(op: str, *operands: str, output: str = "", **attributes: Any) -> str:  # noqa: ANN401 - whatever ONNX takes
        name = output or f"n{len(nodes)}"
        nodes.append(helper.make_node(op, list(operands), [name], **attributes))
        return name

    if "position_ids" in inputs:
        positions = "position_ids"
    else:
        length = node("Squeeze", node("Gather", node("Shape", "input_ids"), "length_axis"), "zero_axis")
        positions = node("Range", "zero", length, "one")
        constants["zero_axis"] = np.array([0])
    X = node("Add", node("Gather", "tokens", "input_ids"), node("Gather", "positions", positions))
    X = node("Add", X, node("Gather", "segments", "token_type_ids" if "token_type_ids" in inputs else "zero"))
    keys = node("Transpose", node("MatMul", X, "key"), perm=[0, 2, 1])
    scores = node("Div", node("MatMul", node("MatMul", X, "query"), keys), "scale")
    if "attention_mask" in inputs:
        padded = node("Sub", "yes", node("Cast", node("Unsqueeze", "attention_mask", "axis"), to=kind))
        scores = node("Add", scores, node("Mul", padded, "no"))
    mixed = node("MatMul", node("Softmax", scores, axis=-1), node("MatMul", X, "value"))
    result = node("Add", X, mixed)
    for name in outputs:
        if name == "sentence_embedding":
            node("Gather", result, "zero", output=name, axis=1)
        else:
            node("Identity", result, output=name)
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(name, type_, list(shape)) for name, type_ in inputs.items()],
        # As exporters do it, without the length of a vector.
        [helper.make_tensor_value_info(name, kind, [None] * (2 + (name != "sentence_embedding"))) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def write_onnx(folder: Path, *, file: str = "model.onnx", special: bool = True, **how: Any) -> Path:  # noqa: ANN401 - what `small_graph` takes
    """Write a graph and its tokenizer into a folder; returns the folder."""
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(small_graph(**how).SerializeToString())
    small_tokenizer(special=special).save(str(folder / "tokenizer.json"))
    return folder


POOLINGS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "mean": lambda hidden: hidden.mean(axis=0),
    "cls": lambda hidden: hidden[0],
    "last": lambda hidden: hidden[-1],
    "max": lambda hidden: hidden.max(axis=0),
}


def oracle(pooling: str = "mean", *, max_length: int = 256, special: bool = True) -> NDArray[np.float64]:
    """The vectors of the sentences, one after the other."""
    tokenizer = small_tokenizer(special=special)
    tokenizer.enable_truncation(max_length)
    ids = [tokenizer.encode(sentence).ids for sentence in SENTENCES]
    return np.stack([POOLINGS[pooling](hidden_states(row)) for row in ids])


def write_json(path: Path, data: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def make_onnx(folder: Path) -> str:
    """Write a small transformer with mean pooling; returns the encoder's name."""
    return f"onnx:{write_onnx(folder / 'small')}?max_length=128"
