"""ONNX graphs in the making: nodes, a member's graph from tokens to its vector, and the combination of vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders import AdjustedEncoder, Encoder, EncoderSpec
from ensembed.encoders.onnx_encoder import OnnxEncoder
from ensembed.errors import InputError
from ensembed.methods.meta import Meta, Projection
from ensembed.support.extras import import_extra

# From this version on, an operation takes the axes that it reduces as an input, not as an attribute.
_AXES_AS_INPUT = {"ReduceSum": 13, "ReduceMax": 18}
_OLDEST_OPSET = 11  # the operations that are added here mean the same from this version on
_MAX_BYTES = 2**31 - 1  # the limit of a protobuf message


def onnx_package() -> Any:  # noqa: ANN401 - its types take longer to read than all of our code
    """Import `onnx`, or raise a MissingError with the line that installs it."""
    return import_extra("onnx", "onnx", "writing ONNX graphs")


class Nodes:
    """Nodes in the order in which they run, and the constants that they use, for one version of the operations."""

    def __init__(self, opset: int) -> None:
        self.onnx = onnx_package()
        self.opset = opset
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.sparse: list[Any] = []  # constants that are stored sparsely

    def add(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:  # noqa: ANN401 - the operation's own
        """Add an operation; return the name of its output."""
        name = output or f"ensembed/{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), [name], name=f"{name}:{op}", **attributes))
        return name

    def constant(self, array: NDArray[Any] | np.generic) -> str:
        """Add a tensor; return its name."""
        name = f"ensembed/constant/{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def number(self, value: float) -> str:
        """Add a float32; return its name."""
        return self.constant(np.array([value], np.float32))

    def integers(self, *values: int) -> str:
        """Add a list of integers; return its name."""
        return self.constant(np.array(values, np.int64))

    def reshape(self, X: str, *shape: int) -> str:
        """Change the shape of X; 0 keeps the length of an axis, -1 takes what is left."""
        return self.add("Reshape", X, self.integers(*shape))

    def reduce(self, op: str, X: str, axis: int, *, keep: bool = True) -> str:
        """Reduce X over an axis."""
        if self.opset >= _AXES_AS_INPUT[op]:
            return self.add(op, X, self.integers(axis), keepdims=int(keep))
        return self.add(op, X, axes=[axis], keepdims=int(keep))

    def first_columns(self, X: str, columns: int) -> str:
        """Take the first columns of X [n, d]."""
        return self.add("Slice", X, *map(self.integers, (0, columns, 1)))

    def unit_rows(self, X: str) -> str:
        """Scale the rows of X [n, d] to length one; zero rows stay zero."""
        zero, one = self.number(0), self.number(1)
        largest = self.reduce("ReduceMax", self.add("Abs", X), 1)  # divided by it, no square over- or underflows
        X = self.add("Div", X, self.add("Where", self.add("Equal", largest, zero), one, largest))
        lengths = self.add("Sqrt", self.reduce("ReduceSum", self.add("Mul", X, X), 1))
        return self.add("Div", X, self.add("Where", self.add("Equal", lengths, zero), one, lengths))

    def value(self, name: str, kind: int, shape: Sequence[int | str]) -> Any:  # noqa: ANN401 - a ValueInfoProto
        """Describe an input or an output; an axis of any length has a name."""
        return self.onnx.helper.make_tensor_value_info(name, kind, list(shape))

    def model(
        self,
        name: str,
        inputs: Sequence[Any],
        vectors: tuple[str, int],
        metadata: Mapping[str, str],
        operations: Operations | None = None,
        output: str = "vector",
    ) -> Any:  # noqa: ANN401 - a ModelProto
        """Return the checked model; `vectors` are the name and the length of what its output gives; see `value`."""
        onnx = self.onnx
        self.add("Identity", vectors[0], output=output)
        outputs = [self.value(output, onnx.TensorProto.FLOAT, ["batch", vectors[1]])]
        graph = onnx.helper.make_graph(
            self.nodes, name, list(inputs), outputs, self.constants, sparse_initializer=self.sparse
        )
        used = operations or Operations({"": self.opset}, [], 7)
        imports = [onnx.helper.make_opsetid(*pair) for pair in used.versions.items()]
        facts = {"functions": used.functions, "ir_version": used.ir_version, "producer_name": "ensembed"}
        model = onnx.helper.make_model(graph, opset_imports=imports, **facts)
        onnx.helper.set_model_props(model, dict(metadata))
        if model.ByteSize() > _MAX_BYTES:
            raise InputError(f"the graph {name!r} has {model.ByteSize()} bytes; an ONNX file holds at most 2 GB")
        onnx.checker.check_model(model)
        return model


class Operations(NamedTuple):
    """What a graph uses: the versions of the operations of each domain, functions, and the version of the file."""

    versions: dict[str, int]
    functions: list[Any]
    ir_version: int


class Text(NamedTuple):
    """How a sentence becomes a graph's input; members with equal values share it."""

    tokenizer: str  # the content of a `tokenizer.json`, truncation and lower case included
    prompt: str
    max_length: int
    length: int | None  # the number of tokens that the graph was made for, None for any


@dataclass(frozen=True)
class Member:
    """A member that is an ONNX graph."""

    place: int  # in the ensemble
    spec: EncoderSpec
    inner: OnnxEncoder  # the encoder with the graph
    steps: tuple[int | None, ...]  # after pooling: truncation to so many dimensions or, for None, scaling to length one
    text: Text

    @property
    def prefix(self) -> str:
        """The prefix of the names in its graph."""
        return f"member_{self.place}/"

    @property
    def batch(self) -> int:
        """The most sentences per run: 1 if a sentence's vector would depend on the others in the batch."""
        return self.inner._batch_size

    @property
    def padded(self) -> bool:
        """Whether it has a mask, so that sentences of different lengths can share a batch."""
        return self.inner._graph.masked


def member_of(encoder: Encoder, place: int) -> Member:
    """Return the facts of an encoder that its export needs; raise an InputError if it is not an ONNX graph."""
    steps: list[int | None] = []
    inner = encoder
    while isinstance(inner, AdjustedEncoder):
        below = inner._encoder
        cut = [inner.spec.dim] if inner.spec.dim < below.spec.dim else []
        steps[:0] = [*cut, None] if inner.spec.normalize else cut
        inner = below
    if not isinstance(inner, OnnxEncoder):
        problem = f"member {encoder.spec.name!r} is a {inner.spec.kind!r} encoder, not an ONNX graph"
        raise InputError(f"{problem}; export_meta exports the combination of the members' vectors")
    if "long" in dict(encoder.spec.extra):
        problem = f"member {encoder.spec.name!r} reads long texts in chunks, which its graph cannot"
        raise InputError(f"{problem}: leave out long")
    text = Text(inner._tokenizer.to_str(), encoder.spec.prompt, inner._max_length, inner._graph.length)
    return Member(place, encoder.spec, inner, (None, *steps) if inner.spec.normalize else tuple(steps), text)


def read_member(member: Member) -> Any:  # noqa: ANN401 - a ModelProto
    """Read a member's model, with weights in other files; every name in it gets the member's prefix."""
    model = onnx_package().load(str(member.inner._graph._model))
    version = versions_of(model).get("", 1)
    if version < _OLDEST_OPSET:
        problem = f"member {member.spec.name!r} has ONNX operations of version {version}"
        raise InputError(f"{problem}: export the original again with {_OLDEST_OPSET} or later")
    _add_prefix(model.graph, member.prefix)
    return model


def versions_of(model: Any) -> dict[str, int]:  # noqa: ANN401 - a ModelProto
    """Return the versions of the operations by domain; the standard domain, which has two names, is ''."""
    return {"" if opset.domain == "ai.onnx" else opset.domain: int(opset.version) for opset in model.opset_import}


def add_member(nodes: Nodes, member: Member, graph: Any, *, ids: str, mask: str) -> str:  # noqa: ANN401 - a GraphProto
    """Add a member's graph on the tokens `ids` [n, l] and their mask; return the name of its vectors [n, d]."""
    kinds = nodes.onnx.TensorProto
    inputs, pooling = member.inner._graph._inputs, member.inner.spec.pooling
    types = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    zeros = nodes.add("Sub", ids, ids)
    positions = ""
    if "position_ids" in inputs or pooling == "last":  # counted from 0, through the padding
        counts = nodes.add("CumSum", nodes.add("Add", zeros, nodes.integers(1)), nodes.constant(np.int64(1)))
        positions = nodes.add("Sub", counts, nodes.integers(1))
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": zeros, "position_ids": positions}
    for name in inputs:
        nodes.add("Cast", feeds[name], output=member.prefix + name, to=types[member.prefix + name])
    nodes.nodes += graph.node
    nodes.constants += graph.initializer
    nodes.sparse += graph.sparse_initializer
    output = nodes.add("Cast", member.prefix + member.inner._graph._outputs[0], to=kinds.FLOAT)
    shares = nodes.add("Cast", mask, to=kinds.FLOAT)
    count = nodes.reduce("ReduceSum", shares, 1)
    X = output if pooling == "model" else _pool(nodes, member, output, shares, count, positions)
    # A sentence without a token is a zero vector, whatever the graph gives for padding alone.
    zero = nodes.number(0)
    X = nodes.add("Where", nodes.add("Greater", count, zero), X, zero)
    for step in member.steps:
        X = nodes.unit_rows(X) if step is None else nodes.first_columns(X, step)
    return X


def _pool(nodes: Nodes, member: Member, hidden: str, shares: str, count: str, positions: str) -> str:
    """Reduce token vectors [n, l, d] to [n, d], in the way of the encoder's own pooling."""
    kinds, pooling = nodes.onnx.TensorProto, member.inner.spec.pooling
    if pooling == "cls":
        return nodes.add("Gather", hidden, nodes.constant(np.int64(0)), axis=1)
    if pooling == "max":
        tokens = nodes.add("Cast", nodes.reshape(shares, 0, 0, 1), to=kinds.BOOL)
        return nodes.reduce("ReduceMax", nodes.add("Where", tokens, hidden, nodes.number(-np.inf)), 1, keep=False)

    def weighted_sum(weights: str) -> str:
        return nodes.reshape(nodes.add("MatMul", nodes.reshape(weights, 0, 1, -1), hidden), 0, member.inner.spec.dim)

    least = nodes.add("Max", count, nodes.number(1))
    if pooling == "mean":
        return nodes.add("Div", weighted_sum(shares), least)
    if pooling != "last":
        raise InputError(f"member {member.spec.name!r} is pooled by {pooling!r}, which cannot be exported")
    last = nodes.add("Cast", nodes.add("Sub", least, nodes.number(1)), to=kinds.INT64)
    return weighted_sum(nodes.add("Cast", nodes.add("Equal", positions, last), to=kinds.FLOAT))


def _add_prefix(graph: Any, prefix: str) -> None:  # noqa: ANN401 - a GraphProto
    """Prefix every name, also of nested graphs that use outer constants, unlike `onnx.compose.add_prefix`."""
    for node in graph.node:
        node.name = prefix + node.name if node.name else ""
        for names in (node.input, node.output):
            names[:] = [prefix + name if name else "" for name in names]
        for attribute in node.attribute:
            for nested in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                _add_prefix(nested, prefix)
    sparse = [tensor.values for tensor in graph.sparse_initializer]
    for value in [*graph.input, *graph.output, *graph.value_info, *graph.initializer, *sparse]:
        value.name = prefix + value.name


def used_views(meta: Meta) -> list[int]:
    """Return the views that the vectors depend on: not those of weight 0, nor those that truncation cut off."""
    return [j for j in meta.counted if meta.projections[j].start < meta.dim]


def combine(nodes: Nodes, meta: Meta, views: Mapping[int, str]) -> str:
    """Add what `meta.transform` does with the used views, by their names; return the name of the vectors."""
    total = ""
    for j in used_views(meta):
        X = nodes.unit_rows(views[j]) if meta.normalize else views[j]
        part = _project(nodes, meta.projections[j], X, meta.dim)
        total = nodes.add("Add", total, part) if total else part
    if not total:
        raise InputError("this meta-embedding depends on none of its views: there is nothing to export")
    return total


def _project(nodes: Nodes, projection: Projection, X: str, dim: int) -> str:
    """Add a view's part of the sum [n, d]."""
    if not projection.layers:  # as a matrix it would be mostly zeros
        width = min(projection.columns, dim - projection.start)
        X = nodes.first_columns(X, width) if width < projection.columns else X
        X = nodes.add("Mul", X, nodes.number(projection.scale))
        pads = (0, projection.start, 0, dim - projection.start - width)
        return nodes.add("Pad", X, nodes.integers(*pads), nodes.constant(np.float32(0))) if any(pads) else X
    network = projection.as_network(dim)
    for i, layer in enumerate(network.layers):
        X = nodes.add("Add", nodes.add("MatMul", X, nodes.constant(layer.matrix)), nodes.constant(layer.bias))
        if i < len(network.layers) - 1:
            unit = network.activation == "unit"
            X = nodes.unit_rows(X) if unit else nodes.add(network.activation.capitalize(), X)  # Relu, Tanh
    return X
