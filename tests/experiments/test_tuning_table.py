"""The table of tuning: on invented data, and what is in the repository."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ensembed import Ensemble, ViewStore
from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders.base import Encoder, EncoderSpec
from ensembed.sts.datasets import Dataset, Pairs
from ensembed.sts.protocol import Score, distinct_sentences
from experiments.tuning_table import ENSEMBLES, HEADERS, SIZES, EnsembleRows, Row, markdown, tune_ensemble

ROOT = Path(__file__).parents[2]


class Noisy(Encoder):
    """A hidden vector of a sentence, with noise."""

    def __init__(self, noise: float) -> None:
        self._noise = noise

    @property
    def spec(self) -> EncoderSpec:
        return EncoderSpec(f"noisy {self._noise}", "test", 8, str(self._noise))

    def embed(self, sentences: list[str]) -> NDArray[np.float32]:
        rows = [hidden(text) + self._noise * hidden(f"{self._noise} {text}") for text in sentences]
        return np.array(rows, np.float32)


def hidden(text: str) -> NDArray[np.float64]:
    row: NDArray[np.float64] = np.random.default_rng(list(text.encode())).standard_normal(8)
    row /= np.linalg.norm(row)
    return row


def dataset(name: str, start: int, n: int, *, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    first, second = ([f"text {start + i}" for i in rng.integers(0, 100, n)] for _ in range(2))
    scores = [float(hidden(a) @ hidden(b)) for a, b in zip(first, second, strict=True)]
    return Dataset.of(Pairs(name, tuple(first), tuple(second), np.array(scores)))


def table(tmp_path: Path, test: Dataset) -> EnsembleRows:
    dev = dataset("dev", 0, 90)
    return tune_ensemble(
        Ensemble([Noisy(0.4), Noisy(1.0)]),
        ListCorpus([f"text {i}" for i in range(300)]),
        ListCorpus([*distinct_sentences([dev, test]), "one more"]),
        dev,
        test,
        sizes=(20, 50, 1000),
        draws=3,
        store=ViewStore(tmp_path),
    )


def test_no_choice_depends_on_the_test_set(tmp_path: Path) -> None:
    test = dataset("test", 100, 150)
    one = table(tmp_path, test)
    (part,) = test.parts
    turned = Dataset.of(Pairs("test", part.sentences1, part.sentences2, -part.scores))
    other = table(tmp_path, turned)
    assert [row.chosen for row in one.rows] == [row.chosen for row in other.rows]
    assert one.label_free.pearson == pytest.approx(-other.label_free.pearson)
    for row, mirrored in zip(one.rows, other.rows, strict=True):
        assert row.pearson == pytest.approx(-mirrored.pearson, abs=1e-9)
    assert [(row.pairs, row.draws) for row in one.rows] == [(20, 3), (50, 3), (90, 1)]
    assert json.dumps(one.to_json())
    assert markdown([one]).count("| 90 | 1 |") == 1


def test_enough_is_the_size_from_which_tuning_stays_ahead() -> None:
    def rows(*gains: float) -> EnsembleRows:
        found = [Row(10 * (i + 1), 3, 1, gain, gain, gain, gain, {}) for i, gain in enumerate(gains)]
        return EnsembleRows(["a"], [1.0], "a", Score(0.5, 0.5), Score(0.5, 0.5), found)

    assert rows(0.1, -0.1, 0.2, 0.3).enough == 30
    assert rows(0.1, 0.2).enough == 10
    assert rows(0.1, 0.09).enough is None
    assert "not with 20 pairs" in rows(0.1, 0.09).says


def test_the_page_in_the_repository_says_what_its_data_says() -> None:
    page = (ROOT / "results" / "tuning.md").read_text()
    data = json.loads((ROOT / "results" / "tuning.json").read_text())
    assert "python -m experiments.tuning_table" in page
    assert len(data["ensembles"]) == len(ENSEMBLES)
    lines = page.splitlines()
    for one in data["ensembles"]:
        start = lines.index(f"## {', '.join(one['members'])}")
        shown = lines[start + 6 : start + 6 + len(SIZES)]
        assert [row["pairs"] for row in one["rows"]] == list(SIZES)
        for line, row in zip(shown, one["rows"], strict=True):
            assert line.startswith("| " + " | ".join(Row(**row).cells[:-1]) + " |")
            assert sum(row["chosen"].values()) == row["draws"]
    assert "| " + " | ".join(HEADERS) + " |" in page


def test_the_figures_in_the_docs_are_those_of_the_data() -> None:
    text = (ROOT / "docs" / "guides" / "tuning.md").read_text()
    data = json.loads((ROOT / "results" / "tuning.json").read_text())
    rows = re.findall(r"^\| (\w[\w+-]*\+[\w+-]+) \| ([^|]+) \| (.+) \|$", text, flags=re.M)
    assert len(rows) == len(data["ensembles"])
    for (members, before, gains), one in zip(rows, data["ensembles"], strict=True):
        assert members == "+".join(one["members"])
        assert before.strip() == str(Score(one["label_free"]["pearson"], one["label_free"]["spearman"]))
        assert gains.split(" | ") == [f"{row['pearson']:+.2f}/{row['spearman']:+.2f}" for row in one["rows"]]
    # What is said about them in words.
    default, strong, light = (one["rows"] for one in data["ensembles"])
    assert [one["enough"] for one in data["ensembles"]] == [None, None, 200]
    assert default[-1]["kept"] == strong[-1]["kept"] == 1
    assert (round(light[-1]["pearson"], 1), round(light[-1]["spearman"], 1)) == (0.3, 0.3)
    assert sorted(round(rows[0]["worst"], 1) for rows in (default, strong, light)) == [-2.1, -1.7, 0.0]
    assert min(round(row["worst"], 1) for rows in (default, strong, light) for row in rows[1:3]) == -0.9
    assert min(row["worst"] for rows in (default, strong, light) for row in rows[3:]) == 0
    assert {*light[-1]["chosen"]} <= {"svd", "gcca"}
