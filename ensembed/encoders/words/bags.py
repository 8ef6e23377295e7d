"""Sentences as bags of words, and weighted sums of their vectors: many sentences at a time, any length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.words.tokens import WordFinder
from ensembed.encoders.words.word_vectors import WordVectors
from ensembed.errors import InputError
from ensembed.support.progress import Progress

# Tokens summed at a time: bounds the memory that one very long sentence takes.
_BLOCK = 1 << 16
# Sentences of a corpus, and characters of them, that are in memory together.
_SENTENCES, _CHARACTERS = 1024, 1 << 22


class WordBags:
    """Sums over the words of sentences.

    Args:
        vectors: the vectors.
        weigh: says how much a word counts; None counts each once.
        rescale: divide each dimension by its norm over the words of the sentence.
    """

    def __init__(
        self, vectors: WordVectors, weigh: Callable[[str], float] | None = None, *, rescale: bool = False
    ) -> None:
        self._vectors = vectors
        self._finder = WordFinder(vectors.row)
        self._weigh = weigh
        # Weights are looked up when a word is first seen. Threads may do it twice, with the same outcome.
        self._weights = np.full(len(vectors) if weigh else 0, np.nan)
        self._rescale = rescale

    def means(self, sentences: Sequence[str]) -> NDArray[np.float64]:
        """The weighted mean [n, d] of the vectors of each sentence's known words; zeros where none is known."""
        shape = (len(sentences), self._vectors.dim)
        totals, counts = np.zeros(shape), np.zeros(len(sentences))
        squares = np.zeros(shape) if self._rescale else None
        for start, ends, tokens in self.blocks(sentences):
            rows, columns = np.unique(tokens, return_inverse=True)
            block = slice(start, start + len(ends) - 1)
            X = self._vectors.vectors[rows].astype(np.float64)
            matrix = csr_array((self._weights_of(rows)[columns], columns, ends), shape=(len(ends) - 1, len(rows)))
            # The product adds up a sentence's words in their order, so that a row does not depend on its batch.
            totals[block] += np.asarray(matrix @ X)
            counts[block] += np.diff(ends)
            if squares is not None:
                matrix.data[:] = 1
                squares[block] += np.asarray(matrix @ (X * X))
        means = totals / np.maximum(counts, 1)[:, None]
        if squares is not None:
            np.divide(means, np.sqrt(squares), out=means, where=squares > 0)  # where nothing is, zero stays zero
        return means

    def blocks(self, sentences: Iterable[str]) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Rows of known words in blocks: the first sentence's number, where each sentence ends [n + 1], the rows.

        A sentence that is longer than a block goes on in the next.
        """
        start, ends, tokens = 0, [0], list[int]()
        for number, sentence in enumerate(sentences):
            for rows in self._finder.find(sentence):
                tokens.extend(rows)
                if len(tokens) >= _BLOCK:
                    yield start, np.array([*ends, len(tokens)]), np.array(tokens)
                    start, ends, tokens = number, [0], []
            ends.append(len(tokens))
        yield start, np.array(ends), np.array(tokens, np.int64)

    def _weights_of(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        if self._weigh is None:
            return np.ones(len(rows))
        for row in rows[np.isnan(self._weights[rows])]:
            self._weights[row] = self._weigh(self._vectors.word(row))
        return self._weights[rows]


def count_words(bags: WordBags, words: int, corpus: Corpus, progress: Progress) -> tuple[NDArray[np.int64], int]:
    """How often a corpus has each of the vectors' words [words], and its number of sentences; one pass."""
    counts, done = np.zeros(words, np.int64), 0
    for sentences in _batches(corpus):
        for _, _, tokens in bags.blocks(sentences):
            np.add.at(counts, tokens, 1)
        done += len(sentences)
        progress("count words", done, None)
    progress("count words", done, done)
    if not counts.any():
        raise InputError(f"{corpus} holds no word that the vectors know")
    return counts, done


def second_moment(bags: WordBags, dim: int, corpus: Corpus, progress: Progress) -> NDArray[np.float64]:
    """X'X [dim, dim] of the means X of a corpus's sentences; one pass, in memory that does not depend on its size."""
    products, done = np.zeros((dim, dim)), 0
    for sentences in _batches(corpus):
        X = bags.means(sentences)
        products += X.T @ X
        done += len(sentences)
        progress("common components", done, None)
    progress("common components", done, done)
    if not products.any():
        raise InputError(f"{corpus} holds no word that the vectors know")
    return products


def _batches(corpus: Corpus) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for sentence in corpus:
        batch.append(sentence)
        characters += len(sentence)
        if len(batch) == _SENTENCES or characters >= _CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
    corpus.check_unchanged()
