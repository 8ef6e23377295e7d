"""Lines of text, sentences, and corpora of them with a key for their content.

A corpus is read as a stream, any number of times; it is never in memory whole unless it was given as a list. Blank
sentences say nothing about language and are left out, so row i of a view is the i-th sentence that is not blank.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import CorpusError, InputError, SentenceError

BadBytes: TypeAlias = Literal["strict", "replace"]

_DIGEST_BYTES = 16
_GZIP_MAGIC = b"\x1f\x8b"  # cannot begin UTF-8 text
# Rows compared at a time when repetitions are looked for: bounds the copies, which would be of the whole corpus.
_BLOCK = 1 << 16


def read_lines(
    source: Path | BinaryIO,
    *,
    name: str | None = None,
    errors: BadBytes = "strict",
    error: type[InputError] = CorpusError,
    way_out: str = "convert it, for instance with iconv -t utf-8",
) -> Iterator[str]:
    r"""The lines of a UTF-8 text, gzipped or not, as a stream.

    Lines end with `\n` or `\r\n` and with nothing else, as U+2028 and others may be text; a byte order mark is dropped.
    Whether it is gzip is seen from the first two bytes, whatever the file is called.

    Args:
        source: a file, or an open binary stream, which is not closed.
        name: what errors call it; by default the file's path.
        errors: what to do with bytes that are not UTF-8: "strict" refuses them, "replace" puts U+FFFD.
        error: what is raised when the text cannot be read or is not UTF-8.
        way_out: what to do about bytes that are not UTF-8, for the message.
    """
    name = name or str(source)
    number = 1
    try:
        with ExitStack() as opened:
            file = _unzipped(opened.enter_context(source.open("rb")) if isinstance(source, Path) else source)
            line = file.readline().removeprefix(codecs.BOM_UTF8)
            while line:
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", errors)
                number += 1
                line = file.readline()
    except UnicodeDecodeError as found:
        place = f"{name}, line {number}: byte {found.start} (0x{found.object[found.start]:02x})"
        raise error(f"{place} is not UTF-8; {way_out}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as found:
        raise error(f"{name} is not a whole gzip file: {found} (at line {number}); get it again") from found
    except OSError as found:
        raise error(f"{name} cannot be read: {found} (at line {number})") from found


def _unzipped(stream: BinaryIO) -> io.BufferedIOBase:
    """The stream from its beginning, unpacked if it is gzip; a pipe cannot be wound back after the look at it."""
    head = stream.read(len(_GZIP_MAGIC))
    whole = io.BufferedReader(_Rejoined(head, stream))
    return gzip.GzipFile(fileobj=whole) if head == _GZIP_MAGIC else whole


class _Rejoined(io.RawIOBase):
    """The bytes that were read from a stream already, and then the rest of it."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        # What is there, not what fills the buffer: a terminal would need its end of file typed twice.
        self._read = getattr(rest, "read1", rest.read)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - typing has no word for a buffer before Python 3.12
        data = self._head or self._read(len(buffer))
        self._head = b""
        buffer[: len(data)] = data
        return len(data)


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
        """The key and the repetitions, from one pass.

        8 bytes of memory a sentence stay in use; while they are found it takes up to 44 (measured), most of it to sort.
        """
        digests = bytearray()
        for sentence in self:
            digests += hashlib.blake2b(sentence.encode(), digest_size=_DIGEST_BYTES).digest()
        if not digests:
            raise CorpusError(f"{self} holds no sentence")
        key = hashlib.sha256(digests).hexdigest()[:32]
        order, starts = _groups(np.frombuffer(digests, np.uint64).reshape(-1, 2))
        del digests  # it is the largest piece, and what follows needs room too
        return CorpusIndex(key, _first_rows(order, starts))

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
    """A text file, plain or gzipped, UTF-8, one sentence a line, as `read_lines` reads it.

    Args:
        path: the file.
        errors: what to do with bytes that are not UTF-8: "strict" refuses the file, "replace" puts U+FFFD.
        name: what errors call it; by default the path.
    """

    def __init__(self, path: str | Path, *, errors: BadBytes = "strict", name: str | None = None) -> None:
        if errors not in get_args(BadBytes):
            raise InputError(f"errors is 'strict' or 'replace', not {errors!r}")
        self.path = Path(path)
        self._errors: BadBytes = errors
        self._name = name or str(path)
        if not self.path.is_file():
            if self.path.is_dir():
                raise CorpusError(f"{str(self.path)!r} is a folder, not a corpus file")
            raise CorpusError(f"there is no corpus file {str(self.path)!r}")
        self._state = self._stat()

    def __iter__(self) -> Iterator[str]:
        way_out = "convert it (iconv -t utf-8), or read it with errors='replace' (--errors replace)"
        lines = read_lines(self.path, name=self._name, errors=self._errors, way_out=way_out)
        return (line for line in lines if line.strip())

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
        return self._name


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


def _groups(digests: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The order [n] that brings equal rows [n, 2] together, and where [n] in it another group starts."""
    order = np.lexsort(digests.T)
    starts = np.ones(len(order), bool)
    for begin in range(1, len(order), _BLOCK):
        ordered = digests[order[begin - 1 : begin + _BLOCK]]
        starts[begin : begin + _BLOCK] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return order, starts


def _first_rows(order: NDArray[np.int64], starts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For every row the first equal row [n]; the sort is stable, so a group starts with its first row."""
    leaders = order[starts]
    group = np.cumsum(starts)
    first = np.empty(len(order), np.int64)
    for begin in range(0, len(order), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        first[order[block]] = leaders[group[block] - 1]
    return first
