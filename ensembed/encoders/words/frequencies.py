"""How often words occur: from the package wordfreq, or counted on a corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError, MissingError
from ensembed.support.extras import import_extra


class Frequencies(Protocol):
    """What the weights of words are computed from."""

    @property
    def source(self) -> str:
        """Names them for the key of an encoder."""

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The probability of every word of the list, in no particular order."""

    def __call__(self, word: str) -> float:
        """The probability of a word, in whichever case."""


class WordfreqFrequencies:
    """The frequencies of the package wordfreq, from eight kinds of text; what it does not know has probability 0.

    Args:
        lang: the language, as `en`.

    Raises:
        MissingError: wordfreq, or what it needs for the language, is not installed.
        InputError: it does not know the language.
    """

    def __init__(self, lang: str = "en") -> None:
        self._wordfreq = import_extra("wordfreq", "words", "pooling by word frequency")
        if lang not in (known := self._wordfreq.available_languages()):
            raise InputError(f"wordfreq has no language {lang!r}; it has: {', '.join(sorted(known))}")
        self._lang = lang
        try:
            self("a")
        except ImportError as error:  # it splits some languages with packages of their own
            raise MissingError(
                f"wordfreq cannot read {lang!r} here: {error}; see the documentation of wordfreq"
            ) from error
        self.source = f"wordfreq {version('wordfreq')} {lang}"

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Of every word of the list."""
        return np.array(list(self._wordfreq.get_frequency_dict(self._lang).values()))

    def __call__(self, word: str) -> float:
        """The probability of a word; of parts together, as wordfreq estimates it, when it splits the word."""
        return float(self._wordfreq.word_frequency(word, self._lang))


class CorpusFrequencies:
    """Shares of the tokens of a corpus, upper and lower case together.

    A word that the corpus lacks counts as half a token: it is rarer than any that occurs, and not impossible.

    Args:
        counts: the tokens of each word.
        corpus: the key of the corpus.

    Example:
        >>> frequencies = CorpusFrequencies({"the": 2, "The": 1, "dog": 1}, "key")
        >>> [frequencies(word) for word in ("THE", "dog", "cat")]
        [0.75, 0.25, 0.125]
    """

    def __init__(self, counts: Mapping[str, int], corpus: str) -> None:
        self._counts: Counter[str] = Counter()
        for word, count in counts.items():
            self._counts[word.lower()] += count
        self._total = max(sum(self._counts.values()), 1)
        self.source = f"corpus {corpus}"

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Of every word that occurs."""
        return np.array(list(self._counts.values()), float) / self._total

    def __call__(self, word: str) -> float:
        """The share of a word."""
        return (self._counts.get(word.lower()) or 0.5) / self._total
