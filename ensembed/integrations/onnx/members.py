"""Transformers in ONNX form, made to end in the vector of a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ensembed.encoders import AdjustedEncoder, Encoder
from ensembed.encoders.onnx_encoder import OnnxEncoder
from ensembed.errors import InputError
from ensembed.integrations.onnx.nodes import Nodes, onnx_package

# Every operation that is added here has the same meaning from this version on.
_OLDEST = 11


@dataclass(frozen=True)
class Text:
    """What has to be done to a sentence before a graph takes it; members for which it is the same share it.

    Attributes:
        tokenizer: the content of a `tokenizer.json`, truncation and lower case included.
        prompt: put before the sentence.
        max_length: tokens at the most.
        length: the number of tokens that the graph was made for; None for any.
    """

    tokenizer: str
    prompt: str
    max_length: int
    length: int | None


@dataclass(frozen=True)
class Member:
    """An encoder that is an ONNX graph.

    Attributes:
        name: of the encoder.
        path: the graph's file.
        inputs: the graph's inputs.
        output: the output of it that is used.
        pooling: how that becomes one vector.
        hidden: the length of that vector.
        steps: what happens to it after that: the number of dimensions it is cut to, or None where it is scaled to
            length one.
        text: what its sentences become.
        padded: whether it is told which tokens are padding; sentences of different lengths may be in one batch.
        batch: sentences per run at the most: 1 where a sentence's vector would depend on its neighbours.
    """

    name: str
    path: Path
    inputs: tuple[str, ...]
    output: str
    pooling: str
    hidden: int
    steps: tuple[int | None, ...]
    text: Text
    padded: bool
    batch: int

    @property
    def dim(self) -> int:
        """The length of its vector."""
        return [self.hidden, *(step for step in self.steps if step is not None)][-1]


def member_of(encoder: Encoder) -> Member:
    """What has to be known of an encoder to export it.

    Raises:
        InputError: it is no ONNX graph.
    """
    steps: list[int | None] = []
    inner = encoder
    while isinstance(inner, AdjustedEncoder):
        below = inner._encoder
        steps[:0] = _steps(below.spec.dim, inner)
        inner = below
    if not isinstance(inner, OnnxEncoder):
        raise InputError(
            f"member {encoder.spec.name!r} is a {inner.spec.kind!r} encoder, not an ONNX graph, and cannot be exported "
            "as one; export_meta exports what combines the members' vectors"
        )
    spec, graph = inner.spec, inner._graph
    if spec.normalize:
        steps.insert(0, None)
    text = Text(inner._tokenizer.to_str(), encoder.spec.prompt, inner._max_length, graph.length)
    return Member(
        name=encoder.spec.name,
        path=graph._model,
        inputs=tuple(graph._inputs),
        output=graph._outputs[0],
        pooling=spec.pooling,
        hidden=spec.dim,
        steps=tuple(steps),
        text=text,
        padded=graph.masked,
        batch=inner._batch_size,
    )


def _steps(dim: int, encoder: AdjustedEncoder) -> list[int | None]:
    """What an adjusted encoder does to vectors of so many dimensions."""
    cut: list[int | None] = [encoder.spec.dim] if encoder.spec.dim < dim else []
    return [*cut, None] if encoder.spec.normalize else cut


def read_member(member: Member, prefix: str) -> Any:  # noqa: ANN401 - a ModelProto
    """The member's model, weights in other files included, every name in it with a prefix.

    Raises:
        InputError: its operations are too old.
    """
    model = onnx_package().load(str(member.path))
    if version_of(model) < _OLDEST:
        raise InputError(
            f"member {member.name!r} has ONNX operations of version {version_of(model)}: export the original again "
            f"with {_OLDEST} or later"
        )
    _add_prefix(model.graph, prefix)
    return model


def version_of(model: Any) -> int:  # noqa: ANN401 - a ModelProto
    """The version of a model's usual operations."""
    return next((int(opset.version) for opset in model.opset_import if opset.domain in ("", "ai.onnx")), 1)


def add_member(nodes: Nodes, member: Member, graph: Any, prefix: str, *, ids: str, mask: str) -> str:  # noqa: ANN401 - a GraphProto
    """Add a member's graph, whose names have a prefix; returns the name of its vectors [n, d].

    Args:
        nodes: what to add it to.
        member: the member.
        graph: its graph, which is emptied.
        prefix: of the graph's names.
        ids: the name of the tokens [n, l].
        mask: the name of a tensor of that shape, 1 for the sentence's tokens and 0 for padding behind them.
    """
    kinds = nodes.onnx.TensorProto
    declared = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    zeros = nodes.add("Sub", ids, ids)
    positions = _positions(nodes, zeros) if "position_ids" in member.inputs or member.pooling == "last" else ""
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": zeros, "position_ids": positions}
    for name in member.inputs:
        nodes.add("Cast", feeds[name], output=prefix + name, to=declared[prefix + name])
    nodes.nodes += graph.node
    nodes.constants += graph.initializer
    nodes.sparse += graph.sparse_initializer
    output = nodes.add("Cast", prefix + member.output, to=kinds.FLOAT)
    shares = nodes.add("Cast", mask, to=kinds.FLOAT)
    count = nodes.reduced("ReduceSum", shares, 1)
    X = output if member.pooling == "model" else _pooled(nodes, member, output, shares, count, positions)
    # A sentence without a token is a zero vector, whatever the graph made of padding alone.
    zero = nodes.number(0)
    X = nodes.add("Where", nodes.add("Greater", count, zero), X, zero)
    for step in member.steps:
        X = nodes.unit_rows(X) if step is None else nodes.first_columns(X, step)
    return X


def _positions(nodes: Nodes, zeros: str) -> str:
    """The place of each token, counted from 0; padding counts on."""
    one = nodes.constant(np.array([1], np.int64))
    return nodes.add("Sub", nodes.add("CumSum", nodes.add("Add", zeros, one), nodes.constant(np.int64(1))), one)


def _pooled(nodes: Nodes, member: Member, hidden: str, shares: str, count: str, positions: str) -> str:
    """Token vectors [n, l, d] made one [n, d], as `ensembed.encoders.onnx.pooling` does it."""
    kinds = nodes.onnx.TensorProto
    if member.pooling == "cls":
        return nodes.add("Gather", hidden, nodes.constant(np.int64(0)), axis=1)
    if member.pooling == "max":
        tokens = nodes.add("Cast", nodes.shaped(shares, 0, 0, 1), to=kinds.BOOL)
        return nodes.reduced("ReduceMax", nodes.add("Where", tokens, hidden, nodes.number(-np.inf)), 1, keep=False)
    least = nodes.add("Max", count, nodes.number(1))
    if member.pooling == "mean":
        return nodes.add("Div", _weighted(nodes, member, shares, hidden), least)
    if member.pooling != "last":
        raise InputError(f"member {member.name!r} is pooled by {member.pooling!r}, for which there is no export")
    last = nodes.add("Cast", nodes.add("Sub", least, nodes.number(1)), to=kinds.INT64)
    chosen = nodes.add("Cast", nodes.add("Equal", positions, last), to=kinds.FLOAT)
    return _weighted(nodes, member, chosen, hidden)


def _weighted(nodes: Nodes, member: Member, shares: str, hidden: str) -> str:
    """The sum of token vectors [n, l, d], each times its share [n, l]."""
    return nodes.shaped(nodes.add("MatMul", nodes.shaped(shares, 0, 1, -1), hidden), 0, member.hidden)


def _add_prefix(graph: Any, prefix: str) -> None:  # noqa: ANN401 - a GraphProto
    """Put a prefix before every name of a graph, those of graphs within it included; an empty name stays empty.

    `onnx.compose.add_prefix` leaves out what a nested graph takes from the constants around it.
    """
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
