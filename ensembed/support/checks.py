"""Checks that several rooms make, of arguments and of files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from ensembed.errors import InputError
from ensembed.support.file_limits import open_regular


def check_whole(name: str, value: object, least: int) -> None:
    """Raise an InputError if a hyper-parameter is not a whole number of at least `least`."""
    if not (isinstance(value, (int, np.integer)) and value >= least):
        raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")


def sha256_of(path: Path, prefix: bytes = b"") -> str:
    """Return the SHA-256 of some bytes and the file's content after them, in hexadecimal."""
    digest = hashlib.sha256(prefix)
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
