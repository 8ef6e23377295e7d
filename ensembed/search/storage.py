"""Writing and reading the files of an index: streamed, hashed on the way, and named when they are whole."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import DamagedIndexError
from ensembed.search.manifest import WAY_OUT, FileFacts
from ensembed.support.atomic_files import new_file

_BLOCK = 1 << 20


def write_blocks(path: Path, blocks: Iterable[bytes | memoryview]) -> FileFacts:
    """Write a file in pieces under a temporary name, sync and rename it.

    The folder is synced with the manifest, which comes last: before that nobody looks for the name.
    """
    digest, size = hashlib.sha256(), 0
    with new_file(path, sync_name=False) as temporary, temporary.open("wb") as file:
        for block in blocks:
            file.write(block)
            digest.update(block)
            size += len(block)
    return FileFacts(path.name, size, digest.hexdigest())


def write_npy(path: Path, shape: tuple[int, ...], dtype: str, blocks: Iterable[NDArray[Any]]) -> FileFacts:
    """Write an `.npy` file of that shape from stretches of its rows."""
    buffer = io.BytesIO()
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)

    def pieces() -> Iterable[bytes]:
        yield buffer.getvalue()
        for block in blocks:
            yield np.ascontiguousarray(block, dtype).tobytes()

    return write_blocks(path, pieces())


def facts_of(path: Path) -> FileFacts:
    """What a file that is there already has."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return FileFacts(path.name, size, digest.hexdigest())


def check_size(folder: Path, facts: FileFacts) -> Path:
    """The path of a file that is there and as long as it was; that it was not changed, only `check_bytes` tells."""
    path = folder / facts.name
    size = path.stat().st_size
    if size != facts.size:
        raise DamagedIndexError(f"{path} is damaged: it has {size} bytes instead of {facts.size}; {WAY_OUT}")
    return path


def check_bytes(folder: Path, facts: FileFacts) -> None:
    """Read a file whole and compare its hash."""
    path = folder / facts.name
    try:
        found = facts_of(path)
    except FileNotFoundError:
        raise DamagedIndexError(f"{path} is gone; {WAY_OUT}") from None
    except OSError as error:
        raise DamagedIndexError(f"{path} cannot be read: {error}; {WAY_OUT}") from error
    if found != facts:
        raise DamagedIndexError(f"{path} is damaged: its checksum does not fit; {WAY_OUT}")


def map_npy(folder: Path, facts: FileFacts, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """The array of an `.npy` file, memory-mapped; its shape must be what the manifest makes it."""
    path = check_size(folder, facts)
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DamagedIndexError(f"{path} is damaged: {error}; {WAY_OUT}") from error
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise DamagedIndexError(
            f"{path} is damaged: it holds {array.dtype} {array.shape} instead of {dtype} {shape}; {WAY_OUT}"
        )
    # A plain array over the same map: slicing np.memmap costs more than the product of a small block.
    return np.asarray(array)


def map_bytes(folder: Path, facts: FileFacts) -> NDArray[np.uint8]:
    """The bytes of a file, memory-mapped."""
    return np.asarray(np.memmap(check_size(folder, facts), np.uint8, mode="r"))
