"""From a sentence to rows of a table of word vectors.

The rules suit vocabularies like GloVe's, which were split the way the Penn Treebank is:

1. A piece is a run of letters and digits, with apostrophes, hyphens, dots, commas, slashes, `&`, `+` and `_` inside;
   `U.S.` keeps its last dot. All else is dropped: words without a letter or digit say little, and often.
2. A piece that the vocabulary has, as it is written or in lower case, is one token.
3. Else `don't` is `do` and `n't` (`not` where there is no `n't`), `dog's` is `dog` and `'s`, and so on; a stem that
   is no word by itself is mended (`can't`, `won't`).
4. Else it falls into its runs of letters and digits: `well-known` is `well` and `known`.
5. What the vocabulary does not have is left out.

Text of languages without spaces has to be split into words beforehand.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

VERSION = "1"

# Marks that belong to the letter before them, which \w leaves out: Latin, Hebrew, Arabic, Indic, Thai and Lao.
_MARKS = (
    "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff\u0e31-\u0e4e\u0eb1-\u0ecd"
)
_PIECE = re.compile(rf"(?:[^\W\d_]\.){{2,16}}|[^\W_](?:[\w{_MARKS}'’.,&/+-]*(?:[^\W_]|[{_MARKS}]))?")
_RUN = re.compile(rf"(?:[^\W_]+|[{_MARKS}]+)+")
_CONTRACTION = re.compile(r"(.+)(n't|'(?:s|re|ve|ll|d|m))", re.IGNORECASE)
_STEMS = {"ca": "can", "wo": "will", "sha": "shall"}
# No vocabulary has longer words; hyphenated ones of any length fall into their parts without being put together.
_LONGEST = 256
_MOST_CACHED = 1 << 18


class WordFinder:
    """Finds the rows of a sentence's words.

    Args:
        row: says which row a word has, exactly as it is written; -1 for none.

    Example:
        >>> vocabulary = ["do", "not", "dogs", "well", "known"]
        >>> finder = WordFinder(lambda word: vocabulary.index(word) if word in vocabulary else -1)
        >>> [vocabulary[row] for rows in finder.find("Don't well-known dogs bark?") for row in rows]
        ['do', 'not', 'well', 'known', 'dogs']
    """

    def __init__(self, row: Callable[[str], int]) -> None:
        self._row = row
        self._found: dict[str, tuple[int, ...]] = {}

    def find(self, sentence: str) -> Iterator[tuple[int, ...]]:
        """The rows, a tuple for each piece of the sentence."""
        if not sentence.isascii():
            sentence = unicodedata.normalize("NFC", sentence)
        for match in _PIECE.finditer(sentence):
            piece = match[0]
            rows = self._found.get(piece)
            if rows is not None:
                yield rows
            elif len(piece) <= _LONGEST:
                yield self._look_up(piece)
            else:
                for run in _RUN.finditer(piece):
                    rows = self._found.get(run[0])
                    yield self._look_up(run[0]) if rows is None else rows

    def _look_up(self, piece: str) -> tuple[int, ...]:
        if len(piece) > _LONGEST:
            return ()
        rows = tuple(self._rows(piece.replace("’", "'")))
        if len(self._found) >= _MOST_CACHED:
            self._found = {}
        self._found[piece] = rows
        return rows

    def _rows(self, piece: str) -> Iterator[int]:
        if (whole := self._one(piece)) >= 0:
            yield whole
        elif contraction := _CONTRACTION.fullmatch(piece):
            stem, ending = contraction[1], contraction[2].lower()
            if ending == "n't":
                stem = _STEMS.get(stem.lower(), stem)
            yield from self._rows(stem)
            if (row := self._one(ending)) >= 0 or (ending == "n't" and (row := self._one("not")) >= 0):
                yield row
        else:
            for run in _RUN.finditer(piece):
                if (row := self._one(run[0])) >= 0:
                    yield row

    def _one(self, word: str) -> int:
        row = self._row(word)
        return row if row >= 0 or word.islower() else self._row(word.lower())
