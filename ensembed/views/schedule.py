"""Run the members of an ensemble one after the other or side by side, whichever is faster."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from ensembed.support.progress import Progress, silent

T = TypeVar("T")
Job: TypeAlias = Callable[[Progress], T]

# Up to this many sentences an encoder's fixed costs dominate, above it its speed. The better way may differ.
_FEW = 32
# Every so many runs the slower way is tried again.
_RETRY = 16


@dataclass
class Schedule:
    """Chooses between both ways by measuring them.

    Both are tried and timed, for few and for many sentences apart: the faster one depends on members and machine.

    Attributes:
        clock: returns the time in seconds.
        side_by_side: always run side by side, or never; None measures which is faster.
    """

    clock: Callable[[], float] = time.perf_counter
    side_by_side: bool | None = None
    _seconds: dict[tuple[bool, bool], float] = field(default_factory=dict)
    _runs: Counter[bool] = field(default_factory=Counter)

    def run(self, jobs: Sequence[Job[T]], sentences: int, progress: Progress = silent) -> list[T]:
        """Run the jobs and return their results. Each job reports to a progress, through which it is also stopped.

        Args:
            jobs: one per member.
            sentences: how many sentences each job encodes.
            progress: receives what the jobs report.
        """
        many = sentences > _FEW
        alone, together = self._seconds.get((many, False)), self._seconds.get((many, True))
        if len(jobs) < 2 or self.side_by_side is not None:
            side_by_side = len(jobs) > 1 and bool(self.side_by_side)
        elif alone is None or together is None:
            side_by_side = alone is not None
        else:  # the faster way, and every `_RETRY` runs the slower one
            self._runs[many] += 1
            side_by_side = (together < alone) != (self._runs[many] % _RETRY == 0)
        start = self.clock()
        results = _side_by_side(jobs, progress) if side_by_side else [job(progress) for job in jobs]
        if sentences and len(jobs) > 1:
            seconds = (self.clock() - start) / sentences
            known = self._seconds.get((many, side_by_side), seconds)
            # Other load only makes a run slower: a faster time replaces the estimate, a slower one is averaged in.
            self._seconds[many, side_by_side] = min(seconds, 0.7 * known + 0.3 * seconds)
        return results


def _side_by_side(jobs: Sequence[Job[T]], progress: Progress) -> list[T]:
    """Run the jobs in threads. When one fails, or on Ctrl-C, the others end at their next report."""
    stop = threading.Event()

    def report(label: str, done: int, total: int | None, /) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        progress(label, done, total)

    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = [pool.submit(job, report) for job in jobs]
        try:
            for future in as_completed(futures):
                future.result()  # raises as soon as any job has failed, not when its turn comes
        finally:
            stop.set()
    return [future.result() for future in futures]
