"""Build a release and try it as a stranger would: `make dist`, or `python -m website.release [--quick]`.

1. Build sdist and wheel into dist/, from a clean copy of what git tracks.
2. Check the metadata (`twine check --strict`) and the wheel's contents (`check-wheel-contents`; no tests, benchmarks,
   experiments or site in it; the sdist has what tests and licences need).
3. For every Python from 3.10 to 3.13 that is here: install the wheel without extras into an empty environment, and run
   the README's commands and its Python from outside of the checkout. Measure the installed size and the import time.

Members of the catalogue come from the cache, or are pulled. The result is results/release.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
# What a release must not contain, as the first part of a path.
NOT_IN_WHEEL = ("tests", "benchmarks", "experiments", "website", "docs", "results", "deploy", "examples")


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, check and try; write the figures."""
    parser = argparse.ArgumentParser(description="Build a release and try it.")
    parser.add_argument("--quick", action="store_true", help="try the Python that runs this only, and write nothing")
    options = parser.parse_args(arguments)
    wheel, sdist = build()
    check(wheel, sdist)
    rows = []
    for python in [sys.executable] if options.quick else find_pythons():
        row = try_wheel(python, wheel)
        rows.append(row)
        print(json.dumps(row), flush=True)
    if not options.quick:
        (ROOT / "results" / "release.md").write_text(report(rows, wheel, sdist))


def build() -> tuple[Path, Path]:
    """Return a new wheel and sdist, made from a copy: a build in the checkout would take what lies about in it."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        tracked = _run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT).split("\n")
        for name in filter(None, tracked):
            if (ROOT / name).is_file():
                target = Path(folder) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, target)
        _run([sys.executable, "-m", "build", "--outdir", str(DIST), folder])
    [wheel], [sdist] = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def check(wheel: Path, sdist: Path) -> None:
    """Check the metadata and the contents of both; raise at the first fault."""
    _run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)])
    _run([sys.executable, "-m", "check_wheel_contents", str(wheel)])
    names = set(zipfile.ZipFile(wheel).namelist())
    roots = {name.split("/")[0] for name in names}
    if foreign := roots.intersection(NOT_IN_WHEEL) or {r for r in roots if not r.startswith("ensembed")}:
        raise SystemExit(f"{wheel.name} holds {', '.join(sorted(foreign))}: only the package belongs there")
    missing = {str(p.relative_to(ROOT)) for p in _data_files()} - names
    if missing:
        raise SystemExit(f"{wheel.name} lacks {', '.join(sorted(missing))}: add them to package-data in pyproject.toml")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    for needed in ("LICENSE", "README.md", "pyproject.toml", "ensembed/__init__.py"):
        if needed not in inside:
            raise SystemExit(f"{sdist.name} lacks {needed}")


def _data_files() -> list[Path]:
    """Return the files of the package that are no Python: what is read at run time must be in the wheel."""
    every = (ROOT / "ensembed").rglob("*")
    return [p for p in every if p.is_file() and p.suffix not in (".py", ".pyc") and "__pycache__" not in p.parts]


def find_pythons() -> list[str]:
    """Return the interpreters of `VERSIONS` that are on this machine, by PATH and by pyenv."""
    found: list[str] = []
    for version in VERSIONS:
        candidates = [shutil.which(f"python{version}")]
        folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        candidates += [str(p / "bin" / "python") for p in sorted(folder.glob(f"{version}.*"), reverse=True)]
        working = [c for c in candidates if c and Path(c).exists() and _version_of(c) == version]
        found += working[:1]
    return found


def _version_of(python: str) -> str | None:
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def try_wheel(python: str, wheel: Path) -> dict[str, Any]:
    """Install the wheel without extras into an empty environment, run the README, and return what was measured."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        _run([python, "-m", "venv", str(here / "venv")])
        pip = [str(here / "venv" / "bin" / "python"), "-m", "pip"]
        before = _size(here / "venv")
        _run([*pip, "install", "--quiet", "--disable-pip-version-check", "--no-compile", str(wheel)])
        size = _size(here / "venv") - before
        _run([*pip, "check"])
        commands = run_readme(here)
        imports = _import_time(str(here / "venv" / "bin" / "python"), here)
        version = _run([str(here / "venv" / "bin" / "ensembed"), "--version"], cwd=here).strip()
    return {
        "python": _version_of(python),
        "version": version.rpartition(" ")[2],
        "installed MB": round(size / 1e6, 1),
        "of which ensembed MB": round(sum(i.file_size for i in zipfile.ZipFile(wheel).infolist()) / 1e6, 2),
        "import ms": round(1000 * imports, 1),
        "commands": commands,
    }


def run_readme(folder: Path) -> int:
    """Run the README's commands and Python from outside of the checkout; return how many commands ran.

    What needs an extra is left to the tests, which have them all. `pip install` is what has just been done.
    """
    readme = (ROOT / "README.md").read_text()
    work = folder / "work"
    work.mkdir()
    write_texts(work)
    binaries = folder / "venv" / "bin"
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "ENSEMBED_DATA")}
    environment["PATH"] = f"{binaries}{os.pathsep}{environment['PATH']}"
    commands = readme_commands(readme)
    for command in commands:
        _run(["bash", "-euc", command], cwd=work, env=environment)
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    shutil.rmtree(work / "my-model", ignore_errors=True)
    (work / "readme.py").write_text("\n".join(blocks))
    _run([str(binaries / "python"), "readme.py"], cwd=work, env=environment)
    return len(commands)


def readme_commands(readme: str) -> list[str]:
    """Return the lines of shell in the README that need nothing but the core."""
    lines = re.findall(r"^    (ensembed .*)$", readme, re.MULTILINE)
    return [line for line in lines if not re.match(r"ensembed (serve|cluster)\b", line)]


def write_texts(folder: Path) -> None:
    """Write the texts that the README names: sentences that a newcomer would have."""
    animals, verbs = (
        ("dog", "cat", "fox", "horse", "child", "woman", "man", "robot"),
        ("runs", "sleeps", "eats", "plays"),
    )
    places = ("in the garden", "on the street", "at home", "near the river", "in the city", "on the beach", "at work")
    moods = ("happily", "slowly", "again", "every day", "with friends")
    lines = [f"A {a} {v} {p} {m}." for a in animals for v in verbs for p in places for m in moods]
    for name in ("corpus.txt", "sentences.txt", "inbox.txt", "articles.txt"):
        count = len(lines) if name == "corpus.txt" else 40
        (folder / name).write_text("\n".join(lines[:count]) + "\n")


def _import_time(python: str, folder: Path) -> float:
    """Return the processor seconds that `import ensembed` takes: the median of five, compiled before."""
    _run([python, "-c", "import ensembed"], cwd=folder)
    code = "import time; t = time.process_time(); import ensembed; print(time.process_time() - t)"
    return statistics.median(float(_run([python, "-c", code], cwd=folder)) for _ in range(5))


def _size(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def report(rows: Sequence[dict[str, Any]], wheel: Path, sdist: Path) -> str:
    """Return the page about a release that was tried."""
    columns = ["python", "installed MB", "of which ensembed MB", "import ms", "commands"]
    table = [f"| {' | '.join(columns)} |", f"| --- {'| ---: ' * (len(columns) - 1)}|"]
    table += [f"| {' | '.join(str(row[column]) for column in columns)} |" for row in rows]
    sizes = f"{wheel.name} has {wheel.stat().st_size / 1e6:.2f} MB, {sdist.name} {sdist.stat().st_size / 1e6:.2f} MB."
    notes = (
        "- The wheel without extras in an empty environment; `twine check --strict` and `check-wheel-contents` pass.\n"
        "- commands: lines of shell in the README that ran from outside of the checkout, and its Python after them.\n"
        "- installed MB: with all dependencies, not compiled.\n"
        "- import ms: processor time of `import ensembed`, the median of five, compiled."
    )
    return f"# The release\n\nWritten by `make dist`.\n\n{sizes}\n\n" + "\n".join(table) + f"\n\n{notes}\n"


def _run(command: Sequence[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Return what a command printed; end with its output if it fails."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
