"""Ensembles that have a name: what is in them, and how the command line takes them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from ensembed.cli import main
from ensembed.encoders.names_and_consent import KINDS, parse_name
from ensembed.errors import InputError
from ensembed.fetch.catalog import catalog
from ensembed.models import named_ensembles as ensembles
from ensembed.models.named_ensembles import ENSEMBLES, named_ensemble

SMALL = ("demo?dim=8&seed=1", "demo?dim=6&seed=2")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(f"sentence {i} of {i % 7} and {i % 11}" for i in range(60)))
    return path


@pytest.fixture
def _two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensembles, "ENSEMBLES", {"two": SMALL})


def test_the_papers_encoders_in_the_papers_order() -> None:
    requests = [parse_name(name) for name in named_ensemble("paper")]
    assert [request.scheme for request in requests] == ["paranmt", "tfhub", "st"]
    assert [request.location for request in requests] == [
        "http://www.cs.cmu.edu/~jwieting/para-nmt-50m-demo.zip",
        "https://tfhub.dev/google/universal-sentence-encoder/2",
        "sentence-transformers/bert-large-nli-mean-tokens",
    ]
    assert all(request.query == {} for request in requests)


def test_every_member_is_of_a_kind_that_there_is() -> None:
    for members in ENSEMBLES.values():
        assert len(set(members)) == len(members) > 1
        for name in members:
            request = parse_name(name)
            assert request.scheme in KINDS
            assert request.options() == (dict(request.entry.settings) if request.entry else {})
    assert set(ENSEMBLES["default"]) <= set(catalog())


def test_unknown_ensemble_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(InputError, match=r"no ensemble 'papr' \(did you mean 'paper'\?\); there are: paper, default"):
        named_ensemble("papr")


def fit(corpus: Path, *arguments: str) -> int:
    return main(
        ["fit", str(corpus), *arguments, "--dim", "3", "--out", str(corpus.parent / "model"), "-q", "--json", "--force"]
    )


@pytest.mark.usefixtures("_two")
def test_fit_takes_an_ensemble_and_more(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(corpus, "--ensemble", "two") == 0
    assert json.loads(capsys.readouterr().out)["members"] == list(SMALL)
    assert fit(corpus, "-e", "demo?dim=5&seed=3", "--ensemble", "two") == 0
    assert json.loads(capsys.readouterr().out)["members"] == [*SMALL, "demo?dim=5&seed=3"]


@pytest.mark.usefixtures("_two")
def test_embed_takes_an_ensemble(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed", str(corpus), "--ensemble", "two", "-q", "--json"]) == 0
    assert [view["encoder"] for view in json.loads(capsys.readouterr().out)] == list(SMALL)


@pytest.mark.usefixtures("_two")
def test_bad_command_lines(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed", str(corpus)]) == 2
    assert "Name the members, as in -e minilm,use-m3, or a named ensemble" in capsys.readouterr().err
    assert fit(corpus, "--ensemble", "three") == 1
    assert "there is no ensemble 'three'" in capsys.readouterr().err
    assert fit(corpus, "--ensemble", "two", "-e", SMALL[0]) == 1
    assert "is a member twice" in capsys.readouterr().err


def test_paper_ensemble_without_a_network_is_an_error_without_traceback(
    corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that refuses stands for a network that is not there, wherever the test runs."""
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    began = time.monotonic()
    assert fit(corpus, "--ensemble", "paper") == 3
    assert time.monotonic() - began < 10
    error = capsys.readouterr().err
    assert error.startswith(f"error: encoder {ENSEMBLES['paper'][0]!r}: ")
    assert "could not be downloaded: [Errno" in error
    assert "Traceback" not in error


def test_fit_takes_the_default_ensemble_where_no_member_is_named(
    corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ensembles, "ENSEMBLES", {"default": SMALL})
    assert main(["fit", str(corpus), "-o", str(corpus.parent / "by-default"), "-q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["members"] == list(SMALL)
