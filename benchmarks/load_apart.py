"""The server under load on a machine with cores for the clients too, on two and on more cores of its own.

    python -m benchmarks.load_apart OUTDIR

Writes `OUTDIR/bench-load.json`. The encoders' files must be in the cache already: such a machine may have no network.
`python -m benchmarks apart` shows what was measured last.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks import load
from ensembed.provenance import provenance

FILE = "bench-load.json"
CLIENT_CORES = 2


def main(out: Path) -> None:
    """Measure with more and more cores, print and write after every one, should a later one fail."""
    out.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))
    clients, rest = cores[:CLIENT_CORES], cores[CLIENT_CORES:]
    found: dict[str, Any] = {"provenance": provenance(), "by_cores": []}
    count = 2
    while count <= len(rest):
        os.sched_setaffinity(0, rest[:count])  # the servers inherit it
        found["by_cores"].append(load.measured(8_000, 3.0, 3, clients))
        print(json.dumps(found["by_cores"][-1]), flush=True)
        (out / FILE).write_text(json.dumps(found, indent=1) + "\n")
        count *= 2


if __name__ == "__main__":
    main(Path(sys.argv[1]))
