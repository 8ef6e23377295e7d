"""Mixtures score as the fitted method does; the search finds the best setting; the page says what its data says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ensembed.corpora.corpus import ListCorpus
from ensembed.methods.auto import Auto
from ensembed.models.ensemble import Ensemble
from ensembed.paper.notebook import from_json
from ensembed.sts.datasets import Pairs
from ensembed.tasks import Classification, Clustering, Ranking, Task, evaluate_tasks
from ensembed.tasks.pair_tasks import pair_task
from ensembed.views import ViewStore
from experiments.tasks_ceiling import Ceiling, Ceilings, Found, climb, page, summary
from experiments.tasks_mixtures import Part, Setting, Vectors, mixtures

RESULTS = Path(__file__).parents[2] / "results"
MEMBERS = ("demo?dim=24&seed=1", "demo?dim=16&seed=2")
WORDS = ["card", "bank", "lost", "pizza", "pasta", "order", "train", "ticket", "late", "rain", "sun", "cloud"]
TEXTS = tuple(" ".join(WORDS[(i * k) % 12] for k in (1, 5, 7)) + f" {i}" for i in range(60))
LABELS = tuple("abc"[i % 3] for i in range(60))


def tasks() -> list[Task]:
    ids = tuple(f"d{i}" for i in range(60))
    relevance = {f"q{i}": {f"d{i}": 1.0, f"d{i + 9}": 1.0} for i in range(12)}
    queries = tuple(f"{TEXTS[i]} {TEXTS[i + 9]}" for i in range(12))
    pairs = Pairs("pairs", TEXTS[:30], TEXTS[30:], np.arange(30.0) % 2)
    grades = Pairs("grades", TEXTS[:30], TEXTS[30:], np.arange(30.0) % 7)
    return [
        Ranking("search", tuple(relevance), queries, ids, TEXTS, relevance),
        Classification("classes", TEXTS, LABELS),
        Clustering("clusters", TEXTS, LABELS),
        pair_task(pairs),
        pair_task(grades),
    ]


@pytest.mark.parametrize("whitened", [(), (1,)])
def test_mixtures_score_as_the_fitted_method(tmp_path: Path, whitened: tuple[int, ...]) -> None:
    store = ViewStore(tmp_path)
    vectors = Vectors(MEMBERS, store)
    encoders = list(vectors.encoders.values())
    for name, encoder in vectors.encoders.items():
        vectors.whiten(name, encoder.encode(list(TEXTS)))
    model = Ensemble(encoders).fit(ListCorpus(TEXTS), Auto(weights=(1.0, 0.4), whitened=whitened), store=store)
    results = evaluate_tasks({"auto": model}, tasks(), resamples=0, main_only=True, store=store)
    setting = {(MEMBERS[0], False): 1.0, (MEMBERS[1], bool(whitened)): 0.4}
    for task, result in zip(tasks(), results.results["auto"], strict=True):
        some = mixtures(task, vectors)
        assert some.score(setting) == pytest.approx(100 * result.figures[result.main].value, abs=1e-6)
        assert some.rough(setting) == pytest.approx(some.score(setting), abs=15)


def test_the_search_finds_weight_and_whitening() -> None:
    def score(setting: Setting) -> float:
        return -abs(setting.get(("b", False), 9.0) - 0.8) + setting.get(("a", True), 0.0)

    start: dict[Part, float] = {("a", False): 1.0, ("b", True): 0.1}
    assert climb(score, start, "a", 4) == {("a", True): 1.0, ("b", False): pytest.approx(0.8)}


def test_summary_and_page_are_computed() -> None:
    found = Found({"a": 1.0, "b whitened": 0.25}, {"x": 72.0, "y": 60.0})
    each = {"x": Found({"a": 1.0}, {"x": 74.0}), "y": Found({"b": 1.0}, {"y": 60.0})}
    row = Ceiling(("a", "b"), {"x": 71.0, "y": 60.0}, {"x": 70.5, "y": 60.0}, found, each)
    made = Ceilings({"ensembed": "9.9"}, {"a": {"x": 70.0, "y": 60.0}, "b": {"x": 50.0, "y": 50.0}}, (row,))
    common, own, auto, part = summary(made)
    assert "is at +1.00 points over the best member" in common
    assert "at +0.50 over the better of conc" in common
    assert "is at +2.00 points over the best member" in own
    assert "in 1 of 1 ensembles" in own
    assert "is at +0.25 points" in auto
    assert part == "auto reaches 25% of the gain of the first."
    assert "| a + b | a 65.0 | 65.5 | +0.25 | -0.25 | +1.00 | +0.50 | +2.00 | +1.50 |" in page(made)
    assert "| a + b |  | 1 | 0.25 w |" in page(made)


def test_the_page_in_the_repository_says_what_its_data_says() -> None:
    stored = from_json(Ceilings, (RESULTS / "tasks-ceiling.json").read_bytes())
    assert (RESULTS / "tasks-ceiling.md").read_text() == page(stored)
