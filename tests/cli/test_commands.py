"""Every command, as a person and as a program uses it, on the demo encoder."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensembed import load
from ensembed.cli import main

SENTENCES = [f"the {color} {animal} {verb}" for color in ("red", "blue", "old") for animal in ("dog", "cat", "fox")
             for verb in ("runs", "sleeps", "eats a lot")]  # fmt: skip
MEMBERS = ["-e", "demo?dim=8&seed=1", "-e", "demo?dim=6&seed=2"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(SENTENCES))
    return path


@pytest.fixture
def model(tmp_path: Path, corpus: Path) -> Path:
    folder = tmp_path / "model"
    assert main(["fit", str(corpus), *MEMBERS, "--method", "gcca", "--dim", "4", "-o", str(folder), "-q"]) == 0
    return folder


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    code = main(arguments)
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    return json.loads(output(capsys, *arguments, "--json"))


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(arguments)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.err


@pytest.mark.parametrize("command", ["encoders", "pull", "embed", "fit", "encode", "similarity", "evaluate"])
def test_every_help_shows_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    text = output(capsys, command, "--help")
    assert "Example" in text
    assert f"ensembed {command}" in text


def test_encoders_lists_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Apache-2.0" in output(capsys, "encoders")
    listed = data(capsys, "encoders")
    assert {kind["scheme"] for kind in listed["kinds"]} >= {"st", "onnx", "words", "openai", "demo"}
    found = {entry["name"]: entry for entry in listed["catalogue"]}
    assert found["minilm"]["dim"] == 384
    assert found["minilm"]["here"] is False
    assert found["wordllama"]["sources"] == ["PyPI wordllama 0.4.0.post1"]


def test_embed_fills_the_store_and_counts_distinct_sentences(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, corpus: Path
) -> None:
    corpus.write_text("\n".join([*SENTENCES, "", SENTENCES[0]]))
    [view] = data(capsys, "embed", str(corpus), "-e", "demo", "--store", str(tmp_path / "store"))
    assert (view["rows"], view["distinct"], view["dim"]) == (len(SENTENCES) + 1, len(SENTENCES), 32)
    assert Path(view["folder"], "manifest.json").exists()
    assert "demo" in output(capsys, "embed", str(corpus), "-e", "demo", "--store", str(tmp_path / "store"))


def test_embed_verify_repairs(capsys: pytest.CaptureFixture[str], tmp_path: Path, corpus: Path) -> None:
    command = ["embed", str(corpus), "-e", "demo", "--store", str(tmp_path / "store")]
    [view] = data(capsys, *command)
    [shard] = Path(view["folder"]).glob("shard-*")
    good = shard.read_bytes()
    shard.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    data(capsys, *command, "--verify")
    assert shard.read_bytes() == good


def test_embed_reads_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, corpus: Path
) -> None:
    from_file = data(capsys, "embed", str(corpus), "-e", "demo")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(corpus.read_bytes())))
    assert data(capsys, "embed", "-", "-e", "demo") == from_file


def test_fit_prints_a_summary_with_the_spectrum(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, corpus: Path
) -> None:
    facts = data(
        capsys, "fit", str(corpus), *MEMBERS, "--method", "gcca", "--dim", "3", "--tau", "1", "-o", str(tmp_path / "m")
    )
    assert facts["method"] == {"name": "gcca", "dim": 3, "tau": 1.0}
    assert facts["rows"] == len(SENTENCES)
    assert facts["spectrum"] == sorted(facts["spectrum"], reverse=True)
    text = output(capsys, "fit", str(corpus), *MEMBERS, "--method", "svd", "--dim", "3", "-o", str(tmp_path / "n"))
    assert "variance of each dimension: " in text


def test_fit_equals_the_librarys_fit(model: Path) -> None:
    assert load(model).meta.method == {"name": "gcca", "dim": 4, "tau": 10.0}
    assert load(model).encode(["a dog"]).shape == (1, 4)


def test_encode_gives_a_row_per_line_including_blank_lines(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, model: Path
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_bytes("a dog\r\n\nünïcode\nno end".encode())
    expected = load(model).encode(["a dog", "", "ünïcode", "no end"])
    assert data(capsys, "encode", str(model), str(lines), "-o", str(tmp_path / "v.npy"))["rows"] == 4
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=1e-6)
    rows = [json.loads(line) for line in output(capsys, "encode", str(model), str(lines), "--json").splitlines()]
    assert [row["sentence"] for row in rows] == ["a dog", "", "ünïcode", "no end"]
    np.testing.assert_allclose([row["vector"] for row in rows], expected, atol=1e-6)
    assert "a dog" in output(capsys, "encode", str(model), str(lines))


def test_encode_takes_an_encoder_with_e(capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
    by_option = output(capsys, "encode", "-e", "demo?dim=4", str(corpus), "--json")
    assert by_option == output(capsys, "encode", "demo?dim=4", str(corpus), "--json")
    code, error = failure(capsys, "encode", "-e", "demo", "demo", str(corpus))
    assert (code, "stands for MODEL" in error) == (2, True)
    code, error = failure(capsys, "encode")
    assert (code, "Say what encodes" in error) == (2, True)


def test_encode_failing_midway_leaves_no_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_bytes(b"fine\n" * 2000 + b"\xff\n")
    code, error = failure(capsys, "encode", "demo", str(lines), "-o", str(tmp_path / "v.npy"))
    assert code == 1
    assert "line 2001" in error
    assert [path.name for path in tmp_path.iterdir() if "npy" in path.name] == []


def test_similarity_of_arguments_and_of_pairs(capsys: pytest.CaptureFixture[str], tmp_path: Path, model: Path) -> None:
    lines = output(capsys, "similarity", str(model), "a dog", "a dog", "the cat", "--json").splitlines()
    assert json.loads(lines[0])["cosine"] == pytest.approx(1.0, abs=1e-6)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a dog\tthe cat\n\nred\tblue\n")
    found = [
        json.loads(line)
        for line in output(capsys, "similarity", str(model), "--pairs", str(pairs), "--json").splitlines()
    ]
    assert [(row["sentence1"], row["sentence2"]) for row in found] == [("a dog", "the cat"), ("red", "blue")]
    assert found[0]["cosine"] == json.loads(lines[1])["cosine"]
    pairs.write_text("5\ta dog\tthe cat\n")
    code, error = failure(capsys, "similarity", str(model), "--pairs", str(pairs))
    assert code == 1
    assert "write sentence1<TAB>sentence2, without a score" in error


def test_evaluate_scores_a_users_pairs(capsys: pytest.CaptureFixture[str], tmp_path: Path, model: Path) -> None:
    pairs = tmp_path / "mine.tsv"
    pairs.write_text("5\ta red dog\ta red dog\n3\ta red dog\ta red cat\n0\ta red dog\tblue skies\n")
    found = data(capsys, "evaluate", str(model), "demo", "--pairs", str(pairs))
    assert found["protocol"] == "mean"
    assert found["provenance"]["ensembed"]
    [result] = found["models"]["demo"]
    assert result["pairs"] == 3
    assert result["spearman"] == pytest.approx(1.0)
    text = output(capsys, "evaluate", str(model), "demo", "--pairs", str(pairs), "--protocol", "all")
    assert "protocol all" in text


def test_evaluate_names_the_missing_part(capsys: pytest.CaptureFixture[str], sts_data: Path) -> None:
    text = output(capsys, "evaluate", "demo", "--sts", "sts13", "--data", str(sts_data), "--parts")
    assert "sts13/FNWN" in text
    assert "without SMT" in text


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["encode"], 2, "Usage"),
        (["nonsense"], 2, "No such command"),
        (["pull"], 2, "name what to pull"),
        (["pull", "minilmm"], 1, "minilm"),
        (["encode", "minilm"], 3, "ensembed pull minilm"),
        (["encode", "nothing-like-it"], 1, "catalogue has no"),
        (["similarity", "demo", "alone"], 2, "at least two"),
        (["similarity", "demo"], 2, "--pairs"),
        (["embed", "absent.txt", "-e", "demo"], 1, "absent.txt"),
        (["evaluate", "demo", "--sts", "sts12", "--data", "absent"], 1, "absent"),
        (["evaluate", "demo", "--pairs", "absent.tsv"], 1, "absent.tsv"),
        (["encode", "."], 1, "not a saved model"),
    ],
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, says: str) -> None:
    found, error = failure(capsys, *arguments)
    assert found == code
    assert says in error


def test_fit_refuses_what_a_method_does_not_have(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, corpus: Path
) -> None:
    common = ["fit", str(corpus), *MEMBERS, "-o", str(tmp_path / "m")]
    code, error = failure(capsys, *common, "--method", "svd", "--tau", "1")
    assert code == 2
    assert "--method svd does not take --tau; it takes: --dim, --weights" in error
    code, error = failure(capsys, *common, "--method", "gcca", "--dim", "13")
    assert code == 1
    assert "at most --dim 12" in error  # ten words span no more of either member
    assert not (tmp_path / "m").exists()


# The command line with a demo encoder that stops for good at its fourth call.
STOPPING = """
import sys, time
from ensembed.cli import main
from ensembed.encoders import DemoEncoder
embed, calls = DemoEncoder.embed, []
def stop(encoder, sentences):
    calls.append(len(sentences))
    if len(calls) == 4:
        print("stopped", flush=True)
        time.sleep(600)
    return embed(encoder, sentences)
DemoEncoder.embed = stop
sys.exit(main())
"""


def test_an_interrupted_embed_says_so_and_continues(tmp_path: Path) -> None:
    corpus = tmp_path / "long.txt"
    corpus.write_text("\n".join(f"sentence number {i}" for i in range(2000)))
    arguments = ["embed", str(corpus), "-e", "demo", "--shard-rows", "200", "--json"]
    command = [sys.executable, "-c", STOPPING, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    assert process.stdout.readline() == "stopped\n"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "run the same command to continue" in error
    views = Path(os.environ["ENSEMBED_CACHE"]) / "views"
    kept = {path: path.stat().st_ino for path in views.glob("*/*/shard-*")}
    assert len(kept) == 3
    assert not list(views.glob("*/*/.*tmp"))
    command = [sys.executable, "-m", "ensembed", *arguments]
    subprocess.run(command, check=True, capture_output=True, env=os.environ)
    assert {path: path.stat().st_ino for path in kept} == kept
    assert len(list(views.glob("*/*/shard-*"))) == 10


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("a dog\n" * 20_000)
    shell = f'"{sys.executable}" -m ensembed encode demo "{lines}" --json | head -n 1'
    found = subprocess.run(["bash", "-c", shell], check=True, capture_output=True, text=True, env=os.environ)
    assert found.stdout.count("\n") == 1
    assert found.stderr == ""


@pytest.mark.real
def test_the_real_path_from_pull_to_evaluate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pulled: Callable[[str], Path]
) -> None:
    for name in ("wordllama", "minilm-int8", "stsb"):
        pulled(name)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(SENTENCES))
    model, store = str(tmp_path / "model"), str(tmp_path / "store")
    members = ["-e", "wordllama", "-e", "minilm-int8"]
    facts = data(capsys, "fit", str(corpus), *members, "--store", store, "--method", "gcca", "--dim", "16", "-o", model)
    assert facts["members"] == ["wordllama", "minilm-int8"]
    lines = output(capsys, "similarity", model, "a dog runs", "the dog is running", "a cat eats", "--json").splitlines()
    near, far = (json.loads(line)["cosine"] for line in lines)
    assert near > far
    [result] = data(capsys, "evaluate", "wordllama", "--sts", "stsb-dev")["models"]["wordllama"]
    assert result["pearson"] == pytest.approx(0.829, abs=0.001)
