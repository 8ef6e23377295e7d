"""The table of static students: what is stored is what the page says, and training pays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.distil_table import plans, student_folder

RESULTS = Path(__file__).parents[2] / "results"


def _rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((RESULTS / "distil.json").read_text())["rows"]
    return rows


def test_the_page_says_what_its_data_says() -> None:
    page = (RESULTS / "distil.md").read_text()
    for row in _rows():
        [line] = [line for line in page.splitlines() if line.startswith(f"| {row['label']} |")]
        assert f"{100 * row['dev']['pearson']:.1f}/{100 * row['dev']['spearman']:.1f}" in line
        if row["figures"] is not None:
            assert f"{100 * row['figures']['best']['overlap']:.1f}% {row['figures']['best']['spearman']:.3f}" in line


def test_training_pays_and_more_text_pays() -> None:
    students = [row for row in _rows() if row["figures"] is not None]
    for row in students:
        assert row["figures"]["best"]["overlap"] > row["figures"]["start"]["overlap"]
    same_start = [row for row in students if "+" in row["label"]]
    by_text = sorted(same_start, key=lambda row: row["figures"]["facts"]["sentences"])
    overlaps = [row["figures"]["best"]["overlap"] for row in by_text]
    assert overlaps[-1] > overlaps[0]
    assert all(row["seconds"] < 600 for row in students)  # of processor time: five minutes on two cores


def test_every_student_has_a_folder_of_its_own() -> None:
    made = plans([25, 50], ["none", "members", "a+b"], 8)
    assert [plan.start for plan in made.values()] == [("none",), None, ("a", "b"), ("a", "b"), ("a", "b"), ("a", "b")]
    assert len({student_folder(Path(), label) for label in made}) == 6
