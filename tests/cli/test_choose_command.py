"""`ensembed choose`, on demo encoders."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ensembed.cli import main
from ensembed.cli.choose import _cost, _lines
from ensembed.encoders import DemoEncoder
from ensembed.reliability import Reliability
from ensembed.reliability.encoder_choice import choose

SENTENCES = [f"w{i % 60} w{i * 7 % 61} w{i * 13 % 59} w{i // 3}" for i in range(180)]
NAMES = ["demo?dim=32&seed=1", "demo?dim=48&seed=2", "demo?dim=24&seed=3"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(SENTENCES))
    return path


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    code = main(["choose", *arguments])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def test_choose_ranks_encoders_and_prints_a_command_that_fits(
    capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path
) -> None:
    flags = [str(corpus), *(word for name in NAMES for word in ("-e", name)), "--store", str(tmp_path / "store")]
    text = output(capsys, *flags)
    lines = text.splitlines()
    assert lines[0].split()[0] == "encoder"
    assert all(any(line.startswith(name) for line in lines) for name in NAMES)
    assert "n ensemble" in text.lower()
    command = lines[-1]
    assert command.startswith(("ensembed fit", "ensembed encode"))
    found = json.loads(output(capsys, *flags, "--members", "2", "--dims", "20", "--json"))
    assert [row["encoder"] for row in found["ranking"]] != []
    assert {row["encoder"] for row in found["ranking"]} == set(NAMES)
    assert len(found["chosen"]["members"]) <= 2
    assert found["provenance"]["ensembed"]
    words = shlex.split(found["command"])
    if words[1] == "fit":
        assert words[-4:-2] == ["--dim", "20"]
        assert main([*words[1:-1], str(tmp_path / "model"), "--store", str(tmp_path / "store"), "--quiet"]) == 0


def test_the_command_reads_the_corpus_as_choose_did(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    corpus, store = tmp_path / "corpus.data", str(tmp_path / "store")
    corpus.write_text("title\n" + "\n".join(SENTENCES))
    how = ["--text-column", "title", "--format", "csv", "--errors", "replace"]
    members = ("-e", NAMES[0], "-e", NAMES[1], "--store", store)
    words = shlex.split(json.loads(output(capsys, str(corpus), *how, *members, "--json"))["command"])
    start = words.index(str(corpus))
    assert words[start + 1 : start + 1 + len(how)] == how
    where = ["--store", store] if words[1] == "fit" else []
    assert main([*words[1:-1], str(tmp_path / words[-1]), *where, "--quiet"]) == 0


def test_a_cheaper_ensemble_that_differs_by_noise_is_chosen_and_the_reason_is_said() -> None:
    estimate = Reliability(
        ("a", "b", "c"), 1000, lexical=True, seed=0, standings=np.zeros((3, 3)), correlations=np.full((3, 3), 0.9),
        copies=(0, 1, 2),
    )  # fmt: skip
    for costs, says in (([5.0, 1.0, 1.0], True), ([1.0, 1.0, 1.0], False)):
        choice = choose(estimate, costs, [4, 4, 4], members=2)
        text = " ".join(_lines(estimate, choice, "command"))
        assert ("b + c is chosen because it is the cheapest of those that differ by noise only." in text) == says


def test_the_first_run_of_an_encoder_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    class Warming(DemoEncoder):
        def embed(self, sentences: list[str]) -> NDArray[Any]:
            clock[0] += 64.0 if clock[0] == 0 else 0.64
            return super().embed(sentences)

    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    assert _cost(Warming(dim=4), SENTENCES[:64]) == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["CORPUS", "-e", NAMES[0]], 2, "or first: ensembed pull minilm use-m3"),
        (["CORPUS", "-e", NAMES[0], "-e", NAMES[1], "--budget", "soon"], 2, "'soon' is not a time such as 3ms"),
        (["CORPUS", "-e", NAMES[0], "-e", NAMES[1], "--budget", "0.000001us"], 1, "raise the budget"),
        (["SHORT", "-e", NAMES[0], "-e", NAMES[1]], 1, "ensembed fit CORPUS --weights equal --out MODEL"),
    ],
)
def test_choose_says_what_is_wrong(
    capsys: pytest.CaptureFixture[str], corpus: Path, arguments: list[str], code: int, says: str
) -> None:
    short = corpus.with_name("short.txt")
    short.write_text("one\ntwo\n")
    words = {"CORPUS": str(corpus), "SHORT": str(short)}
    assert main(["choose", *[words.get(word, word) for word in arguments]]) == code
    captured = capsys.readouterr()
    assert says in captured.err
    assert "Traceback" not in captured.err


def test_few_sentences_are_warned_of_and_fewer_than_fifty_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    corpus = tmp_path / "few.txt"
    flags = [str(corpus), "-e", "demo?dim=64&seed=1", "-e", "demo?dim=48&seed=2", "--store", str(tmp_path / "store")]
    for count, warned in ((50, True), (63, True), (64, False)):
        corpus.write_text("\n".join(SENTENCES[:count]))
        assert ("too few for these encoders, it takes 64: the order may be wrong" in output(capsys, *flags)) == warned
        assert (json.loads(output(capsys, *flags, "--json"))["decided"] == "too few") == warned
    corpus.write_text("\n".join([*SENTENCES[:49], *SENTENCES[:9]]))
    assert main(["choose", *flags]) == 1
    assert "few.txt holds 49 distinct sentences: it takes at least 50 to choose encoders" in capsys.readouterr().err
