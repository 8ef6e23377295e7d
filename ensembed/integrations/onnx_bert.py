"""A BERT of sentence-transformers as one ONNX graph, from tokens to its vector, in float32 and int8."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.distil.bert_files import Bert, read_bert
from ensembed.distil.static_files import save_folder
from ensembed.encoders.model_files import read_object
from ensembed.encoders.onnx_files import read_settings
from ensembed.encoders.static_encoder import read_tensor, tensor_names
from ensembed.errors import EncoderError, ModelError
from ensembed.integrations.onnx_graphs import Nodes
from ensembed.support.atomic_files import disk_error, why_not_replaceable
from ensembed.support.extras import import_extra

_OPSET = 13
_MARK = "ensembed_distil"  # in the config.json of what this module wrote
_HINT = "save the model again"
_MASKED = -1e4  # added to the scores of tokens that are padding: exp of it is zero, and int8 keeps its scale


def export_bert(folder: Path, out: Path, *, int8: bool = True) -> None:
    """Write a sentence-transformers folder of a BERT, mean pooling and at most one linear layer as ONNX.

    `model.onnx` takes `input_ids` and `attention_mask`, int64 [batch, length], and gives `sentence_embedding`, of
    length one; `onnx:OUT` opens it. `model_quantized.onnx`, `onnx:OUT?file=model_quantized.onnx`, has 8-bit integers.

    Args:
        folder: the sentence-transformers folder.
        out: the folder to write; an earlier export is replaced, other files are a ModelError.
        int8: whether to write the 8-bit graph, too.
    """
    check_export(out)
    bert = read_bert(folder)
    head = _head(folder)
    settings = read_settings(folder, pooling="model")
    limit = min(settings.max_length or bert.max_length, bert.max_length)
    data = bert_graph(bert, head).SerializeToString()
    about = {"max_position_embeddings": int(bert.config["max_position_embeddings"]), "model_type": "bert", _MARK: True}
    files = {
        "model.onnx": data,
        "tokenizer.json": (folder / "tokenizer.json").read_bytes(),
        "tokenizer_config.json": json.dumps({"model_max_length": limit}).encode() + b"\n",
        "config.json": json.dumps(about).encode() + b"\n",
    }
    if int8:
        files["model_quantized.onnx"] = _quantized(data)
    save_folder(out, files)


def check_export(out: Path) -> None:
    """Raise a ModelError if graphs cannot be written to a folder: only an earlier export of a student is replaced."""
    if problem := why_not_replaceable(
        out, lambda place: _MARK in read_object(place / "config.json", "name a new folder")
    ):
        raise ModelError(f"cannot write the graphs to {out}: {problem}")


def _head(folder: Path) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return the matrix and the bias of the linear layer, if there is one."""
    file = folder / "2_Dense" / "model.safetensors"
    if not file.is_file():
        return None
    activation = str(read_object(folder / "2_Dense" / "config.json", _HINT).get("activation_function"))
    if not activation.endswith("Identity") or set(tensor_names(file)) != {"linear.weight", "linear.bias"}:
        raise EncoderError(f"{folder / '2_Dense'} is not a linear layer with a bias, as students have")
    return read_tensor(file, "linear.weight"), read_tensor(file, "linear.bias")


def bert_graph(bert: Bert, head: tuple[NDArray[Any], NDArray[Any]] | None) -> Any:  # noqa: ANN401 - a ModelProto
    """Return the graph of a BERT, mean pooling, a linear layer and length one."""
    network = _Network(bert.config, bert.tensors)
    nodes = network.nodes
    pooled = network.pooled()
    dim = int(bert.config["hidden_size"])
    if head is not None:
        pooled = nodes.add("Gemm", pooled, nodes.constant(head[0]), nodes.constant(head[1]), transB=1)
        dim = len(head[0])
    int64 = nodes.onnx.TensorProto.INT64
    inputs = [nodes.value(name, int64, ["batch", "length"]) for name in ("input_ids", "attention_mask")]
    return nodes.model("bert", inputs, (nodes.unit_rows(pooled), dim), {}, output="sentence_embedding")


class _Network:
    """Adds the nodes of a BERT."""

    def __init__(self, config: Mapping[str, Any], tensors: Mapping[str, NDArray[np.float32]]) -> None:
        self.nodes = Nodes(_OPSET)
        self._config, self._tensors = config, tensors

    def pooled(self) -> str:
        """Return the name of the mean hidden states [b, h]."""
        nodes, hidden = self.nodes, int(self._config["hidden_size"])
        heads = int(self._config["num_attention_heads"])
        size = hidden // heads
        words = nodes.add("Gather", self._weight("embeddings.word_embeddings.weight"), "input_ids")
        length = nodes.add("Gather", nodes.add("Shape", "input_ids"), nodes.integers(1))
        positions = nodes.add("Slice", self._weight("embeddings.position_embeddings.weight"), nodes.integers(0), length)
        first_type = nodes.constant(self._tensors["embeddings.token_type_embeddings.weight"][0])
        X = nodes.add("Add", nodes.add("Add", words, positions), first_type)
        X = self._norm("embeddings.LayerNorm", X)
        mask = nodes.add("Cast", "attention_mask", to=nodes.onnx.TensorProto.FLOAT)
        left_out = nodes.add("Sub", nodes.number(1.0), mask)
        added = nodes.add("Mul", left_out, nodes.number(_MASKED))
        added = nodes.add("Unsqueeze", added, nodes.integers(1, 2))
        for i in range(int(self._config["num_hidden_layers"])):
            layer = f"encoder.layer.{i}"
            parts = []
            for part in ("query", "key", "value"):
                split = nodes.reshape(self._linear(f"{layer}.attention.self.{part}", X), 0, 0, heads, size)
                parts.append(nodes.add("Transpose", split, perm=[0, 2, 3, 1] if part == "key" else [0, 2, 1, 3]))
            scores = nodes.add("Mul", nodes.add("MatMul", parts[0], parts[1]), nodes.number(size**-0.5))
            mixed = nodes.add("MatMul", nodes.add("Softmax", nodes.add("Add", scores, added), axis=-1), parts[2])
            joined = nodes.reshape(nodes.add("Transpose", mixed, perm=[0, 2, 1, 3]), 0, 0, hidden)
            attended = nodes.add("Add", X, self._linear(f"{layer}.attention.output.dense", joined))
            X = self._norm(f"{layer}.attention.output.LayerNorm", attended)
            inner = self._gelu(self._linear(f"{layer}.intermediate.dense", X))
            added_inner = nodes.add("Add", X, self._linear(f"{layer}.output.dense", inner))
            X = self._norm(f"{layer}.output.LayerNorm", added_inner)
        weights = nodes.add("Unsqueeze", mask, nodes.integers(2))
        total = nodes.reduce("ReduceSum", nodes.add("Mul", X, weights), 1, keep=False)
        return nodes.add("Div", total, nodes.reduce("ReduceSum", mask, 1))

    def _weight(self, name: str) -> str:
        return self.nodes.constant(self._tensors[name])

    def _linear(self, name: str, X: str) -> str:
        matrix = self.nodes.constant(np.ascontiguousarray(self._tensors[f"{name}.weight"].T))
        return self.nodes.add("Add", self.nodes.add("MatMul", X, matrix), self._weight(f"{name}.bias"))

    def _norm(self, name: str, X: str) -> str:
        nodes = self.nodes
        centred = nodes.add("Sub", X, nodes.add("ReduceMean", X, axes=[-1], keepdims=1))
        variance = nodes.add("ReduceMean", nodes.add("Mul", centred, centred), axes=[-1], keepdims=1)
        spread = nodes.add("Sqrt", nodes.add("Add", variance, nodes.number(float(self._config["layer_norm_eps"]))))
        scaled = nodes.add("Mul", nodes.add("Div", centred, spread), self._weight(f"{name}.weight"))
        return nodes.add("Add", scaled, self._weight(f"{name}.bias"))

    def _gelu(self, X: str) -> str:
        nodes = self.nodes
        erf = nodes.add("Erf", nodes.add("Mul", X, nodes.number(0.5**0.5)))
        return nodes.add("Mul", nodes.add("Mul", X, nodes.number(0.5)), nodes.add("Add", erf, nodes.number(1.0)))


def _quantized(data: bytes) -> bytes:
    """Return a graph whose large matrices are 8-bit integers, by onnxruntime's own dynamic quantisation."""
    import logging
    import tempfile

    quantization = import_extra("onnxruntime.quantization", "onnx", "writing 8-bit graphs")
    settings = {"weight_type": quantization.QuantType.QInt8, "per_channel": True, "reduce_range": True}
    logger = logging.getLogger()  # the library advises on the root logger to simplify graphs first
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with tempfile.TemporaryDirectory(prefix="ensembed-") as place:
            source, target = Path(place) / "model.onnx", Path(place) / "model_quantized.onnx"
            source.write_bytes(data)
            quantization.quantize_dynamic(source, target, **settings)
            return target.read_bytes()
    except OSError as error:  # the library writes files of its own there
        raise disk_error(error, Path(tempfile.gettempdir(), "model_quantized.onnx")) from error
    finally:
        logger.setLevel(before)
