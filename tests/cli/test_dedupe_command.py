"""`ensembed dedupe` and `ensembed cluster`, as a person and as a program uses them."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from ensembed.cli import main

NAME = "demo?dim=128&seed=1"
TEXTS = [
    "A dog runs in the park.",
    "Stocks fell on Monday.",
    "a dog runs in the park",
    "A dog runs in the park.",
    "Stocks fell on Monday, traders said.",
    "Nothing like the others at all",
]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join(TEXTS))
    return path


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    code = main([*arguments])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output(capsys, *arguments, "--json", "-q"))
    return found


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main([*arguments])
    return code, capsys.readouterr().err


def test_dedupe_prints_groups(capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
    text = output(capsys, "dedupe", NAME, str(corpus), "--threshold", "0.7")
    assert "6 sentences, 1 of them exact repeats; 2 groups; 3 would stay; nothing is dropped" in text
    assert "group 0: 3 sentences\n  1.0000         0  A dog runs in the park.\n" in text
    assert "threshold 0.7000\n" in text


def test_names_that_end_in_gz_are_gzipped_files(
    capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path
) -> None:
    written = []
    for gz in ("", ".gz"):
        kept, out = tmp_path / f"kept.txt{gz}", tmp_path / f"groups.csv{gz}"
        output(capsys, "dedupe", NAME, str(corpus), "--threshold", "0.7", "--kept", str(kept), "--out", str(out))
        written.append([path.read_bytes() for path in (kept, out)])
    assert [gzip.decompress(content) for content in written[1]] == written[0]
    assert data(capsys, "dedupe", NAME, str(tmp_path / "kept.txt.gz"), "--threshold", "0.7")["rows"] == 3


def test_dedupe_writes_files_and_json(capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path) -> None:
    out, kept = tmp_path / "groups.csv", tmp_path / "unique.txt"
    arguments = [NAME, str(corpus), "--threshold", "0.7", "--out", str(out), "--kept", str(kept), "--keep", "longest"]
    found = data(capsys, "dedupe", *arguments)
    assert (found["rows"], found["groups"], found["kept"], found["repeats"]) == (6, 2, 3, 1)
    assert (found["out"], found["kept_file"]) == (str(out), str(kept))
    assert kept.read_text().splitlines() == [TEXTS[0], TEXTS[4], TEXTS[5]]
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [(row["group"], row["row"], row["kept"]) for row in rows] == [
        ("0", "0", "1"), ("0", "2", "0"), ("0", "3", "0"), ("1", "1", "0"), ("1", "4", "1"),
    ]  # fmt: skip
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".tmp"]


def test_dedupe_reads_standard_input_and_gzip(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress("\n".join(TEXTS).encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed)))
    out = tmp_path / "groups.txt"
    output(capsys, "dedupe", NAME, "-", "--threshold", "0.7", "-o", str(out), "--out-format", "jsonl", "-q")
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["row"] for one in records] == [0, 2, 3, 1, 4]
    assert records[1]["kept"] is False


def test_dedupe_finds_a_threshold(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [chr(97 + i) * 3 for i in range(26)]
    texts = [f"{a} {b} {c}" for a in words[:9] for b in words[9:18] for c in words[18:21]]
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([*texts, "one more about something else", "One more about something else!"]))
    found = data(capsys, "dedupe", NAME, str(path))
    assert found["false_pairs"] == 0.001
    assert found["levels"]
    assert 0.5 < found["threshold"] < 1
    assert data(capsys, "dedupe", NAME, str(path), "--false-pairs", "0.1")["threshold"] < found["threshold"]
    assert "; 0.001 unrelated neighbours a sentence from " in output(capsys, "dedupe", NAME, str(path))


def test_dedupe_takes_a_saved_model(capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path) -> None:
    model = str(tmp_path / "model")
    assert main(["fit", str(corpus), "-e", NAME, "-e", "demo?dim=16", "--method", "conc", "-o", model, "-q"]) == 0
    assert data(capsys, "dedupe", model, str(corpus), "--threshold", "0.7")["groups"] == 2
    found = data(capsys, "cluster", model, str(corpus), "-k", "3")
    assert [one["size"] for one in found["clusters"]] == [3, 2, 1]


def test_cluster_prints_and_writes_clusters(capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "clusters.jsonl"
    text = output(capsys, "cluster", NAME, str(corpus), "-k", "3", "-o", str(out))
    assert "6 sentences in 3 clusters (kmeans)" in text
    assert "cluster 0, 3 sentences" in text
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["text"] for one in records] == TEXTS
    assert [one["cluster"] for one in records] == [0, 1, 0, 0, 1, 2]
    found = data(capsys, "cluster", NAME, str(corpus), "-k", "3", "--sentences", "1", "--words", "2", "--seed", "4")
    assert found["seed"] == 4
    assert all(len(one["sentences"]) == 1 for one in found["clusters"])


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["dedupe", NAME], 2, "Missing argument 'FILE'"),
        (["dedupe", NAME, "CORPUS", "--threshold", "2"], 2, "--threshold"),
        (["dedupe", NAME, "CORPUS", "--threshold", "nan"], 1, "at most 1, not nan"),
        (["dedupe", NAME, "CORPUS"], 1, "5 distinct sentences are too few"),
        (["dedupe", NAME, "absent.txt"], 1, "absent.txt"),
        (["dedupe", NAME, "CORPUS", "--threshold", "0.7", "--out", "groups.txt"], 1, "--out-format"),
        (["dedupe", NAME, "CORPUS", "--threshold", "0.7", "--kept", "CORPUS"], 1, "FILE and --kept are the same file"),
        (
            ["dedupe", NAME, "CORPUS", "--threshold", "0.7", "--kept", "no/such/folder"],
            2,
            "there is no folder 'no/such'",
        ),
        (["dedupe", "minilm", "CORPUS", "--threshold", "0.7"], 3, "ensembed pull minilm"),
        (["cluster", NAME, "CORPUS"], 1, "too few to choose the number"),
        (["cluster", NAME, "CORPUS", "-k", "9"], 1, "cannot make 9 clusters"),
        (
            ["cluster", NAME, "CORPUS", "-k", "2", "--out", "CORPUS", "--out-format", "csv"],
            1,
            "FILE and --out are the same file",
        ),
        (["cluster", NAME, "CORPUS", "-k", "2", "--method", "hdbscan"], 1, "hdbscan finds the number"),
    ],
)
def test_dedupe_and_cluster_exit_codes(
    capsys: pytest.CaptureFixture[str], corpus: Path, arguments: list[str], code: int, says: str
) -> None:
    before = corpus.read_bytes()
    found, error = failure(capsys, *[str(corpus) if word == "CORPUS" else word for word in arguments])
    assert found == code
    assert says in error
    assert corpus.read_bytes() == before
