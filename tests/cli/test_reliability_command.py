"""`ensembed reliability`, as a person and as a program uses it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensembed.cli import main
from ensembed.encoders import open_encoder
from ensembed.reliability import reliability

SENTENCES = [f"w{i % 17} w{i * 7 % 23} w{i * 5 % 19} v{i // 9} x{i}" for i in range(180)]
ENCODERS = ["demo?dim=8&seed=1", "demo?dim=48&seed=2", "demo?dim=16"]
FLAGS = [word for name in ENCODERS for word in ("-e", name)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join([*SENTENCES, "", *SENTENCES[:50]]))
    return path


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    code = main(["reliability", *arguments])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    return json.loads(output(capsys, *arguments, "--json"))


def test_reliability_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "--help")
    assert "ensembed reliability corpus.txt -e minilm" in text
    assert "No label is read" in " ".join(text.split())


def test_reliability_json_equals_the_library(capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    arguments = [str(corpus), *FLAGS, "--rows", "100", "--seed", "4", "--store", str(store)]
    found = data(capsys, *arguments)
    views = [open_encoder(name).encode([*SENTENCES, *SENTENCES[:50]]) for name in ENCODERS]
    expected = reliability(views, sentences=[*SENTENCES, *SENTENCES[:50]], names=ENCODERS, rows=100, seed=4)
    assert found["best"] == expected.names[expected.best]
    assert [one["member"] for one in found["members"]] == ENCODERS
    np.testing.assert_allclose([one["weight"] for one in found["members"]], expected.whitened_weights, atol=1e-5)
    np.testing.assert_allclose([one["lead"] for one in found["members"]], expected.lead, atol=1e-5)
    np.testing.assert_allclose(found["sufficiency"], expected.sufficiency, atol=1e-5)
    assert (found["sentences"], found["pairs"], found["seed"]) == (100, expected.pairs, 4)
    assert found["lexical"] is True
    assert found["provenance"]["ensembed"]
    # Only what is looked at was encoded; views of everything, once there, give the same figures.
    [folder] = {path.parent.parent for path in store.glob("*/*/manifest.json")}
    assert json.loads(next(folder.glob("*/manifest.json")).read_text())["rows"] == 100
    assert main(["embed", str(corpus), *FLAGS, "--store", str(store)]) == 0
    capsys.readouterr()
    for path in folder.glob("*/*"):
        path.unlink()
    again = data(capsys, *arguments)
    assert list(folder.glob("*/*")) == []
    np.testing.assert_allclose(
        [one["weight"] for one in again["members"]], [one["weight"] for one in found["members"]], atol=1e-5
    )


def test_reliability_prints_a_table_and_a_verdict(capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
    text = output(capsys, str(corpus), *FLAGS, "-e", "demo?dim=48&seed=02")
    lines = text.splitlines()
    assert lines[0].split()[:3] == ["member", "standing", "lead"]
    assert lines[2].startswith("demo?dim=48&seed=")
    assert "demo?dim=48&seed=2" in lines[-7] + text
    assert "demo?dim=48&seed=02 says the same as demo?dim=48&seed=2: they share one weight." in text
    assert "180 distinct sentences" in text
    assert "No label was read." in text
    assert "\x1b" not in text


def test_a_member_that_is_given_twice_counts_once_and_one_alone_has_weight_one(
    capsys: pytest.CaptureFixture[str], corpus: Path
) -> None:
    text = output(capsys, str(corpus), "-e", "demo", "-e", "demo")
    assert "demo has nothing to be compared with: there is no other." in text
    assert text.splitlines()[2].split()[0] == "demo"


def test_the_plot_is_svg_with_every_member(capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = [tmp_path / f"{k}.svg" for k in range(2)]
    for file in files:
        output(capsys, str(corpus), *FLAGS, "--plot", str(file))
    assert files[0].read_bytes() == files[1].read_bytes()
    text = "".join(ET.parse(files[0]).getroot().itertext())  # noqa: S314 - written by us
    for name in ENCODERS:
        assert name in text
    assert "lead" in text
    assert "weight" in text


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["CORPUS"], 3, "ensembed pull"),  # the default ensemble, as for fit, of which nothing is pulled here
        (["CORPUS", *FLAGS, "--rows", "49"], 2, "--rows"),
        (["CORPUS", *FLAGS, "--plot", "absent/x.svg"], 2, "no folder 'absent'"),
        (["absent.txt", *FLAGS], 1, "absent.txt"),
        (["SHORT", *FLAGS], 1, "it takes at least 50"),
        (["CORPUS", "-e", "demo", "-e", "minilm"], 3, "ensembed pull minilm"),
    ],
)
def test_reliability_exit_codes(
    capsys: pytest.CaptureFixture[str], corpus: Path, arguments: list[str], code: int, says: str
) -> None:
    short = corpus.with_name("short.txt")
    short.write_text("one\ntwo\n" * 40)
    words = {"CORPUS": str(corpus), "SHORT": str(short)}
    assert main(["reliability", *[words.get(word, word) for word in arguments]]) == code
    captured = capsys.readouterr()
    assert says in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_reliability_shows_the_weights_that_fit_takes(
    capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path
) -> None:
    found = data(capsys, str(corpus), *FLAGS)
    assert main(["fit", str(corpus), *FLAGS, "--out", str(tmp_path / "model"), "-q"]) == 0
    method = json.loads((tmp_path / "model" / "config.json").read_text())["method"]
    np.testing.assert_allclose([one["weight"] for one in found["members"]], method["weights"], atol=1e-5)


def test_figures_in_a_row_add_up(capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
    """A member that agrees more and yet weighs less has the reason in its row."""
    found = data(capsys, str(corpus), *FLAGS)
    text = output(capsys, str(corpus), *FLAGS)
    assert "standing = lead + dims + length + words" in text
    assert "weight = trust x own x spread" in text
    for member in found["members"]:
        parts = member["standing_parts"].values()
        assert sum(parts) == pytest.approx(member["standing"], abs=1e-5)
        factors = member["weight_factors"].values()
        assert np.prod(list(factors)) == pytest.approx(member["weight"], abs=1e-5)
        [row] = [line for line in text.splitlines() if line.startswith(member["member"] + " ")]
        assert " x ".join(f"{factor:.2f}" for factor in factors) in row


def test_a_small_corpus_is_said_to_be_too_small(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "small.txt"
    path.write_text("\n".join(SENTENCES[:80]))
    members = ["-e", "demo?dim=128&seed=1", "-e", "demo?dim=32&seed=2"]
    text = output(capsys, str(path), *members)
    assert "80 distinct sentences are too few to tell which member is better: it takes 128" in text
    assert "bootstrap samples" not in text
    with pytest.warns(RuntimeWarning, match="80 distinct sentences are too few"):
        assert main(["fit", str(path), *members, "--out", str(tmp_path / "model")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "weights equal, for the spread of the members' cosines: it takes 128 distinct sentences" in shown
