"""The table of students: the page says what its data says, and students keep what the docs say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.students_table import Row, page

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
DATA: dict[str, Any] = json.loads((RESULTS / "students.json").read_text())
ROWS: dict[str, dict[str, Any]] = {row["name"]: row for row in DATA["rows"]}
GUIDE = (ROOT / "docs" / "guides" / "distil.md").read_text()


def _row(name: str) -> Row:
    fields = ROWS[name]
    return Row(**{**fields, "sts": {key: tuple(scores) for key, scores in fields["sts"].items()}})


def test_the_page_is_made_of_its_data() -> None:
    made = page([_row(name) for name in ROWS], DATA["teacher"], DATA["final"], [])
    assert made.rstrip() in (RESULTS / "students.md").read_text()


def test_shares_are_of_the_teacher() -> None:
    taught = Row("teacher", 2, 2.0, {"stsb-dev": (80.0, 80.0), "stsb-test": (60.0, 70.0)}, {"a": 50.0, "b": 20.0})
    student = Row("six", 2, 0.5, {"stsb-dev": (70.0, 71.0), "stsb-test": (50.0, 40.0)}, {"a": 40.0, "b": 20.0})
    text = page([taught, student], "teacher", ["a"], ["a note"])
    assert "| six | 2 | 0.500 | 70.0/71.0 | 50.0/40.0 | 50.0/40.0 | 40.0 | 80.0% | 80.0% |" in text
    assert "| b | 20.0 (100%) | 20.0 (100%) |" in text
    assert text.endswith("- a note")


@pytest.mark.parametrize("name", ["static", "three layers", "six layers", "twelve layers"])
def test_the_guide_has_the_scores_of_the_table(name: str) -> None:
    pearson, spearman = _row(name).mean()
    assert f"{pearson:.1f}/{spearman:.1f}" in GUIDE


def test_students_are_above_what_they_started_from_at_its_price() -> None:
    means = {name: np.array(_row(name).mean()) for name in ROWS}
    assert (means["six layers"] > means["minilm"] + 3).all()
    assert (means["three layers"] > means["minilm"] + 2).all()
    assert (means["static"] > means["wordllama"] + 3).all()
    times = {name: row["milliseconds"] for name, row in ROWS.items()}
    assert times["static"] < times["three layers"] < times["six layers"] < times["twelve layers"] < times["teacher"]
