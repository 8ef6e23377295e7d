"""The table of tasks says what its data says; the smaller sets keep what is judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ensembed.paper.notebook import from_json, to_json
from ensembed.tasks import Classification, Clustering, Ranking
from ensembed.tasks.task import VectorTask
from experiments import tasks_sets
from experiments.tasks_sets import smaller
from experiments.tasks_table import METHODS, Gain, Row, Scored, Tables, fuse, page, summary

RESULTS = Path(__file__).parents[2] / "results"

SETS = {
    "search ndcg@10": {"part": "final", "kind": "retrieval", "figure": "ndcg@10", "items": "9"},
    "mail centroid": {"part": "final", "kind": "classification", "figure": "centroid", "items": "9"},
    "pairs ap": {"part": "choice", "kind": "pair classification", "figure": "ap", "items": "9"},
}


def scores(*values: float) -> dict[str, float]:
    return dict(zip(SETS, values, strict=True))


MADE = Tables(
    provenance={"ensembed": "9.9"},
    sets=SETS,
    singles={"a": scores(60, 70, 40), "b": scores(50, 60, 50)},
    milliseconds={"a": 2.0, "b": 0.5},
    rows=(
        Row(
            ("a", "b"),
            {
                method: Scored(
                    scores(64, 70, 48),
                    {"final": Gain(2.0, 1.0, 3.0), "choice": Gain(-2.0, -3.0, -1.0)},
                    {label: Gain(0.0, -1.0, 1.0) for label in SETS},
                    {},
                )
                for method in METHODS
            }
            | {
                "auto": Scored(
                    scores(62, 71, 51),
                    {"final": Gain(1.5, 0.5, 2.5), "choice": Gain(1.0, 0.0, 2.0)},
                    {"search ndcg@10": Gain(-2.0, -3.0, -1.0)}
                    | {label: Gain(1.0, 0.0, 2.0) for label in list(SETS)[1:]},
                    {"a": 1.0, "b": 0.25},
                )
            },
            {"search ndcg@10": 63.0},
        ),
    ),
)


def test_summary_and_page_are_computed() -> None:
    first, second, lost, *_, last = summary(MADE)
    assert "Of 2 single results on final sets auto loses more than 0.5 points beyond the interval" in lost
    assert lost.endswith("in 1 (search ndcg@10 1).")
    assert "in 1 of 1 ensembles, by +1.50 points" in first
    assert "at -0.50 in the mean, -0.50 at worst" in first  # conc is at 67
    assert "it is at +1.00 in the mean" in second
    assert last.startswith("Reciprocal rank fusion of the members' lists is +1.00 from auto")
    made = page(MADE)
    assert "| a + b | 2.5 | a 65.0 | 67.0 | 67.0 | 67.0 | 67.0 | 66.5 | +1.5 (+0.5 to +2.5) |" in made
    assert "| a | 2.00 | 65.0 | 40.0 | 60.0 | 70.0 | 40.0 |" in made
    assert from_json(Tables, to_json(Tables, MADE)) == MADE


def test_smaller_sets_keep_what_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_sets, "DOCUMENTS", 5)
    monkeypatch.setattr(tasks_sets, "LABELLED", 6)
    ids = tuple(f"d{i}" for i in range(20))
    task = Ranking("mine", ("q",), ("q",), ids, ids, {"q": {"d3": 1, "d19": 0}})
    small = smaller(task)
    assert isinstance(small, Ranking)
    assert len(small.documents) == 5
    assert {"d3", "d19"} <= set(small.document_ids)
    assert smaller(task).fingerprint == small.fingerprint
    labels = tuple("ab"[i % 2] for i in range(20))
    for labelled in (Clustering("mine", ids, labels), Classification("mine", ids, labels, ids, labels)):
        fewer = smaller(labelled)
        assert isinstance(fewer, VectorTask)
        assert len(fewer.texts()["texts"].texts) == 6


def test_fusion_prefers_what_both_lists_have() -> None:
    ids = ("a", "b", "c")
    task = Ranking("mine", ("q",), ("q",), ids, ids, {"q": {"b": 1}})
    assert fuse(task, [[np.array([0, 1, 2])], [np.array([2, 1, 0])]]) < 100  # b is second in both
    assert fuse(task, [[np.array([1, 0, 2])], [np.array([1, 2, 0])]]) == 100


def test_the_page_in_the_repository_says_what_its_data_says() -> None:
    stored = from_json(Tables, (RESULTS / "tasks.json").read_bytes())
    assert (RESULTS / "tasks.md").read_text() == page(stored)
