"""`make bench`: measure every area, or the areas named, and write `results/bench.md` and `results/bench.json`.

    python -m benchmarks [AREA ...]
    python -m benchmarks soak --minutes 60
    python -m benchmarks kills --kills 1000 --seed 0

An area that is not named keeps what was measured before, with the machine and the time of that run. The tables in
docs/explanation/speed.md and the plot beside it follow.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks import docs, kills, results, soak
from benchmarks.timing import Section
from ensembed.support.provenance import provenance

OUT = Path("results")
AREAS = (
    "encode",
    "students",
    "ensemble",
    "repeats",
    "use_lite",
    "transform",
    "startup",
    "cache",
    "moments",
    "solve",
    "eigh",
    "memory",
    "device",
    "cores",
    "ray",
    "workers",
    "half",
    "scaling",
    "search",
    "load",
    "apart",
)
# Areas whose module is called otherwise.
MODULES = {"apart": "load_apart", "cores": "many_cores", "ray": "ray_engine"}


def measure(name: str) -> Section:
    """Run one area's module."""
    section: Section = importlib.import_module(f"benchmarks.{MODULES.get(name, name)}").run()
    return section


def main(arguments: list[str], out: Path = OUT) -> int:
    """Measure; every area is written as soon as it is there, since the next one may take long."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("area", nargs="*", help=f"of {', '.join(AREAS)}; by default all; or soak, or kills, on its own")
    parser.add_argument("--minutes", type=float, default=60.0, help="the length of a soak, by default 60")
    parser.add_argument("--kills", type=int, default=1000, help="how often commands are killed, by default 1000")
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which they are killed, by default 0")
    parser.add_argument("--only", action="append", default=[], help="a command to kill; the others keep their figures")
    parser.add_argument("--out", type=Path, default=out, help="the folder to write to, by default results")
    chosen = parser.parse_args(arguments)
    if chosen.area == ["soak"]:  # only if it is named: it takes an hour
        soak.main(soak.Plan(chosen.minutes), chosen.out)
        return 0
    if chosen.area == ["kills"]:  # likewise: it takes a quarter of an hour
        return kills.main(chosen.kills, chosen.seed, chosen.out, chosen.only)
    if unknown := [name for name in chosen.area if name not in AREAS]:
        parser.error(f"there is no area {unknown[0]!r}: choose of {', '.join(AREAS)}")
    for name in chosen.area or AREAS:
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
