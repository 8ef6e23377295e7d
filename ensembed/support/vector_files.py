"""Files of vectors with their sentences, in the form that the file's name says; `write_rows` writes `.npy`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TextIO

import numpy as np
from numpy.typing import NDArray

from ensembed.support.atomic_files import new_file
from ensembed.support.extras import import_extra
from ensembed.support.text_tables import csv_writer

# The header of a safetensors file is written when the number of rows is known, and padded with blanks to this length.
_HEADER_BYTES = 128


class VectorWriter(Protocol):
    """Takes the vectors of a file batch by batch."""

    def append(self, rows: NDArray[np.float32], sentences: Sequence[str]) -> None:
        """Add rows [m, dim] and their m sentences."""


@contextmanager
def write_vectors(path: Path, dim: int) -> Iterator[VectorWriter]:
    """Write a .csv, .tsv, .jsonl, .parquet or .safetensors file, which gets its name when the block ends without error.

    Tables have a column `sentence`, then `0`, `1`, …; JSON Lines and Parquet have `sentence` and `vector`; safetensors
    has the tensor `vectors` only.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "v.csv"
        >>> with write_vectors(path, dim=2) as writer:
        ...     writer.append(np.array([[0.5, 0.1]], np.float32), ["a dog"])
        >>> path.read_text().splitlines()
        ['sentence,0,1', 'a dog,0.5,0.1']
    """
    form = path.suffix.lower()
    with new_file(path, through_link=True) as temporary:
        if form == ".parquet":
            with _parquet(temporary, dim) as parquet:
                yield parquet
        elif form == ".safetensors":
            with temporary.open("wb") as binary:
                tensor = _Tensor(binary, dim)
                yield tensor
                tensor.finish()
        else:
            with temporary.open("w", encoding="utf-8", newline="") as text:
                yield _JsonLines(text) if form == ".jsonl" else _Table(text, dim, "\t" if form == ".tsv" else ",")


def _numbers(row: NDArray[np.float32]) -> list[float]:
    """Return the numbers with the fewest digits that give float32 back exactly."""
    return [float(str(number)) for number in row]


class _Table:
    def __init__(self, file: TextIO, dim: int, delimiter: str) -> None:
        self._table = csv_writer(file, delimiter)
        self._table.writerow(["sentence", *range(dim)])

    def append(self, rows: NDArray[np.float32], sentences: Sequence[str]) -> None:
        for sentence, row in zip(sentences, rows, strict=True):
            self._table.writerow([sentence, *_numbers(row)])


@dataclass
class _JsonLines:
    file: TextIO

    def append(self, rows: NDArray[np.float32], sentences: Sequence[str]) -> None:
        for sentence, row in zip(sentences, rows, strict=True):
            record = {"sentence": sentence, "vector": _numbers(row)}
            self.file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")


@dataclass
class _Tensor:
    file: BinaryIO
    dim: int
    rows: int = 0

    def __post_init__(self) -> None:
        self.file.write(bytes(8 + _HEADER_BYTES))

    def append(self, rows: NDArray[np.float32], sentences: Sequence[str]) -> None:  # noqa: ARG002 - it has numbers only
        self.file.write(np.ascontiguousarray(rows, "<f4").tobytes())
        self.rows += len(rows)

    def finish(self) -> None:
        """Write the header, now that the number of rows is known."""
        shape = [self.rows, self.dim]
        facts = {"vectors": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 * self.rows * self.dim]}}
        header = json.dumps(facts, separators=(",", ":")).encode().ljust(_HEADER_BYTES)
        self.file.seek(0)
        self.file.write(len(header).to_bytes(8, "little") + header)


@contextmanager
def _parquet(path: Path, dim: int) -> Iterator[VectorWriter]:
    pyarrow = import_extra("pyarrow", "parquet", "writing Parquet")
    parquet = import_extra("pyarrow.parquet", "parquet", "writing Parquet")
    columns = pyarrow.schema({"sentence": pyarrow.string(), "vector": pyarrow.list_(pyarrow.float32(), dim)})
    # Through a file of Python's own, whose errors say what the system said, such as that the disk is full.
    with path.open("wb") as binary, parquet.ParquetWriter(binary, columns) as file:
        yield _Parquet(pyarrow, file, columns)


@dataclass
class _Parquet:
    pyarrow: Any
    file: Any
    columns: Any

    def append(self, rows: NDArray[np.float32], sentences: Sequence[str]) -> None:
        numbers = self.pyarrow.array(np.ascontiguousarray(rows, np.float32).reshape(-1))
        vectors = self.pyarrow.FixedSizeListArray.from_arrays(numbers, rows.shape[1])
        texts = self.pyarrow.array(list(sentences), self.pyarrow.string())
        self.file.write_table(self.pyarrow.table([texts, vectors], schema=self.columns))
