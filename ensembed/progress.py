"""Progress of long work: the library reports it to a callback, the command line draws a bar."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class Progress(Protocol):
    """What long-running functions report to: `progress(label, done, total)`.

    `done` and `total` count rows or bytes; a total of None means that it is not known. A report with `done == total`
    ends the task of that label.
    """

    def __call__(self, label: str, done: int, total: int | None) -> None:
        """Take one report."""


def silent(label: str, done: int, total: int | None) -> None:
    """Ignore progress: the default everywhere in the library."""


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

        def report(label: str, done: int, total: int | None) -> None:
            if label not in tasks:
                tasks[label] = display.add_task(label, total=total, rate="")
            display.update(tasks[label], completed=done, total=total)
            speed = display.tasks[tasks[label]].speed
            display.update(tasks[label], rate=f"{speed:,.0f}/s" if speed else "")

        yield report
