"""What commands write: nothing is replaced unasked, and a file of vectors is what its name says."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from ensembed import Ensemble, load
from ensembed.cli import main
from ensembed.errors import ModelError
from ensembed.methods import Concat
from ensembed.paper.report.page import check_before

MEMBERS = ["-e", "demo?dim=8&seed=1", "-e", "demo?dim=6&seed=2"]
SENTENCES = ["a dog runs", 'a "cat", asleep', "", "ünïcode"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(f"sentence {i} of many" for i in range(30)) + "\n")
    return path


@pytest.fixture
def error(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*arguments: object, code: int = 1) -> str:
        capsys.readouterr()
        assert main(list(map(str, arguments))) == code
        return capsys.readouterr().err

    return run


def fit(corpus: Path, out: Path, *more: str) -> list[str]:
    return ["fit", str(corpus), *MEMBERS, "--method", "gcca", "--dim", "3", "-o", str(out), "-q", *more]


def test_fit_keeps_a_model_unless_force_is_given(error: Callable[..., str], corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    assert main(fit(corpus, out)) == 0
    before = (out / "config.json").read_bytes()
    assert f"there is a model in {out} already: name a new folder" in error(*fit(corpus, out, "--tau", "1"))
    assert (out / "config.json").read_bytes() == before
    assert main(fit(corpus, out, "--tau", "1", "--force")) == 0
    assert load(out).meta.method["tau"] == 1


def test_a_forced_fit_that_fails_keeps_the_model(error: Callable[..., str], corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    assert main(fit(corpus, out)) == 0
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    error(*fit(empty, out, "--force"))
    assert load(out).meta.dim == 3


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_fit_refuses_a_folder_with_other_files(
    error: Callable[..., str], corpus: Path, tmp_path: Path, force: list[str]
) -> None:
    for name, text in (("notes.txt", "mine"), ("config.json", '{"model_type": "bert"}'), ("config.json", "{")):
        folder = tmp_path / f"{name}-{len(text)}"
        folder.mkdir()
        (folder / name).write_text(text)
        assert f"it holds other files, {name} for instance; name a new folder" in error(*fit(corpus, folder, *force))
        assert [path.name for path in folder.iterdir()] == [name]
        assert (folder / name).read_text() == text
    (tmp_path / "new").mkdir()
    assert main(fit(corpus, tmp_path / "new")) == 0


def test_fit_goes_on_where_a_save_was_killed(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / f"model-{'0' * 16}.safetensors").write_bytes(b"half")
    assert main(fit(corpus, folder)) == 0


def test_save_replaces_models_but_no_files_of_other_libraries(tmp_path: Path) -> None:
    model = Ensemble(["demo?dim=4"]).fit(["a dog"], Concat())
    model.save(tmp_path / "model")
    model.save(tmp_path / "model")
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert/model.safetensors").write_bytes(b"weights")
    with pytest.raises(ModelError, match=r"has files of another kind, .*name a new folder"):
        model.save(tmp_path / "bert")
    assert (tmp_path / "bert/model.safetensors").read_bytes() == b"weights"


def test_a_report_goes_to_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(Exception, match=r"it holds other files, report\.html for instance"):
        check_before(tmp_path, training=False)
    (tmp_path / "findings.json").write_text("{}")
    check_before(tmp_path, training=False)


@pytest.mark.parametrize(
    "command",
    [
        ["encode", "demo", "CORPUS", "--out", "FILE.npy"],
        ["dedupe", "demo", "CORPUS", "--threshold", "0.9", "--out", "FILE.csv"],
        ["dedupe", "demo", "CORPUS", "--threshold", "0.9", "--kept", "FILE.txt"],
        ["cluster", "demo", "CORPUS", "-k", "2", "--out", "FILE.csv"],
        ["compare", "demo", "demo?seed=2", "--corpus", "CORPUS", "--rows", "20", "--svg", "FILE.svg"],
        ["compare", "demo", "demo?seed=2", "--corpus", "CORPUS", "--rows", "20", "--markdown", "FILE.md"],
        ["reliability", "LONG", "-e", "demo", "-e", "demo?seed=2", "--plot", "FILE.svg"],
    ],
    ids=lambda command: f"{command[0]} {command[-2]}",
)
def test_no_file_is_replaced_unless_force_is_given(
    error: Callable[..., str], corpus: Path, tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "long.txt").write_text("\n".join(f"the {i} sentences of {i % 7} others" for i in range(80)))
    places = {"CORPUS": str(corpus), "LONG": str(tmp_path / "long.txt")}
    words = [places.get(word, word.replace("FILE", str(tmp_path / "mine"))) for word in command]
    out = Path(words[-1])
    out.write_text("precious")
    assert f"{out} is there already: name another file, or replace it with --force" in error(*words)
    assert out.read_text() == "precious"
    assert main([*words, "--force"]) == 0
    assert out.read_bytes() != b"precious"


def test_home_folder_is_meant_after_an_equals_sign(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, error: Callable[..., str]
) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert main(["encode", "demo", str(corpus), "--out=~/v.npy"]) == 0
    assert main([*fit(corpus, tmp_path / "unused")[:-3], "--out=~/model"]) == 0
    home = tmp_path / "home"
    assert sorted(path.name for path in home.iterdir()) == ["model", "v.npy"]
    assert not (tmp_path / "~").exists()
    assert "--out=~/v.npy" in error("encode", "demo", "--out=v.npy", "--", "--out=~/v.npy")  # FILE


def test_the_input_is_never_replaced(error: Callable[..., str], tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("text\na dog\n")
    said = error("encode", "demo", table, "--out", tmp_path / "." / "table.csv", "--force")
    assert "FILE and --out are the same file" in said
    assert table.read_text() == "text\na dog\n"


@pytest.mark.parametrize("ending", ["npy", "csv", "tsv", "jsonl", "parquet", "safetensors"])
def test_encode_writes_what_the_name_says(capsys: pytest.CaptureFixture[str], tmp_path: Path, ending: str) -> None:
    lines, out = tmp_path / "lines.txt", tmp_path / f"v.{ending}"
    lines.write_text("\n".join(SENTENCES) + "\n")
    assert main(["encode", "demo?dim=5", str(lines), "--out", str(out), "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(out), "rows": 4, "dim": 5}
    sentences, vectors = READERS[ending](out)
    assert sentences == SENTENCES
    expected = Ensemble(["demo?dim=5"]).encoders[0].encode(SENTENCES)
    np.testing.assert_array_equal(np.asarray(vectors, np.float32), expected)


def read_table(path: Path) -> tuple[list[str], list[list[float]]]:
    with path.open(newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",")
    assert header == ["sentence", "0", "1", "2", "3", "4"]
    return [row[0] for row in rows], [list(map(float, row[1:])) for row in rows]


def read_json_lines(path: Path) -> tuple[list[str], list[list[float]]]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [record["sentence"] for record in records], [record["vector"] for record in records]


READERS: dict[str, Callable[[Path], tuple[list[str], object]]] = {
    "npy": lambda path: (SENTENCES, np.load(path)),
    "csv": read_table,
    "tsv": read_table,
    "jsonl": read_json_lines,
    "parquet": lambda path: tuple(pq.read_table(path).to_pydict().values()),
    "safetensors": lambda path: (SENTENCES, load_file(path)["vectors"]),
}


@pytest.mark.parametrize("name", ["v.txt", "v", "v.csv.gz", "v.pkl"])
def test_encode_refuses_a_name_that_says_nothing(
    error: Callable[..., str], corpus: Path, tmp_path: Path, name: str
) -> None:
    said = error("encode", "demo", corpus, "--out", tmp_path / name)
    assert "ends in none of .npy, .csv, .tsv, .jsonl, .parquet, .safetensors" in said
    assert not (tmp_path / name).exists()


def test_encode_reads_the_texts_of_records(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table, out = tmp_path / "articles.csv", tmp_path / "v.csv"
    table.write_text("id,title\n1,a dog\n2,\n3,two cats\n")
    assert main(["encode", "demo?dim=5", str(table), "--text-column", "title", "--out", str(out), "-q"]) == 0
    assert read_table(out)[0] == ["a dog", "", "two cats"]
    assert main(["encode", "demo", str(table)]) == 1
    assert "there is no column 'text' (column=…, --text-column); there are 'id', 'title'" in capsys.readouterr().err
