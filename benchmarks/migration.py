"""Translating the vectors of an index against reading and writing them, and the memory that it takes.

    python -m benchmarks.migration [ROWS]

Random vectors of 384 dimensions under short texts, migrated in a process of its own. The peer reads the same vectors
in the same blocks and writes them to another file, synced at the end: no translation can be faster. The sample and the
fit, which do not depend on the number of rows, are not counted. Seconds of the processor are shown beside those of the
clock: they hold on a busy machine, too. Needs some 4 KB of disk a row, in TMPDIR. Writes `results/migration.md` and
`.json`.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.numerics.row_matrices import unit_rows
from ensembed.search import Index, migration
from ensembed.support.atomic_files import sync, write_atomically
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table
from ensembed.views import ViewStore

DIM = 384
SEGMENT = 1 << 17
OUT = Path("results")
SLOWEST = 3.0
"""How many times as long as reading and writing a migration may take."""


def build(folder: Path, rows: int) -> None:
    """Write an index of random vectors."""
    model = DemoEncoder(DIM)
    vectors = unit_rows(np.random.default_rng(0).standard_normal((min(SEGMENT, rows), DIM), np.float32))
    index = Index.create(folder, model, kind="exact", source=model.spec.name)
    for start in range(0, rows, SEGMENT):
        count = min(SEGMENT, rows - start)
        texts = [f"text {i}" for i in range(start, start + count)]
        index.add(texts, vectors=vectors[:count])


@dataclass(frozen=True)
class Figures:
    """Rows, and the seconds of a migration and of its peer, by the clock and of the processor, and memory in MB."""

    rows: int
    clock: float
    processor: float
    memory: float
    peer_clock: float = 0.0
    peer_processor: float = 0.0

    @property
    def ratio(self) -> float:
        """How many times as long as its peer the migration takes."""
        return self.clock / self.peer_clock

    @property
    def least(self) -> float:
        """How many times as long as its peer it takes with one core of its own, on which nobody else runs."""
        return self.processor / self.peer_clock

    def cells(self) -> list[str]:
        """Return the row of the table."""
        speeds = [f"{self.rows / seconds:,.0f}" for seconds in (self.clock, self.peer_clock)]
        costs = [f"{1e6 * seconds / self.rows:.1f}" for seconds in (self.processor, self.peer_processor)]
        return [f"{self.rows:,}", *speeds, f"{self.ratio:.2f}", *costs, f"{self.memory:,.0f}"]


def migrate(folder: Path, rows: int) -> Figures:
    """Migrate the index in a folder; the sample and the fit are not counted."""
    begun: list[tuple[float, float]] = []
    new = DemoEncoder(DIM, seed=1)

    def confirm(*_: object) -> bool:
        begun.append((time.perf_counter(), time.process_time()))
        return True

    store, name = ViewStore(folder / "views"), new.spec.name
    # One core translates while another writes.
    migration.migrate(
        folder / "old", folder / "new", new, sample=500, store=store, source=name, confirm=confirm, threads=1
    )
    clock, processor = time.perf_counter() - begun[0][0], time.process_time() - begun[0][1]
    return Figures(rows, clock, processor, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def copy(folder: Path) -> tuple[float, float]:
    """Return the seconds of reading and writing the vectors, by the clock and of the processor."""
    begin, own = time.perf_counter(), time.process_time()
    with (folder / "copy.bin").open("wb") as file:
        for path in sorted((folder / "old").glob("*.vectors.npy")):
            with path.open("rb") as source:
                while block := source.read(8192 * DIM * 4):
                    file.write(block)
    sync(folder / "copy.bin")
    return time.perf_counter() - begin, time.process_time() - own


def measure(rows: int) -> Figures:
    """Measure the migration of so many rows, and its peer."""
    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as name:
        folder = Path(name)
        build(folder / "old", rows)
        command = [sys.executable, "-m", "benchmarks.migration", "--migrate", name, str(rows)]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        shutil.rmtree(folder / "new")  # room for the copy
        peer_clock, peer_processor = copy(folder)
        return Figures(**json.loads(printed) | {"peer_clock": peer_clock, "peer_processor": peer_processor})


def main(rows: int, out: Path = OUT) -> None:
    """Migrate an index of so many rows, and one of an eighth of them, and write both."""
    figures = [measure(count) for count in (rows // 8, rows)]
    headers = ["rows", "translated/s", "read and written/s", "times as long"]
    headers += ["processor, \u00b5s/row", "of reading and writing", "largest memory, MB"]
    load, last = os.getloadavg()[0], figures[-1]
    page = [
        "# Migrating an index",
        "",
        f"Vectors of {DIM} dimensions, translated in an index, against reading and writing them; asked: at most "
        f"{SLOWEST:g} times as long, and memory that does not grow. "
        + ("It holds." if last.ratio <= SLOWEST else "It does not hold here.")
        + f" {os.cpu_count()} cores, of which others wanted {load:.1f} at the end of the run. Texts, ids and checksums "
        "are copied and checked as well, which the copy does not do. Other load slows the translation more than the "
        "copy, which needs little processor time. With a core of its own the translation would process "
        f"{last.rows / last.processor:,.0f} rows/s and take {last.least:.2f} times as long as the copy.",
        "",
        markdown_table(headers, [each.cells() for each in figures]),
        "",
        f"Written by `python -m benchmarks.migration {rows}`.",
        "",
    ]
    data = {"provenance": provenance(), "load": load, "figures": [asdict(each) for each in figures]}
    for path, text in ((out / "migration.md", "\n".join(page)), (out / "migration.json", json.dumps(data, indent=1))):
        write_atomically(path, f"{text.rstrip()}\n".encode())
    print("\n".join(page))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--migrate"]:
        print(json.dumps(asdict(migrate(Path(sys.argv[2]), int(sys.argv[3])))))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 1_000_000)
