"""Long work: reports of its progress, bars on the command line, and jobs that run side by side where that is faster."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

# Separates the name of a task from a detail that changes.
_DETAIL = " · "


class Progress(Protocol):
    """A function that takes the reports of long-running functions: `progress(label, done, total)`.

    `done` and `total` count rows, bytes or epochs; a total of None is unknown, and `done == total` ends the task.
    After " · " a label may carry a detail that changes, as in `train · loss 0.0123`.
    """

    def __call__(self, label: str, done: int, total: int | None, /) -> None:
        """Take one report."""


def silent(_label: str, _done: int, _total: int | None, /) -> None:
    """Ignore progress: the default everywhere in the library."""


def part_of(progress: Progress, label: str, start: int, total: int) -> Progress:
    """Return a progress that turns reports of a part, which begins at `start`, into reports of the whole."""

    def report(_label: str, done: int, _total: int | None, /) -> None:
        progress(label, start + done, total)

    return report


@contextmanager
def bars(*, enabled: bool | None = None) -> Iterator[Progress]:
    """Draw a bar with rate, ETA and the last detail on standard error for every task; by default only on a terminal.

    Where the terminal cannot move its cursor, or `NO_COLOR` is set, lines are written instead.
    """
    if not (sys.stderr.isatty() if enabled is None else enabled):
        yield silent
        return
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        yield lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}", markup=False),  # brackets in the name of a file are no colours
        BarColumn(bar_width=20),
        TextColumn("{task.fields[count]}"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
    )
    with RichProgress(*columns, console=Console(stderr=True)) as display:
        tasks = {}

        def report(label: str, done: int, total: int | None, /) -> None:
            name, _, detail = label.partition(_DETAIL)
            if name not in tasks:
                tasks[name] = display.add_task(name, total=total, count="")
            display.update(tasks[name], completed=done, total=total)
            speed = display.tasks[tasks[name]].speed
            rate = f", {short_count(speed)}/s" if speed else ""
            whole = "" if total is None else f"/{short_count(total)}"
            display.update(tasks[name], count=f"{short_count(done)}{whole}{rate}")
            if detail:
                display.update(tasks[name], description=label)

        yield report


def lines(seconds: float = 10.0) -> Progress:
    """Return a progress that writes a line to standard error when a task ends, and every some seconds until then."""
    written: dict[str, float] = {}
    done_tasks: set[str] = set()

    def report(label: str, done: int, total: int | None, /) -> None:
        now = time.monotonic()
        name = label.partition(_DETAIL)[0]
        ended = done == total and name not in done_tasks
        if ended or (done != total and now - written.setdefault(name, now) >= seconds):
            written[name] = now
            whole = "" if total is None else f"/{short_count(total)}"
            print(f"{label} {short_count(done)}{whole}", file=sys.stderr)
        (done_tasks.add if done == total else done_tasks.discard)(name)

    return report


def short_count(number: float) -> str:
    """Format a number of rows or bytes in at most five characters and a letter.

    Example:
        >>> [short_count(n) for n in (7, 99_999, 160_799_481, 2.5e9)]
        ['7', '99999', '160.8M', '2.5G']
    """
    for unit, size in (("G", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}" if number < 1e5 else f"{number / 1e3:.0f}k"


T = TypeVar("T")
Job: TypeAlias = Callable[[Progress], T]

# Up to this many items the fixed costs of a job dominate, above it its speed. The better way may differ.
_FEW = 32
# Every so many runs the slower way is tried again.
_RETRY = 16


@dataclass
class Schedule:
    """Runs jobs one after the other or side by side, whichever is faster.

    Both are tried and timed, for few and for many items apart: the faster one depends on the jobs and the machine.

    Attributes:
        clock: returns the time in seconds.
        side_by_side: always run side by side, or never; None measures which is faster.
    """

    clock: Callable[[], float] = time.perf_counter
    side_by_side: bool | None = None
    _seconds: dict[tuple[bool, bool], float] = field(default_factory=dict)
    _runs: Counter[bool] = field(default_factory=Counter)

    def run(self, jobs: Sequence[Job[T]], items: int, progress: Progress = silent) -> list[T]:
        """Run the jobs and return their results. Each job reports to a progress, through which it is also stopped.

        Args:
            jobs: what to run, the same kind of work in every call.
            items: how many items each job works on, such as the sentences that it encodes.
            progress: receives what the jobs report.
        """
        many = items > _FEW
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
        if items and len(jobs) > 1:
            seconds = (self.clock() - start) / items
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
