"""Changed versions of sentences: more text for a student, in the same words, for which the teacher is asked again.

What a sentence says changes with few words, and a student has to learn how much. Every second variant is a stretch of 4
to 15 words, which may end in the middle of a phrase; the others have one or two words left out, or replaced by words
of other sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus

_BLOCK = 4096  # sentences whose words replace each other
_STRETCH = (4, 15)  # words
_LEFT_OUT = 0.3  # of the words that are changed; the others are replaced


def write_variants(file: Path, corpus: Corpus, rows: NDArray[np.int64], count: int, seed: int) -> None:
    """Write `count` variants of each of these sentences of a corpus, one a line.

    Sentences of fewer than three words have none.
    """
    with file.open("w", encoding="utf-8", newline="\n") as out:
        for start in range(0, len(corpus), _BLOCK):
            stop = min(start + _BLOCK, len(corpus))
            chosen = rows[np.searchsorted(rows, start) : np.searchsorted(rows, stop)] - start
            if len(chosen):
                sentences = list(corpus.stretch(start, stop))
                random = np.random.default_rng([seed, 5, start])
                for variant in variants([sentences[i].split() for i in chosen], count, random):
                    out.write(variant + "\n")


def variants(sentences: Sequence[Sequence[str]], count: int, random: np.random.Generator) -> Iterator[str]:
    """Yield `count` variants of each sentence, given as its words."""
    words = [word for sentence in sentences for word in sentence]
    for sentence in sentences:
        for k in range(count if len(sentence) > 2 else 0):
            changed = _stretch(sentence, random) if k % 2 == 0 else _changed(sentence, words, random)
            yield " ".join(changed)


def _stretch(sentence: Sequence[str], random: np.random.Generator) -> Sequence[str]:
    """Return some words of a sentence, one after the other: not all."""
    length = min(int(random.integers(_STRETCH[0], _STRETCH[1] + 1)), len(sentence) - 1)
    start = int(random.integers(len(sentence) - length + 1))
    return sentence[start : start + length]


def _changed(sentence: Sequence[str], words: Sequence[str], random: np.random.Generator) -> Sequence[str]:
    """Return a sentence with one or two words left out or replaced."""
    changed = list(sentence)
    for _ in range(int(random.integers(1, 3))):
        place = int(random.integers(len(changed)))
        if random.random() < _LEFT_OUT:
            del changed[place]
        else:
            changed[place] = words[int(random.integers(len(words)))]
    return changed
