"""`ensembed distil` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from distil_cases import SENTENCES, write_small_tokenizer
from make_st import write_st

from ensembed import load
from ensembed.cli import main
from ensembed.distil.student_training import main as train
from ensembed.errors import DiskFullError
from ensembed.integrations.onnx_bert import export_bert


def test_a_student_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(SENTENCES))
    tokenizer, store = str(write_small_tokenizer(tmp_path)), str(tmp_path / "store")
    common = ["demo?dim=24", str(corpus), "--store", store]
    how = ["--start", "none", "--tokenizer", tokenizer, "--dim", "12", "--epochs", "3", "--learning-rate", "0.02"]
    how += ["--batch-size", "32", "--leading", "4,8"]
    out = tmp_path / "out"
    assert main(["distil", *common, *how, "--out", str(out), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["best"]["spearman"] > made["start"]["spearman"]
    assert set(made["leading"]) == {"8", "4"}
    assert main(["distil", *common, *how, "--out", str(out)]) == 1
    assert "--force" in capsys.readouterr().err
    # The same student, trained as another machine would.
    job = str(tmp_path / "job")
    assert main(["distil", *common, *how, "--prepare", job]) == 0
    assert train([job]) == 0
    assert main(["distil", *common, *how, "--prepare", job]) == 1
    assert f"there is a job in {job} already" in capsys.readouterr().err
    again = tmp_path / "again"
    assert main(["distil", *common, "--trained", job, "--out", str(again), "--precision", "int8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"] == made["best"]
    assert main(["distil", *common, "--trained", job, "--out", str(again), "--force"]) == 0
    assert f"by the name model2vec:{again}." in capsys.readouterr().out
    assert main(["similarity", f"model2vec:{again}", "a dog", "a cat"]) == 0
    assert main(["similarity", str(again), "a dog", "a cat"]) == 1
    assert f"as an encoder it is called model2vec:{again}" in capsys.readouterr().err
    models = ["--report", f"model2vec:{out}", "--report", "demo?dim=3"]
    assert main(["distil", *common, *models, "--json"]) == 0
    teacher, student, other = json.loads(capsys.readouterr().out)["models"]
    assert teacher["overlap"] == 1
    assert student["overlap"] > other["overlap"]
    assert main(["distil", *common, *models]) == 0
    assert "sentences/s" in capsys.readouterr().out
    assert main(["distil", *common, *how, "--seed", "1", "--prepare", job, "--force"]) == 0
    assert main(["distil", *common, "--trained", job, "--out", str(tmp_path / "none")]) == 1
    assert f"{job} holds no trained student" in capsys.readouterr().err


def test_command_lines_that_make_no_sense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("one\n")
    for words, code, problem in [
        ([], 2, "Give one of --out, --prepare and --report"),
        (["--out", str(tmp_path / "a"), "--prepare", str(tmp_path / "b")], 2, "Give one of"),
        (["--out", str(tmp_path / "a"), "--leading", "x"], 2, "numbers with commas"),
        (["--out", str(tmp_path / "a"), "--trained", str(tmp_path)], 1, "is no job"),
        (["--out", str(tmp_path / "a"), "--student", "nobody"], 1, "nobody"),
        (["--out", "."], 1, "the current folder is in it"),
        (["--out", str(tmp_path / "a"), "--onnx", ".."], 1, "the current folder is in it"),
    ]:
        assert main(["distil", "demo", str(corpus), *words]) == code
        assert problem in capsys.readouterr().err
    assert train([]) == 2
    assert train([str(tmp_path)]) == 1


def test_a_student_whose_graphs_cannot_be_written_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnx")
    (tmp_path / "corpus.txt").write_text("\n".join(SENTENCES))
    out, graphs = tmp_path / "out", tmp_path / "graphs"
    common = ["distil", "demo?dim=24", str(tmp_path / "corpus.txt"), "--store", str(tmp_path / "store")]
    common += ["--student", f"st:{write_st(tmp_path / 'bert')}", "--epochs", "1", "--dim", "12"]
    with monkeypatch.context() as patch:
        patch.setattr("ensembed.integrations.onnx_bert.save_folder", full)
        assert main([*common, "--out", str(out), "--onnx", str(graphs)]) == 1
    message = capsys.readouterr().err
    assert f"the student is saved in {out}, its graphs are not: {graphs} cannot be written" in message
    assert f"export_bert(Path({str(out)!r}), Path({str(graphs)!r}))" in message
    export_bert(out, graphs)
    expected = load(f"st:{out}").encode(SENTENCES[:3])
    np.testing.assert_allclose(load(f"onnx:{graphs}").encode(SENTENCES[:3]), expected, atol=1e-5)


def full(folder: Path, _files: object) -> None:
    raise DiskFullError(f"{folder} cannot be written: No space left on device")
