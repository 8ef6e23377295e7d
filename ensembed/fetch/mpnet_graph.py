"""Write the ONNX graph of an MPNet model beside its weights, `model.safetensors`, so that it runs without torch.

The graph is small. In float32 it refers to the tensors where they are, in the safetensors file, so that no weight is
stored twice; in int8 it holds the rounded weights itself. The same weights give the same bytes on every machine.

Reference:
    Song et al., "MPNet: masked and permuted pre-training for language understanding", NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import PullError
from ensembed.support.file_limits import TENSOR_HEADER_BYTES, check_shape, check_tensor_header, parse_json
from ensembed.support.protobuf import message

WEIGHTS, GRAPH = "model.safetensors", "model.onnx"
_FLOAT, _UINT8, _INT8, _INT64 = 1, 2, 3, 7  # of TensorProto.DataType
_TYPES = {
    np.dtype(np.float32): _FLOAT,
    np.dtype(np.uint8): _UINT8,
    np.dtype(np.int8): _INT8,
    np.dtype(np.int64): _INT64,
}
_INT, _INTS, _REAL = 2, 7, 1  # of AttributeProto.AttributeType
_OPSET, _IR_VERSION = 17, 8  # the first with LayerNormalization; onnxruntime knows it since 1.13
_PAD = 1  # the number of MPNet's padding token; the position of the first token is one more
_BUCKETS, _FARTHEST = 32, 128  # of relative positions: fixed in MPNet's code, whatever its configuration says
_EPSILON = 1e-5
_ZERO = 128  # the unsigned integer that stands for 0
_MOST = 64  # of a matrix: two products with activations of 8 bits fit into 16 bits, which old processors add them in


def write_graph(folder: Path) -> None:
    """Write the graph in float32; the weights stay in the safetensors file, which has to be kept beside it."""
    tensors = _read_header(folder / WEIGHTS)
    (folder / GRAPH).write_bytes(_Graph(tensors).model())


def write_int8_graph(folder: Path) -> None:
    """Write the graph with its matrices in 8 bits, a scale for each column, and all weights in it."""
    tensors = _read_header(folder / WEIGHTS)
    arrays = np.memmap(folder / WEIGHTS, np.uint8, mode="r")

    def read(name: str) -> NDArray[np.float32]:
        tensor = _named(tensors, name)
        return arrays[tensor.start : tensor.start + tensor.size].view("<f4").reshape(tensor.shape)

    try:
        graph = _Int8Graph(tensors, read).model()
    except ValueError as error:
        raise PullError(f"{WEIGHTS} holds no MPNet model: its tensors do not belong together: {error}") from error
    (folder / GRAPH).write_bytes(graph)


CONVERSIONS: Mapping[str, Callable[[Path], None]] = {"mpnet": write_graph, "mpnet-int8": write_int8_graph}


class _Tensor(NamedTuple):
    """Where a float32 tensor is in the file: the first byte, their number, the shape."""

    start: int
    size: int
    shape: tuple[int, ...]


def _read_header(path: Path) -> dict[str, _Tensor]:
    """Read where the float32 tensors of a safetensors file are; a PullError if it is damaged."""
    try:
        check_tensor_header(path)
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = parse_json(file.read(length), most_bytes=TENSOR_HEADER_BYTES)
        tensors, end = {}, path.stat().st_size
        for name, facts in header.items():
            if name == "__metadata__" or facts["dtype"] != "F32":
                continue
            check_shape(facts["shape"])
            (first, last), shape = facts["data_offsets"], tuple(facts["shape"])
            tensors[name] = _Tensor(8 + length + first, last - first, shape)
            whole = type(first) is int and type(last) is int
            if not (whole and 0 <= first < last <= end - 8 - length and last - first == 4 * math.prod(shape)):
                raise ValueError(f"tensor {name} is said to have the shape {shape} at {first} to {last}")  # noqa: TRY301 - reported as all others
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PullError(f"{path} is no safetensors file of a model, or damaged: {error!r}") from error
    return tensors


def _named(tensors: Mapping[str, _Tensor], name: str) -> _Tensor:
    if name not in tensors:
        raise PullError(f"{WEIGHTS} holds no MPNet model: it has no {name}")
    return tensors[name]


class _Graph:
    """The nodes and tensors of a model, in the making. The rows of all activations are the tokens of all sentences."""

    def __init__(self, tensors: Mapping[str, _Tensor]) -> None:
        self._tensors = tensors
        self._nodes = list[bytes]()
        self._initializers = dict[str, bytes]()
        try:
            self._width = tensors["embeddings.word_embeddings.weight"].shape[1]
            self._positions = tensors["embeddings.position_embeddings.weight"].shape[0]
            buckets, self._heads = tensors["encoder.relative_attention_bias.weight"].shape
            self._layers = 1 + max(int(name.split(".")[2]) for name in tensors if name.startswith("encoder.layer."))
        except (KeyError, ValueError, IndexError) as error:
            raise PullError(f"{WEIGHTS} holds no MPNet model: {error!r}") from error
        if buckets != _BUCKETS or self._width % self._heads:
            facts = f"{buckets} buckets of positions, {self._heads} heads and {self._width} dimensions"
            raise PullError(f"{WEIGHTS} holds no MPNet model that we know: it has {facts}")

    def model(self) -> bytes:
        """Return the model: token numbers and a mask [b, l] in, `last_hidden_state` [b, l, d] out."""
        ids, mask = "input_ids", "attention_mask"
        shape = self.add("Shape", ids)
        length = self.add("Gather", shape, self.constant(np.array(1)), axis=0)
        bias = self._attention_bias(mask, length)
        X = self._embed(ids)
        for layer in range(self._layers):
            X = self._layer(f"encoder.layer.{layer}", X, shape, bias)
        hidden = self.add("Concat", shape, self.constant(np.array([self._width])), axis=0)
        self.add("Reshape", X, hidden, output="last_hidden_state")
        graph = [(1, node) for node in self._nodes] + [(2, "mpnet")]
        graph += [(5, tensor) for tensor in self._initializers.values()]
        graph += [(11, _value(name, _INT64, "batch", "length")) for name in (ids, mask)]
        graph += [(12, _value("last_hidden_state", _FLOAT, "batch", "length", self._width))]
        opset = message((1, ""), (2, _OPSET))
        return message((1, _IR_VERSION), (2, "ensembed"), (7, message(*graph)), (8, opset))

    def add(self, op: str, *inputs: str, output: str = "", outputs: int = 1, **attributes: float | list[int]) -> str:
        """Add an operation; return the name of its output, or of the first: the others end in 1, 2 and so on."""
        name = output or f"{op.lower()}{len(self._nodes)}"
        names = [name, *(f"{name}.{i}" for i in range(1, outputs))]
        fields: list[tuple[int, str | bytes]] = [(1, value) for value in inputs]
        fields += [(2, value) for value in names]
        fields += [(3, name), (4, op)]
        fields += [(5, _attribute(key, value)) for key, value in attributes.items()]
        self._nodes.append(message(*fields))
        return name

    def constant(self, array: NDArray[Any]) -> str:
        """Add a tensor with its content; return its name. Equal ones are stored once."""
        array = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
        content = [(1, size) for size in array.shape]
        content = [*content, (2, _TYPES[array.dtype]), (9, array.tobytes())]
        key = message(*content)
        name = next((name for name, tensor in self._initializers.items() if tensor.startswith(key)), None)
        if name is None:
            name = f"constant{len(self._initializers)}"
            self._initializers[name] = key + message((8, name))
        return name

    def weight(self, name: str) -> str:
        """Add a tensor of the safetensors file, as a reference; return its name."""
        tensor = _named(self._tensors, name)
        if name not in self._initializers:
            place = {"location": WEIGHTS, "offset": str(tensor.start), "length": str(tensor.size)}
            fields: list[tuple[int, int | str | bytes]] = [(1, size) for size in tensor.shape]
            fields += [(2, _FLOAT), (8, name)]
            fields += [(13, message((1, key), (2, value))) for key, value in place.items()]
            self._initializers[name] = message(*fields, (14, 1))
        return name

    def rows(self, name: str, numbers: str) -> str:
        """Take rows of a table by their numbers."""
        return self.add("Gather", self.weight(f"{name}.weight"), numbers, axis=0)

    def linear(self, X: str, *names: str) -> list[str]:
        """Apply affine maps to the rows of X."""
        return [self.add("Gemm", X, self.weight(f"{n}.weight"), self.weight(f"{n}.bias"), transB=1) for n in names]

    def _embed(self, ids: str) -> str:
        """Return the sum of the vectors of tokens and of their positions, which padding tokens do not count in."""
        real = self.add("Cast", self.add("Not", self.add("Equal", ids, self.constant(np.array(_PAD)))), to=_INT64)
        counted = self.add("Mul", self.add("CumSum", real, self.constant(np.array(1))), real)
        flat = self.constant(np.array([-1]))
        positions = self.add("Reshape", self.add("Add", counted, self.constant(np.array(_PAD))), flat)
        tokens = self.rows("embeddings.word_embeddings", self.add("Reshape", ids, flat))
        X = self.add("Add", tokens, self.rows("embeddings.position_embeddings", positions))
        return self._norm(X, "embeddings.LayerNorm")

    def _attention_bias(self, mask: str, length: str) -> str:
        """Return what is added to the logits of attention [b, heads, l, l]: relative positions, and the mask."""
        farthest = self._positions - _PAD - 2  # the largest distance of two tokens
        table = self.add(
            "Transpose",
            self.rows("encoder.relative_attention_bias", self.constant(_buckets(farthest))),
            perm=[1, 0],
        )
        places = self.add("Range", self.constant(np.array(0)), length, self.constant(np.array(1)))
        row = self.add("Unsqueeze", places, self.constant(np.array([0])))
        column = self.add("Unsqueeze", places, self.constant(np.array([1])))
        distance = self.add("Add", self.add("Sub", row, column), self.constant(np.array(farthest)))
        bias = self.add("Unsqueeze", self.add("Gather", table, distance, axis=1), self.constant(np.array([0])))
        real = self.add("Cast", self.add("Unsqueeze", mask, self.constant(np.array([1, 2]))), to=_FLOAT)
        hidden = self.add("Sub", self._number(1), real)
        return self.add("Add", bias, self.add("Mul", hidden, self._number(-1e9)))  # whose exp is 0

    def _layer(self, name: str, X: str, shape: str, bias: str) -> str:
        """Add a layer: attention and feed-forward, each with a sum and a norm behind it."""
        size = self._width // self._heads
        split = self.add("Concat", shape, self.constant(np.array([self._heads, size])), axis=0)
        attention = f"{name}.attention.attn"
        Q, K, V = (
            self.add("Reshape", part, split) for part in self.linear(X, *(f"{attention}.{part}" for part in "qkv"))
        )
        Q = self.add("Mul", Q, self._number(size**-0.5))
        Q, K, V = (
            self.add("Transpose", part, perm=perm)
            for part, perm in ((Q, [0, 2, 1, 3]), (K, [0, 2, 3, 1]), (V, [0, 2, 1, 3]))
        )
        A = self.add("Softmax", self.add("Add", self.add("MatMul", Q, K), bias), axis=-1)
        mixed = self.add("Transpose", self.add("MatMul", A, V), perm=[0, 2, 1, 3])
        mixed = self.add("Reshape", mixed, self.constant(np.array([-1, self._width])))
        X = self._norm(self.add("Add", *self.linear(mixed, f"{attention}.o"), X), f"{name}.attention.LayerNorm")
        inner = self._gelu(*self.linear(X, f"{name}.intermediate.dense"))
        return self._norm(self.add("Add", *self.linear(inner, f"{name}.output.dense"), X), f"{name}.output.LayerNorm")

    def _norm(self, X: str, name: str) -> str:
        scale, shift = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.add("LayerNormalization", X, scale, shift, axis=-1, epsilon=_EPSILON)

    def _gelu(self, X: str) -> str:
        """Add x/2 (1 + erf(x/√2)), in the form that onnxruntime recognises and runs as one operation."""
        erf = self.add("Erf", self.add("Div", X, self._number(math.sqrt(2))))
        return self.add("Mul", self.add("Mul", X, self.add("Add", erf, self._number(1))), self._number(0.5))

    def _number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))


class _Int8Graph(_Graph):
    """The same with matrices of 8-bit integers and a scale for each of their outputs, and with all weights inside."""

    def __init__(self, tensors: Mapping[str, _Tensor], read: Callable[[str], NDArray[np.float32]]) -> None:
        super().__init__(tensors)
        self._read = read

    def weight(self, name: str) -> str:
        """Add a tensor with its content."""
        return self.constant(self._read(name))

    def rows(self, name: str, numbers: str) -> str:
        """Take rows of a table by their numbers; the table of words, the only large one, is rounded."""
        if not name.endswith("word_embeddings"):
            return super().rows(name, numbers)
        integers, scales = _rounded(self._read(f"{name}.weight"), 127)
        rows = self.add("Cast", self.add("Gather", self.constant(integers), numbers, axis=0), to=_FLOAT)
        return self.add("Mul", rows, self.add("Gather", self.constant(scales[:, None]), numbers, axis=0))

    def linear(self, X: str, *names: str) -> list[str]:
        """Apply affine maps to the rows of X, each of which is rounded to 8 bits with a scale of its own."""
        parts = [_rounded(self._read(f"{name}.weight"), _MOST) for name in names]
        matrix = self.constant(np.concatenate([integers for integers, _ in parts]).T)
        scales = self.constant(np.concatenate([scales for _, scales in parts]))
        bias = self.constant(np.concatenate([self._read(f"{name}.bias") for name in names]))
        largest = self.add("ReduceMax", self.add("Abs", X), axes=[1], keepdims=1)
        step = self.add("Div", self.add("Max", largest, self._number(1e-12)), self._number(127))
        # Without a sign, since onnxruntime is ten times as fast with that.
        rounded = self.add("Round", self.add("Add", self.add("Div", X, step), self._number(_ZERO)))
        zero = self.constant(np.array(_ZERO, np.uint8))
        product = self.add("MatMulInteger", self.add("Cast", rounded, to=_UINT8), matrix, zero)
        product = self.add("Cast", product, to=_FLOAT)
        product = self.add("Mul", self.add("Mul", product, step), scales)
        total = self.add("Add", product, bias)
        if len(names) == 1:
            return [total]
        first = self.add("Split", total, outputs=len(names), axis=1)
        return [first, *(f"{first}.{i}" for i in range(1, len(names)))]


def _rounded(matrix: NDArray[np.float32], most: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return integers in -most..most and the scale of each row, so that their product is close to the matrix."""
    scales = np.maximum(np.abs(matrix).max(axis=1), np.float32(1e-12)) / np.float32(most)
    return np.rint(matrix / scales[:, None]).astype(np.int8), scales


def _buckets(farthest: int) -> NDArray[np.int64]:
    """Return the bucket of each distance in -farthest..farthest, as MPNet and T5 number them.

    Half of the buckets are for tokens that come later. Of each half, the first 8 are for the distances 0 to 7, the
    others for ranges that grow by the square root of 2, up to a distance of 128.
    """
    half, exact = _BUCKETS // 2, _BUCKETS // 4
    ends = [math.ceil(exact * (_FARTHEST / exact) ** (i / exact)) for i in range(1, exact)]
    distances = np.arange(-farthest, farthest + 1)
    near = np.abs(distances)
    far = exact + np.searchsorted(ends, near, side="right")
    return np.where(distances > 0, half, 0) + np.where(near < exact, near, far)


def _attribute(name: str, value: float | list[int]) -> bytes:
    if isinstance(value, list):
        return message((1, name), *((8, number) for number in value), (20, _INTS))
    if isinstance(value, float):
        return message((1, name), (2, value), (20, _REAL))
    return message((1, name), (3, value), (20, _INT))


def _value(name: str, kind: int, *shape: int | str) -> bytes:
    """Describe an input or an output; an axis of any length has a name."""
    axes = [(1, message((1, axis) if isinstance(axis, int) else (2, axis))) for axis in shape]
    return message((1, name), (2, message((1, message((1, kind), (2, message(*axes)))))))
