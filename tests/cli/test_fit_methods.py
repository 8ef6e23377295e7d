"""`ensembed fit` and the hyper-parameters of the methods."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from ensembed import Ensemble, ViewStore, load
from ensembed.cli import run
from ensembed.cli.methods import _PARAMETERS
from ensembed.methods import GCCA, METHODS, Autoencoder, UpProjection

SENTENCES = [f"the {a} {b} {c}" for a in ("red", "old", "big") for b in ("dog", "cat", "fox") for c in ("runs", "eats")]
MEMBERS = ["demo?dim=8&seed=1", "demo?dim=6&seed=2"]
TRAINED = ["--method", "ae", "--dim", "4", "--epochs", "2", "--batch-size", "8", "--device", "cpu"]


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "corpus.txt").write_text("\n".join(SENTENCES))
    members = [part for name in MEMBERS for part in ("-e", name)]
    return ["fit", str(tmp_path / "corpus.txt"), *members, "--out", str(tmp_path / "model")]


def test_an_autoencoder_is_fitted_as_the_library_does(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str]
) -> None:
    given = ["--hidden-layers", "2", "--hidden-dim", "5", "--activation", "tanh", "--loss", "cos", "--seed", "3"]
    given += ["--view-dropout", "0.25", "--learning-rate", "0.01", "--patience", "7", "--precision", "float64"]
    given += ["--kind", "averaged", "--temperature", "0.5"]
    assert run([*command, *TRAINED, *given, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    method = Autoencoder(
        4, 2, 5, "tanh", "cos", 0.5, "averaged", 0.25, 2, 8, 0.01, patience=7, seed=3, device="cpu", precision="float64"
    )
    assert facts["method"] == json.loads(json.dumps(method.to_json()))
    assert (facts["dim"], facts["rows"], facts["spectrum"]) == (4, len(SENTENCES), [])
    expected = Ensemble(MEMBERS).fit(SENTENCES, method, store=ViewStore(tmp_path / "other")).encode(["a dog"])
    np.testing.assert_array_equal(load(tmp_path / "model").encode(["a dog"]), expected)


def test_a_person_reads_what_was_trained(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert run([*command, *TRAINED]) == 0
    text = capsys.readouterr().out
    assert "loss=kld" in text
    assert f"{len(SENTENCES)} sentences" in text


def test_every_parameter_of_a_method_is_an_option() -> None:
    names = {field.name for method in METHODS.values() for field in dataclasses.fields(method)}
    assert set(_PARAMETERS) == names - {"betas"}  # nobody sets these from a shell


def test_the_defaults_that_the_help_names_are_those_of_the_methods() -> None:
    defaults = {
        field.name: field.default
        for method in (GCCA, UpProjection, Autoencoder)
        for field in dataclasses.fields(method)
        if field.default not in (None, dataclasses.MISSING)
    }
    for name, default in defaults.items():
        if name in _PARAMETERS:
            _, _, said = _PARAMETERS[name][1].partition("[default: ")
            shown = f"{default:g}" if isinstance(default, float) else str(default)
            assert said.rstrip("]").split(",")[0] == shown, name


@pytest.mark.parametrize("name", [name for name in _PARAMETERS if name not in ("dim", "tau")])
def test_what_is_the_autoencoder_s_is_refused_for_gcca(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str], name: str
) -> None:
    kind = _PARAMETERS[name][0]
    value = next(iter(getattr(kind, "choices", ["1"])))
    assert run([*command, f"--{name.replace('_', '-')}", value]) == 1
    assert f"method gcca has no parameter '{name}'; it has: dim, tau" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        (["--tau", "1"], 1, "method ae has no parameter 'tau'"),
        (["--hidden-layers", "3"], 2, "--hidden-layers"),
        (["--loss", "huber"], 2, "'mse', 'mae', 'kld', 'cos'"),
        (["--view-dropout", "1"], 1, "view_dropout must be a number from 0 to below 1"),
        (["--learning-rate", "-1"], 1, "learning_rate must be a number above 0"),
        (["--device", "abacus"], 1, "there is no device 'abacus' here"),
        (["--precision", "tf32"], 1, "is for CUDA devices"),
    ],
)
def test_bad_parameters_are_named(
    capsys: pytest.CaptureFixture[str], command: list[str], given: list[str], code: int, says: str
) -> None:
    assert run([*command, *TRAINED, *given]) == code
    assert says in capsys.readouterr().err


def test_without_torch_the_error_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run([*command, *TRAINED]) == 3
    assert "pip install 'ensembed[ae]'" in capsys.readouterr().err
    assert run([*command, "--method", "ae", "--dim", "4", "--hidden-layers", "0", "--loss", "mse"]) == 0


def test_where_no_model_can_be_saved_nothing_is_trained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    out = ["--out", str(tmp_path / "file" / "model")]
    assert run([*command, *out, "--method", "ae", "--store", str(tmp_path / "untouched")]) == 1
    assert "is not a folder" in capsys.readouterr().err
    assert not (tmp_path / "untouched").exists()
