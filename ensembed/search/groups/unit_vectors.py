"""The vectors of a corpus at length one, in any order, as one matrix: in memory, or on disk where it is large."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder, FloatArray
from ensembed.errors import StoreError, ViewError
from ensembed.methods import Meta
from ensembed.models.ensemble import MetaEncoder
from ensembed.numerics.row_matrices import Matrix, check_views, non_finite, unit_rows
from ensembed.support.progress import Progress, silent
from ensembed.views import ViewStore

# What is larger than this many bytes goes to a temporary file; the system keeps it in memory as far as there is room.
_IN_MEMORY = 1 << 29
# Rows read at a time.
_BLOCK = 4096


def stored_vectors(corpus: Corpus, encoder: Encoder, store: ViewStore, *, progress: Progress = silent) -> Matrix:
    """The encoder's vectors of the corpus [n, d], encoded where they are not kept yet.

    Of a meta-encoder the members' views are kept, and combined as they are read: every model of the same members, and
    `fit` itself, share them.
    """
    if isinstance(encoder, MetaEncoder) and encoder.cacheable:
        counted = encoder.meta.counted
        members = [encoder.ensemble.encoders[j] for j in counted]
        views = store.embed_all(corpus, members, progress=progress)
        return _Combined(encoder.meta, dict(zip(counted, views, strict=True)))
    return store.embed(corpus, encoder, progress=progress)


@contextmanager
def unit_matrix(
    vectors: Matrix | Sequence[Any], rows: NDArray[np.int64] | None = None, *, progress: Progress = silent
) -> Iterator[FloatArray]:
    """The rows of a matrix [n, d], those with these numbers in this order, scaled to length one.

    They are read once, from the first to the last. A large result is a temporary file, memory-mapped; it is gone after
    the block.

    Raises:
        ViewError: a row holds NaN or Inf.
        StoreError: there is no room for the temporary file.
    """
    [matrix] = check_views([vectors])
    n, dim = matrix.shape
    rows = np.arange(n) if rows is None else rows
    place = np.full(n, -1, np.int64)
    place[rows] = np.arange(len(rows))
    with _room(len(rows), dim) as result:
        for start in range(0, n, _BLOCK):
            to = place[start : start + _BLOCK]
            wanted = to >= 0
            if wanted.any():
                block = np.asarray(matrix[start : start + _BLOCK])
                if not np.isfinite(block).all():
                    raise ViewError(non_finite([block], start))
                result[to[wanted]] = unit_rows(block[wanted])
            progress("vectors", min(start + _BLOCK, n), n)
        yield result


@contextmanager
def _room(n: int, dim: int) -> Iterator[FloatArray]:
    if n * dim * 4 <= _IN_MEMORY:
        yield np.empty((n, dim), np.float32)
        return
    with tempfile.TemporaryDirectory(prefix="ensembed-") as folder:
        path = Path(folder) / "vectors.npy"
        try:
            with path.open("wb") as file:
                # Room is taken now: a disk that is full when a mapped page is written kills the process.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, n * dim * 4)
                else:
                    file.truncate(n * dim * 4)
            room = np.memmap(path, np.float32, "r+", shape=(n, dim))
        except OSError as error:
            raise StoreError(
                f"no room for {n * dim * 4 / 1e9:.1f} GB of vectors in {tempfile.gettempdir()}: {error}; set TMPDIR to "
                "another folder"
            ) from error
        yield room
        del room  # before the file goes: not every system removes one that is mapped


class _Combined:
    """A meta-embedding of stored views, computed when it is read."""

    def __init__(self, meta: Meta, views: dict[int, Matrix]) -> None:
        rows = next(iter(views.values())).shape[0]
        self.shape: tuple[int, ...] = (rows, meta.dim)
        self.dtype: np.dtype[Any] = np.dtype(np.float32)
        self._meta = meta
        self._views = views

    def __getitem__(self, rows: slice, /) -> FloatArray:
        views = [self._views.get(j) for j in range(len(self._meta.view_dims))]
        return self._meta.transform([None if view is None else view[rows] for view in views])
