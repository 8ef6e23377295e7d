"""What an ONNX file says of itself: how exact its arithmetic is, and which other files hold its weights.

ONNX is protobuf. We want to know three things of it, for which a reader of the wire format does: field numbers, lengths
and a few small values. Weights are skipped, not read, so that a file of 2 GB is no trouble.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from ensembed.errors import EncoderError

# Bytes of the mapped file from start to end: the content of a field that has a length.
Span: TypeAlias = tuple[int, int]

# Operations that round activations to few bits. `DynamicQuantize…` choose one scale for all the activations of a run,
# so that a sentence's vector depends on its neighbours (cosines down to 0.97 seen). The others, and half precision,
# have fixed scales or one per row. For them it is a precaution: a library whose matrix products of another shape differ
# in their last bit would have rounding make a step of it. On x86 with onnxruntime 1.31 no bit of an fp16 model moved.
_ROUNDING = ("DynamicQuantize", "QuantizeLinear", "MatMulInteger", "ConvInteger", "QLinear", "QAttention", "QGemm")
_WEIGHT_ONLY = ("MatMulNBits", "MatMulBnb4", "GatherBlockQuantized")  # some have their activations rounded, too

# TensorProto.DataType: floats of 16 bits and of 8.
_HALVES = frozenset({10, 16, 17, 18, 19, 20})

# Where messages are nested: field numbers of ModelProto, GraphProto, FunctionProto, NodeProto, AttributeProto.
_MODEL = {7: "graph", 25: "function"}
_GRAPH = {1: "node", 5: "tensor"}
_FUNCTION = {7: "node"}
_NODE = {4: "op_type", 5: "attribute"}
_ATTRIBUTE = {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"}
_INSIDE = {"model": _MODEL, "graph": _GRAPH, "function": _FUNCTION, "node": _NODE, "attribute": _ATTRIBUTE}


@dataclass(frozen=True)
class GraphFacts:
    """What we have to know of a graph before it runs.

    Attributes:
        operations: the types of its operations, those of nested graphs included.
        types: the data types of its weights and constants, and those that it casts to, by ONNX's number.
        external: the files that hold weights, relative to the graph's own folder.
    """

    operations: frozenset[str]
    types: frozenset[int]
    external: tuple[str, ...]

    @property
    def rounds(self) -> bool:
        """Whether activations are rounded to 16 bits or fewer: then sentences must run one at a time."""
        coarse = any(op.startswith(_ROUNDING + _WEIGHT_ONLY) for op in self.operations)
        return coarse or not self.types.isdisjoint(_HALVES)


def read_graph(path: Path) -> GraphFacts:
    """Read the facts from an ONNX file.

    Raises:
        EncoderError: it cannot be read, is no ONNX file, is torn, or has weights outside of its folder.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _facts(data, path)
    except OSError as error:
        raise EncoderError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # an empty file cannot be mapped
        raise EncoderError(f"{path} is no ONNX file, or a torn one ({error}); export or fetch it again") from error


def _facts(data: mmap.mmap, path: Path) -> GraphFacts:
    operations: set[str] = set()
    types: set[int] = set()
    external: set[str] = set()
    graphs = 0
    messages: list[tuple[str, Span]] = [("model", (0, len(data)))]
    while messages:
        kind, span = messages.pop()
        graphs += kind == "graph"
        if kind == "op_type":
            operations.add(data[slice(*span)].decode())
        elif kind == "tensor":
            types.add(_tensor(data, span, external))
        else:
            inside = _INSIDE[kind]
            for number, value in _fields(data, span):
                if isinstance(value, tuple):
                    if number in inside:
                        messages.append((inside[number], value))
                elif kind == "attribute" and number == 3:  # an integer: `to` of a Cast is the type it casts to
                    types.update(_cast(data, span, value))
    if not graphs or not operations:
        raise ValueError("there is no graph in it")
    for location in external:
        parts = PurePosixPath(location).parts
        if not parts or ".." in parts or PurePosixPath(location).is_absolute() or "\\" in location:
            raise EncoderError(f"{path} says that weights are in {location!r}, outside of its own folder")
    return GraphFacts(frozenset(operations), frozenset(types), tuple(sorted(external)))


def _tensor(data: mmap.mmap, span: Span, external: set[str]) -> int:
    """The data type of a TensorProto; the file that has its content, if another one does, is added to `external`."""
    data_type = 0
    for number, value in _fields(data, span):
        if number == 2 and isinstance(value, int):
            data_type = value
        elif number == 13 and isinstance(value, tuple):  # a pair of key and value
            pair = {n: data[slice(*v)].decode() for n, v in _fields(data, value) if isinstance(v, tuple)}
            if pair.get(1) == "location":
                external.add(pair.get(2, ""))
    return data_type


def _cast(data: mmap.mmap, span: Span, value: int) -> set[int]:
    name = next((data[slice(*v)] for n, v in _fields(data, span) if n == 1 and isinstance(v, tuple)), b"")
    return {value} if name == b"to" else set()


def _fields(data: mmap.mmap, span: Span) -> Iterator[tuple[int, int | Span]]:
    """The fields of a message: number and value, which is an integer or, of what has a length, its place.

    Raises:
        ValueError: the bytes are no protobuf message.
    """
    at, end = span
    while at < end:
        tag, at = _varint(data, at, end)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise ValueError(f"there is no field 0, byte {at}")
        if wire_type == 0:
            value, at = _varint(data, at, end)
            yield number, value
        elif wire_type == 2:
            length, at = _varint(data, at, end)
            if length > end - at:
                raise ValueError(f"it ends within field {number}, byte {at}")
            yield number, (at, at + length)
            at += length
        elif wire_type in (1, 5):
            at += 8 if wire_type == 1 else 4
            if at > end:
                raise ValueError(f"it ends within field {number}, byte {end}")
        else:
            raise ValueError(f"wire type {wire_type}, byte {at}")


def _varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    """An integer of seven bits a byte, the lowest first, and the place behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if at == end:
            raise ValueError(f"it ends within a number, byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError(f"a number is too long, byte {at}")
