"""Sentences in a column of a Parquet file. It needs pyarrow: `pip install 'ensembed[parquet]'`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from ensembed.corpora.corpus import WAY_OUT, BadBytes, not_blank
from ensembed.corpora.parted_corpus import Part, Reading
from ensembed.corpora.places import Place
from ensembed.errors import CorpusError
from ensembed.support.extras import import_extra

_MAGIC = b"PAR1"  # the first and the last bytes
_SUFFIXES = (".parquet", ".parq", ".pq")
# Rows that are unpacked at a time, and bytes of a column that are read at a time: not a whole group of rows, which may
# be a whole file.
_BATCH = 4096
_BUFFER = 1 << 20


def named_like_parquet(path: str) -> bool:
    """Whether a file is called Parquet; a query after the name does not count."""
    return path.partition("?")[0].lower().endswith(_SUFFIXES)


def looks_like_parquet(stream: BinaryIO) -> bool:
    """Whether a file begins and ends as Parquet does: a text may begin so."""
    if stream.read(len(_MAGIC)) != _MAGIC:
        return False
    try:
        stream.seek(-len(_MAGIC), 2)
    except (OSError, ValueError):  # shorter than that, or it cannot be wound: then it cannot be read as Parquet either
        return False
    return stream.read(len(_MAGIC)) == _MAGIC


@dataclass(frozen=True)
class ParquetPart(Part):
    """A Parquet file; a place is a row of it.

    Attributes:
        where: where the file is.
        path: what it is called there.
        errors: what to do with texts that are not UTF-8.
        column: the column of the sentences; None is the only one of strings.
    """

    where: Place
    path: str
    errors: BadBytes
    column: str | None

    def choose(self) -> str:
        """The column, after a look at the file."""
        with ExitStack() as opened:
            return _Rows(self).open(opened)[1]

    def read(self, place: int = 0) -> Reading:
        """The sentences from that row on."""
        rows = _Rows(self, place)
        return not_blank(rows), rows.tell


@dataclass
class _Rows:
    """One pass over the texts, which knows how far it has come."""

    part: ParquetPart
    place: int = 0
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.part.where.name_of(self.part.path)

    def tell(self) -> int:
        """The row that comes next."""
        return self.place

    def __iter__(self) -> Iterator[str]:
        pyarrow = import_extra("pyarrow", "parquet", "reading Parquet")
        with ExitStack() as opened:
            file, column = self.open(opened)
            try:
                groups, row = _from_row(file.metadata, self.place)
                if not groups:
                    return
                for batch in file.iter_batches(_BATCH, row_groups=groups, columns=[column], use_threads=False):
                    texts = _as_bytes(pyarrow, batch.column(0))
                    begin = min(max(self.place - row, 0), len(texts))
                    row += begin
                    for text in texts[begin:]:
                        row += 1
                        if text is not None:
                            self.place = row
                            yield text.decode("utf-8", self.part.errors)
            except UnicodeDecodeError as found:
                where = f"{self.name}, row {row - 1} of column {column!r}: byte {found.start}"
                raise CorpusError(f"{where} (0x{found.object[found.start]:02x}) is not UTF-8; {WAY_OUT}") from None
            except (pyarrow.ArrowException, OSError) as found:
                raise CorpusError(f"{self.name} is not a whole Parquet file: {found}; get it again") from None

    def open(self, opened: ExitStack) -> tuple[Any, str]:
        """The file, and the column of the sentences."""
        pyarrow = import_extra("pyarrow", "parquet", "reading Parquet")
        parquet = import_extra("pyarrow.parquet", "parquet", "reading Parquet")
        stream = opened.enter_context(self.part.where.open(self.part.path))
        try:
            file = opened.enter_context(parquet.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False))
            schema = file.schema_arrow
        except (pyarrow.ArrowException, OSError) as found:
            raise CorpusError(f"{self.name} is not a whole Parquet file: {found}; get it again") from None
        return file, self._chosen(pyarrow, schema)

    def _chosen(self, pyarrow: Any, schema: Any) -> str:  # noqa: ANN401 - pyarrow has no types of its own
        column = self.part.column
        texts = [one.name for one in schema if _is_text(pyarrow, one.type)]
        have = f"it has {_some(schema.names)}" if schema.names else "it has none"
        if column is None:
            if len(texts) == 1:
                return str(texts[0])
            if not texts:
                raise CorpusError(f"{self.name} has no column of strings; {have}")
            raise CorpusError(
                f"{self.name} has {len(texts)} columns of strings: {_some(texts)}; say which holds the sentences "
                "(column=…, --column, --text-column of `dedupe` and `cluster`)"
            )
        if schema.names.count(column) > 1:
            raise CorpusError(f"{self.name} has {schema.names.count(column)} columns {column!r}; name them apart")
        if column not in schema.names:
            raise CorpusError(f"{self.name} has no column {column!r}; {have}")
        if column not in texts:
            kind = schema.field(column).type
            raise CorpusError(
                f"column {column!r} of {self.name} holds {kind} and not strings"
                + (f"; these do: {_some(texts)}" if texts else "")
            )
        return column


def _from_row(metadata: Any, place: int) -> tuple[list[int], int]:  # noqa: ANN401 - pyarrow has no types of its own
    """The groups of rows from the one that holds the row on, and the first row of that group."""
    first = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if place < first + rows:
            return list(range(group, metadata.num_row_groups)), first
        first += rows
    return [], first


def _is_text(pyarrow: Any, kind: Any) -> bool:  # noqa: ANN401 - pyarrow has no types of its own
    types = pyarrow.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _as_bytes(pyarrow: Any, texts: Any) -> list[bytes | None]:  # noqa: ANN401 - pyarrow has no types of its own
    """The texts as bytes, which may be other than UTF-8."""
    if pyarrow.types.is_dictionary(texts.type):
        texts = texts.dictionary_decode()
    found: list[bytes | None] = texts.cast(pyarrow.large_string()).cast(pyarrow.large_binary()).to_pylist()
    return found


def _some(names: list[str], most: int = 12) -> str:
    return ", ".join(map(repr, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")
