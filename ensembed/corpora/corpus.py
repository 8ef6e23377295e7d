"""Lines of text, sentences, and corpora of them with a key for their content.

A corpus is read as a stream, any number of times; it is never in memory whole unless it was given as a list. Blank
sentences say nothing about language and are left out, so row i of a view is the i-th sentence that is not blank.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import itertools
import zlib
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.repeats import first_rows, group
from ensembed.errors import CorpusError, InputError, SentenceError

BadBytes: TypeAlias = Literal["strict", "replace"]
WAY_OUT = "convert it (iconv -t utf-8), or read it with errors='replace' (--errors replace)"

Mark: TypeAlias = tuple[int, int]
"""Where a sentence is, or blank ones before it: the part of the corpus, and the place in that part."""
START: Mark = (0, 0)
MARK_ROWS = 4096
"""Every such row is marked in the index."""

_DIGEST_BYTES = 16
_GZIP_MAGIC = b"\x1f\x8b"  # cannot begin UTF-8 text
# What is read at a time from a stream that a call is dear to, and passed over where it cannot be wound.
_BUFFER = 1 << 18


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
    return iter(Lines(source, name or str(source), errors, error, way_out))


@dataclass
class Lines:
    """One pass over the lines of a UTF-8 text, as `read_lines` takes them, which knows how far it has come.

    Attributes:
        source: a file, an open binary stream, which is not closed, or what opens one, which is.
        name: what errors call it.
        errors: what to do with bytes that are not UTF-8.
        error: what is raised.
        way_out: what to do about bytes that are not UTF-8, for the message.
        place: the byte (of what is unpacked) to begin at: 0, or what `tell` said in another pass.
    """

    source: Path | BinaryIO | Callable[[], BinaryIO]
    name: str
    errors: BadBytes = "strict"
    error: type[InputError] = CorpusError
    way_out: str = "convert it, for instance with iconv -t utf-8"
    place: int = 0

    def __post_init__(self) -> None:
        self._file: BinaryIO | None = None

    def tell(self) -> int:
        """Where the line begins that comes next; not to be asked after the end."""
        return self.place if self._file is None else self._file.tell()

    def __iter__(self) -> Iterator[str]:
        number = 0
        try:
            with ExitStack() as opened:
                self._file = file = self._opened(opened)
                first = b"" if self.place else file.readline().removeprefix(codecs.BOM_UTF8)
                for number, line in enumerate(itertools.chain((first,) if first else (), file), 1):  # noqa: B007 - for the errors
                    yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", self.errors)
        except UnicodeDecodeError as found:
            place = f"{self.name}, line {number}: byte {found.start} (0x{found.object[found.start]:02x})"
            raise self.error(f"{place} is not UTF-8; {self.way_out}") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as found:
            raise self.error(
                f"{self.name} is not a whole gzip file: {found} (at line {number + 1}); get it again"
            ) from found
        except OSError as found:
            raise self.error(f"{self.name} cannot be read: {found} (at line {number + 1})") from found

    def _opened(self, opened: ExitStack) -> BinaryIO:
        """The text from the place on, unpacked if it is gzip."""
        if isinstance(self.source, Path):
            stream: BinaryIO = opened.enter_context(self.source.open("rb"))
        else:
            stream = opened.enter_context(self.source()) if callable(self.source) else self.source
        head = stream.read(len(_GZIP_MAGIC))
        if head == _GZIP_MAGIC:
            unpacked = gzip.GzipFile(fileobj=io.BufferedReader(_Rejoined(head, stream)))
            unpacked.seek(self.place)
            return cast("BinaryIO", unpacked)
        if isinstance(self.source, Path) and stream.seekable():
            stream.seek(self.place)
            return stream  # as it is: a layer more would slow down every line
        # A pipe cannot be wound back after the look at it, and some servers send a file only whole.
        if self.place:
            try:
                stream.seek(self.place)
                return cast("BinaryIO", io.BufferedReader(_Rejoined(b"", stream, self.place), _BUFFER))
            except (OSError, ValueError):
                pass
        whole = io.BufferedReader(_Rejoined(head, stream), _BUFFER if callable(self.source) else io.DEFAULT_BUFFER_SIZE)
        left = self.place
        while left and (passed := len(whole.read(min(left, _BUFFER)))):
            left -= passed
        return cast("BinaryIO", whole)


class _Rejoined(io.RawIOBase):
    """The bytes that were read from a stream already, and then the rest of it, counted from `at`."""

    def __init__(self, head: bytes, rest: BinaryIO, at: int = 0) -> None:
        self._head = head
        self._at = at
        # What is there, not what fills the buffer: a terminal would need its end of file typed twice.
        self._read = getattr(rest, "read1", rest.read)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - typing has no word for a buffer before Python 3.12
        data = self._head or self._read(len(buffer))
        self._head = b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at


@dataclass(frozen=True)
class CorpusIndex:
    """What one pass over a corpus finds out.

    Attributes:
        key: the hash of the sentences in their order; a file and a list of the same sentences share it.
        first_rows: [n] for every row the first row that holds the same sentence, so that each is encoded once.
        marks: [m, 2] for every 4,096th row where it is: the part of the corpus, and the place in it, so that a stretch
            of rows can be read without what comes before it. Empty where there is nothing to find, as in a list.
    """

    key: str
    first_rows: NDArray[np.int64]
    marks: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))


@dataclass(frozen=True)
class _Brief:
    """What a corpus still knows of its index in another process."""

    key: str
    rows: int
    marks: NDArray[np.int64]


class Corpus(ABC):
    """Sentences in a fixed order.

    A corpus can be pickled, to be read in another process. Its key, its length and its marks travel with it, and the
    state its files were in; the 8 bytes a sentence of its index do not: there `index` is a pass of its own.
    """

    @abstractmethod
    def __iter__(self) -> Iterator[str]:
        """Read the sentences that are not blank, from the start."""

    @abstractmethod
    def check_unchanged(self) -> None:
        """Raise a CorpusError if the sentences are no longer those of the index."""

    def check_rows(self, _start: int, _stop: int, /) -> None:
        """Raise a CorpusError if what these rows are read from was changed; a corpus of one piece checks all of it."""
        self.check_unchanged()

    def read_from(self, mark: Mark = START) -> tuple[Iterator[str], Callable[[], Mark] | None]:
        """The sentences from a mark on, and what tells the mark of the next one; None where there are no marks."""
        if mark != START:
            raise InputError(f"{self} has no marks, such as {mark}")
        return iter(self), None

    def stretch(self, start: int, stop: int) -> Iterator[str]:
        """The sentences of the rows from start up to stop, in this process or in another.

        After the index was made, it is read from the last mark before it. That the corpus is still the same is checked
        after the last sentence: take them all before any is used.

        Raises:
            InputError: these are no rows of the corpus.
            CorpusError: the corpus was changed.
        """
        brief = self._known()
        if not 0 <= start <= stop <= (stop if brief is None else brief.rows):
            rows = "" if brief is None else f"; {self} has {brief.rows}"
            raise InputError(f"there is no stretch from row {start} to row {stop}{rows}")
        return self._stretch(start, stop, brief)

    def _stretch(self, start: int, stop: int, brief: _Brief | None) -> Iterator[str]:
        first, count = 0, 0
        mark = START
        if brief is not None and len(brief.marks) and start < stop:
            first = start // MARK_ROWS * MARK_ROWS
            part, place = brief.marks[start // MARK_ROWS].tolist()
            mark = part, place
        try:
            rows = itertools.islice(self.read_from(mark)[0], start - first, stop - first)
            for count, sentence in enumerate(rows, 1):  # noqa: B007 - for the error
                yield sentence
        except CorpusError:
            self.check_unchanged()  # if it was changed, that is the reason
            raise
        self.check_unchanged()
        if count < stop - start:
            raise CorpusError(f"{self} ends before row {stop}: it has no more than {start + count} sentences")

    @cached_property
    def index(self) -> CorpusIndex:
        """The key, the repetitions and the marks, from one pass.

        8 bytes of memory a sentence stay in use; while they are found it takes up to 44 (measured), most of it to sort.
        """
        digests = bytearray()
        marks = array("q")
        sentences, mark = self.read_from()
        full = True
        while full:
            here = () if mark is None else mark()
            before = len(digests)
            for sentence in itertools.islice(sentences, MARK_ROWS):
                digests += hashlib.blake2b(sentence.encode(), digest_size=_DIGEST_BYTES).digest()
            if len(digests) > before:
                marks.extend(here)
            full = len(digests) - before == MARK_ROWS * _DIGEST_BYTES
        if not digests:
            raise CorpusError(f"{self} holds no sentence")
        key = hashlib.sha256(digests).hexdigest()[:32]
        brief = self._known()
        if brief is not None and brief.key != key:
            raise CorpusError(f"{self} changed since its index was made; run again")
        order, starts = group(np.frombuffer(digests, np.uint64).reshape(-1, 2))
        del digests  # it is the largest piece, and what follows needs room too
        return CorpusIndex(key, first_rows(order, starts), np.array(marks, np.int64).reshape(-1, 2))

    @property
    def key(self) -> str:
        """The hash of the content."""
        return (self._known() or self.index).key

    def __len__(self) -> int:
        brief = self._known()
        return len(self.index.first_rows) if brief is None else brief.rows

    def _known(self) -> _Brief | None:
        """What is known of the index without a pass: one was made here, or before the corpus came here."""
        index = self.__dict__.get("index")
        if index is None:
            brief: _Brief | None = self.__dict__.get("_brief")
            return brief
        return _Brief(index.key, len(index.first_rows), index.marks)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "index"} | {"_brief": self._known()}


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
        self._file = self.path.absolute()  # another process may be in another folder
        self._errors: BadBytes = errors
        self._name = name or str(path)
        if not self.path.is_file():
            if self.path.is_dir():
                raise CorpusError(
                    f"{str(self.path)!r} is a folder, not a corpus file; ensembed.corpora.open_corpus reads its files"
                )
            raise CorpusError(f"there is no corpus file {str(self.path)!r}")
        self._state = self._stat()

    def __iter__(self) -> Iterator[str]:
        return self.read_from()[0]

    def read_from(self, mark: Mark = START) -> tuple[Iterator[str], Callable[[], Mark] | None]:
        """The sentences from a byte of the text on."""
        lines = Lines(self._file, self._name, self._errors, way_out=WAY_OUT, place=mark[1])
        return not_blank(lines), lambda: (0, lines.tell())

    def check_unchanged(self) -> None:
        """Raise a CorpusError if the file was written to since this object was made."""
        if self._stat() != self._state:
            raise CorpusError(f"{self} changed while it was being read; run again")

    def _stat(self) -> tuple[int, int]:
        try:
            found = self._file.stat()
        except OSError as error:
            raise CorpusError(f"{self} cannot be read: {error}") from error
        return found.st_size, found.st_mtime_ns

    def __str__(self) -> str:
        return self._name


def not_blank(texts: Iterable[str]) -> Iterator[str]:
    """The texts that are sentences."""
    return filter(str.strip, texts)


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
