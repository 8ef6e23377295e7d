"""The table of truncated vectors: what is stored is what the page says, and truncating pays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ensembed.methods import Concat
from ensembed.sts.datasets import Dataset, Pairs
from ensembed.support.progress import silent
from experiments.dimensions_table import SIZES, score_sizes, table

RESULTS = Path(__file__).parents[2] / "results"
TEXTS = tuple(f"w{i % 17} v{i % 23} u{i} t{i * i}" for i in range(90))


def _stored() -> Any:  # noqa: ANN401 - JSON
    return json.loads((RESULTS / "dimensions.json").read_text())["scores"]


def test_the_page_says_what_its_data_says() -> None:
    page = (RESULTS / "dimensions.md").read_text()
    for label, scores in _stored().items():
        [row] = [line for line in page.splitlines() if line.startswith(f"| {label} |")]
        for score in scores.values():
            assert f"{100 * score['pearson']:.1f}/{100 * score['spearman']:.1f}" in row


def test_a_quarter_of_the_dimensions_scores_as_all_do() -> None:
    scores = _stored()
    assert scores["auto"]["256"]["spearman"] > scores["auto"]["1152"]["spearman"] - 0.002
    for label in ("auto", "conc", "avg"):
        assert scores[label]["256"]["spearman"] > scores[f"{label}, first columns"]["256"]["spearman"]


def test_every_size_that_a_system_has_is_scored() -> None:
    dev = Dataset.of(Pairs("mine", TEXTS, TEXTS[::-1], np.arange(float(len(TEXTS))) % 6))
    systems = score_sizes({"conc": Concat()}, ("demo?dim=40&seed=1", "demo?dim=30&seed=2"), list(TEXTS), dev, silent)
    assert list(systems["conc"]) == [32, 64, 70]
    head, rows = table(systems)
    assert len(head) == 2 + len(SIZES)
    assert [len(row) for row in rows] == [len(head)] * len(systems)
