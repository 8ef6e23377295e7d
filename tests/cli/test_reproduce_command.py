"""`ensembed reproduce` on small data: what it writes, what it says again, what it refuses."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from ensembed.cli import main
from ensembed.encoders import DemoEncoder
from ensembed.paper.findings import Findings
from ensembed.sts import evaluate, load_sts

WORDS = ["dog", "cat", "fox", "man", "red", "old", "blue", "runs", "eats", "sleeps"]
MEMBERS = ["demo?dim=8&seed=1", "demo?dim=6&seed=2", "demo?dim=5&seed=3"]


def write_pairs(path: Path, seed: int, pairs: int = 30) -> None:
    generator = np.random.default_rng(seed)
    lines = [
        f"{generator.uniform(0, 5):.2f}\t{' '.join(generator.choice(WORDS, 4))}\t{' '.join(generator.choice(WORDS, 4))}"
        for _ in range(pairs)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


pytestmark = pytest.mark.filterwarnings("ignore:without sts1")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for seed, name in enumerate(("sts13/FNWN", "sts13/OnWN", "sts13/headlines", "stsb/train", "stsb/dev", "stsb/test")):
        write_pairs(folder / "sts" / f"{name}.tsv", seed, 200 if name == "stsb/train" else 30)
    (folder / "news.txt").write_text("\n".join(f"the {a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS))
    return folder


def reproduce(data: Path, out: Path, *more: str) -> int:
    members = [word for name in MEMBERS for word in ("-e", name)]
    corpora = ["--corpus", str(data / "news.txt"), "--corpus", "stsb-train"]
    quick = ["--autoencoder", "none", "--resamples", "1000"]
    return main(["reproduce", *members, *corpora, "--data", str(data), "--out", str(out), *quick, *more])


def test_reproduce_writes_tables_findings_and_a_report(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "deep" / "out"
    with pytest.warns(RuntimeWarning, match="without sts12"):
        assert reproduce(data, out) == 0
    captured = capsys.readouterr()
    assert "meta:gcca" in captured.out
    assert "its best member" in captured.out
    findings = Findings.from_json((out / "findings.json").read_bytes())
    assert [one.name for one in findings.corpora] == ["news", "stsb-train"]
    assert findings.command.startswith("ensembed reproduce --encoder 'demo?dim=8&seed=1'")
    assert "--resamples 1000" in findings.command
    page = (out / "report.html").read_text()
    assert page.count("<svg") >= 8
    names = {path.stem for path in (out / "tables").iterdir()}
    assert names >= {"table1-gcca", "table2-main", "table3-ablation", "appendix-sts13", "significance", "corpus-domain"}
    for name in names:
        assert {path.suffix for path in (out / "tables").glob(f"{name}.*")} == {".md", ".csv", ".json", ".tex"}
    with (out / "tables" / "table2-main.csv").open(newline="") as file:
        rows = {row["system"]: row for row in csv.DictReader(file)}
    [system] = [one for one in findings.systems if one.label == "meta:svd"]
    assert float(rows["meta:svd"]["sts13 pearson"]) == system.score("sts13").pearson

    def refuse(*_arguments: object) -> None:
        raise AssertionError("encoded again")

    with monkeypatch.context() as patch:
        patch.setattr(DemoEncoder, "embed", refuse)
        assert reproduce(data, out, "--json", "--no-texts") == 0
    written = json.loads(capsys.readouterr().out)["written"]
    assert written[0] == str(out / "report.html")
    again = Findings.from_json((out / "findings.json").read_bytes())
    assert again.systems == findings.systems
    assert again.changes.better[0].sentences is None
    assert findings.changes.better[0].sentences is not None
    assert "--no-texts" in again.command

    # Another run into the same folder, of an ensemble that is named with commas, removes the tables of the earlier one.
    (out / "tables" / "mine.md").write_text("not of a run")
    arguments = ["reproduce", "--ensemble", ",".join(MEMBERS[:2]), "--data", str(data), "--out", str(out)]
    assert main([*arguments, "--autoencoder", "none", "--resamples", "1000", "--corpus", "stsb-train"]) == 0
    assert "stsb-train" in capsys.readouterr().out
    findings = Findings.from_json((out / "findings.json").read_bytes())
    assert [member.name for member in findings.members] == MEMBERS[:2]
    assert "--ensemble 'demo?dim=8&seed=1,demo?dim=6&seed=2'" in findings.command
    assert not list((out / "tables").glob("table3-ablation.*"))
    assert (out / "tables" / "mine.md").exists()
    assert (out / "figures" / "bars.svg").read_text().startswith("<svg")


def test_an_encoder_beside_the_ensemble_is_scored_and_timed_and_has_no_part_in_it(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = "demo?dim=9&seed=9"
    for more in ((), ("--beside", beside)):
        with pytest.warns(RuntimeWarning, match="without sts12"):
            assert reproduce(data, tmp_path / str(len(more)), *more) == 0
    capsys.readouterr()
    without, findings = (Findings.from_json((tmp_path / n / "findings.json").read_bytes()) for n in "02")
    assert findings.systems == without.systems
    [row] = [cost for cost in findings.costs if cost.label.startswith("beside:")]
    assert (row.label, row.dim, row.combining) == (f"beside:{beside}", 9, 0.0)
    assert row.milliseconds > 0
    assert row.mean is not None
    assert evaluate(DemoEncoder(9, 9), load_sts("stsb-dev", data)).score == row.dev
    page = (tmp_path / "2" / "report.html").read_text()
    assert "Stars are encoders that are no members." in page
    assert "Stars are" not in (tmp_path / "0" / "report.html").read_text()
    assert f"beside:{beside}" in (tmp_path / "2" / "tables" / "cost.md").read_text()


def test_reproduce_refuses_at_once_what_would_fail_at_the_end(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failure(code: int, *more: str, out: Path = tmp_path / "out") -> str:
        assert reproduce(data, out, *more) == code
        assert not (tmp_path / "out").exists()
        return capsys.readouterr().err

    (tmp_path / "file").write_text("")
    assert "is not a folder" in failure(1, out=tmp_path / "file" / "out")
    assert "there is no corpus file" in failure(1, "--corpus", str(tmp_path / "absent.txt"))
    assert "two corpora are called 'news'" in failure(1, "--corpus", _other_news(tmp_path))
    assert "there is no ensemble 'papr'" in failure(1, "--ensemble", "papr")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'ensembed[report]'" in failure(3)
    monkeypatch.setitem(sys.modules, "matplotlib", sys.modules["json"])
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "pip install 'ensembed[ae]'" in failure(3, "--autoencoder", "reduced")


def _other_news(folder: Path) -> str:
    path = folder / "more" / "news.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("a line\n")
    return str(path)


def test_reproduce_refuses_one_member(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "reproduce",
        "-e",
        MEMBERS[0],
        "--data",
        str(data),
        "--out",
        str(tmp_path / "report"),
        "--autoencoder",
        "none",
    ]
    assert main(arguments) == 1
    assert "at least two members" in capsys.readouterr().err
