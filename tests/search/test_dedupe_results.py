"""What results/groups.md and docs/guides/groups.md say is what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.groups_page import clusters_table, page, scores_table, unseen_table
from ensembed.search.groups import FALSE_PAIRS
from ensembed.search.groups.clusters import CANDIDATES

ROOT = Path(__file__).parents[2]
FACTS: dict[str, Any] = json.loads((ROOT / "results" / "groups.json").read_text())
DOCS = (ROOT / "docs" / "guides" / "groups.md").read_text()
FLAT = " ".join(DOCS.split())


def test_the_results_page_is_made_of_the_figures() -> None:
    assert (ROOT / "results" / "groups.md").read_text() == page(FACTS)


@pytest.mark.parametrize("table", [scores_table, unseen_table, clusters_table])
def test_the_docs_have_the_tables(table: Any) -> None:  # noqa: ANN401 - a function of the figures
    assert table(FACTS) in DOCS


def test_the_docs_name_the_constants() -> None:
    assert f"`--false-pairs`, {FALSE_PAIRS:g}" in FLAT
    *most, last = map(str, CANDIDATES)
    assert f"{', '.join(most)} and {last}" in FLAT


def test_the_docs_claim_only_what_was_measured() -> None:
    """The sentences that say how the ensemble does beside its best member."""
    found = FACTS["duplicates"]
    best = FACTS["best_member"]
    over = found["auto"]["over_best_member"]
    interval = f"{100 * over['difference']:+.1f}, 95% interval {100 * over['low']:+.1f} to {100 * over['high']:+.1f}"
    assert f"{best} ({interval})" in FLAT
    assert over["low"] < 0 < over["high"]  # the docs say: a tie
    for where in ("pairs", "unseen"):
        for name in ("auto", best):
            at = {key: f"{100 * found[name][where][key]:.1f}" for key in ("precision", "recall", "f1")}
            assert f"{name} has precision {at['precision']}, recall {at['recall']} and F1 {at['f1']}" in FLAT
        assert found["auto"][where]["f1"] < found[best][where]["f1"]  # the docs say: it does not beat it
    level = [f"{100 * found[name]['pairs']['best_f1']:.1f}" for name in ("auto", best)]
    assert f"(F1 {level[0]} and {level[1]})" in FLAT
    unseen = {name: one["unseen"]["ap"] for name, one in found.items()}
    assert f"{100 * unseen['auto']:.1f} against {100 * unseen[best]:.1f}" in FLAT
    gap = [100 * (one["pairs"]["best_f1"] - one["pairs"]["f1"]) for one in found.values()]
    assert f"{min(gap):.1f} to {max(gap):.1f} points of F1" in FLAT
    told = [one["told_by_gold"] for one in found.values()]
    low, high = (max(100 * max(part[:3]) for part in told), max(100 * part[3] for part in told))
    assert f"at most {low:.1f}% of the pairs below a gold score of 3, and {high:.1f}% of those from 3 to 4" in FLAT


def test_the_docs_have_the_figures_of_clusters() -> None:
    means = {name: 100 * float(np.mean([run["v"] for run in one["given"]])) for name, one in FACTS["clusters"].items()}
    members = {name: value for name, value in means.items() if name in FACTS["encoders"]}
    best = max(members, key=lambda name: members[name])
    assert f"auto {means['auto']:.1f}, gcca {means['gcca']:.1f}, the best member {best} {members[best]:.1f}" in FLAT
