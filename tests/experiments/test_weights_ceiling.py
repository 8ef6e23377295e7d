"""The table of weights chosen with the labels: the search finds weights, and what is stored is what the page says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ensembed.sts.datasets import Dataset, Pairs
from experiments.weights_ceiling import Ceilings, ScoredPairs

RESULTS = Path(__file__).parents[2] / "results"


def _pairs(gold: np.ndarray, cosines: np.ndarray) -> ScoredPairs:
    texts = tuple(str(k) for k in range(len(gold)))
    return ScoredPairs([Dataset.of(Pairs("made", texts, texts, gold))], cosines, cosines)


def test_search_finds_weights_that_score_better_than_every_member() -> None:
    rng = np.random.default_rng(0)
    gold = rng.uniform(0, 5, 2000)
    errors = rng.standard_normal((3, 2000)) * np.array([[1.0], [1.0], [20.0]])
    pairs = _pairs(gold, gold + errors)
    weights = pairs.best_weights(pairs.plain, np.eye(3)[pairs.best_of([0, 1, 2])])
    assert (pairs.score(weights @ pairs.plain) > pairs.alone.max(axis=0) + 1).all()
    # Members with independent errors of equal size count the same; one with errors twenty times as large hardly at all.
    assert 0.5 < weights[0] / weights[1] < 2
    assert weights[2] < 0.1 * max(weights)


def test_the_page_says_what_its_data_says() -> None:
    page, data = ((RESULTS / f"weights-ceiling.{kind}").read_text() for kind in ("md", "json"))
    gains = json.loads(data)["gains"]
    [ensembles] = {tuple(values) for values in gains.values()}
    near = json.loads(data)["near"]
    ceilings = Ceilings(
        [tuple(name.split(" + ")) for name in ensembles],
        {label: [np.array(gain) for gain in values.values()] for label, values in gains.items()},
        near,
    )
    for row in ceilings.rows():
        assert f"| {' | '.join(row)} |" in page
