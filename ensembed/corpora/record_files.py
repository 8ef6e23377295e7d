"""Files of records: a text a line, CSV, or JSON Lines, plain or gzipped; read as a stream, or written whole."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from ensembed.corpora.corpus import (
    START,
    WAY_OUT,
    BadBytes,
    Corpus,
    FileFormat,
    Mark,
    TextCorpus,
    file_kind,
    read_lines,
    shorten,
)
from ensembed.errors import CorpusError, InputError
from ensembed.support.atomic_files import new_file
from ensembed.support.checks import sha256_of
from ensembed.support.file_limits import CELL_CHARACTERS, JSON_VALUES, parse_json
from ensembed.support.text_tables import csv_writer

_CELL_LINES = 100  # of a cell in TSV at most
FORMS = ("csv", "jsonl")
"""The forms in which records are written."""


@dataclass(frozen=True)
class Record:
    """One text of a file.

    Attributes:
        text: what is encoded.
        id: None where the file names no column for it.
        metadata: the other columns.
        raw: the record as it stands in the file, without the end of its last line.
    """

    text: str
    id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    raw: str = ""


@dataclass(frozen=True)
class RecordFile:
    """A file of texts and how it is read.

    Attributes:
        source: the file, or an open binary stream.
        name: what errors call it.
        format: None finds it out (`file_kind`).
        text_column: of CSV and JSON: the texts.
        id_column: of CSV and JSON: the ids of rows; the other columns are kept as metadata.
        errors: what to do with bytes that are not UTF-8.
    """

    source: Path | BinaryIO
    name: str
    format: FileFormat | None = None
    text_column: str = "text"
    id_column: str | None = None
    errors: BadBytes = "strict"

    def __post_init__(self) -> None:
        if self.format is None:
            kind = file_kind(self.source, self.name, self.text_column)
            if kind == "parquet":
                raise CorpusError(f"{self.name} is Parquet, which cannot be read here: write it as JSON Lines")
            object.__setattr__(self, "format", kind)

    @property
    def kind(self) -> FileFormat:
        """The format."""
        return self.format or "text"

    def __iter__(self) -> Iterator[Record]:
        """Read the records from the start, blank ones too."""
        if self.kind == "text":
            if self.id_column is not None:
                raise CorpusError(f"{self.name} is read as text, a line a row: it has no column {self.id_column!r}")
            return (Record(line, raw=line) for line in self._lines())
        return self._json() if self.kind == "jsonl" else self._table()

    def header(self) -> str | None:
        """Return the first record of a table as it stands in the file; None if it is no table."""
        if self.kind not in ("csv", "tsv"):
            return None
        return next((raw for _, raw, _ in self._rows()), None)

    def key(self) -> str | None:
        """Return a hash of the bytes and of how they are read; None for a stream, which cannot be read twice."""
        if not isinstance(self.source, Path):
            return None
        settings = json.dumps([self.kind, self.text_column, self.id_column, self.errors])
        try:
            return sha256_of(self.source, settings.encode())[:32]
        except OSError as error:
            raise CorpusError(f"{self.name} cannot be read: {error.strerror or error}") from error

    def _lines(self) -> Iterator[str]:
        return read_lines(self.source, name=self.name, errors=self.errors, way_out=WAY_OUT)

    def _json(self) -> Iterator[Record]:
        for number, line in enumerate(self._lines(), 1):
            if not line.strip():
                yield Record("")
                continue
            try:
                value = parse_json(line.encode(), parse_constant=_refuse_constant)
            except ValueError as error:
                raise CorpusError(f"{self.name}, line {number} is no JSON: {error}") from None
            if not isinstance(value, dict):
                raise CorpusError(f"{self.name}, line {number} is no JSON object: {shorten(line)}")
            yield self._record(value, number, line)

    def _table(self) -> Iterator[Record]:
        rows = self._rows()
        _, _, header = next(rows, (0, "", None))
        if header is None:
            return
        if len(set(header)) < len(header):
            twice = next(name for name in header if header.count(name) > 1)
            raise CorpusError(f"{self.name}: the header names the column {twice!r} twice")
        for number, raw, cells in rows:
            if not cells:
                yield Record("")
                continue
            if len(cells) != len(header):
                others = (
                    " (are its cells separated by semicolons? write it with commas)"
                    if ";" in "".join(header[:1])
                    else ""
                )
                raise CorpusError(
                    f"{self.name}, line {number}: {len(cells)} cells instead of {len(header)}, which the first line "
                    f"names{others}"
                )
            yield self._record(dict(zip(header, cells, strict=True)), number, raw)

    def _rows(self) -> Iterator[tuple[int, str, Sequence[str]]]:
        """Read the rows of a table, the header first: the number of the last line, the lines, the cells."""
        if self.kind == "tsv":
            yield from _tsv_rows(self._lines(), self.name)
            return
        taken: list[str] = []

        def lines() -> Iterator[str]:
            for line in self._lines():
                taken.append(line)
                # A quote that is never closed makes one record of the rest of the file.
                if len(taken) + line.count(",") > JSON_VALUES:
                    raise csv.Error(f"a record has more than {JSON_VALUES:,} lines or cells")
                yield line + "\n"  # csv wants the ends of lines, which may stand inside quotes

        # The limit is one for the whole process, so it is only ever raised: other readers of CSV are not disturbed.
        # Python's own is 131,072, which a long article exceeds.
        if csv.field_size_limit() < CELL_CHARACTERS:
            csv.field_size_limit(CELL_CHARACTERS)
        reader = csv.reader(lines(), strict=True)
        try:
            for cells in reader:
                yield reader.line_num, "\n".join(taken), cells
                taken.clear()
        except csv.Error as error:
            raise CorpusError(f"{self.name}, line {reader.line_num} is no CSV: {error}") from None

    def _record(self, values: dict[str, Any], number: int, raw: str) -> Record:
        place = f"{self.name}, line {number}"
        for option, column in (
            ("column=…, --text-column", self.text_column),
            ("id_column=…, --id-column", self.id_column),
        ):
            if column is not None and column not in values:
                names = ", ".join(map(repr, values)) or "none"
                raise CorpusError(f"{place}: there is no column {column!r} ({option}); there are {names}")
        text = values.pop(self.text_column)
        if not isinstance(text, str):
            raise CorpusError(f"{place}: {self.text_column!r} is no string but {shorten(text)}")
        id_ = None
        if self.id_column is not None:
            # A file whose texts are its ids keeps them as both.
            value = text if self.id_column == self.text_column else values.pop(self.id_column)
            if not isinstance(value, (str, int)) or isinstance(value, bool) or value == "":
                raise CorpusError(f"{place}: {self.id_column!r} is no id but {shorten(value)}")
            id_ = str(value)
        try:
            f"{text}{id_}".encode()
        except UnicodeEncodeError:  # JSON can write it as \ud800
            raise CorpusError(f"{place} holds a lone surrogate, which is not text: {shorten(raw)}") from None
        return Record(text, id_, values, raw)


class RecordCorpus(TextCorpus):
    """The texts of a file of records (not of a stream: a corpus is read more than once) with their records."""

    def __init__(self, file: RecordFile) -> None:
        if not isinstance(file.source, Path):
            raise CorpusError(f"{file.name} can be read once only: keep it as a file first")
        super().__init__(file.source, errors=file.errors, name=file.name)
        # Another process may be in another folder.
        self.file = replace(file, source=file.source.absolute(), format=file.kind)

    def __iter__(self) -> Iterator[str]:
        return (record.text for record in self.records())

    def read_from(self, mark: Mark = START) -> tuple[Iterator[str], Callable[[], Mark] | None]:
        """Return the sentences from the start: inside a table nothing tells where a record begins."""
        return Corpus.read_from(self, mark)

    def records(self) -> Iterator[Record]:
        """Return the records whose text is not blank: row i is the i-th of them."""
        return (record for record in self.file if record.text.strip())


def records_of(corpus: Corpus) -> Iterator[Record]:
    """Return the sentences of a corpus as records; those of a file of records have their ids."""
    return corpus.records() if isinstance(corpus, RecordCorpus) else map(Record, corpus)


def has_ids(corpus: Corpus) -> bool:
    """Return whether the records of a corpus have ids."""
    return isinstance(corpus, RecordCorpus) and corpus.file.id_column is not None


def _tsv_rows(lines: Iterator[str], name: str) -> Iterator[tuple[int, str, Sequence[str]]]:
    """Read the rows of TSV, which has no quotes, or those of CSV: programs write both.

    Quotes around a whole cell are removed; the last cell of a line may go on in the next lines, up to its closing
    quote, if there is no tab on the way. Any other quote is a part of the text: it joins no rows.
    """
    number = 0
    ahead: deque[str] = deque()
    while (line := ahead.popleft() if ahead else next(lines, None)) is not None:
        number += 1
        cells, taken = line.split("\t"), [line]
        if len(cells) > JSON_VALUES:
            raise CorpusError(f"{name}, line {number} has more than {JSON_VALUES:,} cells")
        while cells[-1].startswith('"') and not _is_quoted(cells[-1]):
            more = _closing_lines(cells[-1], lines, ahead)
            if not more:
                break
            for _ in more:
                ahead.popleft()
            end, *others = more[-1].split("\t")
            cells[-1:] = ["\n".join([cells[-1], *more[:-1], end]), *others]
            taken += more
        number += len(taken) - 1
        yield number, "\n".join(taken), [_unquoted(cell) for cell in cells] if line else []


def _is_quoted(cell: str) -> bool:
    """Return whether quotes are around a cell, and those in it are doubled; a pattern takes 100 bytes a character."""
    return len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in cell[1:-1].replace('""', "")


def _closing_lines(cell: str, lines: Iterator[str], ahead: deque[str]) -> list[str]:
    """Return the next lines up to the one that closes the quote of a cell, or none; they stay in `ahead`."""
    more: list[str] = []
    while len(more) < _CELL_LINES:
        if len(ahead) == len(more):
            line = next(lines, None)
            if line is None:
                break
            ahead.append(line)
        more.append(ahead[len(more)])
        end, tab, _ = more[-1].partition("\t")
        if end.endswith('"') and _is_quoted("\n".join([cell, *more[:-1], end])):
            return more
        if tab:
            break
    return []


def _unquoted(cell: str) -> str:
    return cell[1:-1].replace('""', '"') if _is_quoted(cell) else cell


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no number that JSON knows")


def form_of(path: Path, form: str | None = None) -> str:
    """Return the form to write a file in: the given one, or the one of the file's ending, or raise an InputError."""
    chosen = form or Path(path.name.lower().removesuffix(".gz")).suffix.removeprefix(".")
    if chosen not in FORMS:
        raise InputError(
            f"{str(path)!r} ends neither in .csv nor in .jsonl: rename it, or say which it is (form=…, --out-format)"
        )
    return chosen


def write_records(records: Iterable[Mapping[str, Any]], fields: Sequence[str], file: TextIO, form: str) -> int:
    """Write records that have these fields as "csv", with a header, or as "jsonl", and return how many there were.

    In CSV true and false are written as 1 and 0, and lists with " | " between their items.
    """
    count = 0
    table = csv_writer(file)
    if form == "csv":
        table.writerow(fields)
    for record in records:
        count += 1
        if form == "csv":
            table.writerow([_cell(record[field]) for field in fields])
        else:
            file.write(json.dumps(dict(record), ensure_ascii=False, allow_nan=False) + "\n")
    return count


def _cell(value: Any) -> Any:  # noqa: ANN401 - whatever a record holds
    if isinstance(value, bool):
        return int(value)
    return " | ".join(map(str, value)) if isinstance(value, (list, tuple)) else value


@contextmanager
def new_text_file(path: Path) -> Iterator[TextIO]:
    """Open a UTF-8 file that gets its name when the block ends without error; otherwise nothing is left behind.

    It is gzipped if its name ends in .gz. The same text gives the same bytes: neither name nor time is in them.
    """
    try:
        with new_file(path, through_link=True) as temporary, temporary.open("wb") as binary, ExitStack() as stack:
            packed: Any = binary
            if path.suffix.lower() == ".gz":
                packed = stack.enter_context(gzip.GzipFile("", "wb", fileobj=binary, mtime=0))
            yield stack.enter_context(io.TextIOWrapper(packed, encoding="utf-8", newline=""))
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}; name another file") from error
