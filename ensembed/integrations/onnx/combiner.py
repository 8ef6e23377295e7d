"""A fitted meta-embedding as nodes of a graph."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ensembed.errors import InputError
from ensembed.integrations.onnx.nodes import Nodes
from ensembed.methods.meta import Meta
from ensembed.methods.projections import Dense, Network, Placement, Projection


def used_views(meta: Meta) -> list[int]:
    """The places of the views that the vectors depend on: not those of weight 0, nor what truncation has cut off."""
    return [j for j in meta.counted if _width(meta.projections[j], meta.dim) > 0]


def combine(nodes: Nodes, meta: Meta, views: Mapping[int, str]) -> str:
    """Add what `meta.transform` does with the used views, which have these names; returns the name of the vectors."""
    total = ""
    for j in used_views(meta):
        X = nodes.unit_rows(views[j]) if meta.normalize else views[j]
        part = _projected(nodes, meta.projections[j], X, meta.dim)
        total = nodes.add("Add", total, part) if total else part
    if not total:
        raise InputError("this meta-embedding depends on none of its views: there is nothing to export")
    return total


def _width(projection: Projection, dim: int) -> int:
    """How many columns of the result a projection changes."""
    if isinstance(projection, Dense):
        return dim
    columns = projection.columns if isinstance(projection, Placement) else projection.layers[-1].matrix.shape[1]
    return max(min(columns, dim - projection.start), 0)


def _projected(nodes: Nodes, projection: Projection, X: str, dim: int) -> str:
    """A view's part of the sum [n, d]."""
    if isinstance(projection, Dense):
        product = nodes.add("MatMul", X, nodes.constant(projection.matrix))
        return nodes.add("Sub", product, nodes.constant(projection.offset))
    width = _width(projection, dim)
    if isinstance(projection, Placement):
        X = nodes.first_columns(X, width) if width < projection.columns else X
        X = nodes.add("Mul", X, nodes.number(projection.scale))
    else:
        X = _through(nodes, projection, X)
    behind = dim - projection.start - width
    if projection.start or behind:
        pads = np.array([0, projection.start, 0, behind], np.int64)
        X = nodes.add("Pad", X, nodes.constant(pads), nodes.constant(np.float32(0)))
    return X


def _through(nodes: Nodes, network: Network, X: str) -> str:
    """The output of a network's last layer."""
    for i, layer in enumerate(network.layers):
        X = nodes.add("Add", nodes.add("MatMul", X, nodes.constant(layer.matrix)), nodes.constant(layer.bias))
        if i == len(network.layers) - 1:
            break
        if network.activation == "unit":
            X = nodes.unit_rows(X)
        else:
            X = nodes.add({"relu": "Relu", "tanh": "Tanh"}[network.activation], X)
    return X
