"""Models that share encoders: every text is encoded once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensembed import Ensemble, load
from ensembed.cli import main
from ensembed.encoders import DemoEncoder, open_encoder
from ensembed.encoders.base import PROBES
from ensembed.methods import Concat
from ensembed.sts.encode_once import EncodeOnce

TEXTS = ["a red dog", "a red cat", "blue skies"]
MEMBERS = ("demo?dim=8&seed=1", "demo?dim=6&seed=2")


@pytest.fixture
def models(tmp_path: Path) -> list[str]:
    for name, weights in (("one", (1.0, 1.0)), ("two", (1.0, 0.5)), ("three", (1.0, 0.0))):
        Ensemble(MEMBERS).fit(TEXTS, Concat(weights=weights)).save(tmp_path / name)
    return [str(tmp_path / name) for name in ("one", "two", "three")]


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """How often each text was encoded by each encoder."""
    counts: Counter[tuple[str, str]] = Counter()
    embed = DemoEncoder.embed

    def counting(encoder: DemoEncoder, sentences: list[str]) -> Any:  # noqa: ANN401 - what embed gives
        counts.update((encoder.spec.key, text) for text in sentences if text not in PROBES)
        return embed(encoder, sentences)

    monkeypatch.setattr(DemoEncoder, "embed", counting)
    return counts


def test_the_command_encodes_every_text_once_per_encoder(
    tmp_path: Path, models: list[str], encoded: Counter[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = tmp_path / "mine.tsv"
    pairs.write_text("5\ta red dog\ta red dog\n3\ta red dog\ta red cat\n0\ta red dog\tblue skies\n")
    assert main(["evaluate", *models, *MEMBERS, "--pairs", str(pairs)]) == 0
    assert len(encoded) == 2 * 3
    assert set(encoded.values()) == {1}
    together = capsys.readouterr().out.splitlines()
    for model in (*models, *MEMBERS):
        assert main(["evaluate", model, "--pairs", str(pairs)]) == 0
        alone = capsys.readouterr().out.splitlines()[2].split()
        assert alone in [line.split() for line in together]


def test_remembered_vectors_equal_the_models(models: list[str]) -> None:
    memory = EncodeOnce()
    for folder in models:
        model = load(folder)
        remembering = memory.remember(model)
        assert remembering.spec == model.spec
        for texts in ([TEXTS[2], TEXTS[0], TEXTS[2]], TEXTS, []):
            np.testing.assert_array_equal(remembering.encode(texts), model.encode(texts))


def test_encoder_without_a_key_encodes_every_time(
    encoded: Counter[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = open_encoder(MEMBERS[0])
    monkeypatch.setattr(DemoEncoder, "cacheable", False)
    unknown = EncodeOnce().remember(demo)
    unknown.encode(TEXTS)
    unknown.encode(TEXTS)
    assert set(encoded.values()) == {2}
