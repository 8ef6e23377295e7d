"""`ensembed demo` from the light core alone: without torch, without STS12-16, outside of a checkout."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ensembed.cli import demo as demo_command
from ensembed.cli import main
from ensembed.errors import PullError
from ensembed.fetch.catalog import catalog
from ensembed.fetch.registry_sources import NO_NPM
from ensembed.paper import main_table_demo


@pytest.mark.real
@pytest.mark.usefixtures("bare_clone")
def test_demo_prints_the_main_table_without_torch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for extra in ("pydantic", "jinja2", "matplotlib"):
        monkeypatch.setitem(sys.modules, extra, None)
    monkeypatch.setattr(main_table_demo, "find_spec", lambda _name: None)
    monkeypatch.setattr(demo_command, "find_spec", lambda _name: None)
    with pytest.warns(RuntimeWarning, match="without sts12 to sts16"):
        assert main(["demo", "use-lite", "wordllama", "--quiet"]) == 0
    text = capsys.readouterr().out
    assert "paper meta:gcca" in text
    assert "pip install 'ensembed[ae]'" in text
    assert "ensembed fit corpus.txt -e use-lite,wordllama" in text
    assert not list(Path.cwd().iterdir())
    with pytest.warns(RuntimeWarning, match="without sts12 to sts16"):
        assert main(["demo", "use-lite,wordllama", "--quiet", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    systems = {row["cells"]["system"] for row in rows}
    assert {"single:use-lite", "single:wordllama", "meta:gcca", "meta:auto"} <= systems
    assert "meta:ae" not in systems


def test_demo_of_an_unknown_encoder_names_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "no-such-encoder"]) == 1
    assert "it has: minilm, " in capsys.readouterr().err


@pytest.mark.parametrize("reason", [NO_NPM, "pip ended with status 1"])
def test_demo_that_cannot_pull_says_how_to_run_it_again(
    reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_names: object, **_rest: object) -> None:
        raise PullError(f"could not pull minilm: {reason}")

    monkeypatch.setattr(main_table_demo, "pull", fail)
    assert main(["demo", "minilm", "use-m3"]) == 3
    error = capsys.readouterr().err
    assert "; then again: ensembed demo minilm use-m3" in error
    assert ("encoders that need no npm: ensembed demo use-m3 paraphrase" in error) == (reason == NO_NPM)


def test_the_demo_without_npm_takes_encoders_from_pypi() -> None:
    names = demo_command._WITHOUT_NPM.removeprefix("ensembed demo ").split()
    assert [{source.registry for source in catalog()[name].sources} for name in names] == [{"pypi"}] * 2
