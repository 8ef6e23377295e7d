"""ParaNMT: averages of word vectors and of character trigram vectors, learnt from back-translated paraphrases.

Wieting and Gimpel, "ParaNMT-50M: Pushing the Limits of Paraphrastic Sentence Embeddings with Millions of Machine
Translations", ACL 2018. https://github.com/jwieting/para-nmt-50m has the code and where the model is.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.encoders.names import Request, one_of
from ensembed.encoders.paranmt.paranmt_tables import UNKNOWN, Table, read_tables
from ensembed.errors import InputError, PullError
from ensembed.fetch.download import download, is_url

OPENS = "pickle of Wieting and Gimpel's word and trigram vectors"

# Words or trigrams, and rows of vectors, at a time: they bound the memory that one very long sentence takes.
_UNITS = 65536
_ROWS = 4096

_WORD = re.compile(r"\S+")
_Units: TypeAlias = Callable[[str], Iterator[str]]


class ParaNMTEncoder(Encoder):
    """The mean vector of a sentence's character trigrams, and that of its words; here `|` joins vectors.

        f(s) = mean of t over the trigrams of " s " | mean of w over the words of s

    The sentence is lower-cased and split at white space. The model was trained on tokenised text, as `a dog , a cat .`
    is: give it such where you can. A word or trigram that is not in the table is looked up again without its
    punctuation, so that `cat.` is found too; what then is not there has the vector of the unknown, UUUNKKK. An empty
    sentence is made of one unknown trigram, as in the authors' code, and of one unknown word, where theirs divides by
    zero.

    Args:
        tables: vectors of `trigrams`, of `words`, or of both.
        name: what to call it.
        revision: pins the vectors.
        combination: "concat" puts the two means side by side, "add" adds them.

    Example:
        >>> vectors = np.array([[0, 0], [1, 2], [3, 4]], np.float32)
        >>> words = Table(vectors, {"UUUNKKK": 0, "a": 1, "cat": 2})
        >>> ParaNMTEncoder({"words": words}, name="cats", revision="1").encode(["A cat."])
        array([[2., 3.]], dtype=float32)
    """

    def __init__(self, tables: Mapping[str, Table], *, name: str, revision: str, combination: str = "concat") -> None:
        units: dict[str, _Units] = {"trigrams": _trigrams, "words": _words}
        self._means = [partial(_mean, tables[kind], units[kind]) for kind in units if kind in tables]
        dims = [tables[kind].vectors.shape[1] for kind in units if kind in tables]
        if combination == "add" and (len(dims) != 2 or len(set(dims)) != 1):
            raise InputError(f"encoder {name!r} has vectors of {dims}: combination=add needs two of the same length")
        self._add = combination == "add"
        extra = (("combination", combination),) if len(dims) == 2 else ()
        self._spec = EncoderSpec(name, "paranmt", dims[0] if self._add else sum(dims), revision, extra=extra)

    def embed(self, sentences: list[str]) -> FloatArray:
        """One sentence at a time, summed in double precision: a vector cannot depend on the batch."""
        result = np.empty((len(sentences), self._spec.dim), np.float32)
        for row, sentence in zip(result, sentences, strict=True):
            phrase = sentence.strip().lower()
            means = [mean(phrase) for mean in self._means]
            row[:] = sum(means) if self._add else np.concatenate(means)
        return result


def _words(phrase: str) -> Iterator[str]:
    return map(re.Match.group, _WORD.finditer(phrase))


def _trigrams(phrase: str) -> Iterator[str]:
    padded = f" {phrase} "
    return map("".join, zip(padded, padded[1:], padded[2:], strict=False))


def _mean(table: Table, units: _Units, phrase: str) -> NDArray[np.float64]:
    """The mean over the units' vectors; each distinct row is read once, however often it occurs."""
    rows, unknown = table.rows, table.rows[UNKNOWN]
    counts: dict[int, int] = {}
    left = units(phrase)
    while piece := Counter(islice(left, _UNITS)):
        for unit, count in piece.items():
            row = rows.get(unit)
            if row is None:
                row = rows.get(unit.translate(_punctuation()), unknown)
            counts[row] = counts.get(row, 0) + count
    if not counts:
        counts[unknown] = 1
    ids = np.fromiter(counts, np.intp, len(counts))
    weights = np.fromiter(counts.values(), np.float64, len(counts))
    weights /= weights.sum()
    total = np.zeros(table.vectors.shape[1])
    for start in range(0, len(ids), _ROWS):
        some = slice(start, start + _ROWS)
        total += weights[some] @ table.vectors[ids[some]].astype(np.float64)
    return total


@cache
def _punctuation() -> dict[int, None]:
    """For `str.translate`: every character whose Unicode category is one of punctuation, to be removed."""
    characters = range(sys.maxunicode + 1)
    return dict.fromkeys(i for i in characters if unicodedata.category(chr(i)).startswith("P"))


def open_paranmt(request: Request) -> ParaNMTEncoder:
    """`paranmt:FILE`: a pickle of the authors', a zip with it, or a converted file; or the URL of one."""
    options = request.options(combination=one_of("concat", "add"))
    path = _downloaded(request) if is_url(request.location) else request.path
    tables, revision = read_tables(path, name=request.name, progress=request.progress)
    return ParaNMTEncoder(tables, name=request.name, revision=revision, **options)


def _downloaded(request: Request) -> Path:
    try:
        return download(request.location, progress=request.progress)
    except InputError as error:
        raise InputError(f"encoder {request.name!r}: {error}") from error
    except PullError as error:
        raise PullError(f"encoder {request.name!r}: {error}; a copy on this machine opens as paranmt:FILE") from error
