"""The rows that duplicates and clusters are made of: their vectors at length one, and their texts for output."""

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
from ensembed.corpora.record_files import Record, records_of
from ensembed.encoders.base import FloatArray
from ensembed.errors import StoreError, ViewError
from ensembed.numerics.row_matrices import Matrix, check_views, non_finite, unit_rows
from ensembed.support.progress import Progress, silent

_IN_MEMORY = 1 << 29  # a matrix of more bytes goes to a temporary file, which the system caches as far as it can
_BLOCK = 4096  # rows read at a time


def numbered_records(corpus: Corpus, rows: int) -> Iterator[tuple[int, Record]]:
    """Yield the number and record of every row, and raise a CorpusError at the end if the corpus has changed."""
    # A file that has grown is not read beyond its rows.
    yield from zip(range(rows), records_of(corpus), strict=False)
    corpus.check_unchanged()


def row_facts(row: int, record: Record, cosine: float, **more: object) -> dict[str, Any]:
    """Return a row for output: its number, its id if it has one, `more`, its cosine and its text."""
    id_ = {} if record.id is None else {"id": record.id}
    return {"row": row, **id_, **more, "cosine": round(float(cosine), 6), "text": record.text}


def distinct_rows(corpus: Corpus) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first row [n] with the text of each row, and the rows that repeat no earlier one."""
    first = corpus.index.first_rows
    return first, np.flatnonzero(first == np.arange(len(first)))


def leading_directions(rows: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Return rows [m, d], centred, in their leading directions [m, count], and the singular values of those."""
    left, values, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    return left[:, :count] * values[:count], values[:count]


@contextmanager
def unit_matrix(
    vectors: Matrix | Sequence[Any], rows: NDArray[np.int64] | None = None, *, progress: Progress = silent
) -> Iterator[FloatArray]:
    """Give these rows of a matrix [n, d], in this order, scaled to length one; a large result is a temporary file."""
    [matrix] = check_views([vectors])
    n, dim = matrix.shape
    rows = np.arange(n) if rows is None else rows
    place = np.full(n, -1, np.int64)
    place[rows] = np.arange(len(rows))
    with _empty_matrix(len(rows), dim) as result:
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
def _empty_matrix(n: int, dim: int) -> Iterator[FloatArray]:
    size = n * dim * 4
    if size <= _IN_MEMORY:
        yield np.empty((n, dim), np.float32)
        return
    with tempfile.TemporaryDirectory(prefix="ensembed-") as folder:
        path = Path(folder) / "vectors.npy"
        try:
            with path.open("wb") as file:
                # Reserve the disk space now: a full disk kills a process that writes to a mapped page.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    file.truncate(size)
            matrix = np.memmap(path, np.float32, "r+", shape=(n, dim))
        except OSError as error:
            problem = f"no room for {size / 1e9:.1f} GB of vectors in {tempfile.gettempdir()}: {error}"
            raise StoreError(f"{problem}; set TMPDIR to another folder") from error
        yield matrix
        del matrix  # before the file is removed: not every system removes a mapped file
