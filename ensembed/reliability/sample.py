"""Which rows of a corpus are looked at, and their vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus, check_sentences
from ensembed.errors import InputError, ViewError
from ensembed.numerics.row_matrices import Matrix, non_finite, unit_rows

Matrix64 = NDArray[np.float64]

# Rows between two that are looked at, which are read with them rather than one by one.
_BLOCK = 4096


def sample_rows(n: int, sentences: Corpus | Sequence[str] | None, rows: int, seed: int) -> NDArray[np.int64]:
    """The numbers, rising, of at most `rows` of n rows, drawn at random; a sentence that is repeated counts once.

    Raises:
        InputError: there are not n sentences.
    """
    distinct = np.arange(n)
    if sentences is not None:
        if not isinstance(sentences, (Corpus, Sequence)) or isinstance(sentences, str):
            raise InputError(f"sentences are a list or a corpus, not a {type(sentences).__name__}")
        if len(sentences) != n:
            raise InputError(f"there are {len(sentences)} sentences for views of {n} rows: row i is of sentence i")
        distinct = _first_rows(sentences)
    if rows < len(distinct):
        distinct = np.sort(np.random.default_rng(seed).choice(distinct, rows, replace=False))
    return distinct


def sample_sentences(sentences: Corpus | Sequence[str], rows: NDArray[np.int64]) -> list[str]:
    """The sentences of these rows, which rise; a corpus is read as a stream."""
    if not isinstance(sentences, Corpus):
        return check_sentences([sentences[int(row)] for row in rows])
    chosen, found = iter(rows.tolist()), []
    wanted = next(chosen, None)
    for number, sentence in enumerate(sentences):
        if wanted is None:
            break
        if number == wanted:
            found.append(sentence)
            wanted = next(chosen, None)
    return found


def sample_vectors(view: Matrix, rows: NDArray[np.int64], number: int) -> Matrix64:
    """Those rows [m, d] of a view, scaled to length one; what lies far from them is not read.

    Raises:
        ViewError: one of them holds NaN or Inf.
    """
    result = np.empty((len(rows), view.shape[1]))
    done = 0
    while done < len(rows):
        first = int(rows[done])
        end = int(np.searchsorted(rows, first + _BLOCK))
        stretch = np.asarray(view[first : int(rows[end - 1]) + 1])
        X = stretch[rows[done:end] - first].astype(np.float64)
        if not np.isfinite(X).all():
            raise ViewError(non_finite([stretch], first, [number]))
        result[done:end] = unit_rows(X)
        done = end
    return result


def _first_rows(sentences: Corpus | Sequence[str]) -> NDArray[np.int64]:
    """The rows, rising, that hold a sentence for the first time."""
    if isinstance(sentences, Corpus):
        first = sentences.index.first_rows
        return np.flatnonzero(first == np.arange(len(first)))
    found: dict[str, int] = {}
    for row, sentence in enumerate(check_sentences(sentences)):
        found.setdefault(sentence, row)
    return np.array(list(found.values()), np.int64)
