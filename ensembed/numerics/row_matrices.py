"""Row-aligned matrices: what methods are fitted on and meta-embeddings transform."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import ViewError

Array64: TypeAlias = NDArray[np.float64]


class Matrix(Protocol):
    """A matrix that is read in slices of rows: an array, a memory map, a stored view."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the entries."""

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        """Return a slice of rows."""


class TensorMatrix:
    """A torch tensor [n, d] as a matrix whose slices are arrays, copied from its device."""

    def __init__(self, tensor: Any) -> None:  # noqa: ANN401 - torch is not imported here
        self.tensor = tensor.detach()
        self.shape: tuple[int, ...] = tuple(tensor.shape)
        name = str(tensor.dtype).removeprefix("torch.")
        self.dtype: np.dtype[Any] = np.dtype("float32" if name == "bfloat16" else name)  # numpy has no bfloat16

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        part = self.tensor[rows]
        part = part.float() if str(part.dtype) == "torch.bfloat16" else part
        return np.asarray(part.cpu().numpy())


Views: TypeAlias = Sequence[Matrix]


def check_views(views: Sequence[Any], numbers: Sequence[int] | None = None) -> list[Matrix]:
    """Return row-aligned views, lists of lists made arrays; a ViewError names the view that does not fit.

    `numbers` are the numbers of the views in error messages, if these are not all views.
    """
    if isinstance(shape := getattr(views, "shape", None), tuple) and len(shape) == 2:
        raise ViewError(f"expected a list of views, got one matrix of shape {shape}: write [X]")
    views = list(views)
    if not views:
        raise ViewError("expected at least one view, got none")
    numbers = range(len(views)) if numbers is None else numbers
    checked: list[Matrix] = []
    for j, view in zip(numbers, views, strict=True):
        # A sparse matrix looks like an array until its rows are computed with.
        if hasattr(view, "toarray"):
            raise ViewError(f"view {j} is a sparse {type(view).__name__}; views are dense: give its .toarray()")
        if type(view).__module__ == "torch" and str(getattr(view, "layout", "")) == "torch.strided":
            view = TensorMatrix(view)
        elif not (hasattr(view, "shape") and isinstance(getattr(view, "dtype", None), np.dtype)):
            try:
                view = np.asarray(view)
            except (ValueError, TypeError, RuntimeError) as error:  # ragged lists; tensors of a GPU or with a gradient
                raise ViewError(f"view {j} is not a matrix but a {type(view).__name__}: {error}") from error
        checked.append(view)
    for j, matrix in zip(numbers, checked, strict=True):
        if len(matrix.shape) != 2 or matrix.shape[1] == 0:
            raise ViewError(f"view {j} has shape {matrix.shape}; a view is a matrix with a row per sentence")
        if matrix.dtype.kind not in "fiub":
            raise ViewError(f"view {j} holds {matrix.dtype}; a view holds real numbers")
        if matrix.shape[0] != checked[0].shape[0]:
            others = f"view {numbers[0]} has {checked[0].shape[0]}"
            raise ViewError(f"view {j} has {matrix.shape[0]} rows, {others}: rows must be aligned")
    return checked


def batches(views: Views, rows: int) -> Iterator[list[NDArray[Any]]]:
    """Yield row-aligned batches, each a list of arrays [at most `rows`, d_j]."""
    for start in range(0, views[0].shape[0], rows):
        yield [np.asarray(view[start : start + rows]) for view in views]


def non_finite(blocks: Sequence[NDArray[Any]], start: int, numbers: Sequence[int] | None = None) -> str:
    """Return a message that names the view and the row with NaN or Inf; the first row of the batch is row `start`."""
    for j, block in zip(range(len(blocks)) if numbers is None else numbers, blocks, strict=True):
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if len(bad):
            return f"view {j} holds NaN or Inf in row {start + bad[0]}; encode that sentence again or leave it out"
    return f"the rows from {start} on hold values too large to compute with; scale the views down"


def find_non_finite(views: Views, start: int = 0) -> str | None:
    """Return what `non_finite` does for the first row of the views with NaN or Inf, which are read for it, or None."""
    for first in range(0, views[0].shape[0], _ROWS):
        blocks = [np.asarray(view[first : first + _ROWS]) for view in views]
        if not all(np.isfinite(block).all() for block in blocks):
            return non_finite(blocks, start + first)
    return None


def column_slices(dims: Sequence[int]) -> list[slice]:
    """Return the columns of each of the matrices of these dimensions that lie side by side."""
    return [slice(end - dim, end) for end, dim in zip(np.cumsum(dims).tolist(), dims, strict=True)]


# Rows that are read at a time to find one with NaN or Inf.
_ROWS = 4096
# Sums of squares between these have lost nothing to overflow or underflow, even in float32.
_SAFE = (1e-24, 1e36)


def unit_rows(X: NDArray[Any]) -> NDArray[Any]:
    """Return the rows of X [n, d] scaled to length one, float32 or wider; zero rows stay zero, NaN or Inf give NaN."""
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        squares = np.einsum("ij,ij->i", X, X)
        Z = X / np.sqrt(squares)[:, None]
        careful = ~((squares > _SAFE[0]) & (squares < _SAFE[1]))
        if (
            careful.any()
        ):  # zero, tiny, huge or not finite: scaled by the largest entry first, so that no square is lost
            X = X[careful]
            largest = np.abs(X).max(axis=1, keepdims=True, initial=0.0)
            X = X / np.where(largest == 0, 1, largest)  # NaN is not zero: it spreads
            lengths = np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
            Z[careful] = X / np.where(lengths == 0, 1, lengths)
    return np.asarray(Z)
