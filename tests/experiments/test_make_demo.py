"""`make demo` on two quick encoders and on a machine that has only what the package registries give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.demo import main


@pytest.mark.real
def test_the_demo_prints_and_writes_its_table(bare_clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(RuntimeWarning, match="without sts12 to sts16: set ENSEMBED_DATA"):
        main(["use-lite", "wordllama"])
    output = capsys.readouterr()
    assert "paper meta:gcca" in output.out
    data = json.loads((bare_clone / "results/demo-use-lite-wordllama.json").read_text())
    ours = [row["cells"] for row in data["rows"] if row["kind"] in ("single", "meta")]
    scores = {cells["system"]: cells["stsb-dev"]["pearson"] for cells in ours}
    assert scores["single:use-lite"] == pytest.approx(0.783, abs=0.001)
    assert scores["single:wordllama"] == pytest.approx(0.829, abs=0.001)
    assert scores["meta:svd"] > max(scores["single:use-lite"], scores["single:wordllama"])
    assert scores["meta:ae"] == pytest.approx(0.852, abs=0.003)  # with other kernels, other roundings
    assert scores["meta:auto"] > max(scores["single:use-lite"], scores["single:wordllama"])
    assert "meta:auto: this library's own, not the paper's; it trusts wordllama most" in output.out
    assert 'make demo ENCODERS="use-lite wordllama"' in (bare_clone / "results/demo-use-lite-wordllama.md").read_text()
