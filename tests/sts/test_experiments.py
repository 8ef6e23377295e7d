"""The laboratory and the main table, on demo encoders and small data sets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from invented_sts import CORPUS, MEMBERS, dataset

from ensembed import Ensemble, ViewStore
from ensembed.methods import GCCA, SVD, Average, Concat, Method
from ensembed.sts import evaluate_all, paper
from ensembed.sts.experiments import Laboratory
from ensembed.sts.main_table import AUTOENCODER, DEV, MainTable

DATASETS = [
    dataset("sts13", ("FNWN", "OnWN", "headlines"), ("SMT",)),
    dataset("stsb-test", ("stsb-test",)),
    dataset(DEV, (DEV,)),
]


@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    return Laboratory.prepare(Ensemble(MEMBERS), CORPUS, DATASETS, store=ViewStore(tmp_path))


@pytest.mark.parametrize("method", [Concat(), Average(), SVD(4), GCCA(4, 1.0), GCCA(4, 10.0)])
def test_scores_are_those_of_the_fitted_model(laboratory: Laboratory, method: Method) -> None:
    model = laboratory.ensemble.fit(CORPUS, method)
    expected = {result.dataset: result.score for result in evaluate_all(model.encode, DATASETS)}
    row = laboratory.meta(method)
    assert row.dim == model.spec.dim
    for name, score in expected.items():
        assert row.scores[name].pearson == pytest.approx(score.pearson, abs=1e-5)
        assert row.scores[name].spearman == pytest.approx(score.spearman, abs=1e-3)


def test_members_are_scored_alone(laboratory: Laboratory) -> None:
    for encoder, row in zip(laboratory.ensemble.encoders, laboratory.singles(), strict=True):
        [_, _, dev] = evaluate_all(encoder.encode, DATASETS)
        assert row.label == f"single:{encoder.spec.name}"
        assert row.scores[DEV].pearson == pytest.approx(dev.score.pearson, abs=1e-6)


def test_up_projections_are_a_mean_over_seeds_of_the_smaller_members(laboratory: Laboratory) -> None:
    rows = laboratory.up_projections(8, seeds=3)
    assert [row.label for row in rows] == [f"single:{name} up" for name in MEMBERS[1:]]
    alone = [laboratory.up_projections(8, seeds=1), rows]
    assert alone[0][0].scores[DEV] != alone[1][0].scores[DEV]


def test_the_table_says_what_was_chosen_what_is_missing_and_who_wins(laboratory: Laboratory) -> None:
    table = MainTable(laboratory, "invented sentences")
    metas = ["meta:conc", "meta:avg", "meta:svd", "meta:gcca", "meta:ae"]
    assert [row.label for row in table.rows][-5:] == metas
    text = table.text()
    assert "on STS-B dev" in text
    assert "sts13 is without SMT" in text
    assert "invented sentences" in text
    means = {row.label: np.mean([row.scores[name].pearson for name in ("sts13", "stsb-test")]) for row in table.rows}
    best = max(means[f"single:{name}"] for name in MEMBERS)
    for label in metas:
        [line] = [line for line in text.splitlines() if line.startswith(f"{label} (")]
        assert ("above" if means[label] > best else "BELOW") in line


def test_tau_is_the_best_on_dev_and_on_nothing_else(laboratory: Laboratory) -> None:
    table = MainTable(laboratory, "invented sentences")
    scores = [laboratory.meta(GCCA(8, tau)).scores[DEV].pearson for tau in (0.01, 0.1, 1.0, 10.0, 100.0)]
    [row] = [row for row in table.rows if row.label == "meta:gcca"]
    assert row.scores[DEV].pearson == max(scores)


def test_the_autoencoder_is_the_documented_one_and_reports_its_epochs(laboratory: Laboratory) -> None:
    epochs: list[int] = []

    def report(label: str, done: int, _total: int | None, /) -> None:
        if label.startswith("train · loss"):
            epochs.append(done)

    row = MainTable(replace(laboratory, progress=report), "invented sentences").rows[-1]
    assert epochs == list(range(1, AUTOENCODER.epochs + 1))
    assert row.scores == laboratory.meta(replace(AUTOENCODER, dim=8)).scores
    assert f"{AUTOENCODER.loss}, hidden layers: {AUTOENCODER.hidden_layers}, 20 epochs" in row.note


def test_the_papers_sts13_is_without_smt_where_ours_is(laboratory: Laboratory) -> None:
    [line] = [line for line in MainTable(laboratory, "x").text().splitlines() if line.startswith("paper meta:gcca")]
    without = paper.mean_over("gcca", "sts13", ["FNWN", "OnWN", "headlines"])
    assert f"{without.pearson:.1f}/{without.spearman:.1f}" in line
    assert "83.9/84.4" in line


def test_markdown_and_json_carry_their_provenance(laboratory: Laboratory) -> None:
    table = MainTable(laboratory, "invented sentences")
    assert "ensembed 0." in table.markdown()
    data = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert data["corpus"]["key"] == CORPUS.key
    assert data["corpus"]["sentences"] == len(CORPUS)
    assert data["datasets"][0]["missing"] == ["SMT"]
    assert len(data["rows"]) == len(table.rows)


def test_nothing_is_encoded_twice(laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise AssertionError("encoded again")

    monkeypatch.setattr("ensembed.encoders.demo.DemoEncoder.embed", refuse)
    again = Laboratory.prepare(Ensemble(MEMBERS), CORPUS, DATASETS, store=ViewStore(tmp_path))
    assert [row.scores for row in again.singles()] == [row.scores for row in laboratory.singles()]
