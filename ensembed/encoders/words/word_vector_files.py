"""Read files of word vectors as a stream: GloVe's, word2vec's and fastText's text, word2vec's binary, wink's JSON.

| format | a file looks like |
| --- | --- |
| `glove` | lines `word v1 … vd`; the words of some files have spaces in them |
| `word2vec`, `fasttext` | a line `n d`, then such lines |
| `word2vec-bin` | a line `n d`, then n times: word, space, d float32 |
| `wink` | a JSON object whose `vectors` maps words to arrays: the numbers, their length, the word's rank |

Words are bytes, since some files hold words that were cut in the middle of a character; no text has these.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import shorten
from ensembed.errors import EncoderError, InputError
from ensembed.support.file_limits import (
    JSON_VALUES,
    LARGEST_DIM,
    LINE_BYTES,
    STREAMED_VALUE,
    WORD_BYTES,
    LimitError,
    UnpackedGzip,
)
from ensembed.support.progress import Progress, silent

FORMATS = ("glove", "word2vec", "word2vec-bin", "fasttext", "wink")

Block: TypeAlias = tuple[list[bytes], NDArray[np.float32]]
_Row: TypeAlias = tuple[bytes, bytes]  # the word, and its numbers as float32

_BLOCK = 4096  # words
_READ = 1 << 20
_HEAD = 1 << 18
_PEEK = 100  # lines that tell how many numbers a line has
_HEADER = re.compile(rb"(\d{1,12})[ \t](\d{1,7})[ \t\r]*")


def detect_format(path: Path) -> str:
    """Return the format of a file, plain or gzipped, by its content: `glove`, `word2vec`, `word2vec-bin` or `wink`."""
    with _opened(path) as (file, _):
        head = file.read(_HEAD)
    if not head.strip():
        raise EncoderError(f"{path} is empty: it holds no word vectors")
    if head.startswith(b"PK\x03\x04"):
        raise EncoderError(f"{path} is a zip archive; unpack it and name the file of vectors in it")
    if head.startswith(b"\xba\x16\x4f\x2f"):
        raise EncoderError(f"{path} is a fastText model (.bin); we read its vectors as text: name its .vec file")
    if re.match(rb'(\xef\xbb\xbf)?\s*\{\s*"', head):
        return "wink"
    first, _, rest = head.partition(b"\n")
    if not _HEADER.fullmatch(first):
        return "glove"
    # The bytes of float32 numbers hardly ever spell numbers. The last field may be cut off.
    fields = rest.partition(b"\n")[0].rstrip(b"\r ").split(b" ")[1:]
    return "word2vec" if fields and all(map(_is_number, fields[:-1] or fields)) else "word2vec-bin"


def read_word_vectors(path: Path, format: str, *, progress: Progress = silent) -> Iterator[Block]:  # noqa: A002 - what the option is called
    """Yield the words of a file, plain or gzipped, in blocks: a list of words as bytes, and their vectors [words, d].

    A file that cannot be read raises an InputError; one that is damaged or of another format an EncoderError.
    """
    if format not in FORMATS:
        raise InputError(f"there is no format {format!r} of word vectors; there are: {', '.join(FORMATS)}")
    label = f"convert {path.name}"
    with _opened(path) as (file, raw):
        size = os.fstat(raw.fileno()).st_size
        rows, expected = _rows(file, path, format)
        count = 0
        while block := list(islice(rows, _BLOCK)):
            words = [word for word, _ in block]
            numbers = np.frombuffer(b"".join(row for _, row in block), "<f4" if format == "word2vec-bin" else "=f4")
            vectors = numbers.reshape(len(words), -1).astype(np.float32)
            if not (finite := np.isfinite(vectors).all(axis=1)).all():
                bad = int(np.argmin(finite))
                word = f"word {count + bad + 1}, {_shown(words[bad])}"
                raise EncoderError(f"{path}: the vector of {word}, holds NaN or Inf")
            count += len(words)
            progress(label, min(raw.tell(), size - 1), size)
            yield words, vectors
        if expected not in (None, count):
            raise EncoderError(f"{path} has {count} words, but says that they are {expected}: get it again")
    if not count:
        raise EncoderError(f"{path} holds no word vectors")
    progress(label, size, size)


def _rows(file: BinaryIO, path: Path, format: str) -> tuple[Iterator[_Row], int | None]:  # noqa: A002 - what the option is called
    """Return the rows of a file, and how many it says that it has."""
    if format == "wink":
        return _wink_rows(_JsonStream(file, path))
    if format == "glove":
        lines = _lines(file, path)
        head = list(islice(lines, _PEEK))
        # The most common number: a word with a space in it has more fields, a torn line fewer.
        counts = Counter(line.count(b" ") for _, line in head)
        dim = counts.most_common(1)[0][0] if counts else 0
        if dim < 1:
            raise EncoderError(f"{path} is not a file of word vectors: its lines are not words with numbers after them")
        return _text_rows(chain(head, lines), dim, path), None
    header = _HEADER.fullmatch(file.readline(WORD_BYTES).removesuffix(b"\n"))
    if not header or not int(header[2]):
        raise EncoderError(f"{path} does not begin with the line `words dimensions`: it is not in the format {format}")
    count, dim = int(header[1]), int(header[2])
    if format == "word2vec-bin":
        return _binary_rows(file, count, dim, path), count
    return _text_rows(_lines(file, path, start=2), dim, path), count


def _lines(file: BinaryIO, path: Path, start: int = 1) -> Iterator[tuple[int, bytes]]:
    """Yield numbered lines without their ends, and no blank ones. fastText ends each with a space."""
    number = start
    while line := file.readline(LINE_BYTES):
        if len(line) == LINE_BYTES:
            raise EncoderError(f"{path}, line {number} is longer than {LINE_BYTES} bytes: it is no text of vectors")
        if line := (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).rstrip(b"\r\n "):
            yield number, line
        number += 1


def _text_rows(lines: Iterable[tuple[int, bytes]], dim: int, path: Path) -> Iterator[_Row]:
    for number, line in lines:
        word, *fields = line.rsplit(b" ", dim)
        try:
            row = array("f", map(float, fields))
        except ValueError:
            bad = next(field for field in fields if not _is_number(field))
            raise EncoderError(
                f"{path}, line {number}: {_shown(bad)} is not a number; the lines of this file have {dim} at their end"
            ) from None
        if len(fields) != dim:
            raise EncoderError(f"{path}, line {number} has {len(fields)} numbers where others have {dim}: it is torn")
        if b" " in word and _is_number(word.rpartition(b" ")[2]):
            raise EncoderError(f"{path}, line {number} has more than {dim} numbers, unlike the lines before it")
        yield word, row.tobytes()


def _binary_rows(file: BinaryIO, count: int, dim: int, path: Path) -> Iterator[_Row]:
    buffer, at, width = b"", 0, 4 * dim
    for number in range(1, count + 1):
        while (space := buffer.find(b" ", at, at + WORD_BYTES)) < 0 or len(buffer) < space + 1 + width:
            if space < 0 and len(buffer) - at > WORD_BYTES:
                raise EncoderError(f"{path}: word {number} of {count} has no end: the file is damaged")
            more = file.read(max(_READ, width))
            if not more:
                raise EncoderError(f"{path} ends in word {number} of {count}: it is torn, get it again")
            buffer, at = buffer[at:] + more, 0
        word = buffer[at:space].lstrip(b"\n")  # some programs end each vector with a newline, others do not
        at = space + 1 + width
        yield word, buffer[space + 1 : at]
    if (buffer[at:] + file.read(_READ)).strip(b"\n"):
        raise EncoderError(f"{path} goes on after its {count} words: it is not in the format word2vec-bin, or damaged")


class _JsonStream:
    """A JSON text that is read piece by piece: no more of it is in memory than the value that is being read."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path = file, path
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._decoder = json.JSONDecoder()
        self._text, self._at = "", 0

    def expect(self, characters: str) -> str:
        """Skip white space and the next character, which has to be one of these, and return it."""
        if (character := self._peek()) not in characters:
            raise self.error(f"{character!r} where {' or '.join(characters)} should be")
        self._at += 1
        return character

    def key(self) -> str:
        """Read a string and the colon behind it."""
        value = self.value()
        if not isinstance(value, str):
            raise self.error(f"{shorten(value)} where a string should be")
        self.expect(":")
        return value

    def value(self) -> Any:  # noqa: ANN401 - whatever JSON holds
        """Read a value."""
        self._peek()
        size = _READ
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except ValueError:
                end = len(self._text)
            except RecursionError:
                raise self.error("a value in it is nested too deeply") from None
            if end < len(self._text):  # a number that ends where the text does may go on
                self._at = end
                return value
            self._read(size)
            # Only here: values are small, and many fit into what is read at a time.
            if len(self._text) > STREAMED_VALUE + 2 * _READ or sum(map(self._text.count, ",[{")) > JSON_VALUES:
                raise self.error("a value in it is too large")
            size = min(2 * size, STREAMED_VALUE)  # so that a large value is tried a few times only

    def error(self, what: str) -> EncoderError:
        return EncoderError(f"{self._path} is not wink's JSON of word vectors: {what}")

    def _peek(self) -> str:
        while True:
            while self._at < len(self._text) and self._text[self._at] in " \t\r\n":
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            self._read(_READ)

    def _read(self, size: int) -> None:
        more = self._file.read(size)
        if not more:
            raise self.error("it ends too early, or a value in it is damaged")
        self._text, self._at = self._text[self._at :] + self._decode(more), 0


def _wink_rows(text: _JsonStream) -> tuple[Iterator[_Row], int]:
    facts: dict[str, int] = {}
    text.expect("{")
    while (key := text.key()) != "vectors":
        value = text.value()  # `words`, the list of all words, is in memory for a moment
        if type(value) is int:
            facts[key] = value
        if text.expect(",}") == "}":
            raise text.error("it has no `vectors`")
    if not 0 < facts.get("dimensions", 0) <= LARGEST_DIM:
        raise text.error("it has no `dimensions` in front of its `vectors`, or senseless ones")
    if "size" not in facts:
        raise text.error("it has no `size` in front of its `vectors`")
    # Behind the numbers come the vector's length and the word's rank.
    width = facts["dimensions"] + sum(key in facts for key in ("l2NormIndex", "wordIndex"))
    return _wink_vectors(text, facts["dimensions"], width), facts["size"]


def _wink_vectors(text: _JsonStream, dim: int, width: int) -> Iterator[_Row]:
    separator = text.expect("{")
    while separator != "}":
        word, value = text.key(), text.value()
        try:
            row = array("f", value[:dim]) if isinstance(value, list) and len(value) == width else None
        except (TypeError, OverflowError):
            row = None
        if row is None:
            raise text.error(f"{shorten(word)} has {shorten(value)} where {width} numbers should be")
        separator = text.expect(",}")
        yield word.encode("utf-8", "surrogatepass"), row.tobytes()


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Yield the unpacked bytes of the file, and the file itself; errors name it."""
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            file: Any = io.BufferedReader(UnpackedGzip(raw), _READ) if zipped else raw
            yield file, raw
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise EncoderError(f"{path} is not a whole gzip file: {error}; get it again") from error
    except LimitError as error:
        raise EncoderError(f"{path} holds no word vectors: {error}") from error
    except UnicodeDecodeError as error:
        raise EncoderError(f"{path} is not UTF-8: {error.reason} (0x{error.object[error.start]:02x})") from None
    except OSError as error:
        raise InputError(f"the word vectors {path} cannot be read: {error.strerror or error}") from error


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _shown(word: bytes) -> str:
    return shorten(word.decode("utf-8", "replace"))
