"""Views to fit methods on: correlated through shared latent directions, in every shape, rank and type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

# Tall, square and wide (fewer rows than columns in all), with one to four views of different widths.
SHAPES: list[tuple[int, tuple[int, ...]]] = [
    (200, (7,)),
    (9, (12,)),
    (200, (7, 5)),
    (60, (8, 8, 3)),
    (16, (9, 7)),
    (12, (9, 7, 4)),
    (300, (6, 1, 9, 4)),
]
KINDS = ["full", "deficient", "duplicated columns", "constant column", "zero column", "zero row"]
TYPES = ["float16", "float32", "float64", "big-endian", "Fortran", "strided", "reversed", "int", "uint8", "list"]


def make_views(n: int, dims: Sequence[int], kind: str = "full", seed: int = 0) -> list[Array]:
    """Views [n, d_j] in float64 around means that are not zero, with what `kind` says wrong with the first view."""
    generator = np.random.default_rng([seed, n, *dims])
    # Falling strengths keep the eigenvalues apart.
    latent = generator.standard_normal((n, 4)) * [4, 3, 2, 1]
    views = [
        latent @ generator.standard_normal((4, dim)) + 2 * generator.standard_normal((n, dim)) * (1 + np.arange(dim))
        + 5 * generator.standard_normal(dim)
        for dim in dims
    ]  # fmt: skip
    first = views[0]
    rank = (dims[0] + 1) // 2
    if kind == "deficient":
        first[:] = first[:, :rank] @ generator.standard_normal((rank, dims[0]))
    elif kind == "duplicated columns":
        first[:, -1] = first[:, 0]
    elif kind == "constant column":
        first[:, 0] = 0.1
    elif kind == "zero column":
        first[:, -1] = 0
    elif kind == "zero row":
        first[n // 2] = 0
    elif kind != "full":
        raise ValueError(kind)
    return views


def cast(X: Array, kind: str) -> Any:  # noqa: ANN401 - a list is among them
    """The same whole numbers from 0 to 255 in another type or memory layout."""
    if kind == "int":
        return X.astype(np.int64)
    if kind == "big-endian":
        return X.astype(">f4")
    if kind == "Fortran":
        return np.asfortranarray(X, np.float32)
    if kind == "strided":
        return np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]
    if kind == "reversed":
        return X[::-1, ::-1].copy()[::-1, ::-1]
    if kind == "list":
        return X.tolist()
    return X.astype(kind)


def best_cut(spectrum: Array) -> int:
    """The d after which the spectrum falls most, so that its first d dimensions are well defined."""
    return int(np.argmax(-np.diff(spectrum))) + 1
