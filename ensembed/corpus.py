"""Sentences, and corpora of them with a key for their content.

A corpus is read as a stream, any number of times; it is never in memory whole unless it was given as a list. Blank
sentences say nothing about language and are left out, so row i of a view is the i-th sentence that is not blank.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import CorpusError, InputError, SentenceError

_DIGEST_BYTES = 16


@dataclass(frozen=True)
class CorpusIndex:
    """What one pass over a corpus finds out.

    Attributes:
        key: the hash of the sentences in their order; a file and a list of the same sentences share it.
        first_rows: [n] for every row the first row that holds the same sentence, so that each is encoded once.
    """

    key: str
    first_rows: NDArray[np.int64]


class Corpus(ABC):
    """Sentences in a fixed order."""

    @abstractmethod
    def __iter__(self) -> Iterator[str]:
        """Read the sentences that are not blank, from the start."""

    @abstractmethod
    def check_unchanged(self) -> None:
        """Raise a CorpusError if the sentences are no longer those of the index."""

    @cached_property
    def index(self) -> CorpusIndex:
        """The key and the repetitions, from one pass; 8 bytes of memory a sentence stay in use."""
        digests = bytearray()
        for sentence in self:
            digests += hashlib.blake2b(sentence.encode(), digest_size=_DIGEST_BYTES).digest()
        if not digests:
            raise CorpusError(f"{self} holds no sentence")
        pairs = np.frombuffer(digests, np.uint64).reshape(-1, 2)
        return CorpusIndex(hashlib.sha256(digests).hexdigest()[:32], _first_rows(pairs))

    @property
    def key(self) -> str:
        """The hash of the content."""
        return self.index.key

    def __len__(self) -> int:
        return len(self.index.first_rows)


class ListCorpus(Corpus):
    """Sentences that are in memory already."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self._sentences = [s for s in check_sentences(sentences) if s.strip()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sentences)

    def check_unchanged(self) -> None:
        """Nothing to check: the list was copied."""

    def __str__(self) -> str:
        return "the list of sentences"


class TextCorpus(Corpus):
    r"""A text file, plain or `.gz`, UTF-8, one sentence a line.

    Lines end with `\n` or `\r\n` and with nothing else; a byte order mark is dropped.

    Args:
        path: the file.
        errors: what to do with bytes that are not UTF-8: "strict" refuses the file, "replace" puts U+FFFD.
    """

    def __init__(self, path: str | Path, *, errors: str = "strict") -> None:
        if errors not in ("strict", "replace"):
            raise InputError(f"errors is 'strict' or 'replace', not {errors!r}")
        self.path = Path(path)
        self._errors = errors
        if not self.path.is_file():
            raise CorpusError(f"there is no corpus file {str(self.path)!r}")
        self._state = self._stat()

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(self._lines(), 1):
            if sentence := self._sentence(line, number):
                yield sentence

    def _lines(self) -> Iterator[bytes]:
        opener = gzip.open if self.path.suffix == ".gz" else open
        number = 1
        try:
            with opener(self.path, "rb") as file:
                while line := file.readline():
                    yield line
                    number += 1
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise CorpusError(f"{self} is not a whole gzip file: {error} (at line {number})") from error
        except OSError as error:
            raise CorpusError(f"{self} cannot be read: {error} (at line {number})") from error

    def _sentence(self, line: bytes, number: int) -> str:
        """The line's text, or an empty string for a blank line."""
        encoding = "utf-8-sig" if number == 1 else "utf-8"
        try:
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode(encoding, self._errors)
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{self}, line {number}: byte {error.start} (0x{error.object[error.start]:02x}) is not UTF-8; convert "
                "the file "
                "(iconv -t utf-8) or read it with errors='replace'"
            ) from None
        return text if text.strip() else ""

    def check_unchanged(self) -> None:
        """Raise a CorpusError if the file was written to since this object was made."""
        if self._stat() != self._state:
            raise CorpusError(f"{self} changed while it was being read; run again")

    def _stat(self) -> tuple[int, int]:
        try:
            found = self.path.stat()
        except OSError as error:
            raise CorpusError(f"{self} cannot be read: {error}") from error
        return found.st_size, found.st_mtime_ns

    def __str__(self) -> str:
        return str(self.path)


def as_corpus(source: Corpus | Path | Sequence[str]) -> Corpus:
    """A corpus from a corpus, the path of a text file, or a list of sentences."""
    if isinstance(source, Corpus):
        return source
    if isinstance(source, Path):
        return TextCorpus(source)
    return ListCorpus(source)


def check_sentences(sentences: Sequence[str]) -> list[str]:
    """The sentences as a list, or an error that names the first one that cannot be encoded."""
    if isinstance(sentences, str | bytes):
        kind = type(sentences).__name__
        raise SentenceError(f"expected a list of sentences, got one {kind}: write [text], or pathlib.Path(name)")
    if not isinstance(sentences, Iterable):
        raise SentenceError(f"expected a list of sentences, got {type(sentences).__name__}")
    result = list(sentences)
    for i, sentence in enumerate(result):
        if not isinstance(sentence, str):
            raise SentenceError(f"sentence {i} is not a string but {type(sentence).__name__}: {shorten(sentence)}")
        if not sentence.isascii():
            try:
                sentence.encode()
            except UnicodeEncodeError as error:
                raise SentenceError(
                    f"sentence {i} holds a lone surrogate at position {error.start}, which is not text: "
                    f"{shorten(sentence)}; replace it with s.encode('utf-8', 'replace').decode()"
                ) from None
    return result


def shorten(value: object, limit: int = 80) -> str:
    """A printable, bounded form of any value, for error messages."""
    text = ascii(value[:limit] if isinstance(value, str) else value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _first_rows(digests: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For every row [n, 2] the first equal row [n]; the sort is stable, so a group starts with its first row."""
    order = np.lexsort(digests.T)
    ordered = digests[order]
    starts_group = np.ones(len(order), bool)
    starts_group[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    group_start = np.maximum.accumulate(np.where(starts_group, np.arange(len(order)), 0))
    first = np.empty(len(order), np.int64)
    first[order] = order[group_start]
    return first
