"""`ensembed compare`, as a person and as a program uses it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensembed.cli import main
from ensembed.encoders import DemoEncoder, Encoder, open_encoder
from ensembed.reliability.likeness import compare

SENTENCES = [
    f"the {a} {b} {c}" for a in ("red", "blue", "old") for b in ("dog", "cat", "fox") for c in ("runs", "eats")
]
ENCODERS = ["demo?dim=8&seed=1", "demo?dim=6&seed=2", "demo?dim=300"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(SENTENCES))
    return path


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    code = main(["compare", *arguments])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    return json.loads(output(capsys, *arguments, "--json"))


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["compare", *arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert captured.out == ""
    return code, captured.err


def test_compare_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert "ensembed compare minilm use-lite wordllama" in output(capsys, "--help")


def test_compare_json_equals_the_library(capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
    found = data(capsys, *ENCODERS, "--corpus", str(corpus), "--neighbours", "3", "--rows", "12", "--seed", "5")
    views = [open_encoder(name).encode(SENTENCES) for name in ENCODERS]
    expected = compare(views, rows=12, neighbours=3, seed=5)
    for measure in ("cka", "cosines", "overlap"):
        np.testing.assert_allclose(found[measure], getattr(expected, measure), atol=1e-6)
    assert [entry["encoder"] for entry in found["encoders"]] == ENCODERS
    assert [entry["spec"]["dim"] for entry in found["encoders"]] == [8, 6, 300]
    assert found["corpus"]["what"] == str(corpus)
    assert (found["corpus"]["sentences"], found["corpus"]["distinct"], found["rows"]) == (18, 18, 18)
    assert (found["sampled"], found["neighbours"], found["seed"]) == (12, 3, 5)
    assert found["chance"] == pytest.approx(3 / 11)
    assert found["provenance"]["ensembed"]
    assert found["pairs"][0]["cka"] == max(pair["cka"] for pair in found["pairs"])


def test_views_are_kept_and_repeated_sentences_count_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, corpus: Path
) -> None:
    once = data(capsys, *ENCODERS, "--corpus", str(corpus))
    lines = [*SENTENCES[:9], "", *SENTENCES[:5], *SENTENCES[9:], *SENTENCES]
    corpus.write_text("\n".join(lines))
    store = tmp_path / "store"
    found = data(capsys, *ENCODERS, "--corpus", str(corpus), "--store", str(store))
    for measure in ("cka", "cosines", "overlap"):
        np.testing.assert_allclose(found[measure], once[measure], atol=1e-6)
    assert (found["corpus"]["sentences"], found["corpus"]["distinct"]) == (len(lines) - 1, 18)
    assert len(list(store.glob("*/*/manifest.json"))) == 3


def test_compare_prints_a_table_a_heat_map_and_advice(capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
    corpus.write_text("\n".join(f"{a} {b}" for a in "abcdefgh" for b in "ijklmnop"))
    text = output(capsys, "demo?dim=2&seed=7", "demo?dim=300", "demo?dim=300&seed=1", "--corpus", str(corpus))
    lines = text.splitlines()
    assert lines[0].split() == ["encoder", "encoder", "CKA", "cosines", "overlap"]
    assert lines[2].split()[:2] == ["demo?dim=300", "demo?dim=300&seed=1"]
    assert "1 demo?dim=2&seed=7" in text
    assert "1.00 █" in text
    assert "\x1b" not in text
    assert "Overlap by chance: 0.159." in text
    assert "Most alike: demo?dim=300 and demo?dim=300&seed=1 (CKA 0.9" in text
    assert "Most different: demo?dim=2&seed=7 and " in text
    assert "nobody can tell" not in text  # `reliability` estimates it
    assert "`ensembed reliability` estimates that without labels" in text


def test_the_same_encoder_under_another_name_adds_little(capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
    text = output(capsys, "demo", "demo?dim=32", "demo", "--corpus", str(corpus))
    assert "Most alike: demo and demo?dim=32 (CKA 1.00): the one adds little to the other." in text
    assert "Most different" not in text  # there is one pair: what is given twice counts once


def test_compare_names_an_encoder_that_tells_nothing_apart(
    capsys: pytest.CaptureFixture[str], corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = DemoEncoder.embed

    def constant(self: DemoEncoder, sentences: list[str]) -> Any:  # noqa: ANN401 - an array
        return np.ones((len(sentences), 5)) if self.spec.dim == 5 else embed(self, sentences)

    monkeypatch.setattr(DemoEncoder, "embed", constant)
    arguments = [*ENCODERS, "demo?dim=5", "--corpus", str(corpus)]
    text = output(capsys, *arguments)
    assert "demo?dim=5 tells no sentences apart: its figures are 0." in text
    assert "demo?dim=5" not in text.split("Most different")[1]
    found = data(capsys, *arguments)
    assert found["mute"] == ["demo?dim=5"]
    assert found["cka"][3] == [0, 0, 0, 0]
    assert "Most" not in output(capsys, "demo", "demo?dim=5", "--corpus", str(corpus))


def test_vectors_that_cannot_be_stored_are_encoded_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = data(capsys, *ENCODERS, "--corpus", str(corpus))

    class Fickle(DemoEncoder):
        cacheable = False

    def open_model(source: str, *, trust: bool, **_options: object) -> Encoder:  # noqa: ARG001 - as the real one is called
        return Fickle(dim=6, seed=2) if source == ENCODERS[1] else open_encoder(source)

    monkeypatch.setattr("ensembed.cli.options.open_model", open_model)
    found = data(capsys, *ENCODERS, "--corpus", str(corpus), "--store", str(tmp_path / "store"))
    assert found["cka"] == expected["cka"]
    assert found["overlap"] == expected["overlap"]
    assert len(list((tmp_path / "store").glob("*/*/manifest.json"))) == 2


def test_compare_takes_saved_models_and_standard_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(tmp_path / "model")
    fit = ["fit", str(corpus), "-e", ENCODERS[0], "-e", ENCODERS[1], "--method", "svd", "--dim", "4", "-o", model, "-q"]
    assert main(fit) == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(corpus.read_bytes())))
    found = data(capsys, model, ENCODERS[0], "--corpus", "-")
    assert found["corpus"]["what"] == "standard input"
    assert found["encoders"][0]["encoder"] == model
    assert found["cka"][0][1] > 0.3


def test_compare_writes_an_svg_and_a_page(capsys: pytest.CaptureFixture[str], tmp_path: Path, corpus: Path) -> None:
    svg, page = tmp_path / "a <b>.svg", tmp_path / "page.md"
    arguments = [*ENCODERS, "--corpus", str(corpus), "--svg", str(svg), "--markdown", str(page), "--seed", "3", "-q"]
    printed = output(capsys, *arguments)
    text = "".join(ET.fromstring(svg.read_text()).itertext())  # noqa: S314 - we wrote it
    for title in ("CKA", "Correlation of cosines", "Overlap of 10 neighbours", ENCODERS[0], "chance: 0.588"):
        assert title in text
    lines = page.read_text().splitlines()
    assert lines[2].startswith("Written by `ensembed compare 'demo?dim=8&seed=1' 'demo?dim=6&seed=2' 'demo?dim=300' ")
    assert lines[2].endswith(f"--seed 3 --svg '{svg}' --markdown {page}`.")
    assert lines[4] == "![heat maps](a%20%3Cb%3E.svg)"
    first = [cell.strip() for cell in lines[8].strip("|").split("|")]
    assert first == printed.splitlines()[2].split()
    assert any("Kornblith" in line for line in lines)
    assert any("numpy" in line for line in lines)
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".tmp"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "at least two different encoders"),
        (["demo"], 2, "at least two different encoders to compare, not 1"),
        (["demo", "demo"], 2, "at least two different encoders to compare, not 1"),
        (["demo", "demo?seed=1", "--rows", "3"], 2, "--rows"),
        (["demo", "demo?seed=1", "--corpus", "absent.txt"], 1, "absent.txt"),
        (["demo", "demo?seed=1", "--svg", "absent/x.svg"], 2, "no folder 'absent'"),
        (["demo", "nothing-like-it", "--corpus", "CORPUS"], 1, "nothing-like-it"),
        (["demo", "minilm", "--corpus", "CORPUS"], 3, "ensembed pull minilm"),
        (["demo", "demo?seed=1", "--corpus", "CORPUS", "--neighbours", "18"], 1, "at most 17 neighbours"),
        (["demo", "demo?seed=1", "--corpus", "CORPUS", "--rows", "5"], 1, "5 sampled sentences"),
    ],
)
def test_compare_exit_codes(
    capsys: pytest.CaptureFixture[str], corpus: Path, arguments: list[str], code: int, says: str
) -> None:
    found, error = failure(capsys, *[str(corpus) if word == "CORPUS" else word for word in arguments])
    assert found == code
    assert says in error


def test_compare_refuses_too_few_distinct_sentences(capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
    corpus.write_text("one\ntwo\nthree\n" * 9)
    code, error = failure(capsys, "demo", "demo?seed=1", "--corpus", str(corpus))
    assert code == 1
    assert "at least 4 distinct sentences, got 3" in error


def test_without_sts_b_the_default_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ENSEMBED_DATA", raising=False)
    monkeypatch.chdir(tmp_path)  # away from any data beside the checkout
    code, error = failure(capsys, "demo", "demo?seed=1")
    assert code == 3
    assert "ensembed pull stsb" in error


def test_compare_prints_to_an_ascii_terminal(corpus: Path) -> None:
    names = ["demo?dim=8", "demo?dim=8&seed=" + "0" * 40 + "1"]
    done = subprocess.run(
        [sys.executable, "-m", "ensembed", "compare", *names, "--corpus", str(corpus)],
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    text = done.stdout.decode("ascii")
    assert "1.00 #" in text
    assert "demo?dim=8&seed=0" in text
    assert "..." in text


@pytest.mark.real
def test_compare_real_encoders_on_the_default_corpus(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pulled: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("wordllama", "stsb"):
        pulled(name)
    monkeypatch.delenv("ENSEMBED_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    found = data(capsys, "wordllama", "wordllama?truncate_dim=64", "demo?dim=64", "--store", str(tmp_path / "store"))
    assert found["rows"] == 10536
    assert found["sampled"] == 2000
    same, *others = found["pairs"]
    assert same["encoders"] == ["wordllama", "wordllama?truncate_dim=64"]
    for measure in ("cka", "cosines", "overlap"):
        assert same[measure] > 0.5
        assert all(same[measure] > other[measure] for other in others)
