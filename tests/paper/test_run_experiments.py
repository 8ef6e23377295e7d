"""All experiments on a small laboratory: each figure is what its own definition gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from invented_sts import CORPUS, MEMBERS
from scipy.stats import rankdata
from small_laboratory import DATASETS, small_laboratory

from ensembed import Ensemble
from ensembed.errors import DatasetError, InputError
from ensembed.methods import GCCA, SVD, Auto, Autoencoder, Average, Concat, Meta, UpProjection
from ensembed.paper.experiments import dev_experiments
from ensembed.paper.experiments.dev_experiments import LAYERS, LOSSES, TAUS, Training, autoencoder
from ensembed.paper.experiments.run_experiments import Plan, run_experiments
from ensembed.paper.findings import DEV, MEAN, NO_CORPUS, Findings
from ensembed.paper.laboratory import Laboratory
from ensembed.paper.tables.table_formats import all_tables
from ensembed.sts import Dataset, Pairs, distinct_sentences, evaluate, evaluate_all, predict

PLAN = Plan("ensembed reproduce", seeds=3, draws=2, resamples=400)
WHAT = ["invented sentences", "others"]
DEV_SET = DATASETS[-1]


def short(_training: Training, rows: int, **what: Any) -> Autoencoder:  # noqa: ANN401 - what an autoencoder takes
    return Autoencoder(**what, epochs=2, batch_size=rows, device="cpu", precision="float32", solver="batches")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("laboratory")


@pytest.fixture(scope="module")
def findings(folder: Path) -> Findings:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dev_experiments, "autoencoder", short)
        patch.setattr(dev_experiments, "SIZES", (50, 100, 1000))
        patch.setattr(dev_experiments, "LEAST_DIM", 2)
        return run_experiments(small_laboratory(folder), PLAN, WHAT)


def test_main_table_has_the_papers_rows_and_then_our_own(findings: Findings) -> None:
    ups = [f"single:{name} up" for name in MEMBERS[1:]]  # the first is as large as d
    metas = [f"meta:{name}" for name in ("conc", "avg", "svd", "gcca", "ae", "auto")]
    assert [one.label for one in findings.systems] == [*(f"single:{name}" for name in MEMBERS), *ups, *metas]
    assert [one.corpus for one in findings.systems[-6:]] == [NO_CORPUS, NO_CORPUS, *["main"] * 4]
    assert findings.tests == ["sts13", "stsb-test"]
    assert [one.missing for one in findings.datasets] == [("SMT",), (), ()]
    assert findings.corpora[0].key == CORPUS.key


def test_scores_are_those_of_fitted_models(findings: Findings) -> None:
    tau = max(findings.taus, key=lambda point: point.score.pearson).tau
    systems = {one.label: one for one in findings.systems}
    for method in (Concat(), Average(), SVD(8), GCCA(8, tau), Auto()):
        model = Ensemble(MEMBERS).fit(CORPUS, method)
        for result, expected in zip(systems[f"meta:{method.name}"].results, evaluate_all(model, DATASETS), strict=True):
            assert result.score.pearson == pytest.approx(expected.score.pearson, abs=1e-4)
            assert [part.name for part in result.parts] == [part.name for part in expected.parts]
        mean = np.mean([evaluate(model, one).score.pearson for one in DATASETS[:-1]])
        assert systems[f"meta:{method.name}"].score(MEAN).pearson == pytest.approx(mean, abs=1e-4)


def test_tau_and_autoencoder_are_chosen_on_dev_alone(findings: Findings) -> None:
    assert [point.tau for point in findings.taus] == list(TAUS)
    for point in findings.taus:
        model = Ensemble(MEMBERS).fit(CORPUS, GCCA(8, point.tau))
        assert point.score.pearson == pytest.approx(evaluate(model, DEV_SET).score.pearson, abs=1e-4)
    assert [(one.hidden_layers, one.loss) for one in findings.autoencoders] == [
        (layers, loss) for layers in LAYERS for loss in ("untrained", *LOSSES)
    ]
    systems = {one.label: one for one in findings.systems}
    trained = [one.score.pearson for one in findings.autoencoders if one.loss != "untrained"]
    best = max(point.score.pearson for point in findings.taus)
    assert systems["meta:gcca"].score(DEV).pearson == pytest.approx(best, abs=1e-6)  # batches round differently
    assert systems["meta:ae"].score(DEV).pearson == pytest.approx(max(trained), abs=1e-6)
    assert "on STS-B dev" in systems["meta:gcca"].note
    assert "the best of the search on main, by STS-B dev" in systems["meta:ae"].note


def test_an_untrained_autoencoder_has_the_weights_that_were_drawn(findings: Findings) -> None:
    drawn = Autoencoder(8, 1, loss="mse", epochs=1, batch_size=1000, learning_rate=1e-7, device="cpu", solver="batches")
    expected = evaluate(Ensemble(MEMBERS).fit(CORPUS, drawn), DEV_SET).score
    [found] = [one for one in findings.autoencoders if (one.hidden_layers, one.loss) == (1, "untrained")]
    assert found.score.pearson == pytest.approx(expected.pearson, abs=1e-4)


def test_up_projections_are_mean_and_spread_over_seeds(findings: Findings) -> None:
    [row] = [one for one in findings.systems if one.label == f"single:{MEMBERS[1]} up"]
    [encoder] = Ensemble([MEMBERS[1]]).encoders
    runs = []
    for seed in range(3):
        projection = UpProjection(8, seed).build([6])
        vectors = projection.transform([encoder.encode(distinct_sentences([DEV_SET]))])
        runs.append(evaluate(partial(lambda found, _texts: found, vectors), DEV_SET).score.pearson)
    assert row.score(DEV).pearson == pytest.approx(np.mean(runs), abs=1e-6)
    assert row.spread[DEV].pearson == pytest.approx(np.std(runs, ddof=1), abs=1e-6)
    assert set(row.spread) == {"sts13", "stsb-test", DEV, MEAN}


def test_ablations_leave_one_member_out(findings: Findings) -> None:
    assert [(one.method, one.without) for one in findings.ablations] == [
        (method, without) for method in ("svd", "gcca", "ae") for without in ("", *MEMBERS)
    ]
    for without in MEMBERS:
        [found] = [one for one in findings.ablations if (one.method, one.without) == ("svd", without)]
        model = Ensemble([name for name in MEMBERS if name != without]).fit(CORPUS, SVD(8))
        assert found.score.pearson == pytest.approx(evaluate(model, DEV_SET).score.pearson, abs=1e-4)


def test_curves_end_at_the_scores_of_the_main_table(findings: Findings) -> None:
    systems = {one.label: one for one in findings.systems}
    for curve, last in ((findings.dimensions, None), (findings.sizes, len(CORPUS))):
        for label in {point.label for point in curve}:
            points = [point for point in curve if point.label == label]
            assert [point.x for point in points] == sorted({point.x for point in points})
            score = systems[label].score(DEV)
            assert points[-1].score.pearson == pytest.approx(score.pearson, abs=1e-6)
            assert points[-1].score.spearman == pytest.approx(score.spearman, abs=1e-6)
            assert points[-1].x == (last or systems[label].dim)
    assert [point.x for point in findings.dimensions if point.label == "meta:svd"] == [2, 4, 8]
    assert [(one.x, one.draws) for one in findings.sizes if one.label == "meta:svd"] == [(50, 2), (100, 2), (250, 1)]
    assert [(one.x, one.draws) for one in findings.sizes if one.label == "meta:ae"] == [(50, 1), (100, 1), (250, 1)]
    assert all((one.spread is None) == (one.draws == 1) for one in findings.sizes)


def test_domains_cover_all_corpora_and_no_corpus(findings: Findings) -> None:
    learn = ["meta:svd", "meta:gcca", "meta:ae", "meta:auto"]
    assert [(one.corpus, one.label) for one in findings.domains] == [
        (NO_CORPUS, "meta:conc"),
        (NO_CORPUS, "meta:avg"),
        *(("main", label) for label in learn),
        *(("other", label) for label in learn),
    ]


def test_every_cost_is_that_of_its_members_and_the_combination(findings: Findings) -> None:
    cost = {one.label: one for one in findings.costs}
    members = sum(cost[f"single:{name}"].milliseconds for name in MEMBERS)
    for name in ("conc", "svd", "ae", "auto"):
        found = cost[f"meta:{name}"]
        assert found.milliseconds == pytest.approx(members + found.combining)
        assert found.combining > 0
    without = cost[f"meta:svd without {MEMBERS[0]}"]
    saved = cost[f"single:{MEMBERS[0]}"].milliseconds
    assert without.milliseconds == pytest.approx(members - saved + without.combining)
    assert without.mean is None


def test_changes_are_those_of_the_best_on_dev_against_the_best_member(findings: Findings) -> None:
    systems = {one.label: one for one in findings.systems}
    metas = [one for one in findings.systems if one.kind == "meta"]
    assert findings.changes.label == max(metas, key=lambda one: one.score(DEV).pearson).label
    assert findings.changes.member == findings.best_member.label
    assert systems[findings.changes.member].kind == "single"
    better = [one.gain for one in findings.changes.better]
    assert better == sorted(better, reverse=True)
    assert better[-1] > 0 > findings.changes.worse[-1].gain
    first = findings.changes.better[0]
    dataset = next(one for one in DATASETS if one.name == first.dataset)
    part = next(one for one in dataset.parts if one.name == first.part)
    assert first.sentences == (part.sentences1[first.pair], part.sentences2[first.pair])
    [encoder] = Ensemble([first_member := findings.changes.member.removeprefix("single:")]).encoders
    assert encoder.spec.name == first_member
    cosines = predict(encoder, [dataset])[0][dataset.parts.index(part)]
    places = (rankdata(cosines.round(9)) - 1) / (len(part) - 1)
    assert first.member_place == pytest.approx(places[first.pair], abs=0.05)
    gold = (rankdata(part.scores) - 1) / (len(part) - 1)
    assert first.gold_place == pytest.approx(gold[first.pair])
    gain = abs(first.member_place - first.gold_place) - abs(first.meta_place - first.gold_place)
    assert first.gain == pytest.approx(gain)


def test_intervals_hold_their_scores_and_metas_are_tested(findings: Findings) -> None:
    systems = {one.label: one for one in findings.systems}
    assert {(one.label, one.dataset) for one in findings.intervals} == {
        (label, name)
        for label, one in systems.items()
        if one.kind != "up"
        for name in ("sts13", "stsb-test", DEV, MEAN)
    }
    for one in findings.intervals:
        assert one.low.pearson < systems[one.label].score(one.dataset).pearson < one.high.pearson
    assert {one.label for one in findings.comparisons} == {label for label in systems if label.startswith("meta:")}


def test_findings_are_the_same_when_read_back(findings: Findings) -> None:
    assert Findings.from_json(findings.to_json()) == findings
    assert len(all_tables(findings)) > 10
    with pytest.raises(InputError, match="no Findings of this version"):
        Findings.from_json(b'{"command": 1}')


def test_a_second_run_fits_nothing(findings: Findings, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> Meta:
        raise AssertionError("fitted again")

    for method in (SVD, GCCA, Auto):
        monkeypatch.setattr(method, "solve", refuse)
    monkeypatch.setattr(Autoencoder, "fit", refuse)
    monkeypatch.setattr(Auto, "fit", refuse)
    monkeypatch.setattr("ensembed.paper.experiments.scored_systems.reliability", refuse)
    monkeypatch.setattr(dev_experiments, "autoencoder", short)
    monkeypatch.setattr(dev_experiments, "SIZES", (50, 100, 1000))
    monkeypatch.setattr(dev_experiments, "LEAST_DIM", 2)
    again = run_experiments(small_laboratory(folder), PLAN, WHAT)
    assert again.systems == findings.systems
    assert again.comparisons == findings.comparisons
    assert again.costs == findings.costs


def test_the_main_table_alone_leaves_the_rest_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensembed.paper.experiments.dev_experiments.autoencoder", short)
    plan = Plan("make demo", main_only=True, seeds=1, resamples=400)
    findings = run_experiments(small_laboratory(folder), plan, WHAT)
    assert [one.label for one in findings.systems if one.kind == "meta"][-2:] == ["meta:ae", "meta:auto"]
    assert "the best of a search with minilm and use-m3" in findings.systems[-2].note
    empty = (findings.autoencoders, findings.ablations, findings.dimensions, findings.sizes, findings.domains)
    assert not any(empty)
    assert {table.name for table in all_tables(findings)} >= {"table1-gcca", "table2-main"}


def test_run_without_autoencoders_and_texts(folder: Path) -> None:
    plan = Plan("x", training=None, seeds=1, draws=1, resamples=400, texts=False)
    findings = run_experiments(small_laboratory(folder), plan, WHAT)
    labels = {one.label for one in (*findings.systems, *findings.domains)}
    assert "meta:ae" not in labels
    assert not findings.autoencoders
    assert all(one.sentences is None for one in (*findings.changes.better, *findings.changes.worse))


def test_two_members_give_no_ablation(tmp_path: Path) -> None:
    laboratory = small_laboratory(tmp_path, members=MEMBERS[:2])
    findings = run_experiments(laboratory, Plan("x", training=None, seeds=1, draws=1, resamples=400), WHAT)
    assert findings.ablations == ()
    assert all("without" not in one.label for one in findings.costs)


def _one_member(laboratory: Laboratory) -> Laboratory:
    return replace(laboratory, ensemble=Ensemble(MEMBERS[:1]))


def _no_dev(laboratory: Laboratory) -> Laboratory:
    return replace(laboratory, datasets=laboratory.datasets[:1])


@pytest.mark.parametrize(
    ("spoil", "message"), [(_one_member, "at least two members"), (_no_dev, "need stsb-dev, on which all is chosen")]
)
def test_run_refuses_unusable_input_before_computing(
    tmp_path: Path, spoil: Callable[[Laboratory], Laboratory], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run_experiments(spoil(small_laboratory(tmp_path)), PLAN, WHAT)


def test_constant_members_and_tiny_corpora_are_refused_by_name(tmp_path: Path) -> None:
    laboratory = small_laboratory(tmp_path)
    mute = replace(laboratory, evaluation=[np.ones_like(laboratory.evaluation[0]), *laboratory.evaluation[1:]])
    with pytest.raises(InputError, match=r"member 'demo\?dim=8&seed=1' returns the same vector for every sentence"):
        run_experiments(mute, PLAN, WHAT)
    few = replace(laboratory, corpora={"few": [np.ones((99, 8))]})  # type: ignore[list-item] # all that has a length
    with pytest.raises(InputError, match="the corpus few has 99 sentences; at least 100 are needed"):
        run_experiments(few, PLAN, WHAT)
    pair = Dataset("sts12", (Pairs("MSRpar", ("a",), ("b",), np.array([1.0])),))
    with pytest.raises(DatasetError, match="needs at least two pairs"):
        run_experiments(replace(laboratory, datasets=[pair, DEV_SET]), PLAN, WHAT)


def test_a_reduced_training_sees_as_many_sentences_whatever_their_number() -> None:
    for rows in (1_000, 10_536, 136_628):
        method = autoencoder("reduced", rows, dim=512, hidden_layers=1, loss="kld")
        assert method.epochs * rows == pytest.approx(840 * 256, rel=0.3)
    assert autoencoder("paper", 10_536, dim=512, hidden_layers=1, loss="kld").epochs == 500
