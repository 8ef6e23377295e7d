"""Write `.npy` files of float32 matrices row by row."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ensembed.support.atomic_files import new_file


def npy_header(rows: int, dim: int) -> bytes:
    """Return the bytes before the data in the `.npy` file of a float32 matrix."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": (rows, dim)})
    return buffer.getvalue()


@dataclass
class RowWriter:
    """Appends rows to an open `.npy` file and counts them; `write_rows` makes it."""

    file: BinaryIO
    dim: int
    rows: int = 0

    def append(self, rows: NDArray[np.float32]) -> None:
        """Add rows [m, dim]."""
        if rows.ndim != 2 or rows.shape[1] != self.dim:
            raise ValueError(f"rows of shape {rows.shape} do not fit a file of {self.dim} columns")
        self.file.write(np.ascontiguousarray(rows, "<f4").tobytes())
        self.rows += len(rows)


@contextmanager
def write_rows(path: Path, dim: int) -> Iterator[RowWriter]:
    """Write a `.npy` file whose number of rows is not known beforehand.

    The file gets its name when the block ends without error; otherwise nothing is left behind.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "rows.npy"
        >>> with write_rows(path, dim=2) as writer:
        ...     writer.append(np.ones((3, 2), np.float32))
        >>> np.load(path).shape
        (3, 2)
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder")
    with new_file(path) as temporary, temporary.open("wb") as file:
        writer = RowWriter(file, dim)
        file.write(npy_header(0, dim))
        yield writer
        file.seek(0)
        file.write(npy_header(writer.rows, dim))  # as long as the first one: numpy leaves room to grow
