"""Writing `.npy` files of float32 matrices, whole or row by row."""

from __future__ import annotations

import io
import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ensembed.support.atomic_files import sync_folder, temporary_beside


def npy_header(rows: int, dim: int) -> bytes:
    """The bytes before the data in the `.npy` file of a float32 matrix."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": (rows, dim)})
    return buffer.getvalue()


class RowWriter:
    """Appends rows to a `.npy` file whose length is not known beforehand.

    The file gets its name when the block ends well; after an exception nothing is left behind.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "rows.npy"
        >>> with RowWriter(path, dim=2) as writer:
        ...     writer.append(np.ones((3, 2), np.float32))
        >>> np.load(path).shape
        (3, 2)
    """

    def __init__(self, path: Path, dim: int) -> None:
        self.rows = 0
        self._path = path
        self._temporary = temporary_beside(path)
        self._dim = dim
        self._file: BinaryIO | None = None

    def __enter__(self) -> RowWriter:
        if self._path.is_dir():
            raise IsADirectoryError(f"{self._path} is a folder")
        self._file = self._temporary.open("wb")
        self._file.write(npy_header(0, self._dim))
        return self

    def append(self, rows: NDArray[np.float32]) -> None:
        """Add rows [m, dim]."""
        if self._file is None:
            raise ValueError("append is called inside the with block")
        if rows.ndim != 2 or rows.shape[1] != self._dim:
            raise ValueError(f"rows of shape {rows.shape} do not fit a file of {self._dim} columns")
        self._file.write(np.ascontiguousarray(rows, "<f4").tobytes())
        self.rows += len(rows)

    def __exit__(self, kind: type[BaseException] | None, _error: object, _traceback: TracebackType | None) -> None:
        if self._file is None:
            return
        try:
            with self._file as file:
                if kind is None:
                    file.seek(0)
                    file.write(npy_header(self.rows, self._dim))  # as long as the first: numpy leaves room to grow
                    file.flush()
                    os.fsync(file.fileno())
            if kind is None:
                self._temporary.replace(self._path)
        finally:
            self._file = None
            self._temporary.unlink(missing_ok=True)
        sync_folder(self._path.parent)
