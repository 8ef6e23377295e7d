"""One process at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ensembed.support.progress import Progress


@contextmanager
def alone(lock: Path, what: str, progress: Progress) -> Iterator[None]:
    """Hold a lock file; the system releases it when a process dies.

    Args:
        lock: the file, in a folder that is made.
        what: what another process may be doing, for the progress of waiting for it.
        progress: told of the wait, if there is one.
    """
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
