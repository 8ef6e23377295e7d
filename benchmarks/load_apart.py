"""The server under load on a machine with cores for the clients too, on two and on more cores of its own.

    python -m benchmarks.load_apart OUTDIR

Writes `OUTDIR/bench-load.json`. The encoders' files must be in the cache already: such a machine may have no network.
`python -m benchmarks apart` shows what was measured last.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import load
from benchmarks.parts import measure
from benchmarks.timing import Section

FILE = "bench-load.json"
CLIENT_CORES = 2


def main(out: Path) -> None:
    """Measure with two cores, then twice as many, as long as there are so many."""
    cores = sorted(os.sched_getaffinity(0))
    clients, rest = cores[:CLIENT_CORES], cores[CLIENT_CORES:]

    def on(count: int) -> dict[str, Any]:
        os.sched_setaffinity(0, rest[:count])  # the servers inherit it
        return load.measured(6_000, 3.0, 2, clients)

    counts = [1 << k for k in range(1, 10) if 1 << k <= len(rest)]
    measure(out / FILE, {f"{count} cores": partial(on, count) for count in counts})


def run(path: Path = Path("results") / FILE) -> Section:
    """What was measured last, on whatever machine has cores for both."""
    title = "The server under load, clients on cores of their own"
    if not path.exists():
        return Section(title, notes=["Not measured: run `python -m benchmarks.load_apart results` on such a machine."])
    found = json.loads(path.read_text())
    made = found.pop("provenance")
    parts = [load.section(one, label) for label, one in found.items()]
    notes = [
        f"{load.ENCODER}, one sentence of STS-B a request, no cache; {CLIENT_CORES} more cores for the clients.",
        f"On: {', '.join(f'{key} {value}' for key, value in made.items())}.",
    ]
    comparisons = [one for part in parts for one in part.comparisons]
    return Section(title, comparisons, [table for part in parts for table in part.tables], notes)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
