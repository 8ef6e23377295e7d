"""A graph in the making: nodes and constants under names of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError
from ensembed.support.extras import import_extra

# From this version on, an operation takes the axes that it reduces as an input, not as an attribute.
_AXES_AS_INPUT = {"ReduceSum": 13, "ReduceMax": 18}

# What a protobuf message can hold.
_MOST_BYTES = 2**31 - 1


def onnx_package() -> Any:  # noqa: ANN401 - its types take longer to read than all of our code
    """The package `onnx`, or a MissingError with the line that installs it."""
    return import_extra("onnx", "onnx", "writing ONNX graphs")


class Nodes:
    """Nodes in the order in which they run.

    Args:
        opset: the version of the operations.

    Attributes:
        nodes: the nodes.
        constants: the tensors that they use.
        sparse: those of them that are stored sparsely.
    """

    def __init__(self, opset: int) -> None:
        self.onnx = onnx_package()
        self.opset = opset
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.sparse: list[Any] = []

    def add(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:  # noqa: ANN401 - its own
        """Add an operation; returns the name of its output."""
        name = output or f"ensembed/{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), [name], name=f"{name}:{op}", **attributes))
        return name

    def constant(self, array: NDArray[Any] | np.generic) -> str:
        """Add a tensor; returns its name."""
        name = f"ensembed/constant/{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def number(self, value: float) -> str:
        """A number of 32 bits, as a tensor that goes with any other."""
        return self.constant(np.array([value], np.float32))

    def shaped(self, X: str, *shape: int) -> str:
        """X in another shape; 0 keeps the length of an axis, -1 takes what is left."""
        return self.add("Reshape", X, self.constant(np.array(shape, np.int64)))

    def reduced(self, op: str, X: str, axis: int, *, keep: bool = True) -> str:
        """X reduced over an axis."""
        if self.opset >= _AXES_AS_INPUT[op]:
            return self.add(op, X, self.constant(np.array([axis], np.int64)), keepdims=int(keep))
        return self.add(op, X, axes=[axis], keepdims=int(keep))

    def first_columns(self, X: str, columns: int) -> str:
        """The first columns of X [n, d]."""
        bounds = [self.constant(np.array([value], np.int64)) for value in (0, columns, 1)]
        return self.add("Slice", X, *bounds)

    def unit_rows(self, X: str) -> str:
        """The rows of X [n, d] scaled to length one; zero rows stay zero.

        The largest entry is divided out first, so that no square is lost to overflow or underflow.
        """
        zero, one = self.number(0), self.number(1)
        largest = self.reduced("ReduceMax", self.add("Abs", X), 1)
        X = self.add("Div", X, self.add("Where", self.add("Equal", largest, zero), one, largest))
        lengths = self.add("Sqrt", self.reduced("ReduceSum", self.add("Mul", X, X), 1))
        return self.add("Div", X, self.add("Where", self.add("Equal", lengths, zero), one, lengths))

    def model(
        self,
        name: str,
        inputs: Sequence[Any],
        output: tuple[str, int],
        *,
        versions: Mapping[str, int] | None = None,
        functions: Sequence[Any] = (),
        ir_version: int = 7,
        facts: Mapping[str, str] | None = None,
    ) -> Any:  # noqa: ANN401 - a ModelProto
        """The checked model whose output [batch, d] has this name and length.

        Args:
            name: of the graph.
            inputs: what `value` gives.
            output: the name of the output, and the length of a vector.
            versions: of the operations of each domain; by default the usual domain alone.
            functions: of the model.
            ir_version: of the file.
            facts: kept in the file.

        Raises:
            InputError: it is too large for one file.
        """
        onnx = self.onnx
        vector = self.value(output[0], onnx.TensorProto.FLOAT, ["batch", output[1]])
        graph = onnx.helper.make_graph(
            self.nodes, name, list(inputs), [vector], self.constants, sparse_initializer=self.sparse
        )
        opsets = [onnx.helper.make_opsetid(*pair) for pair in (versions or {"": self.opset}).items()]
        model = onnx.helper.make_model(
            graph, opset_imports=opsets, functions=list(functions), ir_version=ir_version, producer_name="ensembed"
        )
        onnx.helper.set_model_props(model, dict(facts or {}))
        if model.ByteSize() > _MOST_BYTES:
            raise InputError(
                f"the graph {name!r} has {model.ByteSize()} bytes, and an ONNX file holds 2 GB at the most"
            )
        onnx.checker.check_model(model)
        return model

    def value(self, name: str, kind: int, shape: Sequence[int | str]) -> Any:  # noqa: ANN401 - a ValueInfoProto
        """A description of an input or an output; an axis of any length has a name."""
        return self.onnx.helper.make_tensor_value_info(name, kind, list(shape))
