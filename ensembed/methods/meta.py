"""What a fitted method does with one view: move, multiply or map its columns. A projection saves and loads itself."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import DimensionError, InputError, ViewError
from ensembed.numerics.row_matrices import Matrix, check_views, non_finite, unit_rows
from ensembed.support.shown_objects import Facts, Shown, short_value

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


class Projection(ABC):
    """The part of a meta-embedding that belongs to one view: layers, then a factor, then a place; a frozen dataclass.

    A new kind is a subclass in this file.
    """

    kind: ClassVar[str]
    """The name that saved models give it."""
    columns: Any
    """The dimension d_j of the view."""
    layers: Any
    """The `Layer`s that the view passes through, with `activation` between them; () if it is only placed."""
    activation: Any
    start: Any
    """The first column of the result that it adds to."""
    scale: Any = 1.0
    """The factor of what it adds; 0 if the view does not count."""

    @property
    def output_columns(self) -> int:
        """How many columns of the result it adds to, from `start` on."""
        return len(self.layers[-1].bias) if self.layers else int(self.columns)

    @abstractmethod
    def add_to(self, out: NDArray[Any], X: NDArray[Any]) -> None:
        """Add the projection of X [n, d_j] to out [n, d]."""

    @abstractmethod
    def truncated(self, k: int) -> Projection:
        """Return the projection on the first k columns."""

    @abstractmethod
    def onto(self, V: NDArray[np.float64]) -> Projection:
        """Return the projection followed by the product with directions V [D, d]."""

    @abstractmethod
    def saved(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return what a saved model keeps: the facts for `config.json`, and the tensors by name."""

    @classmethod
    @abstractmethod
    def restored(
        cls, facts: Mapping[str, Any], columns: int, dim: int, take: Callable[..., NDArray[Any]], /
    ) -> Projection:
        """Return the projection of a view of `columns` columns on `dim` from what was saved.

        Args:
            facts: the facts that `saved` returned.
            columns: the dimension of the view.
            dim: the dimension of the meta-embedding.
            take: returns the tensor of a name and checks its shape: `take("matrix", columns, dim)`.
        """

    def as_network(self, dim: int) -> Network:
        """Return the network [d_j] -> [dim] that gives what the projection adds to a result of `dim` columns.

        Example:
            >>> Placement(1, 2, 0.5).as_network(3).layers[0].matrix
            array([[0. , 0.5, 0. ],
                   [0. , 0. , 0.5]], dtype=float32)
        """
        identity = Layer(np.eye(self.columns, dtype=np.float32), np.zeros(self.columns, np.float32))
        *first, last = self.layers or (identity,)
        kept, factor = max(dim - self.start, 0), np.float32(self.scale)  # truncation may have cut off columns, even all
        matrix, bias = last.matrix[:, :kept] * factor, last.bias[:kept] * factor
        around = (min(self.start, dim), kept - len(bias))
        return Network((*first, Layer(np.pad(matrix, ((0, 0), around)), np.pad(bias, around))), self.activation)


@dataclass(frozen=True, eq=False)
class Placement(Projection):
    """Puts a view's columns, scaled, at columns `start` onwards; a dense matrix would be mostly zeros."""

    start: int
    columns: int
    scale: float = 1.0

    kind: ClassVar[str] = "placement"
    layers = ()
    activation = "relu"

    def add_to(self, out: NDArray[Any], X: NDArray[Any]) -> None:
        """Add the columns of X [n, columns] to out [n, d]; columns beyond d are cut off."""
        target = out[:, self.start : self.start + self.columns]
        target += X[:, : target.shape[1]] * X.dtype.type(self.scale)

    def truncated(self, k: int) -> Placement:  # noqa: ARG002 - what lies beyond k is cut off anyway
        """Return itself: `add_to` cuts off what lies beyond the last column."""
        return self

    def onto(self, V: NDArray[np.float64]) -> Projection:
        """Return the rows of V that belong to the view, scaled, as a matrix."""
        rows = V[self.start : self.start + self.columns] * self.scale
        return Dense.centred(rows, np.zeros(self.columns)) if self.scale else self

    def saved(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return its numbers: there are no tensors."""
        return {"kind": self.kind, "start": self.start, "columns": self.columns, "scale": self.scale}, {}

    @classmethod
    def restored(cls, facts: Mapping[str, Any], *_: object) -> Placement:
        """Return the placement from its facts."""
        start, columns, scale = facts["start"], facts["columns"], facts["scale"]
        if type(start) is not int or start < 0 or type(columns) is not int or not isinstance(scale, float | int):
            raise ValueError(f"a placement of {columns!r} columns at {start!r}, times {scale!r}")
        return cls(start, columns, scale)


@dataclass(frozen=True, eq=False)
class Dense(Projection):
    """Multiplies by a matrix [d_j, d] and subtracts the projected mean [d]."""

    matrix: FloatArray
    offset: FloatArray

    kind: ClassVar[str] = "dense"
    activation = "relu"
    start = 0

    @classmethod
    def centred(cls, matrix: NDArray[Any], mean: NDArray[np.float64]) -> Dense:
        """Return the projection x -> matrix' (x - mean)."""
        rounded = np.ascontiguousarray(matrix, np.float32)
        return cls(rounded, (mean @ rounded.astype(np.float64)).astype(np.float32))

    @property
    def columns(self) -> int:
        """The dimension of the view."""
        return int(self.matrix.shape[0])

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The matrix, as a layer."""
        return (Layer(self.matrix, -self.offset),)

    def add_to(self, out: NDArray[Any], X: NDArray[Any]) -> None:
        """Add the projection of X [n, d_j] to out [n, d]; projecting first spares a centred copy of X."""
        out += X @ self.matrix
        out -= self.offset

    def truncated(self, k: int) -> Dense:
        """Return the projection on the first k columns."""
        return Dense(np.ascontiguousarray(self.matrix[:, :k]), self.offset[:k])

    def onto(self, V: NDArray[np.float64]) -> Dense:
        """Return the product of both matrices."""
        return Dense((self.matrix @ V).astype(np.float32), (self.offset @ V).astype(np.float32))

    def saved(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return the matrix and the offset."""
        return {"kind": self.kind}, {"matrix": self.matrix, "offset": self.offset}

    @classmethod
    def restored(cls, _: Mapping[str, Any], columns: int, dim: int, take: Callable[..., NDArray[Any]], /) -> Dense:
        """Return the projection from its tensors."""
        return cls(take("matrix", columns, dim), take("offset", dim))


@dataclass(frozen=True, eq=False)
class Layer:
    """x -> x' matrix + bias, for rows x."""

    matrix: FloatArray
    bias: FloatArray


@dataclass(frozen=True, eq=False)
class Network(Projection):
    """A feed-forward network whose last layer is linear; its output is put at columns `start` onwards."""

    layers: tuple[Layer, ...]
    activation: Between
    start: int = 0

    kind: ClassVar[str] = "network"

    @property
    def columns(self) -> int:
        """The dimension of the view."""
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
        """Return the network without what it puts at columns from k on."""
        last, kept = self.layers[-1], max(k - self.start, 0)
        return self._ending_in(Layer(np.ascontiguousarray(last.matrix[:, :kept]), last.bias[:kept]), self.start)

    def onto(self, V: NDArray[np.float64]) -> Network:
        """Return the network whose last layer is multiplied by the rows of V that belong to its output."""
        last = self.layers[-1]
        rows = V[self.start : self.start + last.matrix.shape[1]]
        return self._ending_in(Layer((last.matrix @ rows).astype(np.float32), (last.bias @ rows).astype(np.float32)), 0)

    def scaled(self, factor: float) -> Network:
        """Return the network whose output is multiplied by a number; itself where that is 1."""
        if factor == 1:
            return self
        last, number = self.layers[-1], np.float32(factor)
        return self._ending_in(Layer(last.matrix * number, last.bias * number), self.start)

    def shifted(self, vector: NDArray[Any]) -> Network:
        """Return the network that adds a vector to its output."""
        last = self.layers[-1]
        return self._ending_in(Layer(last.matrix, (last.bias + vector).astype(np.float32)), self.start)

    def _ending_in(self, last: Layer, start: int) -> Network:
        return Network((*self.layers[:-1], last), self.activation, start)

    def saved(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return its place, its activation and the widths of its layers; matrix and bias of every layer."""
        widths = [layer.matrix.shape[1] for layer in self.layers]
        tensors: dict[str, FloatArray] = {}
        for i, layer in enumerate(self.layers):
            tensors |= {f"layer.{i}.matrix": layer.matrix, f"layer.{i}.bias": layer.bias}
        return {"kind": self.kind, "start": self.start, "activation": self.activation, "widths": widths}, tensors

    @classmethod
    def restored(
        cls, facts: Mapping[str, Any], columns: int, dim: int, take: Callable[..., NDArray[Any]], /
    ) -> Network:
        """Return the network from its widths and tensors."""
        start, widths = facts["start"], facts["widths"]
        if type(start) is not int or start < 0 or not widths or (widths[-1] and start + widths[-1] > dim):
            raise ValueError(f"layers of widths {widths!r} do not end in {dim} columns from {start!r} on")
        if facts["activation"] not in BETWEEN:
            raise ValueError(f"unknown activation {facts['activation']!r}")
        layers = []
        for i, width in enumerate(widths):
            layers.append(Layer(take(f"layer.{i}.matrix", columns, width), take(f"layer.{i}.bias", width)))
            columns = width
        return cls(tuple(layers), facts["activation"], start)


@dataclass(frozen=True, eq=False)
class Local(Projection):
    """`sum_k p_k(x) (matrix_k' x + bias_k)`: a map for each region of the view's space; p is a softmax.

    Attributes:
        centres: [K, d_j] the regions' centres, of length one.
        matrices: [K, d_j, d] and
        biases: [K, d] the regions' maps.
        sharpness: the factor of the cosines with the centres in the softmax.
    """

    centres: FloatArray
    matrices: FloatArray
    biases: FloatArray
    sharpness: float

    kind: ClassVar[str] = "local"
    activation = "relu"
    start = 0

    @property
    def columns(self) -> int:
        """The dimension of the view."""
        return int(self.centres.shape[1])

    @property
    def output_columns(self) -> int:
        """The dimension of the result."""
        return int(self.biases.shape[1])

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Nothing: an InputError says that it is no network."""
        raise InputError(
            "a map with regions is no sequence of layers, which is what other libraries take: fit a linear one "
            "(`kinds`, `ensembed translate --kind ridge`)"
        )

    def add_to(self, out: NDArray[Any], X: NDArray[Any]) -> None:
        """Add the mixture of the regions' maps of X [n, d_j] to out [n, d]."""
        scores = unit_rows(X) @ self.centres.T.astype(X.dtype)
        scores *= X.dtype.type(self.sharpness)
        parts = np.exp(scores - scores.max(axis=1, keepdims=True))
        parts /= parts.sum(axis=1, keepdims=True)
        for k, matrix in enumerate(self.matrices):
            mapped = X @ matrix
            mapped += self.biases[k]
            mapped *= parts[:, k : k + 1]
            out += mapped

    def truncated(self, k: int) -> Local:
        """Return the maps to the first k columns."""
        return replace(self, matrices=np.ascontiguousarray(self.matrices[:, :, :k]), biases=self.biases[:, :k])

    def onto(self, V: NDArray[np.float64]) -> Local:
        """Return the product of every map with V."""
        return replace(
            self, matrices=(self.matrices @ V).astype(np.float32), biases=(self.biases @ V).astype(np.float32)
        )

    def shifted(self, vector: NDArray[Any]) -> Local:
        """Return the maps that add a vector to every row: the parts of the regions are 1 together."""
        return replace(self, biases=(self.biases + vector).astype(np.float32))

    def saved(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return the number of regions and the sharpness; the centres and the maps."""
        tensors = {"centres": self.centres, "matrices": self.matrices, "biases": self.biases}
        return {"kind": self.kind, "regions": len(self.centres), "sharpness": self.sharpness}, tensors

    @classmethod
    def restored(cls, facts: Mapping[str, Any], columns: int, dim: int, take: Callable[..., NDArray[Any]], /) -> Local:
        """Return the maps from their tensors."""
        regions, sharpness = facts["regions"], facts["sharpness"]
        if type(regions) is not int or regions < 1 or not isinstance(sharpness, float | int):
            raise ValueError(f"{regions!r} regions, mixed by {sharpness!r}")
        shapes = (take("centres", regions, columns), take("matrices", regions, columns, dim))
        return cls(*shapes, take("biases", regions, dim), float(sharpness))


PROJECTIONS: dict[str, type[Projection]] = {kind.kind: kind for kind in Projection.__subclasses__()}
"""The kinds of projection by the name that saved models give them."""

# Rows transformed at a time: bounds the memory for inputs that are larger than it.
_BATCH = 8192


@dataclass(frozen=True, eq=False)
class Leading:
    """The directions along which vectors of d dimensions have the largest mean squares, the largest first.

    Attributes:
        values: [r] the mean squares along them, of vectors of length one.
        directions: [d, r] orthogonal columns, those of small mean squares a little longer: softly whitened.
    """

    values: NDArray[np.float64]
    directions: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class Meta(Shown):
    """A fitted meta-embedding, the sum of one projection per view: `transform(views) -> float32 [n, d]`. Frozen.

    Attributes:
        method: name and hyper-parameters of the method, weights as numbers; `weights_from` says how they were found.
        dim: d, the length of a vector.
        projections: one per view, in the ensemble's order.
        normalize: whether each view's rows are scaled to length one before they are projected.
        spectrum: [d] what each dimension is worth, falling: variances for svd, rho for gcca; None where there is none.
        rows: how many sentences it, or the members' weights, were fitted on; 0 where none were needed.
        leading: the directions that `truncate` keeps where the dimensions themselves have no order, as those of a
            concatenation; None where there is a spectrum, or where no rows were looked at.
    """

    method: Mapping[str, Any]
    dim: int
    projections: tuple[Projection, ...]
    normalize: bool
    spectrum: NDArray[np.float64] | None = None
    rows: int = 0
    leading: Leading | None = None

    def _facts(self) -> Facts:
        facts = {"method": self.method["name"], "views": list(self.view_dims), "dim": self.dim, "rows": self.rows}
        parameters = {key: value for key, value in self.method.items() if key not in facts and value is not None}
        spectrum = {} if self.spectrum is None else {"spectrum": self.spectrum}
        return [(key, short_value(value)) for key, value in (facts | parameters | spectrum).items() if key != "name"]

    @property
    def view_dims(self) -> tuple[int, ...]:
        """The dimensions d_j of the views it takes."""
        return tuple(projection.columns for projection in self.projections)

    @property
    def counted(self) -> tuple[int, ...]:
        """The places of the views that the vectors depend on: all but those of weight 0."""
        return tuple(j for j, projection in enumerate(self.projections) if projection.scale)

    def transform(self, views: Sequence[Any], *, first: int = 0) -> FloatArray:
        """Return vectors [n, d] of row-aligned views [n, d_j], row by row; a view that is None is left out.

        Errors count the rows from `first` on: the views may be a part of larger ones.
        """
        if len(views) != len(self.projections):
            raise ViewError(f"this meta-embedding takes {len(self.projections)} views, got {len(views)}")
        present = [j for j, view in enumerate(views) if view is not None]
        if not present:
            raise ViewError("all views are missing")
        checked = check_views([views[j] for j in present], present)
        projections = [self.projections[j] for j in present]
        for j, view, projection in zip(present, checked, projections, strict=True):
            if view.shape[1] != projection.columns:
                raise ViewError(f"view {j} has {view.shape[1]} columns; it was fitted with {projection.columns}")
        result = np.zeros((checked[0].shape[0], self.dim), np.float32)
        for row in range(0, len(result), _BATCH):
            blocks = [np.asarray(view[row : row + _BATCH]) for view in checked]
            out = np.zeros((len(blocks[0]), self.dim), np.result_type(np.float32, *blocks))
            done = result[row : row + len(out)]
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows becomes Inf or NaN, reported below
                for projection, X in zip(projections, blocks, strict=True):
                    projection.add_to(out, unit_rows(X) if self.normalize else X.astype(out.dtype, copy=False))
                done[:] = out
            finite = np.isfinite(done).all(axis=1)
            if not finite.all():
                bad = int(np.argmin(finite))
                raise ViewError(non_finite([block[bad : bad + 1] for block in blocks], first + row + bad, present))
        return result

    def update(self, digest: hashlib._Hash) -> None:
        """Add everything that changes the vectors to a hash."""
        digest.update(f"{self.dim} {self.normalize}".encode())
        for projection in self.projections:
            digest.update(type(projection).__name__.encode())
            parts: list[Any] = [projection]
            while parts:
                match parts.pop():
                    case np.ndarray() as array:
                        digest.update(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
                    case tuple() as items:
                        parts += reversed(items)
                    case whole if is_dataclass(whole):
                        parts += [getattr(whole, field.name) for field in reversed(fields(whole))]
                    case number:
                        digest.update(repr(number).encode())

    def truncate(self, k: int) -> Meta:
        """Return the meta-embedding of the k leading dimensions.

        These are the first k where the dimensions fall in importance (`spectrum`), and the k leading directions of the
        vectors where they do not.

        Raises:
            DimensionError: k is out of range, or the leading directions are not known.
        """
        V = self._cut(k)
        if V is None:
            shorter = tuple(projection.truncated(int(k)) for projection in self.projections)
            spectrum = None if self.spectrum is None else self.spectrum[:k]
            return replace(self, dim=int(k), projections=shorter, spectrum=spectrum)
        shorter = tuple(projection.onto(V.astype(np.float64)) for projection in self.projections)
        spectrum = None if self.leading is None else self.leading.values[:k]
        return replace(self, dim=int(k), projections=shorter, spectrum=spectrum, leading=None)

    def shorten(self, vectors: NDArray[Any], k: int) -> NDArray[Any]:
        """Return vectors [n, d] of `transform` in the k leading dimensions [n, k], as `truncate(k)` gives them.

        Raises:
            DimensionError: as for `truncate`.
        """
        V = self._cut(k)
        return vectors[:, :k] if V is None else vectors @ V

    def _cut(self, k: int) -> FloatArray | None:
        """Return the k leading directions [d, k], or None where the first k dimensions are the best ones."""
        if not isinstance(k, (int, np.integer)):
            raise DimensionError(f"truncate takes a whole number of dimensions, not {k!r}")
        if not 1 <= k <= self.dim:
            raise DimensionError(f"cannot truncate to {k} dimensions: there are {self.dim}", self.dim)
        if k == self.dim or self.spectrum is not None:
            return None
        if self.leading is None:
            # The first columns of one member alone are the member's own choice, as for a Matryoshka model.
            if len(self.counted) == 1 and isinstance(self.projections[self.counted[0]], Placement):
                return None
            raise DimensionError(
                f"cannot truncate to {k} dimensions: the first {k} of {self.dim} are not the best ones, and this model "
                "does not know its leading directions, because it was fitted without sentences or by ensembed 0.1, or "
                f"because it predicts members or translates; fit it again on some thousand sentences, or with dim={k}, "
                f"which svd, gcca and auto take, or translate to TARGET?truncate_dim={k}"
            )
        known = self.leading.directions.shape[1]
        if k > known:
            raise DimensionError(
                f"cannot truncate to {k} dimensions: the sentences of the fit show {known} leading directions", known
            )
        return self.leading.directions[:, :k]


@dataclass(frozen=True, eq=False)
class MetaRows:
    """The rows [n, d] of a meta-embedding of views, computed when they are read; a view that is None is left out."""

    meta: Meta
    views: Sequence[Matrix | None]

    dtype = np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return (next(view.shape[0] for view in self.views if view is not None), self.meta.dim)

    def __getitem__(self, rows: slice, /) -> FloatArray:
        views = [None if view is None else np.asarray(view[rows]) for view in self.views]
        return self.meta.transform(views, first=rows.indices(self.shape[0])[0])
