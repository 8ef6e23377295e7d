"""Projections: the same vectors as a network, the bytes that identify a model, and a new kind as one class."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ensembed.integrations.onnx import export_meta
from ensembed.methods.meta import (
    PROJECTIONS,
    Dense,
    FloatArray,
    Layer,
    Local,
    Meta,
    MetaRows,
    Network,
    Placement,
    Projection,
)


@dataclass(frozen=True, eq=False)
class Backwards(Projection):
    """The columns of a view from right to left, times a number: all that somebody writes for a new kind."""

    width: int
    factor: float

    kind = "backwards"
    activation = "relu"
    start = 0

    @property
    def columns(self) -> int:
        return self.width

    @property
    def layers(self) -> tuple[Layer, ...]:
        matrix = np.eye(self.width, dtype=np.float32)[::-1] * np.float32(self.factor)
        return (Layer(matrix, np.zeros(self.width, np.float32)),)

    def add_to(self, out: NDArray[Any], X: NDArray[Any]) -> None:
        out[:, : self.width] += X[:, ::-1][:, : out.shape[1]] * X.dtype.type(self.factor)

    def truncated(self, k: int) -> Projection:  # noqa: ARG002 - `add_to` cuts off what lies beyond
        return self

    def onto(self, V: NDArray[np.float64]) -> Projection:
        return Dense(self.layers[0].matrix @ V.astype(np.float32), np.zeros(V.shape[1], np.float32))

    def saved(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        return {"kind": self.kind, "factor": self.factor}, {}

    @classmethod
    def restored(
        cls, facts: Mapping[str, Any], columns: int, _dim: int, _take: Callable[..., NDArray[Any]], /
    ) -> Projection:
        return cls(columns, facts["factor"])


def _layer(rows: int, columns: int, factor: float) -> Layer:
    numbers = np.arange(rows * columns, dtype=np.float32)
    return Layer(numbers.reshape(rows, columns) * np.float32(factor), np.arange(columns, dtype=np.float32))


META = Meta(
    {"name": "of every kind"},
    4,
    (
        Placement(1, 2, 0.5),
        Dense(np.ones((3, 4), np.float32), np.zeros(4, np.float32)),
        Network((_layer(2, 3, 0.5), _layer(3, 2, 2)), "tanh", 2),
    ),
    normalize=True,
)
KINDS: dict[str, Projection] = {
    "placement": Placement(1, 3, 0.5),
    "dense": Dense(_layer(3, 5, 1).matrix, np.arange(5, dtype=np.float32)),
    "network": Network((_layer(3, 4, 0.1), _layer(4, 2, 1)), "tanh", 2),
    "backwards": Backwards(3, 2.0),
}


@pytest.mark.parametrize("dim", [5, 4, 3, 2, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_the_network_of_a_projection_adds_the_same(kind: str, dim: int) -> None:
    projection = KINDS[kind].truncated(dim)
    X = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    expected, result = np.zeros((2, 6, dim), np.float32)
    projection.add_to(expected, X)
    network = projection.as_network(dim)
    network.add_to(result, X)
    assert network.layers[-1].matrix.shape[1] == dim
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_the_bytes_that_identify_a_model_are_those_of_earlier_versions() -> None:
    """Saved indexes compare them."""
    digest = hashlib.sha256()
    META.update(digest)
    assert digest.hexdigest() == "1457d89284e4f0a80a4851dea6244cd1eaea1e6b5fdb2142cf4c5eebf7af8b2d"


def test_saved_models_know_every_kind_of_ours() -> None:
    assert list(PROJECTIONS.values()) == [Placement, Dense, Network, Local]
    assert list(PROJECTIONS) == ["placement", "dense", "network", "local"]


def test_a_new_kind_of_projection_is_one_class(tmp_path: Path) -> None:
    meta = Meta({"name": "new"}, 3, (Backwards(3, 2.0), Placement(0, 3, 0.0)), normalize=False)
    assert meta.counted == (0,)
    assert meta.view_dims == (3, 3)
    X = np.array([[1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(meta.transform([X, X]), [[6.0, 4.0, 2.0]])
    ordered = replace(meta, spectrum=np.array([3.0, 2.0, 1.0]))
    np.testing.assert_array_equal(ordered.truncate(2).transform([X, X]), [[6.0, 4.0]])
    digests = []
    for factor in (2.0, 3.0):
        digest = hashlib.sha256()
        replace(meta, projections=(Backwards(3, factor), meta.projections[1])).update(digest)
        digests.append(digest.hexdigest())
    assert digests[0] != digests[1]
    export_meta(meta, tmp_path / "meta.onnx")
    session = pytest.importorskip("onnxruntime").InferenceSession(tmp_path / "meta.onnx")
    np.testing.assert_array_equal(session.run(None, {"view_0": X.astype(np.float32)})[0], [[6.0, 4.0, 2.0]])


def test_rows_of_a_meta_embedding_are_computed_when_they_are_read() -> None:
    views = [np.random.default_rng(j).standard_normal((7, d)) for j, d in enumerate((2, 3, 2))]
    rows = MetaRows(META, views)
    assert rows.shape == (7, 4)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows[2:5], META.transform(views)[2:5])
    part = MetaRows(META, [None, *views[1:]])
    assert part.shape == (7, 4)
    np.testing.assert_array_equal(part[:], META.transform([None, *views[1:]]))
