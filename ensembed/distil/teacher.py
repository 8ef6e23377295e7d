"""The teacher: a model's vectors of a corpus, centred and projected on their leading dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder
from ensembed.errors import DimensionError, InputError, ViewError
from ensembed.models.model_vectors import model_vectors
from ensembed.numerics.eigen import fix_signs
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import Matrix, non_finite, unit_rows
from ensembed.support.file_limits import map_npy
from ensembed.views import ViewStore


@dataclass(frozen=True, eq=False)
class Teacher:
    """Row-aligned vectors of a corpus, and the space that a student learns.

    Attributes:
        vectors: [n, D] the vectors; they are read in slices and never held whole.
        mean: [D] the mean of the vectors, each scaled to length one.
        directions: [D, d] their leading directions, the largest variance first.
        kept: the part of the variance that the directions keep.
    """

    vectors: Matrix
    mean: NDArray[np.float32]
    directions: NDArray[np.float32]
    kept: float

    @classmethod
    def of(cls, vectors: Matrix, dim: int | None, how: Pass = Pass()) -> Teacher:
        """Return the teacher whose students have `dim` dimensions; None takes all that vary."""
        moments = Moments.of_views([vectors], how, normalize=True)
        if not moments.varies():
            raise ViewError("every vector of the teacher is the same: there is nothing to learn from")
        values, V = np.linalg.eigh(moments.covariance)
        values, V = values[::-1], V[:, ::-1]
        supported = int((values > moments.resolution * values[0]).sum())
        d = supported if dim is None else dim
        if d > supported:
            raise DimensionError(
                f"the teacher's vectors of this corpus vary in {supported} dimensions: dim={d} is too many", supported
            )
        directions = fix_signs(V[:, :d]).astype(np.float32)
        kept = float(values[:d].sum() / values[values > 0].sum())
        return cls(vectors, moments.mean.astype(np.float32), directions, kept)

    @property
    def dim(self) -> int:
        """The dimensions of the space that the student learns."""
        return int(self.directions.shape[1])

    def targets(self, rows: slice) -> NDArray[np.float32]:
        """Return centred and projected vectors [m, d] of length one."""
        X = np.asarray(self.vectors[rows])
        if not np.isfinite(X).all():
            raise ViewError(non_finite([X], rows.start or 0))
        return self.project(X)

    def project(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """Return vectors [m, D] of the teacher in the student's space [m, d], of length one."""
        return np.asarray(unit_rows((unit_rows(X).astype(np.float32) - self.mean) @ self.directions), np.float32)


def teacher_vectors(source: Encoder | Path, corpus: Corpus, store: ViewStore, how: Pass) -> Matrix:
    """Return a model's vectors of the corpus, from stored views that are filled first, or the rows of a `.npy` file."""
    if isinstance(source, Encoder):
        return model_vectors(corpus, [source], store, progress=how.progress)[0]
    try:
        array = map_npy(source)
    except (OSError, ValueError) as error:
        raise unreadable(source, error) from error
    if array.ndim != 2 or array.dtype.kind != "f" or len(array) != len(corpus):
        raise InputError(
            f"{source} holds {array.dtype} of shape {array.shape}; the corpus has {len(corpus)} sentences: a row of "
            "floats for each was expected, in the same order"
        )
    return array


def unreadable(source: object, error: Exception) -> InputError:
    """Return the error for a file of vectors that cannot be read."""
    return InputError(f"{source} cannot be read as vectors: {error}; `ensembed encode --out` writes them")
