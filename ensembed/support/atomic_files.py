"""Write files so that a name stands for the whole content or for nothing, by one process at a time.

After a power cut, too: a file is synced before it gets its name, and the folder afterwards. The folder's own name is
synced by `make_folder`. An error of the disk names the file; a full disk is a DiskFullError.
"""

from __future__ import annotations

import errno
import glob
import io
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from ensembed.errors import DiskFullError
from ensembed.support.progress import Progress

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file of ours under a temporary name beside `path`, sync it, and rename it, whatever has its name now."""
    write_all_atomically({path: data})


def write_output(path: Path, data: bytes) -> None:
    """Write a file that a user named; it may be a pipe, a device or a link, see `new_file`."""
    with new_file(path, through_link=True) as temporary:
        temporary.write_bytes(data)


def write_all_atomically(contents: Mapping[Path, bytes]) -> None:
    """Write several files; none gets its name before all of them are safely on the disk.

    They get their names in this order, each durably before the next. In between, some files are new and some are old:
    readers that need them together must be able to tell.
    """
    token = secrets.token_hex(4)  # two writers of one file must not share a temporary name
    temporaries = {path: path.with_name(f".{path.name}.{token}.tmp") for path in contents}
    try:
        for path, data in contents.items():
            temporaries[path].write_bytes(data)
            sync(temporaries[path])
        for path, temporary in temporaries.items():
            temporary.replace(path)
            sync(path.parent)
    except OSError as error:
        raise disk_error(error, path) from error
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)


@contextmanager
def new_file(path: Path, *, sync_name: bool = True, through_link: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path` to write to; it is synced and renamed when the block ends without error.

    Without `sync_name` the caller syncs the folder, once for many files, before it writes a file that names them. What
    cannot be replaced by a file (`/dev/null`, `/dev/stdout`, a pipe) is written to itself. A link is replaced, so that
    a folder of ours holds its own files. With `through_link`, for files that a user named, its target is.
    """
    if path.absolute().parent == Path("/dev") or (path.exists() and not path.is_file()):
        yield path
        return
    if through_link and path.is_symlink():
        path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
        if sync_name:
            sync(path.parent)
    except OSError as error:
        raise disk_error(error, path) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder beside `folder`, which replaces `folder` when the block ends without error.

    The block syncs its files, not its folders. The old folder is there until the new one is complete, and then both
    change places in one step. Where the system has no such step, a process that is killed between two renames leaves
    neither. What killed processes left is removed first, so hold a lock (`alone`) around this.
    """
    for leftover in folder.parent.glob(f".{glob.escape(folder.name)}.{'[0-9a-f]' * 8}.tmp"):
        _remove(leftover)
    temporary, old = (folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp") for _ in range(2))
    try:
        make_folder(temporary)
        yield temporary
        for path in (*temporary.rglob("*"), temporary):
            if path.is_dir():
                sync(path)
        if not (folder.exists() and _exchange(temporary, folder)):
            if folder.exists():
                folder.rename(old)
            temporary.rename(folder)
        sync(folder.parent)
    except OSError as error:
        raise disk_error(error, folder) from error
    finally:
        for path in (temporary, old):
            _remove(path)


def _remove(path: Path) -> None:
    """Remove a folder, or a link that stood in its place; what cannot be removed stays."""
    if path.is_symlink():
        with suppress(OSError):
            path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Let two folders change their names in one step; False if the system cannot: Linux can, on most file systems."""
    import ctypes

    try:
        exchange = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError, TypeError):  # another system, or an old one
        return False
    return bool(exchange(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _EXCHANGE) == 0)


def finish_switch(folder: Path, names: str, digests: Mapping[str, str]) -> None:
    """Finish, or undo, a write of files that count as soon as another file, which has their hashes, is replaced.

    Before that switch a new `NAME.EXT` is written as `NAME-HASH.EXT`, with 16 digits of its hash. Those that count get
    their plain names, others and temporary files are removed. Hold a lock around this.

    Args:
        folder: the folder with all these files.
        names: a pattern of their plain names; other files are left alone.
        digests: the hashes of the files that count, by plain name.
    """
    for path in list(folder.iterdir()):
        temporary = re.fullmatch(r"\.(.+)\.[0-9a-f]{8}\.tmp", path.name)
        name = temporary[1] if temporary else path.name
        new = re.fullmatch(r"(.+)-([0-9a-f]{16})(\.\w+)", name)
        plain = new[1] + new[3] if new else name
        if not (temporary or new) or not re.fullmatch(names, plain):
            continue
        if new and not temporary and digests.get(plain, "").startswith(new[2]):
            path.replace(folder / plain)
        else:
            path.unlink()
    sync(folder)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, and sync their names, without which no file in it lasts."""
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for path in missing:
            sync(path.parent)
    except OSError as error:
        raise disk_error(error, folder) from error


def disk_error(error: OSError, path: Path) -> OSError:
    """Return an error of the disk that names a file, as those of `write` do not; a DiskFullError for a full disk."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        place, problem = path.absolute(), os.strerror(error.errno)
        return DiskFullError(f"{place} cannot be written: {problem}; free space on the disk of {place.parent}")
    return error if error.filename or error.errno is None else OSError(error.errno, error.strerror, str(path))


def why_not_writable(folder: Path, is_own: Callable[[Path], bool] | None = None) -> str | None:
    """Return why files cannot be written to a folder, which need not exist yet, or None; nothing is created.

    With `is_own`, a folder that is not empty must be one that this function knows: files of other origin stay apart.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        return f"{existing} is not a folder; name another"
    if not os.access(existing, os.W_OK):
        return f"{existing} is not writable; name another folder, or change its rights"
    if is_own is not None and folder.exists():
        other = next((path.name for path in folder.iterdir() if not path.name.startswith(".")), None)
        if other is not None and not is_own(folder):
            return f"it holds other files, {other} for instance; name a new folder"
    return None


def why_not_replaceable(folder: Path, is_own: Callable[[Path], bool]) -> str | None:
    """Return why `new_folder` cannot write or replace a folder, or None; as `why_not_writable`."""
    if Path.cwd().is_relative_to(folder.resolve()):
        return "it would be replaced as a whole, and the current folder is in it; name a new folder"
    return why_not_writable(folder, is_own)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable; systems that cannot open folders skip those."""
    if os.name == "posix" or not path.is_dir():
        descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def alone(lock: Path, what: str, progress: Progress) -> Iterator[None]:
    """Hold a lock file; the system releases it when a process dies. `what` names what another process may be doing."""
    make_folder(lock.parent)
    held = FileLock(lock)
    try:
        held.acquire(timeout=0)
    except Timeout:
        waiting = f"waiting for another {what}"
        progress(waiting, 0, None)
        held.acquire()
        progress(waiting, 1, 1)
    except OSError as error:
        raise disk_error(error, lock) from error
    try:
        yield
    finally:
        held.release()


def npy_header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    """Return the bytes before the data in the `.npy` file of an array, which are the same every time."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": dtype, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


@dataclass
class RowWriter:
    """Appends rows to an open `.npy` file and counts them; `write_rows` makes it."""

    file: BinaryIO
    dim: int
    rows: int = 0

    def append(self, rows: NDArray[np.float32], sentences: Sequence[str] = ()) -> None:  # noqa: ARG002 - see below
        """Add rows [m, dim]; their sentences, which `write_vectors` writes beside them, have no place in the file."""
        if self.file.closed:
            raise ValueError("rows are appended inside the with block")
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
    with new_file(path, through_link=True) as temporary, temporary.open("wb") as file:
        writer = RowWriter(file, dim)
        file.write(npy_header((0, dim)))
        yield writer
        file.seek(0)
        file.write(npy_header((writer.rows, dim)))  # as long as the first one: numpy leaves room to grow
