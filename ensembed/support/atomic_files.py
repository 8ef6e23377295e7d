"""Write files so that a name stands for the whole content or for nothing, by one process at a time."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ensembed.support.progress import Progress


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file under a temporary name beside `path`, sync it, and rename it."""
    write_all_atomically({path: data})


def write_all_atomically(contents: Mapping[Path, bytes]) -> None:
    """Write several files of one folder; none gets its name before all of them are safely on the disk.

    Between the renames some files are new and some are old: readers that need them together must be able to tell.
    """
    temporaries = {path: _temporary_beside(path) for path in contents}
    try:
        for path, data in contents.items():
            temporaries[path].write_bytes(data)
            sync(temporaries[path])
        for path, temporary in temporaries.items():
            temporary.replace(path)
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
    for folder in {path.parent for path in contents}:
        sync(folder)


@contextmanager
def new_file(path: Path, *, sync_name: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path` to write to; it is synced and renamed when the block ends without error.

    The folder need not be synced (`sync_name`) where a file that is written later names this one.
    """
    temporary = _temporary_beside(path)
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if sync_name:
        sync(path.parent)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder beside `folder`, which replaces `folder` when the block ends without error.

    The block syncs the files that it writes. Temporary folders that a killed process left are removed first, so hold a
    lock (`alone`) around this.
    """
    for leftover in folder.parent.glob(f".{folder.name}.*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = _temporary_beside(folder)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync(folder.parent)


def why_not_writable(folder: Path) -> str | None:
    """Return why files cannot be written to a folder, which need not exist yet, or None; nothing is created."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        return f"{existing} is not a folder"
    return None if os.access(existing, os.W_OK) else f"{existing} is not writable"


def _temporary_beside(path: Path) -> Path:
    """Return an unused name in the same folder: two writers of one file must not share it."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable; systems that cannot open folders skip those."""
    if os.name == "posix" or not path.is_dir():
        descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal; the file may be larger than memory."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def alone(lock: Path, what: str, progress: Progress) -> Iterator[None]:
    """Hold a lock file; the system releases it when a process dies. `what` names what another process may be doing."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    held = FileLock(lock)
    try:
        held.acquire(timeout=0)
    except Timeout:
        waiting = f"waiting for another {what}"
        progress(waiting, 0, None)
        held.acquire()
        progress(waiting, 1, 1)
    try:
        yield
    finally:
        held.release()
