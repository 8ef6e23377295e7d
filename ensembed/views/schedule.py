"""Running the members of an ensemble one after the other or side by side, whichever is faster."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeAlias, TypeVar

from ensembed.support.progress import Progress, silent

T = TypeVar("T")
Job: TypeAlias = Callable[[Progress], T]

# Up to this many sentences an encoder's fixed costs count; more, and its speed does. The better way may differ.
_FEW = 32
# Every so many runs the slower way gets another chance.
_RETRY = 16


class Schedule:
    """Decides from what it has seen.

    Which way wins depends on the members (one that waits for a server, one that uses a single core) and on the
    machine, so both are tried and timed, for few and for many sentences apart.

    Args:
        clock: tells the time in seconds.
        side_by_side: always run so, or never; None finds out which is faster.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, *, side_by_side: bool | None = None) -> None:
        self._clock = clock
        self._always = side_by_side
        self._seconds: dict[tuple[bool, bool], float] = {}
        self._runs: Counter[bool] = Counter()

    def run(self, jobs: Sequence[Job[T]], sentences: int, progress: Progress = silent) -> list[T]:
        """The jobs' results; each job reports to the progress it is given, which is also how it is stopped.

        Args:
            jobs: one per member.
            sentences: how many each of them encodes.
            progress: told what the jobs report.
        """
        many = sentences > _FEW
        side_by_side = len(jobs) > 1 and self._choose(many)
        start = self._clock()
        results = _side_by_side(jobs, progress) if side_by_side else [job(progress) for job in jobs]
        if sentences:
            self._learn(many, side_by_side, (self._clock() - start) / sentences)
        return results

    def _choose(self, many: bool) -> bool:
        """Whether to run side by side: each way once, then the faster one, the slower one again now and then."""
        if self._always is not None:
            return self._always
        alone, together = self._seconds.get((many, False)), self._seconds.get((many, True))
        if alone is None or together is None:
            return alone is not None
        self._runs[many] += 1
        return (together < alone) != (self._runs[many] % _RETRY == 0)

    def _learn(self, many: bool, side_by_side: bool, seconds: float) -> None:
        # What disturbs a run only makes it slower: a quicker one is believed at once, a slower one by and by.
        known = self._seconds.get((many, side_by_side), seconds)
        self._seconds[many, side_by_side] = min(seconds, 0.7 * known + 0.3 * seconds)


def _side_by_side(jobs: Sequence[Job[T]], progress: Progress) -> list[T]:
    """Run the jobs in threads; when one fails, or on Ctrl-C, the others end at their next report."""
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
