"""How many functions, modules and rooms two commands run through: a reader has to follow them.

A second fit of the same sentences counts, whose views are in the store. A room is what lies directly under the package.
Class bodies and comprehensions are no functions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

# Written to the last line of standard output: the functions, modules and rooms of the command in `sys.argv`.
_CHILD = """
import json, os, sys, threading
import ensembed
from ensembed.cli import main
top, seen = os.path.dirname(ensembed.__file__) + os.sep, set()
def profile(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(top) and code.co_name[0] != "<" and code.co_flags & 1:
        seen.add((code.co_filename[len(top):], code.co_name, code.co_firstlineno))
threading.setprofile(profile)
sys.setprofile(profile)
try:
    code = main()
except SystemExit as end:
    code = end.code
finally:
    sys.setprofile(None)
    modules = {file for file, *_ in seen}
    rooms = {file.removesuffix(".py").split(os.sep)[0] for file in modules}
    print(json.dumps([code or 0, len(seen), len(modules), len(rooms)]))
"""


def walk(folder: Path, *arguments: str) -> list[int]:
    """Return how many functions, modules and rooms a command runs through that is typed in this folder."""
    environment = os.environ | {"ENSEMBED_CACHE": str(folder / "cache")}
    command = [sys.executable, "-c", _CHILD, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=True)
    counts: list[int] = json.loads(done.stdout.splitlines()[-1])
    assert counts.pop(0) == 0, done.stderr
    return counts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and a model that was fitted on it."""
    folder, rng = tmp_path_factory.mktemp("walk"), np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(200)])
    lines = (" ".join(words[rng.zipf(1.5, int(rng.integers(4, 15))) % 200]) for _ in range(300))
    (folder / "corpus.txt").write_text("".join(f"{line}\n" for line in lines))
    walk(folder, *_fit("first"))
    return folder


def _fit(name: str) -> list[str]:
    return ["fit", "corpus.txt", "-e", "demo?seed=1", "-e", "demo?seed=2", "--out", name]


def test_fit_runs_through_few_functions(folder: Path) -> None:
    functions, modules, rooms = walk(folder, *_fit("second"))
    assert functions <= 130
    assert modules <= 30
    assert rooms <= 10


def test_encode_runs_through_few_functions(folder: Path) -> None:
    functions, modules, rooms = walk(folder, "encode", "first", "corpus.txt", "--out", "vectors.npy")
    assert functions <= 60
    assert modules <= 15
    assert rooms <= 8
