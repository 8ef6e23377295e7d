"""What pins the weights of files on this machine: a hash over their names and bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from ensembed.errors import InputError
from ensembed.support.progress import Progress, silent

_BLOCK = 1 << 20


def revision_of(files: Mapping[str, Path], *, label: str = "hash", progress: Progress = silent) -> str:
    """A short hash over the names that files have in a model and over their content, wherever they are.

    Raises:
        InputError: a file cannot be read.
    """
    total = hashlib.sha256()
    try:
        size = sum(path.stat().st_size for path in files.values())
        done = 0
        for name, path in sorted(files.items()):
            digest = hashlib.sha256()
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
                    done += len(block)
                    progress(label, done, size)
            total.update(f"{name} {digest.hexdigest()}\n".encode())
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read: {error.strerror or error}") from error
    return total.hexdigest()[:16]
