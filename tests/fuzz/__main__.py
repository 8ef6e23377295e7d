"""Run the fuzzer: `make fuzz`, or `python -m fuzz --help` with `tests` and `tests/encoders` on the Python path."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from fuzz import distil_formats, foreign_formats, own_formats, pulled_formats, task_formats, translation_formats
from fuzz.mutations import Files, Mutator, Recipe
from fuzz.report import HEADERS, Row, total, write_report
from fuzz.workers import Format, Place, Pool, Result, make_artefact

PAST = Path(__file__).parent / "past_failures.json"
"""Recipes of inputs that failed once: `[{"format": …, "steps": […], "repair": …, "problem": …}]`."""
_ROOMS = (own_formats, translation_formats, distil_formats, foreign_formats, pulled_formats, task_formats)
FORMATS: dict[str, Format] = {name: form for room in _ROOMS for name, form in room.FORMATS.items()}
_CHUNK = 250  # inputs of a child


def main(arguments: list[str]) -> int:
    """Replay past failures, run new inputs, print a table; return 1 if an input failed."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    names = options.formats or [name for name, form in FORMATS.items() if not (options.short and form.slow)]
    formats = {name: FORMATS[name] for name in names}
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    for module in sorted({module for form in formats.values() for module in form.modules}):
        import_module(module)
    root = Path(tempfile.mkdtemp(prefix="ensembed-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))  # noqa: S108 - a folder of our own, in memory
    try:
        artefacts = {name: make_artefact(form, Place(root / "made")) for name, form in formats.items()}
        return _run(formats, artefacts, root, options)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=f"Default: all. One of {', '.join(FORMATS)}")
    parser.add_argument("--inputs", type=int, help="How many inputs, of all formats together.")
    parser.add_argument("--seconds", type=float, default=60.0, help="How long, if --inputs is not given.")
    parser.add_argument("--seed", default="0", help="Other seeds give other inputs.")
    parser.add_argument("--processes", type=int, default=2, help="Children at the same time.")
    parser.add_argument("--short", action="store_true", help="Leave out formats whose libraries are slow.")
    parser.add_argument("--report", type=Path, help="Write the table to fuzz.json and fuzz.md in this folder.")
    parser.add_argument("--add", action="store_true", help="Add to the figures that the table has of these formats.")
    parser.add_argument("--keep", action="store_true", help="Add new failures to past_failures.json.")
    return parser.parse_args(arguments)


def _run(formats: dict[str, Format], artefacts: dict[str, Files], root: Path, options: argparse.Namespace) -> int:
    pool = Pool(formats, artefacts, root, options.processes)
    rows = {name: Row() for name in formats}
    failures: dict[tuple[str, ...], tuple[Any, Result]] = {}
    start, interrupted = time.monotonic(), list[str]()
    try:
        for name, what, result in pool.run(_jobs(formats, _past(formats), options, start)):
            rows[name].count(result)
            # One failure of a kind, by the type of an exception and where it was raised.
            key = (name, result.outcome, result.problem.split(":")[0], result.problem.partition(" in ")[2])
            if result.failed and key not in failures:
                shown = what if isinstance(what, str) else f"past failure {json.dumps(what.steps)[:300]}"
                print(f"{name}: {result.outcome}: {result.problem} ({shown})", flush=True)
                failures[key] = what, result
        for (name, *_), (what, result) in failures.items():
            _keep(_minimal(pool, formats[name].mutator(artefacts[name]), name, what, result), options)
    except KeyboardInterrupt:
        print("interrupted: the table is of the inputs so far")
        interrupted = ["# interrupted"]
    _print(rows, time.monotonic() - start)
    if options.report:
        words = [f"{name}={value}" for name, value in (("INPUTS", options.inputs), ("SEED", options.seed)) if value]
        words += [f"FORMATS='{' '.join(formats)}'"] if len(formats) < len(FORMATS) else []
        words += ["ADD=1"] if options.add else []
        words = ["make fuzz", *words, f"REPORT={options.report}", *interrupted]
        write_report(options.report, rows, " ".join(words), list(FORMATS), add=options.add)
    return 1 if failures else 0


def _keep(entry: dict[str, Any], options: argparse.Namespace) -> None:
    """Print a failure, and add it to the past ones if that is wanted."""
    print(f"FAILURE {json.dumps(entry)[:1000]}", flush=True)
    if options.keep:
        entries = [*json.loads(PAST.read_text()), entry]
        PAST.write_text("[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n")


def _past(formats: dict[str, Format]) -> dict[str, list[Recipe]]:
    recipes: dict[str, list[Recipe]] = defaultdict(list)
    for entry in json.loads(PAST.read_text()):
        if entry["format"] in formats:
            recipes[entry["format"]].append(Recipe(entry["steps"], entry["repair"]))
    return recipes


def _jobs(
    formats: dict[str, Format], past: dict[str, list[Recipe]], options: argparse.Namespace, start: float
) -> Iterator[tuple[str, list[Any]]]:
    """Yield past failures, then new inputs of every format in turn, until there were enough."""
    yield from ((name, list(recipes)) for name, recipes in past.items())
    count, chunk = 0, 0
    # A short run has small chunks, so that it comes to every format.
    size = (
        min(_CHUNK, max(10, options.inputs // len(formats)))
        if options.inputs
        else 30
        if options.seconds < 60
        else _CHUNK
    )
    while True:
        for name in formats:
            if count >= options.inputs if options.inputs else time.monotonic() - start > options.seconds:
                return
            yield name, [f"{options.seed}/{name}/{chunk * size + i}" for i in range(size)]
            count += size
        chunk += 1


def _minimal(pool: Pool, mutator: Mutator, name: str, what: Recipe | str, result: Result) -> dict[str, Any]:
    """Return a failure as an entry of the past ones, with as few steps as fail in the same way."""
    recipe = what if isinstance(what, Recipe) else mutator.choose(what)
    smaller = True
    while smaller:
        smaller = False
        for candidate in recipe.shorter():
            ((_, _, again),) = pool.run(iter([(name, [candidate])]))
            if again.outcome == result.outcome:
                recipe, smaller = candidate, True
                break
    return {
        "format": name,
        "steps": recipe.steps,
        "repair": recipe.repair,
        "problem": f"{result.outcome}: {result.problem}"[:200],
    }


def _print(rows: dict[str, Row], seconds: float) -> None:
    whole = total(rows)
    for name, *cells in [HEADERS, *([name, *row.cells()] for name, row in rows.items()), ["all", *whole.cells()]]:
        print(f"{name:<20}" + "".join(f"{cell:>11}" for cell in cells))
    print(f"{seconds:.0f} s, {whole.inputs / max(seconds, 1e-9):.0f} inputs a second")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
