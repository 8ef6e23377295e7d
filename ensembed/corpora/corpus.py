"""Read lines of text as sentences, and give corpora of sentences a key for their content.

A corpus is read as a stream. Blank sentences are left out: row i of a view is the i-th sentence that is not blank.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import io
import itertools
import json
import os
import re
import warnings
import zlib
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import AbsentCorpusError, CorpusError, InputError, SentenceError
from ensembed.support.file_limits import TEXT_LINE_BYTES, LimitError, UnpackedGzip

BadBytes: TypeAlias = Literal["strict", "replace"]
FileFormat: TypeAlias = Literal["text", "csv", "tsv", "jsonl"]
FileKind: TypeAlias = FileFormat | Literal["parquet"]
WAY_OUT = (
    "convert it (Latin-1: iconv -f latin1 -t utf-8 OLD > NEW), or read it with errors='replace' (--errors replace)"
)

Mark: TypeAlias = tuple[int, int]
"""Where a sentence is, or the blank ones before it: the part of the corpus, and the position in that part."""
START: Mark = (0, 0)
MARK_ROWS = 4096
"""The index has a mark for every row whose number is a multiple of this."""

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(://|::)")
"""How a URL begins, rather than a path; `simplecache::s3://…` is one too."""

_DIGEST_BYTES = 16
_GZIP_MAGIC = b"\x1f\x8b"  # cannot begin UTF-8 text
_KINDS: Mapping[str, FileKind] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".parq": "parquet",
    ".pq": "parquet",
}
_PARQUET_MAGIC = b"PAR1"  # the first and the last bytes
# What tells the format of a file without a known ending: so many lines of so many bytes at its beginning.
_HEAD_LINES, _HEAD_BYTES = 20, 1 << 16
_SURE_LINES = 3  # fewer lines may look like records by chance
_FIELD = r"\"?[^\W\d][\w .-]{0,40}\"?"
_HEADER = re.compile(rf"{_FIELD}([,;\t]{_FIELD})+")
_JSON_ARRAY = re.compile(r"\[\s*($|[{\"])")
_JSON_OBJECT = re.compile(r"\{\s*($|\")")
# Bytes that are read at a time from streams with a high cost per read.
_BUFFER = 1 << 18
# Characters of the name of a file that is not there: a whole text may stand in its place.
_SHOWN = 1000
# Rows compared at a time when repeats are searched: this bounds the copies.
_BLOCK = 1 << 16


def read_lines(
    source: Path | BinaryIO,
    *,
    name: str | None = None,
    errors: BadBytes = "strict",
    error: type[InputError] = CorpusError,
    way_out: str = "convert it, if it is Latin-1 with iconv -f latin1 -t utf-8 OLD > NEW",
) -> Iterator[str]:
    r"""Return the lines of a UTF-8 text, gzipped or not, as a stream.

    Lines end with `\n` or `\r\n` and with nothing else, as U+2028 and others may be text; a byte order mark is dropped.
    The first two bytes tell whether it is gzip, whatever the file is called.

    Args:
        source: a file, or an open binary stream, which is not closed.
        name: what errors call it; by default the file's path.
        errors: what to do with bytes that are not UTF-8: "strict" refuses them, "replace" puts U+FFFD.
        error: what is raised when the text cannot be read or is not UTF-8.
        way_out: what to do about bytes that are not UTF-8, for the message.
    """
    return iter(Lines(source, name or str(source), errors, error, way_out))


def file_kind(source: Path | BinaryIO | None, name: str, column: str | None = None) -> FileKind:
    """Return the format of a file, by the ending of its name, else by its first lines.

    Lines are records if each is a JSON object, or all have as many cells as the first, and one field is the column of
    the texts (by default `text`). Text whose lines only look like that stays text, with a warning. A JSON
    array, or an object over several lines, whose lines are neither records nor sentences, is a CorpusError.

    Args:
        source: the file, or a stream; nothing is taken from the stream, and one that cannot `peek` is text. None goes
            by the name only.
        name: what the file is called; `.gz` and the query of a URL are ignored.
        column: the column of the texts.
    """
    kind = _KINDS.get(Path(name.partition("?")[0].lower().removesuffix(".gz")).suffix)
    if kind is not None or source is None:
        return kind or "text"
    if isinstance(source, Path) and not os.path.isfile(source):  # noqa: PTH113 - False if no file can have the name
        return "text"
    try:
        with source.open("rb", _HEAD_BYTES) if isinstance(source, Path) else nullcontext(source) as stream:
            peek = getattr(stream, "peek", None)
            head = b"" if peek is None or stream.isatty() else peek(_HEAD_BYTES)[:_HEAD_BYTES]
            if head.startswith(_PARQUET_MAGIC) and stream.seekable():
                start = stream.tell()
                stream.seek(-len(_PARQUET_MAGIC), io.SEEK_END)
                end = stream.read()
                stream.seek(start)
                return "parquet" if end == _PARQUET_MAGIC else "text"
    except (OSError, ValueError):  # whoever reads the file says what is wrong
        return "text"
    is_cut = not isinstance(source, Path) or len(head) >= _HEAD_BYTES
    if head.startswith(_GZIP_MAGIC):
        head = _unpacked(head)
        is_cut = is_cut or len(head) >= _HEAD_BYTES
    lines = head.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace").split("\n")
    lines = [line for line in (lines[:-1] if is_cut and len(lines) > 1 else lines) if line.strip()][:_HEAD_LINES]
    if lines and (
        lines[0].lstrip().startswith("{")
        or _JSON_ARRAY.match(lines[0].strip())
        or _HEADER.fullmatch(lines[0].strip())
        or any(all(mark in line for line in lines) for mark in "\t,;")
    ):
        return _record_kind(lines, name, column)
    return "text"


def has_content(stream: io.BufferedReader) -> bool:
    """Return whether a file, gzipped or not, begins with anything but blank lines; nothing is taken from it."""
    head = stream.peek(_HEAD_BYTES)[:_HEAD_BYTES]
    head = _unpacked(head) if head.startswith(_GZIP_MAGIC) else head
    return bool(head.removeprefix(codecs.BOM_UTF8).strip())


def _unpacked(head: bytes) -> bytes:
    """Return the beginning of a gzipped file, unpacked; that of a damaged one as it is."""
    with suppress(zlib.error):
        return zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
    return head


def _is_json_document(lines: list[str]) -> bool:
    """Return whether the first lines of a file are those of one JSON array, or of one object over several lines."""
    first = lines[0].strip()
    if _JSON_ARRAY.match(first):
        return True
    if len(lines) < 2 or not _JSON_OBJECT.match(first):
        return False
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return True
    return False


def _record_kind(lines: list[str], name: str, column: str | None) -> FileFormat:
    """Return the format of the first lines of a file that may be records."""
    if _is_json_document(lines):
        raise CorpusError(
            f"{name} is a JSON array or one JSON object, which is not read: write JSON Lines, one object a line (pandas"
            " to_json(orient='records', lines=True), in the shell jq -c '.[]'), or, if it is text, say "
            "file_format='text' (--format text)"
        )
    kind, fields = _fields(lines)
    if kind == "text":
        look = "its lines look like CSV with semicolons: write it with commas or tabs" if fields else ""
        if len(lines) == 1 and _JSON_OBJECT.match(lines[0].strip()):
            look = "its long first line looks like JSON: say file_format='jsonl' (--format jsonl)"
        if look:
            lasting = "or say file_format='text' (--format text)"
            warnings.warn(f"{name} is read as text, but {look}, {lasting}", UserWarning, stacklevel=4)
        return kind
    what = {"csv": "CSV", "tsv": "TSV", "jsonl": "JSON Lines"}[kind]
    wanted = "text" if column is None else column
    if wanted in fields:
        lasting = f"say so with file_format={kind!r} (--format {kind}), or that they are text (--format text)"
        warnings.warn(f"{name} is read as {what}, by its first lines; {lasting}", UserWarning, stacklevel=4)
        return kind
    if len(lines) < _SURE_LINES:
        return "text"
    names = ", ".join(map(shorten, fields[:8]))
    way_out = (
        f"name the column of the texts (column=…, --text-column), one of {names}, or say that the lines are the texts "
        "(file_format='text', --format text)"
    )
    warnings.warn(f"{name} is read as text, but its lines look like {what}: {way_out}", UserWarning, stacklevel=4)
    return "text"


def _fields(lines: list[str]) -> tuple[FileFormat, list[str]]:
    """Return the format that lines look like, and the names of the fields; `text` if they do not look like records.

    Lines with semicolons, which are not read as a table, are `text` with fields.
    """
    if all(line.lstrip().startswith("{") for line in lines):
        try:
            records = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            return "text", []
        return "jsonl", list(dict.fromkeys(name for record in records for name in record))
    formats: tuple[tuple[FileFormat, str], ...] = (("tsv", "\t"), ("csv", ","), ("text", ";"))
    for kind, delimiter in formats:
        try:
            rows = list(csv.reader((line.rstrip("\r") + "\n" for line in lines), delimiter=delimiter))
        except csv.Error:
            continue
        header, *others = rows
        if len(others) > 1:
            others.pop()  # it may be cut off inside quotes
        # Among two or three sentences all may have a comma: only a line of names is a header then.
        sure = len(rows) >= _HEAD_LINES // 2 or all(re.fullmatch(_FIELD, cell) for cell in header)
        if sure and others and len(set(header)) == len(header) > 1 and all(len(row) == len(header) for row in others):
            return kind, header
    return "text", []


@dataclass
class Lines:
    """One pass over the lines of a UTF-8 text, from byte `start` of the unpacked text, that can tell its position."""

    source: Path | BinaryIO | Callable[[], BinaryIO]
    name: str
    errors: BadBytes = "strict"
    error: type[InputError] = CorpusError
    way_out: str = WAY_OUT
    start: int = 0
    _file: BinaryIO | None = field(default=None, init=False, repr=False)

    def tell(self) -> int:
        """Return where the next line begins; it must not be called after the end."""
        return self.start if self._file is None else self._file.tell()

    def __iter__(self) -> Iterator[str]:
        number = 0
        try:
            with ExitStack() as opened:
                self._file = file = self._open(opened)
                first = b"" if self.start else file.readline(TEXT_LINE_BYTES + 3).removeprefix(codecs.BOM_UTF8)
                lines = iter(partial(file.readline, TEXT_LINE_BYTES), b"")
                for number, line in enumerate(itertools.chain((first,) if first else (), lines), 1):
                    if len(line) >= TEXT_LINE_BYTES:
                        raise LimitError(f"line {number} has {TEXT_LINE_BYTES:,} bytes or more; split it")  # noqa: TRY301 - named below
                    yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", self.errors)
        except UnicodeDecodeError as error:
            if number == 1 and error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                way_out = "as programs on Windows may save it; convert it: iconv -f utf-16 -t utf-8 OLD > NEW"
                raise self.error(f"{self.name} is UTF-16 and not UTF-8, {way_out}") from None
            place = f"{self.name}, line {number}: byte {error.start} (0x{error.object[error.start]:02x})"
            raise self.error(f"{place} is not UTF-8; {self.way_out}") from None
        except LimitError as error:
            raise self.error(f"{self.name} cannot be read: {error}") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise self.error(
                f"{self.name} is not a whole gzip file: {error} (at line {number + 1}); get it again"
            ) from error
        except OSError as error:
            raise self.error(f"{self.name} cannot be read: {error} (at line {number + 1})") from error

    def _open(self, opened: ExitStack) -> BinaryIO:
        """Return the text from `start` on, unpacked if it is gzip."""
        if isinstance(self.source, Path):
            stream: BinaryIO = opened.enter_context(self.source.open("rb"))
        else:
            stream = opened.enter_context(self.source()) if callable(self.source) else self.source
        head = stream.read(len(_GZIP_MAGIC))
        packed = head == _GZIP_MAGIC
        if stream is not self.source and not packed:
            with suppress(OSError, ValueError):  # pipes cannot seek, and some servers send a file only as a whole
                stream.seek(self.start)
                return stream
        whole = _Rejoined(head, stream)
        raw = UnpackedGzip(io.BufferedReader(whole)) if packed else whole
        text = io.BufferedReader(raw, _BUFFER if packed or callable(self.source) else io.DEFAULT_BUFFER_SIZE)
        to_skip = self.start
        while to_skip and (skipped := len(text.read(min(to_skip, _BUFFER)))):
            to_skip -= skipped
        return cast("BinaryIO", text)


class _Rejoined(io.RawIOBase):
    """The bytes that were already read from a stream, and then the rest of it."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._position = 0
        # `read1` returns what has arrived, without filling the buffer: a terminal would need its end of file twice.
        self._read = getattr(rest, "read1", rest.read)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - typing has no word for a buffer before Python 3.12
        data = self._head or self._read(len(buffer))
        self._head = b""
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position


@dataclass(frozen=True)
class CorpusIndex:
    """What one pass over a corpus finds out."""

    key: str
    """The hash of the sentences in their order; a file and a list of the same sentences share it."""
    first_rows: NDArray[np.int64]
    """[n] for every row the first row that holds the same sentence, so that each is encoded once."""
    marks: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))
    """[m, 2] for every 4,096th row its part and position, so that reading can begin there; none for a list."""


@dataclass(frozen=True)
class _Brief:
    """The part of the index that travels to other processes."""

    key: str
    rows: int
    marks: NDArray[np.int64]


class Corpus(ABC):
    """Sentences in a fixed order; it can be pickled with its key, length and marks, but without its index."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    @abstractmethod
    def __iter__(self) -> Iterator[str]:
        """Read the sentences that are not blank, from the start."""

    @abstractmethod
    def check_unchanged(self) -> None:
        """Raise a CorpusError if the sentences are no longer those of the index."""

    def check_rows(self, _start: int, _stop: int, /) -> None:
        """Raise a CorpusError if the files of these rows were changed; a corpus of one file checks all of it."""
        self.check_unchanged()

    def read_from(self, mark: Mark = START) -> tuple[Iterator[str], Callable[[], Mark] | None]:
        """Return the sentences from a mark on, and a function that returns the mark of the next; None without marks."""
        if mark != START:
            raise InputError(f"{self} has no marks, such as {mark}")
        return iter(self), None

    def stretch(self, start: int, stop: int) -> Iterator[str]:
        """Return the sentences of the rows from start up to stop, in this process or in another.

        Whether the corpus is still the same is checked after the last sentence: read them all before any is used.
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
            part, position = brief.marks[start // MARK_ROWS].tolist()
            mark = part, position
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
        """The key, the repeats and the marks, from one pass; 8 bytes of memory a sentence stay in use."""
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
            raise AbsentCorpusError(f"{self} holds no sentence: write one a line")
        key = hashlib.sha256(digests).hexdigest()[:32]
        brief: _Brief | None = self.__dict__.get("_brief")
        if brief is not None and brief.key != key:
            raise CorpusError(f"{self} changed since its index was made; run again")
        return CorpusIndex(key, _first_rows(digests), np.array(marks, np.int64).reshape(-1, 2))

    @property
    def key(self) -> str:
        """The hash of the content."""
        return (self.__dict__.get("_brief") or self.index).key

    def __len__(self) -> int:
        brief: _Brief | None = None if "index" in self.__dict__ else self.__dict__.get("_brief")
        return len(self.index.first_rows) if brief is None else brief.rows

    def _known(self) -> _Brief | None:
        """Return what is known of the index without a pass: it was made here, or where the corpus was pickled."""
        index = self.__dict__.get("index")
        if index is None:
            brief: _Brief | None = self.__dict__.get("_brief")
            return brief
        return _Brief(index.key, len(index.first_rows), index.marks)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "index"} | {"_brief": self._known()}


def _first_rows(digests: bytearray) -> NDArray[np.int64]:
    """Return for every row the first equal row [n]; the digests are emptied, since what follows needs memory, too."""
    rows = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    order = np.lexsort(rows.T)  # stable, so that a group of equal rows starts with the first of them
    starts = np.ones(len(order), bool)
    for begin in range(1, len(order), _BLOCK):
        ordered = rows[order[begin - 1 : begin + _BLOCK]]
        starts[begin : begin + _BLOCK] = (ordered[1:] != ordered[:-1]).any(axis=1)
    del rows
    digests.clear()
    leaders, group = order[starts], np.cumsum(starts)
    first = np.empty(len(order), np.int64)
    for begin in range(0, len(order), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        first[order[block]] = leaders[group[block] - 1]
    return first


class ListCorpus(Corpus):
    """Sentences that are in memory already."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self._sentences = [s for s in check_sentences(sentences) if s.strip()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sentences)

    def check_unchanged(self) -> None:
        """Check nothing: the list was copied."""

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
        if os.path.isdir(self.path):  # noqa: PTH112 - False, as below, if no file can have the name: it may be a text
            raise CorpusError(
                f"{str(self.path)!r} is a folder, not a corpus file; ensembed.corpora.open_corpus reads its files"
            )
        if not os.path.isfile(self.path):  # noqa: PTH113
            raise AbsentCorpusError(
                f"there is no corpus file {str(self.path)[:_SHOWN]!r}: give a text file with a sentence a line"
            )
        state = self._file.stat()
        self._state = state.st_size, state.st_mtime_ns

    def __iter__(self) -> Iterator[str]:
        return self.read_from()[0]

    def read_from(self, mark: Mark = START) -> tuple[Iterator[str], Callable[[], Mark] | None]:
        """Return the sentences from a byte of the text on."""
        lines = Lines(self._file, self._name, self._errors, start=mark[1])
        return filter(str.strip, lines), lambda: (0, lines.tell())

    def check_unchanged(self) -> None:
        """Raise a CorpusError if the file was written to since this object was made."""
        try:
            state = self._file.stat()
        except OSError as error:
            raise CorpusError(f"{self} cannot be read: {error}") from error
        if (state.st_size, state.st_mtime_ns) != self._state:
            raise CorpusError(f"{self} changed while it was being read; run again")

    def __str__(self) -> str:
        return self._name


def check_sentences(sentences: Iterable[str]) -> list[str]:
    """Return the sentences as a list, or raise a SentenceError that names the first one that cannot be encoded."""
    if not isinstance(sentences, list | tuple):
        sentences = _iterable_sentences(sentences)
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


def _iterable_sentences(sentences: Any) -> Iterable[str]:  # noqa: ANN401 - the input of a user
    """Return something to iterate over; raise a SentenceError where iterating would not give sentences in an order."""
    kind = type(sentences).__name__
    way_out = ""
    if isinstance(sentences, str) and os.path.isfile(sentences):  # noqa: PTH113 - False if no file can have the name
        raise SentenceError(f"expected a list of sentences, got the name of a file: write pathlib.Path({sentences!r})")
    if isinstance(sentences, str | bytes):
        raise SentenceError(f"expected a list of sentences, got one {kind}: write [text], or pathlib.Path(name)")
    if isinstance(sentences, Path):
        way_out = ": read it first, as in path.read_text().splitlines(); `fit` reads files itself"
    elif hasattr(sentences, "columns"):  # a DataFrame gives the names of its columns
        way_out = ": choose the column with the sentences, as in frame['text']"
    elif isinstance(sentences, Mapping):
        way_out = ": choose its values, as in list(texts.values())"
    elif isinstance(sentences, set | frozenset):
        way_out = ", which has no order: write sorted(texts), so that it is known which row belongs to which sentence"
    elif isinstance(sentences, np.ndarray):
        if sentences.ndim == 1:
            items: list[str] = sentences.tolist()  # its own strings are of another type
            return items
        way_out = f" of shape {sentences.shape}: sentences are in an array of one dimension"
    elif isinstance(sentences, Iterable):
        return sentences
    raise SentenceError(f"expected a list of sentences, got a {kind}{way_out}")


def shorten(value: object, limit: int = 80) -> str:
    """Return a printable form of any value with at most `limit` characters, for error messages."""
    text = ascii(value[:limit] if isinstance(value, str) else value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
