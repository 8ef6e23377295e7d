"""Torch's number of threads, which is one for the whole process, while models run beside each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Running:
    """Counts the blocks that run: the number of threads before the first of them is the one to go back to.

    Each block on its own would note the number that another has set, and leave it behind for ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._before = 0

    @contextmanager
    def using(self, torch: Any, threads: int) -> Iterator[None]:  # noqa: ANN401 - a module
        """Set the number of threads for a block."""
        with self._lock:
            if not self._blocks:
                self._before = torch.get_num_threads()
            self._blocks += 1
            torch.set_num_threads(threads)
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                # Not only by the last one: each thread of the process has a number of its own besides the common one.
                torch.set_num_threads(self._before)


using_threads = _Running().using
