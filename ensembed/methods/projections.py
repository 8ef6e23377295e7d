"""What a fitted method does with one view: move it, multiply it, or send it through a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.numerics.row_matrices import unit_rows

FloatArray = NDArray[np.float32]
Activation: TypeAlias = Literal["relu", "tanh"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
Between: TypeAlias = Literal["relu", "tanh", "unit"]
BETWEEN: tuple[Between, ...] = get_args(Between)
"""What can happen between the layers of a fitted network: "unit" scales every row to length one."""

_FUNCTIONS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "relu": lambda X: np.maximum(X, 0, out=X),
    "tanh": lambda X: np.tanh(X, out=X),
    "unit": unit_rows,
}


@dataclass(frozen=True, eq=False)
class Placement:
    """A projection that only moves: it puts a view's columns, scaled, at columns `start` onwards.

    Concatenation and averaging are made of these. As dense matrices they would cost a product with mostly zeros.
    """

    start: int
    columns: int
    scale: float = 1.0

    def add_to(self, out: NDArray[Any], X: NDArray[Any]) -> None:
        """Add the projection of X [n, columns] to out [n, d]; columns beyond d are cut off."""
        target = out[:, self.start : self.start + self.columns]
        target += X[:, : target.shape[1]] * X.dtype.type(self.scale)

    def truncated(self, k: int) -> Placement:  # noqa: ARG002 - every projection is told how far
        """The projection on the first k columns: what lies beyond is cut off anyway."""
        return self


@dataclass(frozen=True, eq=False)
class Dense:
    """A projection by a matrix [d_j, d], less the projected mean [d]."""

    matrix: FloatArray
    offset: FloatArray

    @classmethod
    def centred(cls, matrix: NDArray[Any], mean: NDArray[np.float64]) -> Dense:
        """The projection x -> matrix' (x - mean)."""
        rounded = np.ascontiguousarray(matrix, np.float32)
        return cls(rounded, (mean @ rounded.astype(np.float64)).astype(np.float32))

    @property
    def columns(self) -> int:
        """The dimension of the view it projects."""
        return int(self.matrix.shape[0])

    def add_to(self, out: NDArray[Any], X: NDArray[Any]) -> None:
        """Add the projection of X [n, d_j] to out [n, d]; projecting first spares a centred copy of X."""
        out += X @ self.matrix
        out -= self.offset

    def truncated(self, k: int) -> Dense:
        """The projection on the first k columns."""
        return Dense(np.ascontiguousarray(self.matrix[:, :k]), self.offset[:k])


@dataclass(frozen=True, eq=False)
class Layer:
    """x -> x' matrix + bias, for rows x."""

    matrix: FloatArray
    bias: FloatArray


@dataclass(frozen=True, eq=False)
class Network:
    """A feed-forward network whose last layer is linear; its output is put at columns `start` onwards."""

    layers: tuple[Layer, ...]
    activation: Between
    start: int = 0

    @property
    def columns(self) -> int:
        """The dimension of the view it takes."""
        return int(self.layers[0].matrix.shape[0])

    def add_to(self, out: NDArray[Any], X: NDArray[Any]) -> None:
        """Add the network's output for X [n, d_j] to out [n, d]."""
        for i, layer in enumerate(self.layers):
            X = X @ layer.matrix
            X += layer.bias
            if i < len(self.layers) - 1:
                X = _FUNCTIONS[self.activation](X)
        out[:, self.start : self.start + X.shape[1]] += X

    def truncated(self, k: int) -> Network:
        """The network with what it puts at columns from k on left out."""
        last, kept = self.layers[-1], max(k - self.start, 0)
        shorter = Layer(np.ascontiguousarray(last.matrix[:, :kept]), last.bias[:kept])
        return Network((*self.layers[:-1], shorter), self.activation, self.start)

    def scaled(self, factor: float) -> Network:
        """The network whose output is multiplied by a number; itself where that is 1."""
        if factor == 1:
            return self
        last, number = self.layers[-1], np.float32(factor)
        return Network(
            (*self.layers[:-1], Layer(last.matrix * number, last.bias * number)), self.activation, self.start
        )


Projection: TypeAlias = Placement | Dense | Network


def as_network(projection: Projection, dim: int) -> Network:
    """Return the network [d_j] -> [dim] that gives what the projection adds to a result of `dim` columns.

    Example:
        >>> as_network(Placement(1, 2, 0.5), 3).layers[0].matrix
        array([[0. , 0.5, 0. ],
               [0. , 0. , 0.5]], dtype=float32)
    """
    match projection:
        case Placement(start, columns, scale):
            matrix = np.eye(columns, dim, start, np.float32) * np.float32(scale)
            return Network((Layer(matrix, np.zeros(dim, np.float32)),), "relu")
        case Dense(matrix, offset):
            return Network((Layer(matrix, -offset),), "relu")
        case Network(layers, activation, start):
            last = layers[-1]
            around = (start, dim - start - last.matrix.shape[1])
            padded = Layer(np.pad(last.matrix, ((0, 0), around)), np.pad(last.bias, around))
            return Network((*layers[:-1], padded), activation)
