"""How much memory a piece of work takes at its peak."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType

_STATM = Path("/proc/self/statm")
# A matrix that lives shorter than this is not seen.
_EVERY_S = 0.005


class PeakMemory:
    """Watches the memory of this process between `with` and its end: `grown` says by how many bytes it rose.

    The system's own high-water mark never falls, so that it would hide a member behind a larger one before it. None
    where the system does not say how much memory a process has.

    Example:
        >>> with PeakMemory() as memory:
        ...     numbers = list(range(1000))
        >>> memory.grown is None or memory.grown >= 0
        True
    """

    def __init__(self) -> None:
        self.grown: int | None = None
        self._start = 0
        self._peak = 0
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        if _STATM.exists():
            self._start = self._peak = resident()
            self._watcher.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._watcher.ident is not None:
            self._watcher.join()
            self.grown = max(self._peak, resident()) - self._start

    def _watch(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self._peak = max(self._peak, resident())


def resident() -> int:
    """The bytes of this process that are in memory."""
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
