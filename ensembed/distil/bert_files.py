"""BERT's weights: read from a folder of safetensors or from an exported graph, and saved for sentence-transformers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from ensembed.distil.distil_job import bert_shapes
from ensembed.encoders.model_files import read_bytes, read_object
from ensembed.encoders.onnx_files import read_graph
from ensembed.encoders.static_encoder import read_tensor, tensor_names
from ensembed.errors import EncoderError, InputError
from ensembed.support.extras import import_extra
from ensembed.support.file_limits import parse_json

_HINT = "fetch the model again"
_LAYER = re.compile(r"encoder\.layer\.(\d+)\.")
_MATRIX = re.compile(r"/(?:bert/)?encoder/layer\.(\d+)/(.+)/MatMul")
_EPSILON = 1e-12
# The names of special tokens: multilingual BERTs have RoBERTa's, or BERT's, which count if there are both.
_SPECIAL = {
    "pad_token": ("<pad>", "[PAD]"),
    "unk_token": ("<unk>", "[UNK]"),
    "cls_token": ("<s>", "[CLS]"),
    "sep_token": ("</s>", "[SEP]"),
}


@dataclass(frozen=True, eq=False)
class Bert:
    """A BERT on the disk.

    Attributes:
        config: transformers' configuration, complete.
        tensors: the weights in float32, by transformers' names, without the pooler.
        tokenizer: the content of `tokenizer.json`.
        max_length: the most tokens that it takes.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, NDArray[np.float32]]
    tokenizer: bytes
    max_length: int

    @property
    def layers(self) -> int:
        """The number of layers."""
        return int(self.config["num_hidden_layers"])

    def with_layers(self, count: int) -> Bert:
        """Return the BERT of so many of the layers, evenly chosen, the first and the last included."""
        if not 1 <= count <= self.layers:
            raise InputError(f"the student has {self.layers} layers: layers={count} cannot be chosen of them")
        chosen = np.linspace(0, self.layers - 1, count).astype(int).tolist() if count > 1 else [0]
        tensors = {name: array for name, array in self.tensors.items() if not _LAYER.match(name)}
        for new, old in enumerate(chosen):
            prefix = f"encoder.layer.{old}."
            for name, array in self.tensors.items():
                if name.startswith(prefix):
                    tensors[f"encoder.layer.{new}.{name.removeprefix(prefix)}"] = array
        return replace(self, config={**self.config, "num_hidden_layers": count}, tensors=tensors)


def read_bert(folder: Path) -> Bert:
    """Read `config.json`, `model.safetensors` and `tokenizer.json` of a BERT, or a sentence-transformers folder of one.

    Raises:
        EncoderError: a file is absent or damaged, or the model is not a BERT with mean pooling.
    """
    if not (folder / "config.json").is_file():
        raise EncoderError(f"there is no {folder / 'config.json'}: name the folder of a BERT")
    config = read_object(folder / "config.json", _HINT)
    if config.get("model_type") != "bert" or config.get("hidden_act", "gelu") != "gelu":
        kind = f"{config.get('model_type')!r} with {config.get('hidden_act', 'gelu')!r}"
        raise EncoderError(f"{folder} holds a model of type {kind}; a student is a 'bert' with 'gelu'")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise EncoderError(
            f"{folder}: its positions are {config['position_embedding_type']!r}; absolute ones are known"
        )
    pooling = read_object(folder / "1_Pooling" / "config.json", _HINT)
    if pooling and not (pooling.get("pooling_mode_mean_tokens") or pooling.get("pooling_mode") == "mean"):
        raise EncoderError(f"{folder}: its pooling is not the mean over the tokens, which a student has")
    file = folder / "model.safetensors"
    if not file.is_file():
        raise EncoderError(f"there is no {file}; save the model with safe_serialization=True")
    tensors = {}
    for name in tensor_names(file):
        short = name.removeprefix("bert.")
        if short.startswith(("embeddings.", "encoder.")) and not short.endswith("position_ids"):
            tensors[short] = read_tensor(file, name).astype(np.float32)
    limit = read_object(folder / "sentence_bert_config.json", _HINT).get("max_seq_length")
    return _checked(folder, config, tensors, read_bytes(folder / "tokenizer.json", _HINT), limit)


def read_bert_graph(model: Path, tokenizer: bytes, heads: int, limit: int | None) -> Bert:
    """Read the weights of an exported BERT from its graph, whose nodes and weights have the names of the modules."""
    read_graph(model)  # refuses what is no graph, or is too large
    onnx = import_extra("onnx", "onnx", f"a student that starts from {model.name}")
    protobuf = import_extra("google.protobuf.message", "onnx", "the graph of a student")  # which comes with onnx
    try:
        graph = onnx.load(str(model)).graph
        arrays = {tensor.name: tensor for tensor in graph.initializer}
        tensors = {
            name.removeprefix("bert."): np.array(onnx.numpy_helper.to_array(tensor), np.float32)
            for name, tensor in arrays.items()
            if re.match(r"(bert\.)?(embeddings|encoder)\.", name) and not name.endswith("position_ids")
        }
        for node in graph.node:
            match = _MATRIX.fullmatch(node.name) if node.op_type == "MatMul" else None
            weights = [name for name in node.input if name in arrays]
            if match and len(weights) == 1:
                matrix = np.array(onnx.numpy_helper.to_array(arrays[weights[0]]), np.float32)
                tensors[f"encoder.layer.{match[1]}.{match[2].replace('/', '.')}.weight"] = matrix.T.copy()
    except (protobuf.DecodeError, ValueError, TypeError, KeyError, OSError) as error:
        raise EncoderError(f"{model} cannot be read as a BERT: {error}") from error
    layers = 1 + max((int(match[1]) for name in tensors if (match := _LAYER.match(name))), default=-1)
    config = {"num_hidden_layers": layers, "num_attention_heads": heads}
    return _checked(model, config, tensors, tokenizer, limit)


def _checked(
    place: Path, config: Mapping[str, Any], tensors: dict[str, NDArray[np.float32]], tokenizer: bytes, limit: object
) -> Bert:
    """Return the BERT, or raise an EncoderError if a tensor is missing, of another shape or not finite."""
    words = tensors.get("embeddings.word_embeddings.weight", np.empty((0, 0)))
    positions = tensors.get("embeddings.position_embeddings.weight", np.empty((0, 0)))
    layers, heads = config.get("num_hidden_layers"), config.get("num_attention_heads")
    hidden = words.shape[1] if words.ndim == 2 else 0
    if not (
        type(layers) is int
        and type(heads) is int
        and 0 < layers <= len(tensors)
        and heads > 0
        and hidden
        and not hidden % heads
    ):
        raise EncoderError(f"{place}: {layers!r} layers with {heads!r} heads and {hidden} units are no BERT")
    first = tensors.get("encoder.layer.0.intermediate.dense.weight", np.empty((0, 0)))
    inner = first.shape[0] if first.ndim == 2 else 0
    epsilon = config.get("layer_norm_eps", _EPSILON)
    if type(epsilon) not in (int, float) or not 0 < epsilon < 1:
        raise EncoderError(f"{place}: layer_norm_eps is {epsilon!r}; {_HINT}")
    whole = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": len(words),
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "max_position_embeddings": len(positions),
        "type_vocab_size": config.get("type_vocab_size", 2),
        "hidden_act": "gelu",
        "layer_norm_eps": float(epsilon),
        "pad_token_id": 0,
    }
    shapes = bert_shapes(whole)
    for name, shape in shapes.items():
        array = tensors.get(name)
        if array is None or array.shape != shape or not array.size:
            seen = "is missing" if array is None else f"has shape {array.shape}"
            raise EncoderError(f"{place}: the tensor {name} {seen}; {shape} was expected of a BERT")
        if not np.isfinite(array).all():
            raise EncoderError(f"{place}: the tensor {name} holds NaN or Inf; {_HINT}")
    most = len(positions) if not (type(limit) is int and 0 < limit <= len(positions)) else limit
    return Bert(whole, {name: tensors[name] for name in shapes}, tokenizer, int(most))


def bert_files(
    config: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    head: tuple[NDArray[Any], NDArray[Any]],
    tokenizer: bytes,
    vocabulary: Mapping[str, int],
    max_length: int,
) -> dict[str, bytes]:
    """Return the files of a sentence-transformers model, by name: BERT, mean pooling, a linear layer, length one.

    Args:
        config: transformers' configuration.
        tensors: the weights, by transformers' names.
        head: matrix and bias of the linear layer.
        tokenizer: the content of `tokenizer.json`.
        vocabulary: its tokens with their numbers.
        max_length: the most tokens of a sentence.
    """
    hidden, d = int(config["hidden_size"]), len(head[0])
    names = ("Transformer", "Pooling", "Dense", "Normalize")
    paths = ("", "1_Pooling", "2_Dense", "3_Normalize")
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (name, path) in enumerate(zip(names, paths, strict=True))
    ]
    tokens = parse_json(tokenizer)
    tokens |= {"truncation": None, "padding": None}
    # A name that the vocabulary lacks would become a token for which the model has no row.
    special = {role: name for role, names in _SPECIAL.items() for name in names if name in vocabulary}
    special.setdefault("pad_token", min(vocabulary, key=vocabulary.__getitem__))  # any will do: it is masked
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_length, **special}
    dense: dict[str, Any] = {"in_features": hidden, "out_features": d, "bias": True}
    dense["activation_function"] = "torch.nn.modules.linear.Identity"
    contents: dict[str, Any] = {
        "config.json": dict(config),
        "tokenizer.json": tokens,
        "tokenizer_config.json": about,
        "sentence_bert_config.json": {"max_seq_length": max_length, "do_lower_case": False},
        "1_Pooling/config.json": {"word_embedding_dimension": hidden, "pooling_mode_mean_tokens": True},
        "2_Dense/config.json": dense,
        "config_sentence_transformers.json": {"prompts": {}, "similarity_fn_name": "cosine"},
        "modules.json": modules,
    }
    files = {
        name: json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n" for name, content in contents.items()
    }
    arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in tensors.items()}
    files["model.safetensors"] = save(arrays, {"format": "pt"})
    linear = {"linear.weight": np.ascontiguousarray(head[0]), "linear.bias": np.ascontiguousarray(head[1])}
    files["2_Dense/model.safetensors"] = save(linear, {"format": "pt"})
    return files
