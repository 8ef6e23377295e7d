"""`translate`, `migrate`, `search --query-model`, `fit --cheap`, `index --embed-translated`: as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ensembed.cli import main

WORDS = ["dog", "cat", "fox", "man", "red", "old", "blue", "runs", "eats", "sees", "tree", "car"]
TEXTS = [f"{a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS[:8]]
OLD, NEW = "demo?dim=24", "demo?dim=16&seed=1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path / "cache"))
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
    return tmp_path


def facts(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Run a command with --json and return what it prints."""
    assert main([*arguments, "--json"]) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


@pytest.mark.usefixtures("folder")
def test_a_map_is_fitted_shown_and_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", OLD, NEW, "corpus.txt", "--out", "map", "--kind", "ridge", "--rows", "1000000"]) == 0
    table = capsys.readouterr().out
    for words in ("recall@10", "keep the old model", "translate text unlike the sample", "re-embed everything"):
        assert words in table
    assert "in an index of 1,000,000 texts" in table
    assert main(["translate", OLD, NEW, "corpus.txt", "--out", "map"]) == 1
    assert "--force" in capsys.readouterr().err
    assert facts(capsys, "encode", "map", "corpus.txt", "--out", "v.npy") == {
        "file": "v.npy",
        "rows": len(TEXTS),
        "dim": 16,
    }
    printed = facts(capsys, "translate", "map", NEW, "corpus.txt", "--out", "again", "--sample", "500")
    assert printed["figures"]["translated"]["recall_10"]["value"] > 0.5
    assert printed["expected"]["rows"] == len(TEXTS)


@pytest.mark.usefixtures("folder")
def test_an_index_is_migrated_after_asking(capsys: pytest.CaptureFixture[str]) -> None:
    facts(capsys, "index", "old", "corpus.txt", "--model", OLD)
    command = ["migrate", "old", "--to", NEW, "--out", "new", "--sample", "500"]
    assert main([*command, "--least", "1"]) == 1  # nobody is there to answer
    said = capsys.readouterr().err
    assert "nothing was migrated" in said
    assert "to migrate all the same: --yes" in said
    printed = facts(capsys, *command, "--least", "1", "--yes")
    assert printed["rows"] == len(TEXTS)
    assert 0 < printed["translated"] < len(TEXTS)
    assert printed["model"] == NEW
    done = facts(capsys, "index", "new", "--embed-translated", "100")
    assert done["now_embedded"] == 100
    assert done["translated"] == printed["translated"] - 100
    [hit] = facts(capsys, "search", "new", "-k", "1", "red fox runs")["hits"]
    assert set(hit["text"].split()) == {"red", "fox", "runs"}
    answer = facts(capsys, "search", "old", "--query-model", NEW, "--sample", "500", "-k", "3", "red fox runs")
    assert any(set(hit["text"].split()) == {"red", "fox", "runs"} for hit in answer["hits"])
    assert main(["search", "old", "--query-model", NEW, "--model", OLD, "red fox"]) == 2


@pytest.mark.usefixtures("folder")
def test_a_cheap_model_is_saved(capsys: pytest.CaptureFixture[str]) -> None:
    members = ["-e", "demo?dim=12&seed=1", "-e", "demo?dim=10&seed=2"]
    command = ["fit", "corpus.txt", *members, "--method", "svd", "--dim", "8", "--cheap", "demo?dim=12&seed=1"]
    assert main([*command, "--out", "cheap"]) == 0
    table = capsys.readouterr().out
    assert "predicts" in table
    assert "the member alone" in table
    assert main(["fit", "corpus.txt", *members, "--cheap", "minilm", "--out", "other"]) == 2


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("corpus", "options", "code", "message"),
    [
        ("corpus.txt", ["-e", NEW, "--method", "conc"], 2, "--method conc with these weights learns nothing"),
        ("corpus.txt", ["-e", NEW, "--weights", "1,2"], 2, "--method auto with these weights learns nothing"),
        ("corpus.txt", ["-e", NEW, "--dim", "9", "--weights", "0,1"], 2, "--cheap names a member of weight 0"),
        ("corpus.txt", ["-e", NEW, "--dim", "9", "--weights", "1,0"], 2, "the other members, and none counts"),
        ("corpus.txt", [], 2, "the other members, and none counts: name another one with -e"),
        ("few.txt", ["-e", NEW], 1, "few.txt holds 999 distinct sentences: it takes at least 1000 to predict members"),
    ],
)
def test_a_cheap_model_that_cannot_be_is_refused_before_the_corpus_is_encoded(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    corpus: str,
    options: list[str],
    code: int,
    message: str,
) -> None:
    def encode(*_: object, **__: object) -> None:
        raise AssertionError("the corpus was encoded")

    monkeypatch.setattr("ensembed.engines.engine.Local.embed_all", encode)
    sentences = [f"sentence {i}" for i in range(999)]
    Path("few.txt").write_text("\n".join([*sentences, *sentences]))
    assert main(["fit", corpus, "-e", OLD, *options, "--cheap", OLD, "--out", "cheap"]) == code
    assert message in capsys.readouterr().err
