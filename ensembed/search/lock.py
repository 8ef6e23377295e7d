"""One writer at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ensembed.errors import IndexBusyError, SearchIndexError


@contextmanager
def held(lock: FileLock, folder: Path, wait: float) -> Iterator[None]:
    """Hold the lock of an index, or an IndexBusyError; the system releases it when a process dies."""
    try:
        lock.acquire(timeout=wait)
    except Timeout:
        raise IndexBusyError(
            f"another process is writing to {folder}; wait for it, or give it time with wait=SECONDS (--wait)"
        ) from None
    except OSError as error:
        raise SearchIndexError(f"{folder} cannot be written to: {error}") from error
    try:
        yield
    finally:
        lock.release()
