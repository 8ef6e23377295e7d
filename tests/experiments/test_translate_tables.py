"""The experiments about maps: their pieces and queries, and the pages in the repository beside their data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.numerics.row_matrices import unit_rows
from ensembed.views import ViewStore
from experiments import missing_table, translate_table
from experiments.missing_table import Needed
from experiments.translate_ceiling import FAMILIES, FEW, Search, needs, scores
from experiments.translate_table import Row, chosen_queries, embedded, verdicts

RESULTS = Path(__file__).parents[2] / "results"
TEXTS = [f"text {i} of {i % 7} and {i % 11}" for i in range(120)]


def test_texts_are_embedded_in_pieces_that_longer_runs_use_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translate_table, "_PIECE", 50)
    store, model = ViewStore(tmp_path), DemoEncoder(8)
    [some] = embedded(TEXTS[:100], [model], store)
    before = {path.name for path in tmp_path.iterdir()}
    [rows] = embedded(TEXTS, [model], store)
    np.testing.assert_allclose(rows, unit_rows(model.encode(TEXTS)), atol=1e-6)
    np.testing.assert_array_equal(rows[:100], some)
    assert len({path.name for path in tmp_path.iterdir()} - before) == 1  # only the last 20 texts were embedded


def test_queries_are_chosen_at_random_and_always_the_same(tmp_path: Path) -> None:
    (tmp_path / "queries.txt").write_text("\n".join(TEXTS))
    some = chosen_queries(tmp_path / "queries.txt", 10)
    assert len(set(some)) == 10
    assert some == chosen_queries(tmp_path / "queries.txt", 10) != TEXTS[:10]
    assert chosen_queries(tmp_path / "queries.txt", 500) == TEXTS


def test_a_verdict_names_the_best_of_the_other_maps() -> None:
    rows = [Row("a to b", "ensembed translate", 0.4, 0.3), Row("a to b", "non-linear: kernel", 0.41, 0.3)]
    [line] = verdicts(rows)
    assert "the best of 1 non-linear maps (non-linear: kernel) finds 0.410, ours 0.400. None reaches" in line


def test_the_ceiling_finds_a_rotation_with_every_family() -> None:
    import torch

    torch.manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(700, 6), dim=1)
    y = x @ torch.linalg.qr(torch.randn(6, 6))[0]
    search = Search.of(x[500:], y[500:], y[500:520])
    effort = replace(FEW, counts=(512,), hidden=(0, 64), layers=(1,), steps=200, batch=128)
    for family in FAMILIES:
        best = max(scores("a to b", x[:500], y[:500], search, effort, family), key=lambda score: score.recall)
        assert best.recall > (0.99 if best.family == "linear" else 0.8), best
        assert best.explained > 0.8
    [line] = needs({"a to b": {"own lists": 0.2, "explained": 0.5, "needed": search.needed(x[500:])}}, [best])
    assert "have 0.200 in common" in line
    assert search.needed(y[500:]) == pytest.approx(1.0, abs=1e-6)


def test_what_a_prediction_takes_is_said_in_words() -> None:
    assert "no map that was tried" in missing_table.verdict(
        Needed("minilm", 0.87, 0.35, 0.38, 0.73, [("members", 20_000, 0.5, 0.8)])
    )
    assert "know enough" in missing_table.verdict(Needed("minilm", 0.3, 0.35, 0.38, 0.9, []))
    assert "know enough" in missing_table.verdict(
        Needed("minilm", 0.6, 0.35, 0.38, 0.9, [("members", 20_000, 0.7, 0.9)])
    )


def test_the_page_of_translations_says_what_its_data_says() -> None:
    data = json.loads((RESULTS / "translate.json").read_text())
    page = (RESULTS / "translate.md").read_text()
    assert data["command"] in page
    assert f"{data['texts']:,} texts" in page
    pairs = {row["pair"] for row in data["rows"]}
    assert pairs == {f"{source} to {target}" for source, target in translate_table.PAIRS}
    for row in data["rows"]:
        assert f"| {row['pair']} | {row['way']} | {row['recall_10']:.3f} | {row['recall_1']:.3f} |" in page
        if row["expected"]:  # no more is promised than is found
            assert row["expected"][0] <= row["recall_10"]


def test_a_predicted_member_keeps_more_neighbours_than_a_dropped_one() -> None:
    data = json.loads((RESULTS / "missing.json").read_text())
    page = (RESULTS / "missing.md").read_text()
    kept = {row[0]: float(row[3]) for row in data["rows"]}
    for proof in data["needed"]:
        assert kept[f"without {proof['member']}, predicted"] >= kept[f"without {proof['member']}, dropped"]
        assert f"| {proof['member']} | {proof['half']:.2f} | {proof['linear']:.2f} |" in page
