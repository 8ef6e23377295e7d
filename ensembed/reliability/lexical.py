"""What the words of sentences say by themselves: tf-idf of words and letters, reduced. Weak encoders share it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ensembed.numerics.row_matrices import unit_rows

Matrix64 = NDArray[np.float64]

DIM = 300
"""Dimensions of words, and of letters."""

_WORD = re.compile(r"\w\w+")
_LETTERS = (3, 4)
# Characters of a text that are used: the terms of long documents would fill the memory.
_MOST = 4000
# A term of a single sentence says nothing about which sentences are similar.
_LEAST_WORDS, _LEAST_LETTERS = 2, 3
# Parameters of the randomised range finder. More power iterations only move directions of nearly equal variance.
_EXTRA, _POWERS = 20, 2


class Lexical:
    """Tf-idf of words and of 3 to 4 letters inside words, of some thousand sentences.

    Term counts are damped (1 + log), rare terms count more, words of less than two sentences and letters of less than
    three are left out, and rows have length one.

    Args:
        sentences: n of them.

    Attributes:
        lengths: [n] the logarithms of the numbers of characters.

    Example:
        >>> lexical = Lexical(["a dog runs", "the dog runs", "no dog runs", "stocks fell", "the stocks fell"])
        >>> near, far = lexical.cosines(np.array([[0, 2], [0, 3]]))
        >>> bool(near > 0.9), float(far)
        (True, 0.0)
    """

    def __init__(self, sentences: Sequence[str]) -> None:
        texts = [sentence[:_MOST].lower() for sentence in sentences]
        self.lengths: Matrix64 = np.log1p([len(text) for text in texts])
        padded = [[f" {word} " for word in text.split()] for text in texts]
        letters = [
            [word[i : i + size] for word in words for size in _LETTERS for i in range(max(1, len(word) - size + 1))]
            for words in padded
        ]
        self._parts = [
            _tfidf([_WORD.findall(text) for text in texts], _LEAST_WORDS),
            _tfidf(letters, _LEAST_LETTERS),
        ]

    @lru_cache(maxsize=1)  # noqa: B019 - `lexical_features` keeps one of these anyway
    def features(self, seed: int, dim: int = DIM) -> Matrix64:
        """Return words and letters side by side [n, at most 2 dim], each reduced by a truncated SVD, of length one.

        Args:
            seed: seed of the SVD's random start.
            dim: largest dimension of each. In-sample regression on too many would explain anything.
        """
        features = np.hstack([unit_rows(_shortened(part, dim, seed)) for part in self._parts])
        features.flags.writeable = False  # it is cached
        return features

    def cosines(self, pairs: NDArray[np.int64]) -> Matrix64:
        """Return the mean cosine, of words and of letters, of pairs [p, 2] of sentences."""
        both = [np.asarray(X[pairs[:, 0]].multiply(X[pairs[:, 1]]).sum(axis=1)).ravel() for X in self._parts]
        return np.asarray(np.mean(both, axis=0))


def lexical_features(sentences: Sequence[str]) -> Lexical:
    """Return the features of sentences, cached: several ensembles may be estimated on one corpus."""
    return _cached(tuple(sentence[:_MOST] for sentence in sentences))  # the rest of long ones would stay in memory


_cached = lru_cache(maxsize=1)(Lexical)


def _tfidf(terms: Sequence[Sequence[str]], least: int) -> sparse.csr_array:
    """Return rows [n, terms] of length one; the terms are in the order in which they first occur."""
    counts = [Counter(terms_of) for terms_of in terms]
    documents_of = Counter(term for terms_of in counts for term in terms_of)
    column = {term: k for k, term in enumerate(term for term, number in documents_of.items() if number >= least)}
    kept = [[(column[term], n) for term, n in terms_of.items() if term in column] for terms_of in counts]
    ends = np.cumsum([0, *map(len, kept)])
    entries = np.array([entry for row in kept for entry in row], np.float64).reshape(-1, 2)
    columns = entries[:, 0].astype(np.int64)
    documents = np.bincount(columns, minlength=len(column))
    idf = np.log((1 + len(terms)) / (1 + documents)) + 1
    values = (1 + np.log(entries[:, 1])) * idf[columns]
    rows = np.repeat(np.arange(len(kept)), np.diff(ends))
    lengths = np.sqrt(np.bincount(rows, values**2, minlength=len(kept)))
    return sparse.csr_array((values / lengths[rows], columns, ends), shape=(len(kept), len(column)))


def _shortened(X: sparse.csr_array, dim: int, seed: int) -> Matrix64:
    """Project X [n, terms] on its leading `dim` right singular directions (Halko, Martinsson and Tropp 2011)."""
    dim = min(dim, *X.shape)
    if dim == 0:
        return np.zeros((X.shape[0], 0))
    width = min(dim + _EXTRA, *X.shape)
    # The signs of a start of signs are whole numbers: nothing in it depends on how normal numbers are drawn.
    start = np.random.default_rng(seed).choice([-1.0, 1.0], (X.shape[1], width))
    Y = X @ start
    for _ in range(_POWERS):
        # Not made orthogonal in between: the spectrum of tf-idf is flat, so that double precision is plenty.
        Y = X @ (X.T @ Y)
    Q, _ = np.linalg.qr(Y)
    # Of the small matrix Q'X only the left singular vectors are asked for: X on the right ones is Q U S.
    B = np.asarray(X.T @ Q)
    values, vectors = np.linalg.eigh(B.T @ B)
    order = np.argsort(values)[::-1][:dim]
    return np.asarray(Q @ (vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))))
