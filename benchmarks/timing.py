"""Timing two ways of doing the same thing against each other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """Best times in seconds of ours and of the peer, measured in turn, so that noise hits both."""

    what: str
    peer: str
    ours_s: float
    peer_s: float
    target: str

    @property
    def ratio(self) -> float:
        """Ours over the peer's: below 1 is faster."""
        return self.ours_s / self.peer_s


def compare(
    what: str, ours: Callable[[], object], peer_name: str, peer: Callable[[], object], target: str, repeats: int = 5
) -> Comparison:
    """Run both in turn and keep the best time of each: what disturbs a run only makes it slower."""
    best = [float("inf"), float("inf")]
    for _ in range(repeats):
        for k, function in enumerate((ours, peer)):
            start = time.perf_counter()
            function()
            best[k] = min(best[k], time.perf_counter() - start)
    return Comparison(what, peer_name, best[0], best[1], target)
