"""Matrices whose rows, read by a worker, bring trouble: workers import this module."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Trouble = Literal["kill", "always kill", "wait", "none"]


@dataclass(frozen=True, eq=False)
class _Rows:
    X: NDArray[Any]
    bad: int
    trouble: Trouble
    folder: Path
    driver: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.X.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.X.dtype


class FaultyRows(_Rows):
    """Rows that a worker reads.

    "kill" ends the process that reads the bad row first; "always kill" every one that does; "wait" says on which node
    the first reader is, which is not the driver's, and holds it there.
    """

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        start, stop, _ = rows.indices(len(self.X))
        if start <= self.bad < stop:
            self._trouble()
        return self.X[rows]

    def _trouble(self) -> None:
        import ray

        node = str(ray.get_runtime_context().get_node_id())
        if self.trouble == "wait" and node == self.driver:
            os.kill(os.getpid(), signal.SIGKILL)  # this node must not go: the next one, please
        count = len(list(self.folder.iterdir()))
        (self.folder / f"{count}-{os.getpid()}").write_text(node)
        if self.trouble == "always kill" or (self.trouble == "kill" and not count):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.trouble == "wait" and not count:
            time.sleep(60)


class Faulty(_Rows):
    """A matrix that is as it should be here, and FaultyRows elsewhere."""

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        return self.X[rows]

    def stretch(self, start: int, stop: int) -> FaultyRows:
        return FaultyRows(self.X[start:stop], self.bad - start, self.trouble, self.folder, self.driver)
