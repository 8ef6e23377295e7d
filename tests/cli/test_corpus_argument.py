from __future__ import annotations

import json
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ensembed import cli

SENTENCES = ["one", "two", "", "three", "one"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "corpus.txt").write_text("\n".join(SENTENCES))
    for i, some in enumerate((SENTENCES[:2], SENTENCES[2:])):
        (tmp_path / "parts").mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": ["x"] * len(some), "text": some}), tmp_path / "parts" / f"{i}.parquet")
    fsspec.filesystem("memory").pipe(f"memory://{tmp_path.name}/corpus.txt", (tmp_path / "corpus.txt").read_bytes())
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = cli.main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def test_a_corpus_from_any_source_fills_the_same_view(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = set()
    for source in (
        ["corpus.txt"],
        ["parts", "--column", "text"],
        ["parts/*.parquet", "--column", "text"],
        [f"memory://{folder.name}/corpus.txt"],
        [(folder / "corpus.txt").as_uri()],
        [(folder / "parts").as_uri(), "--column", "text"],
    ):
        where = source[0] if ":" in source[0] else str(folder / source[0])
        code, out, err = run(
            capsys, "embed", where, *source[1:], "-e", "demo?dim=8", "--store", folder / "views", "--json", "-q"
        )
        assert (code, err) == (0, "")
        (view,) = json.loads(out)
        assert (view["rows"], view["distinct"]) == (4, 3)
        found.add(view["folder"])
    assert len(found) == 1


def test_fit_takes_a_column(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(
        capsys, "fit", folder / "parts", "--column", "text", "-e", "demo?dim=8", "--method", "avg",
        "--store", folder / "views", "--out", folder / "model", "-q"
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert (folder / "model").is_dir()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["parts"], "2 columns of strings: 'id', 'text'; say which"),
        (["parts", "--column", "no"], "has no column 'no'"),
        (["corpus.txt", "--column", "text"], "is read as text, a line a row, and has no column"),
        (["memory://nothing/here.txt"], "there is no corpus 'memory://nothing/here.txt'"),
        (["nonesuch://me:secret@host/here.txt"], "nonesuch://…@host/here.txt cannot be opened"),
        ([""], "empty"),
    ],
)
def test_a_corpus_that_cannot_be_read_is_an_error(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(folder)
    code, out, err = run(capsys, "embed", *arguments, "-e", "demo?dim=8", "--store", folder / "views")
    assert code != 0
    assert out == ""
    assert message in " ".join(err.split())
    assert "secret" not in err
