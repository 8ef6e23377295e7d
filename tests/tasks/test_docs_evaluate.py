"""The examples of docs/guides/evaluate.md run as they stand; demo encoders stand for the real ones."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ensembed import Ensemble
from ensembed.cli import main
from ensembed.methods import Concat

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "evaluate.md").read_text()


def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Ensemble(["demo?dim=64&seed=1", "demo?dim=32&seed=2"]).fit([], Concat()).save("my-model")
    exec("\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)), {})  # noqa: S102 - our own
    assert re.match(r"mine 0\.\d+ \(0\.\d+, 1\.0\)\nother ", capsys.readouterr().out)
    stand_ins = {"minilm": "demo?dim=64&seed=1", "wordllama": "demo?dim=32&seed=2"}
    lines = [
        shlex.split(line) for line in re.findall(r"^    ensembed (evaluate .*--task my-queries.*)$", PAGE, re.MULTILINE)
    ]
    assert len(lines) == 3
    for words in lines:
        assert main([*(stand_ins.get(word, word) for word in words), "-q"]) == 0
        printed = capsys.readouterr().out
        assert "ndcg@10" in printed
        assert ("recall@100" in printed) == ("--parts" in words or "--json" in words)
