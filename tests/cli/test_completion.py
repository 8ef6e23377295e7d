"""The Tab key: encoders, models, ensembles and data sets; files where the shell knows better."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from ensembed import Ensemble
from ensembed.cli import SUMMARIES, cli
from ensembed.methods import Concat


def _complete(*words: str) -> list[tuple[str, str]]:
    items = ShellComplete(cli, {}, "ensembed", "_ENSEMBED_COMPLETE").get_completions(list(words[:-1]), words[-1])
    return [(item.type, item.value) for item in items]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Ensemble(["demo"]).fit(["a dog"], Concat()).save(tmp_path / "my-model")
    (tmp_path / "my-texts").mkdir()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fit", "corpus.txt", "-e", "mini"], ["minilm", "minilm-int8"]),
        (["fit", "corpus.txt", "-e", "minilm,word"], ["minilm,wordllama", "minilm,words:"]),
        (["fit", "corpus.txt", "--ensemble", "pap"], ["paper"]),
        (["fit", "corpus.txt", "--method", "gc"], ["gcca"]),
        (["encode", "-e", "onn"], ["onnx:"]),
        (["encode", "my-"], ["my-model"]),
        (["similarity", "my-"], ["my-model"]),
        (["evaluate", "minilm", "./my-"], ["./my-model"]),
        (["compare", "gte"], ["gte-small"]),
        (["serve", "my-"], ["my-model"]),
        (["dedupe", "my-"], ["my-model"]),
        (["cluster", "my-"], ["my-model"]),
        (["index", "folder", "--model", "my-"], ["my-model"]),
        (["search", "folder", "--model", "my-"], ["my-model"]),
        (["pull", "st"], ["stsb"]),
        (["data", "fetch", "bil"], ["billion-word"]),
        (["fi"], ["fit"]),
        (["fit", "--ou"], ["--out"]),
    ],
)
def test_names_are_completed(words: list[str], expected: list[str]) -> None:
    assert _complete(*words) == [("plain", value) for value in expected]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["fit", "cor"], "file"),
        (["fit", "c", "--out", "my"], "dir"),
        (["encode", "my-model", "sen"], "file"),
        (["similarity", "other-"], "file"),
        (["search", "my"], "dir"),
        (["index", "folder", "art"], "file"),
        (["dedupe", "my-model", "in"], "file"),
        (["push", "my"], "file"),
    ],
)
def test_files_and_folders_are_left_to_the_shell(words: list[str], kind: str) -> None:
    assert _complete(*words) == [(kind, words[-1])]


@pytest.mark.parametrize("name", SUMMARIES)
def test_every_argument_and_option_that_names_a_model_or_encoder_is_completed(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    for parameter in command.params:
        if parameter.name in ("model", "models", "encoder", "encoders", "ensemble"):
            assert parameter.type is not click.STRING, (name, parameter.name)


def test_the_shell_gets_what_it_asks_for() -> None:
    asked = {"_ENSEMBED_COMPLETE": "bash_complete", "COMP_WORDS": "ensembed encode mini", "COMP_CWORD": "2"}
    command = [sys.executable, "-m", "ensembed"]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["plain,minilm", "plain,minilm-int8"]
    script = subprocess.run(
        command, env=os.environ | {"_ENSEMBED_COMPLETE": "bash_source"}, capture_output=True, text=True, check=True
    )
    assert "complete -o nosort -F" in script.stdout
