"""Writing files so that a name stands for the whole content or for nothing."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write to a temporary name beside `path`, sync, and rename."""
    write_all_atomically({path: data})


def write_all_atomically(contents: Mapping[Path, bytes]) -> None:
    """Write several files of one folder; nothing gets its name before everything is safely on the disk.

    Between the renames there is a moment in which some files are new and some old: whoever reads them together must be
    able to tell.
    """
    temporaries = {path: temporary_beside(path) for path in contents}
    try:
        for path, data in contents.items():
            with temporaries[path].open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        for path, temporary in temporaries.items():
            temporary.replace(path)
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
    for folder in {path.parent for path in contents}:
        sync_folder(folder)


def why_not_writable(folder: Path) -> str | None:
    """What stands against writing files to a folder that need not be there yet; nothing is made."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        return f"{there} is not a folder"
    return None if os.access(there, os.W_OK) else f"{there} is not writable"


def temporary_beside(path: Path) -> Path:
    """A name in the same folder that nobody else uses: two writers of one file must not share it."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def sync_folder(folder: Path) -> None:
    """Make a rename durable; on systems that cannot open folders the rename itself has to do."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
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
