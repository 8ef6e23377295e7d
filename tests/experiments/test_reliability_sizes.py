"""The table of how many sentences it takes: what is stored is what the page says, and the bound is a safe one."""

from __future__ import annotations

import json
from pathlib import Path

from experiments.reliability_sizes import SIZES, table

RESULTS = Path(__file__).parents[2] / "results"


def test_the_page_says_what_its_data_says() -> None:
    page = (RESULTS / "reliability-sizes.md").read_text()
    for row in table(json.loads((RESULTS / "reliability-sizes.json").read_text())["samples"]):
        assert f"| {' | '.join(row)} |" in page


def test_no_sample_as_large_as_a_member_has_dimensions_trusts_the_wrong_one() -> None:
    samples = json.loads((RESULTS / "reliability-sizes.json").read_text())["samples"]
    assert all(sample["right"] for sample in samples if sample["size"] >= 384)
    assert not all(sample["right"] for sample in samples if sample["size"] == min(SIZES))
