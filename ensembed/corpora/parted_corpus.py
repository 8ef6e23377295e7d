"""A corpus in one file or several, of text, records or Parquet (which needs pyarrow), in any file system."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, get_args

from ensembed.corpora.corpus import (
    MARK_ROWS,
    START,
    URL,
    WAY_OUT,
    BadBytes,
    Corpus,
    FileFormat,
    FileKind,
    Lines,
    ListCorpus,
    Mark,
    TextCorpus,
    file_kind,
    has_content,
)
from ensembed.corpora.places import Place, State
from ensembed.corpora.record_files import RecordCorpus, RecordFile
from ensembed.errors import CorpusError, InputError
from ensembed.support.extras import import_extra

Reading: TypeAlias = tuple[Iterator[str], Callable[[], int]]
"""Sentences, and a function that returns the position of the next one; it must not be called after the end."""

# Rows unpacked at a time, and bytes of a column read at a time: a whole group of rows may be a whole file.
_BATCH = 4096
_BUFFER = 1 << 20


@dataclass(frozen=True)
class TextPart:
    """A file of text, plain or gzipped; positions are bytes of the text."""

    where: Place
    path: str
    errors: BadBytes

    def read(self, start: int = 0) -> Reading:
        """Return the sentences from that byte on."""
        lines = Lines(lambda: self.where.open(self.path), self.where.name_of(self.path), self.errors, start=start)
        return filter(str.strip, lines), lines.tell


@dataclass(frozen=True)
class ParquetPart:
    """A Parquet file; positions are its rows. A column of None means the only one of strings."""

    where: Place
    path: str
    errors: BadBytes
    column: str | None

    @property
    def name(self) -> str:
        """What errors call the file."""
        return self.where.name_of(self.path)

    def choose(self) -> str:
        """Open the file and return the column of the sentences."""
        with self._open() as (_, _, column):
            return column

    def read(self, start: int = 0) -> Reading:
        """Return the sentences from that row on."""
        position = start

        def texts() -> Iterator[str]:
            nonlocal position
            with self._open() as (pyarrow, file, column):
                groups, row = _groups_from(file.metadata, start)
                if not groups:
                    return
                try:
                    for batch in file.iter_batches(_BATCH, row_groups=groups, columns=[column], use_threads=False):
                        values = _as_bytes(pyarrow, batch.column(0))
                        skipped = min(max(start - row, 0), len(values))
                        row += skipped
                        for value in values[skipped:]:
                            row += 1
                            if value is not None:
                                position = row
                                yield value.decode("utf-8", self.errors)
                except UnicodeDecodeError as error:
                    place = f"{self.name}, row {row - 1} of column {column!r}: byte {error.start}"
                    raise CorpusError(f"{place} (0x{error.object[error.start]:02x}) is not UTF-8; {WAY_OUT}") from None

        return filter(str.strip, texts()), lambda: position

    @contextmanager
    def _open(self) -> Iterator[tuple[Any, Any, str]]:
        """Yield pyarrow, the file, and the column of the sentences."""
        pyarrow = import_extra("pyarrow", "parquet", "reading Parquet")
        parquet = import_extra("pyarrow.parquet", "parquet", "reading Parquet")
        try:
            with (
                self.where.open(self.path) as stream,
                parquet.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False) as file,
            ):
                yield pyarrow, file, self._chosen(pyarrow, file.schema_arrow)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise CorpusError(f"{self.name} is not a whole Parquet file: {error}; get it again") from None

    def _chosen(self, pyarrow: Any, schema: Any) -> str:  # noqa: ANN401 - pyarrow has no types of its own
        column = self.column
        texts = [field.name for field in schema if _is_text(pyarrow, field.type)]
        have = f"it has {_some(schema.names)}" if schema.names else "it has none"
        if column is None:
            if len(texts) == 1:
                return str(texts[0])
            if not texts:
                raise CorpusError(f"{self.name} has no column of strings; {have}")
            raise CorpusError(
                f"{self.name} has {len(texts)} columns of strings: {_some(texts)}; say which holds the sentences "
                "(column=…, --text-column)"
            )
        if schema.names.count(column) > 1:
            raise CorpusError(f"{self.name} has {schema.names.count(column)} columns {column!r}; name them apart")
        if column not in schema.names:
            raise CorpusError(f"{self.name} has no column {column!r}; {have}")
        if column not in texts:
            others = f"; these do: {_some(texts)}" if texts else ""
            kind = schema.field(column).type
            raise CorpusError(f"column {column!r} of {self.name} holds {kind} and not strings{others}")
        return column


@dataclass(frozen=True)
class RecordPart:
    """A file of CSV, TSV or JSON Lines; positions are its records."""

    where: Place
    path: str
    errors: BadBytes
    format: FileFormat
    column: str

    def read(self, start: int = 0) -> Reading:
        """Return the texts from that record on."""
        position = start

        def texts() -> Iterator[str]:
            nonlocal position
            with self.where.open(self.path) as stream:
                file = RecordFile(stream, self.where.name_of(self.path), self.format, self.column, errors=self.errors)
                for record in itertools.islice(file, start, None):
                    position += 1
                    yield record.text

        return filter(str.strip, texts()), lambda: position


Part: TypeAlias = TextPart | ParquetPart | RecordPart


class PartedCorpus(Corpus):
    """The sentences of several files, one file after the other, as if they were one."""

    def __init__(self, place: Place, files: Mapping[str, State], parts: Sequence[Part]) -> None:
        self._place = place
        self._files = dict(files)
        self._parts = tuple(parts)
        self._looks: dict[str, State | None] = {}

    def __iter__(self) -> Iterator[str]:
        return self.read_from()[0]

    def read_from(self, mark: Mark = START) -> tuple[Iterator[str], Callable[[], Mark] | None]:
        """Return the sentences from a position in a part on."""
        first, start = mark
        number = first
        tell: Callable[[], int] = lambda: start  # noqa: E731 - `sentences` replaces it

        def sentences() -> Iterator[str]:
            nonlocal number, tell
            for number in range(first, len(self._parts)):
                texts, tell = self._parts[number].read(start if number == first else 0)
                yield from texts

        return sentences(), lambda: (number, tell())

    def check_unchanged(self) -> None:
        """Raise a CorpusError if a file was changed or removed; one that was added since is not read."""
        now = self._place.files()
        for path, state in self._files.items():
            if path not in now:
                raise CorpusError(f"{self._place.name_of(path)} is no longer there; run again")
            if now[path] != state:
                raise CorpusError(f"{self._place.name_of(path)} changed while it was being read; run again")

    def check_rows(self, start: int, stop: int, /) -> None:
        """Check the files of these rows only; where one of them looks changed, all are listed to make sure."""
        looks = {path: self._look(path) for path in self._paths(start, stop)}
        for path, look in looks.items():
            # Some file systems write times differently in a listing and for one file: these are listed once.
            if look is None or not (set(self._files[path]) <= set(look) or look == self._looks.get(path)):
                self.check_unchanged()
                self._looks |= looks  # taken before the check, so of files that were unchanged
                return

    def _paths(self, start: int, stop: int) -> list[str]:
        """Return the files that hold these rows, and perhaps some next to them: marks are not exact to the row."""
        paths, brief = list(self._files), self._known()
        if brief is None:
            return paths
        after = -(-stop // MARK_ROWS)
        last = brief.marks[after, 0] if after < len(brief.marks) else len(paths)
        return paths[brief.marks[start // MARK_ROWS, 0] : last + 1]

    def _look(self, path: str) -> State | None:
        try:
            return self._place.state(path)
        except CorpusError:
            return None

    def __str__(self) -> str:
        return str(self._place)


def _groups_from(metadata: Any, row: int) -> tuple[list[int], int]:  # noqa: ANN401 - pyarrow has no types of its own
    """Return the groups of rows from the one that holds the row on, and the first row of that group."""
    first = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if row < first + rows:
            return list(range(group, metadata.num_row_groups)), first
        first += rows
    return [], first


def _is_text(pyarrow: Any, kind: Any) -> bool:  # noqa: ANN401 - pyarrow has no types of its own
    types = pyarrow.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _as_bytes(pyarrow: Any, texts: Any) -> list[bytes | None]:  # noqa: ANN401 - pyarrow has no types of its own
    """Return the texts as bytes, which need not be UTF-8."""
    if pyarrow.types.is_dictionary(texts.type):
        texts = texts.dictionary_decode()
    values: list[bytes | None] = texts.cast(pyarrow.large_string()).cast(pyarrow.large_binary()).to_pylist()
    return values


def _some(names: list[str], most: int = 12) -> str:
    return ", ".join(map(repr, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def open_corpus(
    source: str | Path,
    *,
    errors: BadBytes = "strict",
    column: str | None = None,
    file_format: FileFormat | None = None,
    id_column: str | None = None,
    name: str | None = None,
) -> Corpus:
    """Open the corpus in a file, in the files of a folder, or in those that a pattern such as `news/*.parquet` matches.

    A file is plain or gzipped text with a sentence a line, CSV or TSV with a header, JSON Lines, or Parquet, where
    blank texts and nulls are left out too. The ending of its name says which, else its first lines.
    Several files are read in the order of their paths, all in the same way; in a folder, files whose names begin with
    a dot or an underscore are skipped. The same sentences have the same key wherever they are read from.

    Args:
        source: a path, or a URL of any protocol that fsspec knows, such as s3://bucket/news/*.parquet.
        errors: what to do with bytes that are not UTF-8: "strict" refuses them, "replace" puts U+FFFD.
        column: the column that holds the sentences; by default `text`, and of Parquet the only one of strings.
        file_format: the format, if it is not to be found out: "text", "csv", "tsv" or "jsonl".
        id_column: the column of the ids of records, in one local file.
        name: what errors call it; by default the source, without what may be a secret.

    Raises:
        CorpusError: there is nothing there, or it is no corpus.
        MissingError: a package is missing: pyarrow, or the one for the protocol.
    """
    if not str(source):
        raise CorpusError("a corpus is a file, a folder, a pattern or a URL, not ''")
    if file_format is not None and file_format not in get_args(FileFormat):
        raise InputError(f"file_format is one of {', '.join(get_args(FileFormat))}, not {file_format!r}")
    shown = name or str(source)
    kind: FileKind | None = file_format
    if isinstance(source, str) and URL.match(source):
        place = Place.remote(source, name)
    else:
        path = Path(source)
        there = os.path.exists(path)  # noqa: PTH110 - False if no file can have the name
        is_pattern = not there and any(c in str(source) for c in "*?[")
        if not is_pattern and not (there and path.is_dir()):
            kind = kind or file_kind(path, shown, column)
            if kind == "text":
                if there and (wrong := column if id_column is None else id_column) is not None:
                    raise CorpusError(
                        f"{shown} is read as text, a line a row, and has no column {wrong!r}: leave it out, or say "
                        "what the file is (file_format=…, --format)"
                    )
                return TextCorpus(path, errors=errors, name=name)
            if kind != "parquet":
                return RecordCorpus(
                    RecordFile(path, shown, kind, "text" if column is None else column, id_column, errors)
                )
        place = Place.local(path, name)
    if id_column is not None:
        raise CorpusError(
            f"{shown}: ids (`id_column`, --id-column) are for one file of CSV, TSV or JSON Lines; leave them out"
        )
    return _parted(place, errors, column, kind)


def as_corpus(source: Corpus | Path | Iterable[str]) -> Corpus:
    """Return a corpus from a corpus, a path (`open_corpus`), or a list of sentences."""
    if isinstance(source, Corpus):
        return source
    return open_corpus(source) if isinstance(source, Path) else ListCorpus(source)


def _parted(place: Place, errors: BadBytes, column: str | None, kind: FileKind | None) -> PartedCorpus:
    if errors not in get_args(BadBytes):
        raise InputError(f"errors is 'strict' or 'replace', not {errors!r}")
    files = place.files()
    paths = list(files)
    kind = kind or _common_kind(place, paths, column)
    if kind == "text":
        if column is not None:
            raise CorpusError(f"{place} is text and has no columns: leave out the column {column!r}")
        return PartedCorpus(place, files, [TextPart(place, path, errors) for path in paths])
    if kind != "parquet":
        texts = "text" if column is None else column
        return PartedCorpus(place, files, [RecordPart(place, path, errors, kind, texts) for path in paths])
    # The first file tells the column now, not after hours of work; the other files must have it.
    chosen = ParquetPart(place, paths[0], errors, column).choose()
    return PartedCorpus(place, files, [ParquetPart(place, path, errors, chosen) for path in paths])


def _common_kind(place: Place, paths: Sequence[str], column: str | None) -> FileKind:
    """Return the format of files by their names, or else by the content of the first that has any."""
    named = {file_kind(None, path): path for path in reversed(paths)}
    if len(named) > 1:
        examples = " and ".join(place.name_of(path) for path in list(named.values())[:2])
        raise CorpusError(
            f"{place} holds files of several formats, {examples} for instance; say which are meant with a pattern, "
            "such as 'news/*.parquet'"
        )
    [kind] = named
    for path in paths if kind == "text" else ():
        with place.open(path) as stream:
            if has_content(stream):  # programs that write parts leave some of them empty
                return file_kind(stream, place.name_of(path), column)
    return kind
