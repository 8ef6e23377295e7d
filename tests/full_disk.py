"""A disk that is full from its n-th write on."""

from __future__ import annotations

import builtins
import errno
import io
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch


class FullDisk:
    """Raises what a full disk raises, at the n-th write below a folder and at every later one.

    Writes are new files and folders, bytes that a file passes to the system, and the sync of a file.

    Attributes:
        failed: whether a write has failed.
    """

    def __init__(self, root: Path, n: int) -> None:
        self.failed = False
        self._root = str(root)
        self._n, self._writes = n, itertools.count(1)

    def write(self, path: object = None) -> None:
        """Count a write; as the system does it, the error of a write to an open file has no name in it."""
        self.failed = next(self._writes) >= self._n
        if self.failed:
            name = () if path is None else (str(path),)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *name)

    def holds(self, path: object) -> bool:
        """Return whether a path is on this disk."""
        return isinstance(path, (str, os.PathLike)) and str(Path(path).absolute()).startswith(self._root)

    def open(self, file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **options: Any) -> Any:  # noqa: ANN401 - as the built-in
        """Open a file as `open` does; one that is opened for writing counts what it writes."""
        if not self.holds(file) or not set(mode) & set("wax+"):
            return _OPEN(file, mode, buffering, *rest, **options)
        if not Path(file).exists():
            self.write(file)
        raw = _Raw(file, mode.replace("b", "").replace("t", ""))
        raw.disk = self
        if buffering == 0:
            return raw
        buffer = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffer if "b" in mode else io.TextIOWrapper(buffer, *rest, **options)


class _Raw(io.FileIO):
    disk: FullDisk

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - a buffer
        self.disk.write()
        return super().write(data)


_OPEN, _MKDIR, _FSYNC = builtins.open, os.mkdir, os.fsync


@contextmanager
def full_disk(root: Path, n: int) -> Iterator[FullDisk]:
    """Make everything below a folder a disk that is full at its n-th write, until the end of the block."""
    disk = FullDisk(root, n)

    def mkdir(path: Any, *rest: Any, **options: Any) -> None:  # noqa: ANN401 - as os.mkdir
        if disk.holds(path) and not Path(path).exists():
            disk.write(path)
        _MKDIR(path, *rest, **options)

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        if disk.holds(path) and path.is_file():
            disk.write()

    with (
        patch.object(builtins, "open", disk.open),
        patch.object(io, "open", disk.open),
        patch.object(os, "mkdir", mkdir),
        patch.object(os, "fsync", fsync),
    ):
        yield disk
