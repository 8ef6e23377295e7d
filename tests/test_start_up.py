"""What a start loads: the modules that must not be there are named, no clock is asked."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

import ensembed
from ensembed.cli import SUMMARIES, cli, main

HEAVY = ("numpy", "scipy", "onnxruntime", "tokenizers", "torch", "transformers", "sentence_transformers", "rich", "ray")


COMPLETED = """
import click; from ensembed.cli import cli
assert [one.value for one in cli.shell_complete(click.Context(cli), "fi")] == ["fit"]
"""


def _loaded(code: str) -> set[str]:
    """The modules that are there when the code has run in a fresh interpreter."""
    code += "\nimport sys; print('LOADED', *sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize(
    "code",
    [
        "import ensembed",
        "from ensembed.cli import main; assert main(['--help']) == 0",
        "from ensembed.cli import main; assert main(['--version']) == 0",
        "from ensembed.cli import main; assert main(['no-such-command']) == 2",
        COMPLETED,
    ],
)
def test_importing_and_helping_load_nothing_heavy(code: str) -> None:
    loaded = _loaded(code)
    assert "ensembed" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_an_ensemble_is_imported_without_what_only_some_fits_need() -> None:
    loaded = _loaded("from ensembed import Ensemble, load, ViewStore")
    assert "ensembed.models.ensemble" in loaded
    others = {"scipy.optimize", "scipy.sparse", "scipy.stats", "scipy.special"}
    assert loaded.isdisjoint({"onnxruntime", "tokenizers", "torch", "ray", "pyarrow", "rich", *others})


def test_engines_are_imported_without_what_they_run_on() -> None:
    loaded = _loaded("from ensembed.engines import Engine, Local, Ray, Resources; Ray('auto')")
    assert "ensembed.engines.ray.ray_engine" in loaded
    assert loaded.isdisjoint({"ray", "torch", "pyarrow", "onnxruntime"})


def test_one_command_does_not_load_the_others() -> None:
    loaded = _loaded("from ensembed.cli import main; assert main(['encoders', '--help']) == 0")
    assert "ensembed.cli.encoders" in loaded
    assert loaded.isdisjoint({"ensembed.cli.reproduce", "ensembed.cli.evaluate", "ensembed.cli.fit"})


@pytest.mark.parametrize("name", list(SUMMARIES))
def test_the_list_of_commands_says_what_the_commands_say(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str(1000) == click.Command(name, help=SUMMARIES[name]).get_short_help_str(1000)
    assert SUMMARIES[name] == command.get_short_help_str(1000)


def test_an_unknown_command_is_an_error_but_for_completion() -> None:
    with click.Context(cli) as context, pytest.raises(click.UsageError, match="No such command 'absent'"):
        cli.get_command(context, "absent")
    with click.Context(cli, resilient_parsing=True) as context:
        assert cli.get_command(context, "absent") is None
        assert cli.list_commands(context) == sorted(SUMMARIES)


def test_a_misspelt_command_is_answered_with_those_that_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fti"]) == 2
    assert "No such command 'fti'. Did you mean fit?" in capsys.readouterr().err


def test_every_module_is_there_by_its_name() -> None:
    for name in ("numerics", "reliability", "sts", "views"):
        assert getattr(ensembed, name).__name__ == f"ensembed.{name}"
        assert name in dir(ensembed)


def test_a_name_is_the_one_of_its_module() -> None:
    from ensembed import errors, views
    from ensembed.models import ensemble as model

    assert ensembed.Ensemble is model.Ensemble
    assert ensembed.ViewStore is views.ViewStore
    assert ensembed.EnsembedError is errors.EnsembedError
    assert set(ensembed.__all__) <= set(dir(ensembed))
    with pytest.raises(AttributeError, match="no attribute 'Absent'"):
        _ = getattr(ensembed, "Absent")  # noqa: B009 - a type checker knows that it is not there


def test_modules_are_there_after_a_plain_import() -> None:
    code = "import ensembed; ensembed.methods.GCCA; ensembed.errors.InputError; ensembed.encoders.open_encoder"
    assert "ensembed.methods.gcca" in _loaded(code)
