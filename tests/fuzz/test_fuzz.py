"""Inputs that failed once are read as they should be, and so are some new ones; `make fuzz` runs many more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from fuzz.__main__ import FORMATS, PAST
from fuzz.mutations import Files, Kind, Mutator, Recipe, apply
from fuzz.report import Row, write_report

TESTS = Path(__file__).parents[1]


def test_past_failures_and_new_inputs() -> None:
    # In a process of its own: it forks, which a process with threads should not.
    places = os.pathsep.join(map(str, [TESTS.parent, TESTS, TESTS / "encoders", TESTS / "paper"]))
    run = subprocess.run(
        [sys.executable, "-m", "fuzz", "--short", "--inputs", "500"],
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-3000:]


def test_past_failures_are_of_known_formats() -> None:
    entries = json.loads(PAST.read_text())
    assert {entry["format"] for entry in entries} <= set(FORMATS)
    assert PAST.stat().st_size < 200_000


def test_a_seed_gives_the_same_recipe_and_a_recipe_the_same_files() -> None:
    files: Files = {"config.json": b'{"a": [1, 2], "b": "text"}', "rows.txt": b"one\ntwo\n"}
    recipes = [Mutator(files).choose(f"seed/{i}") for i in range(200)]
    assert recipes == [Mutator(files).choose(f"seed/{i}") for i in range(200)]
    written = [Recipe(json.loads(json.dumps(recipe.steps)), recipe.repair) for recipe in recipes]
    assert [apply(files, recipe, None) for recipe in recipes] == [apply(files, recipe, None) for recipe in written]
    assert sum(apply(files, recipe, None) != files for recipe in recipes) > 150


def test_steps_change_parts_of_files() -> None:
    files: Files = {"config.json": b'{"a": [1, 2], "b": "text"}', "rows.txt": b"one\ntwo\n"}
    steps: list[Any] = [["json", "config.json", ["a", 1], "set", "NaN"], ["kind", "rows.txt", "pipe"]]
    assert apply(files, Recipe(steps), None) == {"config.json": b'{"a": [1, NaN], "b": "text"}', "rows.txt": Kind.PIPE}


def test_a_table_keeps_other_formats_and_adds_to_those_that_are_run_again(tmp_path: Path) -> None:
    names = ["view", "index"]
    write_report(tmp_path, {"view": Row(10, 4, 6, 0, 0.5, 3.0), "index": Row(5, 5)}, "first", names)
    write_report(tmp_path, {"view": Row(7, 3, 3, 1, 0.1, 9.0)}, "second", names, add=True)
    page = (tmp_path / "fuzz.md").read_text()
    assert "| view | 17 | 7 | 9 | 1 | 0.50 | 9 |" in page
    assert "| all | 22 | 12 | 9 | 1 | 0.50 | 9 |" in page
    assert "`first`" in page
    assert "`second`" in page
    write_report(tmp_path, {"view": Row(2, 2)}, "third", names)
    assert "| all | 7 | 7 | 0 | 0 | 0.00 | 0 |" in (tmp_path / "fuzz.md").read_text()
