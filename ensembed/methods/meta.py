"""The fitted form of every method: one projection per view, summed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import DimensionError, ViewError
from ensembed.methods.projections import FloatArray, Projection
from ensembed.numerics.row_matrices import batches, check_views, non_finite, unit_rows

# Rows transformed at a time: bounds the memory for inputs that are larger than it.
_BATCH = 8192


@dataclass(frozen=True, eq=False)
class Meta:
    """A fitted meta-embedding, the sum of one projection per view: `transform(views) -> float32 [n, d]`. Frozen.

    Attributes:
        method: name and hyper-parameters of the method that was fitted. Where weights were found by reliability, they
            are the numbers found, and `weights_from` says so.
        dim: d, the length of a vector.
        projections: one per view, in the ensemble's order.
        normalize: whether each view's rows are scaled to length one before they are projected.
        spectrum: [d] what each dimension is worth, falling: variances for svd, the eigenvalues rho for gcca; None
            where the method has none.
        rows: how many sentences it, or the members' weights, were fitted on; 0 where none were needed.
    """

    method: Mapping[str, Any]
    dim: int
    projections: tuple[Projection, ...]
    normalize: bool
    spectrum: NDArray[np.float64] | None = None
    rows: int = 0

    @property
    def view_dims(self) -> tuple[int, ...]:
        """The dimensions d_j of the views it takes."""
        return tuple(projection.columns for projection in self.projections)

    @property
    def counted(self) -> tuple[int, ...]:
        """The places of the views that the vectors depend on: all but those of weight 0."""
        return tuple(j for j, projection in enumerate(self.projections) if projection.counts)

    def transform(self, views: Sequence[Any]) -> FloatArray:
        """Return vectors [n, d] of row-aligned views [n, d_j]; a row does not depend on the rows around it.

        A view given as None is left out of the sum, as when its encoder is down. The inputs are not changed.
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
        row = 0
        for blocks in batches(checked, _BATCH):
            out = np.zeros((len(blocks[0]), self.dim), np.result_type(np.float32, *blocks))
            done = result[row : row + len(out)]
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows becomes Inf or NaN, reported below
                for projection, X in zip(projections, blocks, strict=True):
                    projection.add_to(out, unit_rows(X) if self.normalize else X.astype(out.dtype, copy=False))
                done[:] = out
            finite = np.isfinite(done).all(axis=1)
            if not finite.all():
                bad = int(np.argmin(finite))
                raise ViewError(non_finite([block[bad : bad + 1] for block in blocks], row + bad, present))
            row += len(out)
        return result

    def update(self, digest: hashlib._Hash) -> None:
        """Add everything that changes the vectors to a hash."""
        digest.update(f"{self.dim} {self.normalize}".encode())
        for projection in self.projections:
            digest.update(type(projection).__name__.encode())
            _update(digest, projection)

    def truncate(self, k: int) -> Meta:
        """Return the meta-embedding of the first k dimensions."""
        if not isinstance(k, (int, np.integer)):
            raise DimensionError(f"truncate takes a whole number of dimensions, not {k!r}")
        if not 1 <= k <= self.dim:
            raise DimensionError(f"cannot truncate to {k} dimensions: there are {self.dim}", self.dim)
        shorter = tuple(projection.truncated(int(k)) for projection in self.projections)
        spectrum = None if self.spectrum is None else self.spectrum[:k]
        return replace(self, dim=int(k), projections=shorter, spectrum=spectrum)


def _update(digest: hashlib._Hash, value: object) -> None:
    """Add numbers and arrays, and tuples and dataclasses of them, to a hash."""
    if isinstance(value, np.ndarray):
        digest.update(repr(value.shape).encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, tuple):
        for item in value:
            _update(digest, item)
    elif is_dataclass(value):
        for field in fields(value):
            _update(digest, getattr(value, field.name))
    else:
        digest.update(repr(value).encode())
