"""Translating the vectors of an index against reading and writing them, and the memory that it takes.

    python -m benchmarks.migration [ROWS]

Random vectors of 384 dimensions under short texts. The peer reads the same vectors in the same blocks and writes them
to another file, synced at the end: no translation can be faster. The sample and the fit, which do not depend on the
number of rows, are not counted.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.timing import Comparison, Section, Table
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.numerics.row_matrices import unit_rows
from ensembed.search import Index, migration
from ensembed.support.atomic_files import sync
from ensembed.support.text_tables import text_table
from ensembed.views import ViewStore

DIM = 384
SEGMENT = 1 << 17


def run(rows: int = 1_000_000) -> Section:
    """Migrate an index of so many rows, and one of an eighth of them."""
    times, memory = [], []
    for count in (rows // 8, rows):
        with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as folder:
            ours, peer = measure(Path(folder), count)
            times.append((count, ours, peer))
            memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    count, ours, peer = times[-1]
    what = f"translate {count:,} vectors of {DIM} dimensions in an index"
    table = [
        [f"{n:,}", f"{n / a:,.0f}", f"{n / b:,.0f}", f"{m:,.0f}"] for (n, a, b), m in zip(times, memory, strict=True)
    ]
    return Section(
        "Migrating an index",
        [Comparison(what, "reading and writing the vectors", ours, peer, "at most 3")],
        [Table("Rows", ["rows", "translated/s", "read and written/s", "largest memory, MB"], table)],
        ["Texts, ids and checksums are copied and checked as well, which the peer does not do."],
        {"rows": rows, "times": times, "memory": memory},
    )


def measure(folder: Path, rows: int) -> tuple[float, float]:
    """Return the seconds of the migration without its fit, and of the peer."""
    chance = np.random.default_rng(0)
    old, new = DemoEncoder(DIM), DemoEncoder(DIM, seed=1)
    index = Index.create(folder / "old", old, kind="exact", source=old.spec.name)
    for start in range(0, rows, SEGMENT):
        count = min(SEGMENT, rows - start)
        texts = [f"text {i}" for i in range(start, start + count)]
        index.add(texts, vectors=unit_rows(chance.standard_normal((count, DIM), np.float32)))
    begun: list[float] = []

    def confirm(*_: object) -> bool:
        begun.append(time.perf_counter())
        return True

    store = ViewStore(folder / "views")
    migration.migrate(
        folder / "old", folder / "new", new, sample=500, store=store, source=new.spec.name, confirm=confirm
    )
    ours = time.perf_counter() - begun[0]
    start_time = time.perf_counter()
    with (folder / "copy.bin").open("wb") as file:
        for segment in index.snapshot.segments:
            path = folder / "old" / segment.facts.files["vectors"].name
            with path.open("rb") as source:
                while block := source.read(8192 * DIM * 4):
                    file.write(block)
    sync(folder / "copy.bin")
    return ours, time.perf_counter() - start_time


if __name__ == "__main__":
    section = run(*map(int, sys.argv[1:2]))
    for comparison in section.comparisons:
        print(f"{comparison.what}: {comparison.ratio:.2f} times as long as {comparison.peer} ({comparison.target})")
    for each in section.tables:
        print(text_table(each.headers, each.rows))
