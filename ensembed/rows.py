"""Row-aligned matrices: what methods are fitted on and meta-embeddings transform."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import ViewError


class Matrix(Protocol):
    """A matrix that is read in stretches of rows: an array, a memory map, a stored view."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the entries."""

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        """A stretch of rows."""


Views: TypeAlias = Sequence[Matrix]


def check_views(views: Sequence[Any]) -> list[Matrix]:
    """The views, lists of lists made arrays, or a ViewError that says which one does not fit."""
    if isinstance(views, np.ndarray) and views.ndim == 2:
        raise ViewError(f"expected a list of views, got one array of shape {views.shape}: write [X]")
    checked = [view if hasattr(view, "shape") and hasattr(view, "dtype") else np.asarray(view) for view in views]
    if not checked:
        raise ViewError("expected at least one view, got none")
    for j, view in enumerate(checked):
        if len(view.shape) != 2 or view.shape[1] == 0:
            raise ViewError(f"view {j} has shape {view.shape}; a view is a matrix with a row per sentence")
        if view.dtype.kind not in "fiub":
            raise ViewError(f"view {j} holds {view.dtype}; a view holds real numbers")
        if view.shape[0] != checked[0].shape[0]:
            raise ViewError(
                f"view {j} has {view.shape[0]} rows, view 0 has {checked[0].shape[0]}: rows must be aligned"
            )
    return checked


def batches(views: Views, rows: int) -> Iterator[list[NDArray[Any]]]:
    """Row-aligned batches, each a list of arrays [at most `rows`, d_j]."""
    for start in range(0, views[0].shape[0], rows):
        yield [np.asarray(view[start : start + rows]) for view in views]


def unit_rows(X: NDArray[Any]) -> NDArray[Any]:
    """The rows of X [n, d] scaled to length one, float32 or wider; a zero row stays zero, NaN and Inf give NaN."""
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float32)
    # The largest entry is divided out first, so that no square overflows or vanishes.
    largest = np.abs(X).max(axis=1, keepdims=True, initial=0.0)
    with np.errstate(invalid="ignore"):
        X = X / np.where(largest > 0, largest, 1)
        lengths = np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
        X /= np.where(lengths > 0, lengths, 1)
    return X
