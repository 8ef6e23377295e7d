"""Files of texts: a line a text, CSV, or JSON Lines, plain or gzipped, read as a stream."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

from ensembed.corpus import BadBytes, read_lines, shorten
from ensembed.errors import CorpusError

FileFormat: TypeAlias = Literal["text", "csv", "tsv", "jsonl"]

_ENDINGS: Mapping[str, FileFormat] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@dataclass(frozen=True)
class Record:
    """One text of a file; `id` is None where the file names no column for it."""

    text: str
    id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordFile:
    """A file of texts and how it is read.

    Attributes:
        source: the file, or an open binary stream.
        name: what errors call it.
        format: None goes by the ending of the name; what has none that is known is text.
        text_column: of CSV and JSON: what is found.
        id_column: of CSV and JSON: what rows are called; the others are kept as metadata.
        errors: what to do with bytes that are not UTF-8.
    """

    source: Path | BinaryIO
    name: str
    format: FileFormat | None = None
    text_column: str = "text"
    id_column: str | None = None
    errors: BadBytes = "strict"

    @property
    def kind(self) -> FileFormat:
        """The format, found out if need be."""
        ending = Path(self.name.removesuffix(".gz")).suffix.lower()
        return self.format or _ENDINGS.get(ending, "text")

    def __iter__(self) -> Iterator[Record]:
        """The records from the start, blank ones too."""
        lines = read_lines(self.source, name=self.name, errors=self.errors)
        if self.kind == "text":
            if self.id_column is not None:
                raise CorpusError(f"{self.name} is read as text, a line a row: it has no column {self.id_column!r}")
            return (Record(line) for line in lines)
        return self._json(lines) if self.kind == "jsonl" else self._table(lines)

    def key(self) -> str | None:
        """A hash of the bytes and of how they are read; None for a stream, which cannot be read twice.

        Raises:
            CorpusError: the file cannot be read.
        """
        if not isinstance(self.source, Path):
            return None
        digest = hashlib.sha256(json.dumps([self.kind, self.text_column, self.id_column, self.errors]).encode())
        try:
            with self.source.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        except OSError as error:
            raise CorpusError(f"{self.name} cannot be read: {error.strerror or error}") from error
        return digest.hexdigest()[:32]

    def _json(self, lines: Iterator[str]) -> Iterator[Record]:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                yield Record("")
                continue
            try:
                found = json.loads(line, parse_constant=_no_number)
            except (ValueError, RecursionError) as error:
                raise CorpusError(f"{self.name}, line {number} is no JSON: {error}") from None
            if not isinstance(found, dict):
                raise CorpusError(f"{self.name}, line {number} is no JSON object: {shorten(line)}")
            yield self._record(found, number)

    def _table(self, lines: Iterator[str]) -> Iterator[Record]:
        # csv wants the ends of lines, which may stand inside quotes.
        reader = csv.reader((line + "\n" for line in lines), delimiter="\t" if self.kind == "tsv" else ",", strict=True)
        try:
            header = next(reader, None)
            if header is None:
                return
            if len(set(header)) < len(header):
                twice = next(name for name in header if header.count(name) > 1)
                raise CorpusError(f"{self.name}: the header names the column {twice!r} twice")
            for cells in reader:
                if not cells:
                    yield Record("")
                    continue
                if len(cells) != len(header):
                    raise CorpusError(
                        f"{self.name}, line {reader.line_num}: {len(cells)} cells instead of {len(header)}, which the "
                        "first line names"
                    )
                yield self._record(dict(zip(header, cells, strict=True)), reader.line_num)
        except csv.Error as error:
            raise CorpusError(f"{self.name}, line {reader.line_num} is no {self.kind.upper()}: {error}") from None

    def _record(self, found: dict[str, Any], number: int) -> Record:
        place = f"{self.name}, line {number}"
        for option, column in (("--text-column", self.text_column), ("--id-column", self.id_column)):
            if column is not None and column not in found:
                names = ", ".join(map(repr, found)) or "none"
                raise CorpusError(f"{place}: there is no column {column!r} ({option}); there are {names}")
        text = found.pop(self.text_column)
        if not isinstance(text, str):
            raise CorpusError(f"{place}: {self.text_column!r} is no string but {shorten(text)}")
        id_ = None
        if self.id_column is not None:
            # A file whose texts are its ids keeps them as both.
            value = text if self.id_column == self.text_column else found.pop(self.id_column)
            if not isinstance(value, (str, int)) or isinstance(value, bool) or value == "":
                raise CorpusError(f"{place}: {self.id_column!r} is no id but {shorten(value)}")
            id_ = str(value)
        return Record(text, id_, found)


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is no number that JSON knows")
