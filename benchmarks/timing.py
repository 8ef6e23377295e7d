"""Timing two ways of doing the same thing against each other, and what an area of the benchmark gives back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Comparison:
    """Best times in seconds of ours and of the peer, measured in turn, so that noise hits both."""

    what: str
    peer: str
    ours_s: float
    peer_s: float
    target: str
    note: str = ""

    @property
    def ratio(self) -> float:
        """Ours over the peer's: below 1 is faster."""
        return self.ours_s / self.peer_s


@dataclass(frozen=True)
class Table:
    """Cells as they are printed; what a program or a plot wants goes to `Section.data`."""

    title: str
    headers: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Section:
    """What one area measured.

    Attributes:
        title: its heading in `results/bench.md`.
        comparisons: ours against a peer.
        tables: anything else that has rows.
        notes: sentences under the tables.
        data: numbers for plots and tests, in plain JSON. `data["growth"]`, a list of `growth(...)`, is drawn in docs/.
    """

    title: str
    comparisons: list[Comparison] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)


def growth(against: str, series: str, points: list[tuple[float, float, float | None]]) -> dict[str, Any]:
    """A line of the plot in docs/explanation/speed.md.

    Args:
        against: what grows, such as "rows" or "D".
        series: what the line is called.
        points: what it grew to, seconds, and megabytes or None.
    """
    return {"against": against, "series": series, "points": [list(point) for point in points]}


def compare(
    what: str,
    ours: Callable[[], object],
    peer_name: str,
    peer: Callable[[], object],
    target: str,
    repeats: int = 5,
    note: str = "",
) -> Comparison:
    """Run both in turn and keep the best time of each: what disturbs a run only makes it slower."""
    best = best_in_turn([ours, peer], repeats)
    return Comparison(what, peer_name, best[0], best[1], target, note)


def best_in_turn(functions: list[Callable[[], object]], repeats: int) -> list[float]:
    """The best time of each in seconds; all are run once, then all again."""
    best = [float("inf")] * len(functions)
    for _ in range(repeats):
        for k, function in enumerate(functions):
            best[k] = min(best[k], seconds(function))
    return best


def seconds(function: Callable[[], object]) -> float:
    """How long it takes, once."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
