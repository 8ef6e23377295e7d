"""`ensembed evaluate` with models that share encoders: every text is encoded once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from ensembed import Ensemble
from ensembed.cli import main
from ensembed.encoders import DemoEncoder
from ensembed.encoders.base import PROBES
from ensembed.methods import Concat

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
    options = ["--pairs", str(pairs), "--store", str(tmp_path / "store")]
    assert main(["evaluate", *models, *MEMBERS, *options]) == 0
    assert len(encoded) == 2 * 3
    assert set(encoded.values()) == {1}
    together = capsys.readouterr().out.splitlines()
    for model in (*models, *MEMBERS):
        assert main(["evaluate", model, *options]) == 0
        alone = capsys.readouterr().out.splitlines()[2].split()
        assert alone in [line.split() for line in together]


def test_models_whose_vectors_vary_are_scored_without_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = tmp_path / "mine.tsv"
    pairs.write_text("5\ta red dog\ta red dog\n3\ta red dog\ta red cat\n0\ta red dog\tblue skies\n")
    command = ["evaluate", MEMBERS[0], "--pairs", str(pairs), "--store", str(tmp_path / "store")]
    assert main(command) == 0
    kept = capsys.readouterr().out
    monkeypatch.setattr(DemoEncoder, "cacheable", False)
    assert main([*command[:-1], str(tmp_path / "other")]) == 0
    assert capsys.readouterr().out == kept
    assert not (tmp_path / "other").exists()


def test_an_interrupted_evaluation_says_that_finished_work_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DemoEncoder, "embed", interrupt)
    (tmp_path / "mine.tsv").write_text("5\ta red dog\ta red dog\n0\ta red dog\tblue skies\n")
    options = ["--pairs", str(tmp_path / "mine.tsv"), "--store", str(tmp_path / "store")]
    assert main(["evaluate", MEMBERS[0], *options]) == 130
    assert "run the same command to continue" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "expected"), [([], 600), (["--wait", "2.5"], 2.5), (["--wait", "0"], 0)])
def test_an_evaluation_waits_for_another_one_unless_it_is_told_not_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], expected: float
) -> None:
    waits = []

    def acquire(_: FileLock, timeout: float) -> None:
        waits.append(timeout)
        raise PermissionError("not today")

    monkeypatch.setattr("ensembed.views.store.FileLock.acquire", acquire)
    (tmp_path / "mine.tsv").write_text("5\ta red dog\ta red dog\n0\ta red dog\tblue skies\n")
    command = ["evaluate", MEMBERS[0], "--pairs", str(tmp_path / "mine.tsv"), "--store", str(tmp_path / "store")]
    assert main([*command, *options]) == 1
    assert waits == [expected]
