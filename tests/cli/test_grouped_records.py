"""`ensembed dedupe` and `ensembed cluster` of CSV and JSON Lines."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from ensembed.cli import main
from ensembed.corpora.corpus import ListCorpus
from ensembed.corpora.record_files import Record, RecordCorpus, RecordFile
from ensembed.errors import CorpusError, InputError

NAME = "demo?dim=128&seed=1"
HEADER = "number,title,page"
ROWS = [
    "n1,A dog runs in the park.,3",
    "n2,Stocks fell on Monday.,4",
    "n3,,5",
    'n4,"a dog runs\nin the park",6',
    'n5,A dog runs in the park.,"7, 8"',
    "n6,Nothing like the others at all,9",
]
COLUMNS = ["--text-column", "title", "--id-column", "number"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "articles.csv"
    path.write_text("\ufeff" + "\r\n".join([HEADER, *ROWS]) + "\r\n", newline="")
    return path


def data(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    code = main([*map(str, arguments), "--json", "-q"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    found: dict[str, Any] = json.loads(captured.out)
    return found


def failure(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert main(list(map(str, arguments))) == 1
    return capsys.readouterr().err


def test_groups_have_ids_and_kept_records_are_unchanged(
    capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path
) -> None:
    out, kept = tmp_path / "groups.csv", tmp_path / "unique.csv"
    found = data(capsys, "dedupe", NAME, table, "--threshold", "0.7", *COLUMNS, "--out", out, "--kept", kept)
    assert (found["rows"], found["repeats"], found["groups"], found["kept"]) == (5, 1, 1, 3)
    assert [(row["row"], row["id"]) for row in found["largest"][0]["rows"]] == [(0, "n1"), (2, "n4"), (3, "n5")]
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert list(rows[0]) == ["group", "row", "id", "kept", "cosine", "text"]
    assert [(row["id"], row["text"]) for row in rows] == [
        ("n1", "A dog runs in the park."),
        ("n4", "a dog runs\nin the park"),
        ("n5", "A dog runs in the park."),
    ]
    assert kept.read_text() == "\n".join([HEADER, *ROWS[:3], ROWS[5]]) + "\n"  # n3, which has no text, stays
    # What is kept is read as the file was, and has no duplicates.
    assert data(capsys, "dedupe", NAME, kept, "--threshold", "0.7", *COLUMNS)["groups"] == 0
    longest = tmp_path / "longest.csv"
    data(capsys, "dedupe", NAME, table, "--threshold", "0.5", *COLUMNS, "--keep", "longest", "--kept", longest)
    assert len(list(csv.DictReader(io.StringIO(longest.read_text())))) == 4
    capsys.readouterr()
    assert main(["dedupe", NAME, str(table), "--threshold", "0.7", *COLUMNS]) == 0
    assert "        n4  a dog runs in the park\n" in capsys.readouterr().out


def test_json_lines_without_ids_from_a_pipe(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        '{"text": "A dog\\u0020runs in the park.", "n": 1.10}',
        "",
        '{"n": 2, "text": "a dog runs\\nin the park"}',
        '{"text": "Nothing like it"}',
    ]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip.compress("\n".join(lines).encode()))))
    out, kept = tmp_path / "groups.jsonl", tmp_path / "unique.jsonl"
    found = data(
        capsys, "dedupe", NAME, "-", "--format", "jsonl", "--threshold", "0.7", "--out", out, "--kept", kept,
    )  # fmt: skip
    assert (found["rows"], found["groups"]) == (3, 1)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(one["row"], one["text"]) for one in records] == [
        (0, "A dog runs in the park."), (1, "a dog runs\nin the park"),
    ]  # fmt: skip
    assert all("id" not in one for one in records)
    assert kept.read_text().splitlines() == [lines[0], lines[3]]  # to the letter


def test_clusters_have_ids(capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path) -> None:
    for name in ("clusters.jsonl", "clusters.csv"):
        found = data(capsys, "cluster", NAME, table, "-k", "3", *COLUMNS, "--out", tmp_path / name)
        assert sorted(one["size"] for one in found["clusters"]) == [1, 1, 3]
        largest = found["clusters"][0]["sentences"]
        assert {one["id"] for one in largest} == {"n1", "n4"}  # the repeat is not shown
    records = [json.loads(line) for line in (tmp_path / "clusters.jsonl").read_text().splitlines()]
    assert [one["id"] for one in records] == ["n1", "n2", "n4", "n5", "n6"]
    assert [one["row"] for one in records] == [0, 1, 2, 3, 4]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "clusters.csv").read_text())))
    assert [(row["id"], row["text"]) for row in rows] == [(one["id"], one["text"]) for one in records]
    capsys.readouterr()
    assert main(["cluster", NAME, str(table), "-k", "3", *COLUMNS]) == 0
    assert "  n6  Nothing like the others at all\n" in capsys.readouterr().out


def test_a_table_can_be_read_as_text(capsys: pytest.CaptureFixture[str], table: Path) -> None:
    assert data(capsys, "dedupe", NAME, table, "--format", "text", "--threshold", "0.99")["rows"] == 8


def test_a_record_that_cannot_be_read_is_named_by_its_line(
    capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.csv"
    for command in ("dedupe", "cluster"):
        assert "no column 'text' (column=…, --text-column); there are 'number'" in failure(capsys, command, NAME, table)
        text = ["--format", "text", "--id-column", "n"]
        assert "is read as text, a line a row, and has no column 'n'" in failure(capsys, command, NAME, table, *text)
        text[2] = "--text-column"
        assert "is read as text, a line a row, and has no column 'n'" in failure(capsys, command, NAME, table, *text)
        assert "there is no corpus file" in failure(capsys, command, NAME, tmp_path / "absent.csv")
        (tmp_path / "empty.jsonl").write_text('{"text": " "}\n')
        assert "holds no sentence" in failure(capsys, command, NAME, tmp_path / "empty.jsonl")
        (tmp_path / "bad.jsonl").write_text('{"text": "x"}\n{"text": "\\ud800"}\n')
        assert "line 2 holds a lone surrogate" in failure(capsys, command, NAME, tmp_path / "bad.jsonl")
    arguments = [NAME, table, *COLUMNS, "--threshold", "0.7", "--out", kept, "--kept", kept]
    assert "--out and --kept are the same file" in failure(capsys, "dedupe", *arguments)
    assert not kept.exists()


def test_a_record_corpus_is_read_like_a_text_corpus(table: Path) -> None:
    found = RecordCorpus(RecordFile(table, "mine", "csv", text_column="title", id_column="number"))
    texts = [record.text for record in found.records()]
    assert [record.id for record in found.records()] == ["n1", "n2", "n4", "n5", "n6"]
    assert next(found.records()) == Record("A dog runs in the park.", "n1", {"page": "3"}, ROWS[0])
    assert list(found) == texts
    assert found.key == ListCorpus(texts).key
    assert str(found) == "mine"
    other = pickle.loads(pickle.dumps(found))  # noqa: S301 - our own
    assert list(other.stretch(1, 4)) == texts[1:4]
    with pytest.raises(InputError, match="has no marks"):
        found.read_from((0, 9))
    table.write_text("number,title\n1,other\n")
    with pytest.raises(CorpusError, match="mine changed while it was being read"):
        found.check_unchanged()
    with pytest.raises(CorpusError, match="can be read once only"):
        RecordCorpus(RecordFile(io.BytesIO(b""), "pipe", "csv"))
