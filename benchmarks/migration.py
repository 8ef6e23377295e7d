"""Translating the vectors of an index against reading and writing them, and the memory that it takes.

    python -m benchmarks.migration [ROWS]

Random vectors of 384 dimensions under short texts, migrated in a process of its own. The peer reads the same vectors
in the same blocks and writes them to another file, synced at the end: no translation can be faster. The sample and the
fit, which do not depend on the number of rows, are not counted. Needs some 4 KB of disk a row, in TMPDIR. Writes
`results/migration.md` and `.json`.
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
    chance, model = np.random.default_rng(0), DemoEncoder(DIM)
    index = Index.create(folder, model, kind="exact", source=model.spec.name)
    for start in range(0, rows, SEGMENT):
        count = min(SEGMENT, rows - start)
        texts = [f"text {i}" for i in range(start, start + count)]
        index.add(texts, vectors=unit_rows(chance.standard_normal((count, DIM), np.float32)))


def migrate(folder: Path) -> tuple[float, float]:
    """Return the seconds of the migration without its fit, and the largest memory of this process in MB."""
    begun: list[float] = []
    new = DemoEncoder(DIM, seed=1)

    def confirm(*_: object) -> bool:
        begun.append(time.perf_counter())
        return True

    store = ViewStore(folder / "views")
    migration.migrate(
        folder / "old", folder / "new", new, sample=500, store=store, source=new.spec.name, confirm=confirm
    )
    seconds = time.perf_counter() - begun[0]
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def copy(folder: Path) -> float:
    """Return the seconds of reading and writing the vectors."""
    begin = time.perf_counter()
    with (folder / "copy.bin").open("wb") as file:
        for path in sorted((folder / "old").glob("*.vectors.npy")):
            with path.open("rb") as source:
                while block := source.read(8192 * DIM * 4):
                    file.write(block)
    sync(folder / "copy.bin")
    return time.perf_counter() - begin


def measure(rows: int) -> tuple[int, float, float, float]:
    """Return rows, the seconds of a migration and of its peer, and the memory of the migration in MB."""
    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as name:
        folder = Path(name)
        build(folder / "old", rows)
        command = [sys.executable, "-m", "benchmarks.migration", "--migrate", name]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        ours, memory = json.loads(printed)
        shutil.rmtree(folder / "new")  # room for the copy
        return rows, ours, copy(folder), memory


def main(rows: int, out: Path = OUT) -> None:
    """Migrate an index of so many rows, and one of an eighth of them, and write both."""
    figures = [measure(count) for count in (rows // 8, rows)]
    cells = [[f"{n:,}", f"{n / a:,.0f}", f"{n / b:,.0f}", f"{a / b:.2f}", f"{m:,.0f}"] for n, a, b, m in figures]
    headers = ["rows", "translated/s", "read and written/s", "times as long", "largest memory, MB"]
    ratio = figures[-1][1] / figures[-1][2]
    load = os.getloadavg()[0]
    page = [
        "# Migrating an index",
        "",
        f"Vectors of {DIM} dimensions, translated in an index, against reading and writing them; asked: at most "
        f"{SLOWEST:g} times as long, and memory that does not grow. "
        + ("It holds." if ratio <= SLOWEST else "It does not hold here.")
        + f" {os.cpu_count()} cores, of which others wanted {load:.1f} at the end of the run. Texts, ids and checksums "
        "are copied and checked as well, which the peer does not do.",
        "",
        markdown_table(headers, cells),
        "",
        f"Written by `python -m benchmarks.migration {rows}`.",
        "",
    ]
    data = {"provenance": provenance(), "load": load, "figures": figures}
    for path, text in ((out / "migration.md", "\n".join(page)), (out / "migration.json", json.dumps(data, indent=1))):
        write_atomically(path, f"{text.rstrip()}\n".encode())
    print("\n".join(page))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--migrate"]:
        print(json.dumps(migrate(Path(sys.argv[2]))))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 1_000_000)
