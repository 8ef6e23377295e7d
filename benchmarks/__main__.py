"""`make bench`: measure every area, or the areas named, and write `results/bench.md` and `results/bench.json`.

    python -m benchmarks [AREA ...]

An area that is not named keeps what was measured before, with the machine and the time of that run. The tables in
docs/speed.md and the plot beside it follow.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks import docs, results
from benchmarks.timing import Comparison, Section, Table
from ensembed.provenance import provenance

OUT = Path("results")
AREAS = (
    "encode",
    "ensemble",
    "repeats",
    "use_lite",
    "transform",
    "startup",
    "cache",
    "moments",
    "solve",
    "memory",
    "device",
)


def areas() -> list[str]:
    """Those whose module is there and has `run`, in the order of the page: without, it is a program of its own."""
    files = {name: Path(__file__).with_name(f"{name}.py") for name in AREAS}
    return [name for name, file in files.items() if file.exists() and "\ndef run(" in file.read_text()]


def measure(name: str) -> Section:
    """Run one area's module."""
    found = importlib.import_module(f"benchmarks.{name}").run()
    return found if isinstance(found, Section) else _section(name, found)


def _section(name: str, found: object) -> Section:
    """What a module gives that returns a plain list: of comparisons, or of frozen records to be shown as a table."""
    rows = list(found) if isinstance(found, list) else [found]
    comparisons = [row for row in rows if isinstance(row, Comparison)]
    if len(comparisons) == len(rows):
        return Section(name, comparisons)
    headers = list(vars(rows[0]))
    cells = [[f"{v:,.1f}" if isinstance(v, float) else str(v) for v in vars(row).values()] for row in rows]
    return Section(name, tables=[Table("", headers, cells)], data={"rows": [vars(row) for row in rows]})


def main(arguments: list[str], out: Path = OUT) -> int:
    """Measure; every area is written as soon as it is there, since the next one may take long."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("area", nargs="*", help=f"of {', '.join(areas())}; by default all")
    parser.add_argument("--out", type=Path, default=out, help="the folder to write to, by default results")
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.area if name not in areas()]:
        parser.error(f"there is no area {unknown[0]!r}: choose of {', '.join(areas())}")
    for name in chosen.area or areas():
        print(f"{name} …", file=sys.stderr, flush=True)
        one = results.record(measure(name), provenance())
        found = results.read(chosen.out) | {name: one}
        results.write(chosen.out, {key: found[key] for key in AREAS if key in found})
        print(results.text(one), "\n", flush=True)
    if chosen.out == OUT:
        docs.write(results.read(OUT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
