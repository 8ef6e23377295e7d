"""The field of encoders: how wide it is, and its ensembles on made-up vectors."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensembed.sts.datasets import Dataset, Pairs
from experiments import field as module
from experiments.field import OURS, Evidence, Weighed, compared, random_ensembles, summary, worth
from experiments.field_vectors import DEV, TRAIN, Field, Member


def test_the_field_is_wide_and_splits_by_family(tmp_path: Path) -> None:
    field = Field(tmp_path)
    names = [name for name in field.members if name not in module._LEFT_OUT]
    families = {field.members[name].family for name in names}
    assert len(names) >= 25
    assert len(families) >= 5
    ensembles = random_ensembles(field, names)
    assert len(set(ensembles)) == len(ensembles) == sum(module._RANDOM_ENSEMBLES.values())
    for family in families:  # there is something to choose on and something to judge on
        judged = [members for members in ensembles if any(field.members[name].family == family for name in members)]
        assert 0 < len(judged) < len(ensembles)


class _MadeUp(Field):
    """Members that know more or less of the truth."""

    @cached_property
    def texts(self) -> dict[str, list[str]]:
        return {TRAIN: [f"w{i % 60} w{i * 7 % 61} w{i // 3}" for i in range(900)], DEV: [f"s{i}" for i in range(200)]}

    @cached_property
    def members(self) -> dict[str, Member]:
        return {name: Member(name, name, "whole") for name in ("good", "fair", "poor")}

    @cached_property
    def datasets(self) -> dict[str, Dataset]:
        T = self._truth(DEV)
        gold = np.array([np.corrcoef(T[i], T[i + 100])[0, 1] for i in range(100)])
        texts = self.texts[DEV]
        return {DEV: Dataset.of(Pairs(DEV, tuple(texts[:100]), tuple(texts[100:]), gold))}

    def _truth(self, part: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        rng, n = np.random.default_rng(len(part)), len(self.texts[part])
        return rng.standard_normal((n // 6 + 1, 16))[np.arange(n) % (n // 6 + 1)] + 0.5 * rng.standard_normal((n, 16))

    def vectors(self, name: str, part: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        known, seed = {"good": (16, 1), "fair": (12, 2), "poor": (6, 3)}[name]
        T = self._truth(part)[:, :known]
        X = T + 0.3 * np.random.default_rng([seed, len(part)]).standard_normal(T.shape)
        return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True), np.float32)


def test_ensembles_are_weighed_and_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_QUERIES", 300)
    evidence = Evidence(_MadeUp(tmp_path), ("good", "fair", "poor"))
    case = Weighed(evidence, ("poor", "good"))
    gain, best = case.gain(OURS)
    assert best == "good"
    assert (gain > -1).all()
    assert (gain > compared(case, DEV)["conc"] - evidence.best_alone(case.names, DEV)).all()
    assert compared(case, DEV).keys() >= {"conc", "avg", "svd", "gcca", "gcca, auto's weights"}
    # Other constants are tried without a trace.
    case.gain((9.0, 9.0, 9.0, 9.0))
    assert case.gain(OURS)[0].tolist() == gain.tolist()


def test_what_tables_and_choices_say_of_gains() -> None:
    gains = [np.array([1.0, 0.5]), np.array([-0.2, 0.1])]
    assert summary(gains) == ["2", "+0.40/+0.30", "-0.20/+0.10", "50%", "100%"]
    assert worth(gains) == pytest.approx((1.0 + 0.5 - 0.6 + 0.1) / 4)
