"""Translating the vectors of an index against reading and writing them, and the memory that it takes.

    python -m benchmarks.migration [ROWS] [--niceness N]

Random vectors of 384 dimensions under short texts, migrated in a process of its own. The peer reads the files of a
segment and writes them to another folder, synced: no translation can be faster. Both take turns, segment by segment, so
that other programs on the machine delay both, and both find nothing in the page cache. The sample and the fit, which do
not depend on the number of rows, are not counted. Seconds of the processor are shown beside those of the clock. Needs
some 4 KB of disk a row, in TMPDIR. Writes `results/migration.md` and `.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.numerics.row_matrices import unit_rows
from ensembed.search import Index, migration
from ensembed.support.atomic_files import sync, write_atomically
from ensembed.support.progress import Progress
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


@dataclass
class Stopwatch:
    """Seconds by the clock and of the processor, of all its blocks together."""

    clock: float = 0.0
    processor: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the block."""
        begin, own = time.perf_counter(), time.process_time()
        yield
        self.clock += time.perf_counter() - begin
        self.processor += time.process_time() - own


def migrate(folder: Path, rows: int) -> Figures:
    """Migrate the index in a folder and copy its segments in turn; the sample and the fit are not counted."""
    begun: list[tuple[float, float]] = []
    copying, other = Stopwatch(), Stopwatch()
    translate_segment = migration._Migration._translate_segment
    new = DemoEncoder(DIM, seed=1)

    def confirm(*_: object) -> bool:
        begun.append((time.perf_counter(), time.process_time()))
        return True

    def copy_segment(files: list[Path]) -> None:
        with other.running():
            for path in files:
                forget(path)
        with copying.running():
            copies = [copy(path, folder / "copy") for path in files]
        with other.running():
            for path in files:
                forget(path)
            for path in copies:
                path.unlink()

    def both(run: Any, segment: Any, number: int, progress: Progress) -> Any:  # noqa: ANN401 - as they are
        files = [folder / "old" / facts.name for facts in segment.facts.files.values()]
        if number % 2:
            copy_segment(files)
        facts = translate_segment(run, segment, number, progress)
        if not number % 2:
            copy_segment(files)
        return facts

    (folder / "copy").mkdir()
    for path in (folder / "old").iterdir():
        forget(path)
    # One core translates while another writes.
    options: dict[str, Any] = {"store": ViewStore(folder / "views"), "source": new.spec.name, "confirm": confirm}
    with patch.object(migration._Migration, "_translate_segment", both):
        migration.migrate(folder / "old", folder / "new", new, sample=500, threads=1, **options)
    clock, processor = time.perf_counter() - begun[0][0], time.process_time() - begun[0][1]
    return Figures(
        rows,
        clock - copying.clock - other.clock,
        processor - copying.processor - other.processor,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        copying.clock,
        copying.processor,
    )


def copy(path: Path, folder: Path) -> Path:
    """Read a file in the blocks of a migration, write it to a folder, sync it, and return its path there."""
    target = folder / path.name
    with path.open("rb") as source, target.open("wb") as file:
        while block := source.read(8192 * DIM * 4):
            file.write(block)
    sync(target)
    return target


def forget(path: Path) -> None:
    """Take a file out of the page cache, so that it is read from the disk."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(rows: int, niceness: int) -> Figures:
    """Measure the migration of so many rows, and its peer."""
    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as name:
        build(Path(name) / "old", rows)
        command = [sys.executable, "-m", "benchmarks.migration", str(rows), "--niceness", str(niceness)]
        printed = subprocess.run([*command, "--folder", name], check=True, stdout=subprocess.PIPE, text=True).stdout
        return Figures(**json.loads(printed))


def main(rows: int, niceness: int, out: Path = OUT) -> None:
    """Migrate an index of so many rows, and one of an eighth of them, and write both."""
    figures = [measure(count, niceness) for count in (rows // 8, rows)]
    headers = ["rows", "translated/s", "read and written/s", "times as long"]
    headers += ["processor, \u00b5s/row", "of reading and writing", "largest memory, MB"]
    load, last = os.getloadavg()[0], figures[-1]
    page = [
        "# Migrating an index",
        "",
        f"Vectors of {DIM} dimensions, translated in an index, against reading and writing them; asked: at most "
        f"{SLOWEST:g} times as long, and memory that does not grow. "
        + ("It holds." if last.ratio <= SLOWEST else "It does not hold here.")
        + f" {os.cpu_count()} cores, for which {load:.1f} threads were waiting or running at the end, those of other "
        f"programs too; both ran with a niceness of {niceness}. They took turns, segment by segment, and found nothing "
        "in the page cache. The translation also checks and writes checksums, which the copy does not. Other load "
        "slows it more than the copy, which needs little processor time: with a core of its own it would process "
        f"{last.rows / last.processor:,.0f} rows/s and take {last.least:.2f} times as long as the copy.",
        "",
        markdown_table(headers, [each.cells() for each in figures]),
        "",
        f"Written by `python -m benchmarks.migration {rows} --niceness {niceness}`.",
        "",
    ]
    data = {
        "provenance": provenance(),
        "load": load,
        "niceness": niceness,
        "figures": [asdict(each) for each in figures],
    }
    for path, text in ((out / "migration.md", "\n".join(page)), (out / "migration.json", json.dumps(data, indent=1))):
        write_atomically(path, f"{text.rstrip()}\n".encode())
    print("\n".join(page))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--niceness", type=int, default=0, help="of the measured process, beside other programs")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.folder:
        os.setpriority(os.PRIO_PROCESS, 0, chosen.niceness)
        print(json.dumps(asdict(migrate(chosen.folder, chosen.rows))))
    else:
        main(chosen.rows, chosen.niceness)
