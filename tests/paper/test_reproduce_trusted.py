"""This library's own method among the paper's: weights without a score, noted with the code that found them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from invented_sts import CORPUS, MEMBERS
from small_laboratory import small_laboratory

from ensembed.methods import Auto, Concat
from ensembed.paper.experiments import cost_per_sentence
from ensembed.paper.experiments import scored_systems as module
from ensembed.paper.experiments.cost_per_sentence import Times, costs, measure
from ensembed.paper.experiments.scored_systems import Scorer, Trusted, code, trusted
from ensembed.paper.laboratory import Laboratory
from ensembed.reliability import reliability

NAMES = ["small", "large", "odd"]


@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    return small_laboratory(tmp_path)


def test_weights_are_estimated_on_the_corpus_with_its_sentences(laboratory: Laboratory) -> None:
    found = trusted(laboratory, "main")
    views = [np.asarray(view) for view in laboratory.corpora["main"]]
    expected = reliability(views, sentences=CORPUS, names=MEMBERS)
    assert found.method == Auto().trusting(expected)
    assert (found.best, found.decided) == (expected.best, expected.decided)
    assert trusted(laboratory, "other").method != found.method


def test_estimate_reads_no_score_and_no_scored_sentence(laboratory: Laboratory) -> None:
    unscored = replace(small_laboratory(laboratory.store.root, fresh=True), datasets=(), evaluation=())
    assert trusted(unscored, "main") == trusted(laboratory, "main")


def test_estimate_is_recorded_until_its_code_changes(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    first = trusted(laboratory, "main")
    looks: list[Sequence[str]] = []

    def look(*_views: object, names: Sequence[str], **_options: object) -> None:
        looks.append(names)
        raise LookupError

    monkeypatch.setattr(module, "reliability", look)
    assert trusted(laboratory, "main") == first
    monkeypatch.setattr(module, "code", lambda: f"not {code()}")
    with pytest.raises(LookupError):
        trusted(laboratory, "main")
    assert looks == [MEMBERS]


def test_note_names_owner_trusted_member_and_weights() -> None:
    method = Auto(weights=(0.052, 1.0, 0.0), whitened=(0,))
    note = Trusted(1, "words", 0.61, method).note(NAMES, "news")
    assert note.startswith("this library's own, not the paper's; it trusts large most (of those that hardly")
    assert "61% sure" in note
    assert "weights: small 0.052, large 1, odd 0, found on news without a score; softly whitened: small" in note
    alike = Trusted(0, "nothing", 0.4, Auto(weights=(1.0, 1.0, 1.0))).note(NAMES, "news")
    assert "nothing told which member to trust most; weights: small 1, large 1, odd 1" in alike
    assert "trusts" not in alike
    assert "whitened" not in alike


def test_members_of_weight_zero_cost_nothing(laboratory: Laboratory) -> None:
    scorer = Scorer(laboratory, "mean")
    metas = [scorer.meta(Concat()), scorer.meta(Auto(weights=(1.0, 0.0, 0.5)), "main")]
    times = Times(10, (0.001, 0.010, 0.100), {"meta:conc": 0.0, "meta:auto": 0.0})
    found = {one.label: one.milliseconds for one in costs(times, scorer.singles(), metas, [], MEMBERS)}
    assert found["meta:conc"] == pytest.approx(111)
    assert found["meta:auto"] == pytest.approx(101)


def test_changed_weights_do_not_time_encoders_again(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = Scorer(laboratory, "mean")
    first, other = (
        [scorer.meta(Concat()), scorer.meta(Auto(weights=(1.0, weight, 0.5)), "main")] for weight in (0.5, 0.7)
    )
    seconds = count(1.0)  # real times of something this short are sometimes equal
    monkeypatch.setattr(cost_per_sentence, "_seconds", lambda call: (call(), next(seconds))[1])
    known = measure(laboratory, first, [], "main", None)
    for encoder in laboratory.ensemble.encoders:
        monkeypatch.setattr(encoder, "encode", None)
    times = measure(laboratory, other, [], "main", None)
    assert times.members == known.members
    assert times.combining["meta:conc"] == known.combining["meta:conc"]
    assert times.combining["meta:auto"] != known.combining["meta:auto"]
