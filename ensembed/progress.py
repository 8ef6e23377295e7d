"""Progress of long work: the library reports it to a callback, the command line draws a bar."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """What long-running functions report to: `progress(label, done, total)`.

    `done` and `total` count rows or bytes; a total of None means that it is not known. A report with `done == total`
    ends the task of that label.
    """

    def __call__(self, label: str, done: int, total: int | None, /) -> None:
        """Take one report."""


def silent(_label: str, _done: int, _total: int | None, /) -> None:
    """Ignore progress: the default everywhere in the library."""


def part_of(progress: Progress, label: str, start: int, total: int) -> Progress:
    """Reports of a part that begins at `start`, as reports of the whole."""

    def report(_label: str, done: int, _total: int | None, /) -> None:
        progress(label, start + done, total)

    return report


@contextmanager
def bars(*, enabled: bool | None = None) -> Iterator[Progress]:
    """Draw a bar with rate and ETA on standard error for every label; by default only on a terminal."""
    if not (sys.stderr.isatty() if enabled is None else enabled):
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=Console(stderr=True)) as display:
        tasks = {}

        def report(label: str, done: int, total: int | None, /) -> None:
            if label not in tasks:
                tasks[label] = display.add_task(label, total=total, rate="")
            display.update(tasks[label], completed=done, total=total)
            speed = display.tasks[tasks[label]].speed
            display.update(tasks[label], rate=f"{speed:,.0f}/s" if speed else "")

        yield report
