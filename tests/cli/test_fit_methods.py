"""`ensembed fit` and the hyper-parameters of the methods."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import click
import numpy as np
import pytest

from ensembed import Ensemble, ViewStore, load
from ensembed.cli import cli, main
from ensembed.cli.methods import in_options, option, parameters
from ensembed.methods import GCCA, METHODS, Auto, Autoencoder, UpProjection

SENTENCES = [f"the {a} {b} {c}" for a in ("red", "old", "big") for b in ("dog", "cat", "fox") for c in ("runs", "eats")]
MEMBERS = ["demo?dim=8&seed=1", "demo?dim=6&seed=2"]
TRAINED = ["--method", "ae", "--dim", "4", "--epochs", "2", "--batch-size", "8", "--device", "cpu"]


def _option(name: str) -> click.Option:
    command = cli.get_command(click.Context(cli), "fit")
    assert command is not None
    [option] = [parameter for parameter in command.params if parameter.name == name]
    assert isinstance(option, click.Option)
    return option


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "corpus.txt").write_text("\n".join(SENTENCES))
    members = [part for name in MEMBERS for part in ("-e", name)]
    return ["fit", str(tmp_path / "corpus.txt"), *members, "--out", str(tmp_path / "model"), "--force"]


def test_an_autoencoder_is_fitted_as_the_library_does(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str]
) -> None:
    given = ["--hidden-layers", "2", "--hidden-dim", "5", "--activation", "tanh", "--loss", "cos", "--seed", "3"]
    given += ["--view-dropout", "0.25", "--learning-rate", "0.01", "--patience", "7", "--precision", "float64"]
    given += ["--kind", "averaged", "--temperature", "0.5"]
    assert main([*command, *TRAINED, *given, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    method = Autoencoder(
        4, 2, 5, "tanh", "cos", 0.5, "averaged", 0.25, 2, 8, 0.01, patience=7, seed=3, device="cpu", precision="float64"
    )
    assert facts["method"] == json.loads(json.dumps(method.to_json()))
    assert (facts["dim"], facts["rows"], facts["spectrum"]) == (4, len(SENTENCES), [])
    expected = Ensemble(MEMBERS).fit(SENTENCES, method, store=ViewStore(tmp_path / "other")).encode(["a dog"])
    np.testing.assert_array_equal(load(tmp_path / "model").encode(["a dog"]), expected)


def test_a_person_reads_what_was_trained(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert main([*command, *TRAINED]) == 0
    text = capsys.readouterr().out
    [line] = [line for line in text.splitlines() if line.startswith("method")]
    assert line.split(maxsplit=1)[1] == "ae, epochs=2, batch_size=8, device=cpu"  # what is not the default
    assert f"{len(SENTENCES)} sentences" in text


def test_every_parameter_of_a_method_is_an_option() -> None:
    names = {field.name for method in METHODS.values() for field in method.parameters()}
    assert set(parameters()) == names - {"betas", "whitened"}  # nobody sets these from a shell


def test_the_defaults_that_the_help_names_are_those_of_the_methods() -> None:
    defaults = {
        field.name: field.default
        for method in (GCCA, UpProjection, Autoencoder)
        for field in method.parameters()
        if field.default not in (None, dataclasses.MISSING)
    }
    for name, default in defaults.items():
        if name in parameters():
            _, _, said = str(_option(name).help).partition("[default: ")
            shown = f"{default:g}" if isinstance(default, float) else str(default)
            assert said.rstrip("]").split(",")[0] == shown, name


def test_the_help_says_what_happens_without_an_option() -> None:
    defaults = {
        "dim": "the largest member's, for auto the sum of the members' dimensions; required for up",
        "weights": "equal, for auto reliability",
        "hidden_dim": "--dim",
        "kind": "cross, each from each, as in the paper",
        "patience": "never",
        "device": "a GPU if there is one",
        "precision": "auto, bfloat16 on CUDA up to one hidden layer, else float32",
        "solver": "auto, which solves",
    }
    for name, default in defaults.items():
        assert str(_option(name).help).endswith(f". [default: {default}]"), name
    command = cli.get_command(click.Context(cli), "fit")
    assert command is not None
    for parameter in command.params:  # click shows literal defaults itself; members and resources have none
        if isinstance(parameter, click.Option) and parameter.name not in ("encoders", "ensemble", "resources"):
            shown = parameter.required or parameter.is_flag or isinstance(parameter.default, (str, int, float))
            assert shown or "[default: " in str(parameter.help), parameter.name
            assert "[default: None" not in str(parameter.help), parameter.name


def test_the_help_has_the_text_of_every_method_that_says_something_else() -> None:
    text = str(_option("seed").help)
    assert text == "ae: seed of initial weights, batches and dropout; up: seed of the random matrix. [default: 0]"
    assert str(_option("dim").help).startswith("auto, svd, gcca, ae, up: the dimension d of the result. ")


@pytest.mark.parametrize("name", [name for name in parameters() if name not in ("dim", "tau", "weights")])
def test_what_is_the_autoencoder_s_is_refused_for_gcca(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str], name: str
) -> None:
    kind = _option(name).type
    value = next(iter(getattr(kind, "choices", ["1"])))
    assert main([*command, "--method", "gcca", f"--{name.replace('_', '-')}", value]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"--method gcca does not take {option(name)}; it takes: --dim, --tau, --weights" in said
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        (["--tau", "1"], 2, "--method ae does not take --tau"),
        (["--hidden-layers", "3"], 2, "--hidden-layers"),
        (["--loss", "huber"], 2, "'mse', 'mae', 'kld', 'cos'"),
        (["--view-dropout", "1"], 2, "--view-dropout must be a number from 0 to below 1"),
        (["--learning-rate", "-1"], 2, "--learning-rate must be a number above 0"),
        (
            ["--solver", "moments"],
            2,
            "--solver moments is for --loss mse, --hidden-layers 0, --kind cross and no --view-",
        ),
        (["--kind", "decoupled", "--dim", "5"], 2, "--kind decoupled splits --dim 5 among 2 views"),
        (["--device", "abacus"], 1, "there is no device 'abacus' here"),
        (["--precision", "tf32"], 1, "is for CUDA devices"),
    ],
)
def test_bad_parameters_are_named(
    capsys: pytest.CaptureFixture[str], command: list[str], given: list[str], code: int, says: str
) -> None:
    assert main([*command, *TRAINED, *given]) == code
    assert says in " ".join(capsys.readouterr().err.split())


def test_without_torch_the_error_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main([*command, *TRAINED]) == 3
    assert "pip install 'ensembed[ae]'" in capsys.readouterr().err
    assert main([*command, "--method", "ae", "--dim", "4", "--hidden-layers", "0", "--loss", "mse"]) == 0


def test_where_no_model_can_be_saved_nothing_is_trained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    out = ["--out", str(tmp_path / "file" / "model")]
    assert main([*command, *out, "--method", "ae", "--store", str(tmp_path / "untouched")]) == 1
    assert "is not a folder" in capsys.readouterr().err
    assert not (tmp_path / "untouched").exists()


@pytest.fixture
def longer(tmp_path: Path, command: list[str]) -> list[str]:
    """The command with enough sentences to find weights in."""
    more = [f"{one} and {two}" for one, two in zip(SENTENCES * 4, SENTENCES[1:] * 4, strict=False)]
    (tmp_path / "corpus.txt").write_text("\n".join(dict.fromkeys(more + SENTENCES)))
    return command


def test_by_default_members_are_weighted_by_reliability(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, longer: list[str]
) -> None:
    assert main([*longer, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    sentences = (tmp_path / "corpus.txt").read_text().splitlines()
    expected = Ensemble(MEMBERS).fit(sentences, store=ViewStore(tmp_path / "other"))
    assert facts["method"] == expected.meta.method
    assert facts["method"]["name"] == "auto"
    assert facts["method"]["weights_from"] == "reliability"
    assert facts["rows"] == len(sentences)
    np.testing.assert_array_equal(load(tmp_path / "model").encode(["a dog"]), expected.encode(["a dog"]))
    assert main(longer) == 0
    text = capsys.readouterr().out
    for name, weight in zip(MEMBERS, facts["method"]["weights"], strict=True):
        assert f"weight {weight:.3g}" in next(line for line in text.splitlines() if name in line)
    assert "by reliability, without labels: " in text


def test_weights_are_given_as_numbers_or_a_word(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str]
) -> None:
    assert main([*command, "--weights", "0.5,2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == Auto(weights=(0.5, 2)).to_json() | {"weights": [0.5, 2.0]}
    assert main([*command, "--method", "gcca", "--dim", "3", "--weights", "0.5, 2"]) == 0
    text = capsys.readouterr().out
    assert "weight 0.5" in text
    assert "reliability" not in text
    assert main([*command, "--dim", "3", "--weights", "equal"]) == 0
    assert "weight " not in capsys.readouterr().out
    assert load(tmp_path / "model").meta.method == json.loads(json.dumps(Auto(3, "equal").to_json()))


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        ("best", 2, "'best' is neither equal nor reliability nor numbers such as 1,0.5,0.2"),
        ("1,", 2, "neither equal nor"),
        ("1,-1", 2, "a number of at least 0 per member"),
        ("0,0", 2, "'0,0' lets no member count: one number must be above 0"),
        ("1,nan", 2, "a number of at least 0 per member"),
        ("1,2,3", 2, "there are 3 weights for 2 members"),
    ],
)
def test_bad_weights_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str], given: str, code: int, says: str
) -> None:
    assert main([*command, "--weights", given]) == code
    assert says in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--method", "up", "--weights", "1,1"], "--method up does not take --weights; it takes: --dim, --seed"),
        (["--method", "conc", "--dim", "3"], "--method conc does not take --dim; it takes: --weights"),
        (["--method", "up"], "--method up needs --dim"),
        (["--method", "up", "--dim", "4"], "takes one view, got 2"),
        (["--method", "svd", "--dim", "15"], "svd with --dim 15: the members have 14 dimensions together (8 + 6), so"),
        (["--dim", "9", "--weights", "1,0"], "auto with --dim 9: the members have 8 dimensions together (8), so"),
        (["--method", "ae", "--loss", "mse", "--hidden-layers", "0", "--dim", "15"], "the largest possible dim is 14"),
        (["--method", "svd", "--weights", "1,2,3"], "there are 3 weights for 2 members"),
    ],
)  # fmt: skip
def test_what_the_members_cannot_have_is_refused_before_anything_is_encoded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str], given: list[str], says: str
) -> None:
    assert main([*command, *given, "--store", str(tmp_path / "untouched")]) == 2
    assert says in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "untouched").exists()


def test_a_trained_code_may_be_longer_than_the_members_together(command: list[str]) -> None:
    assert main([*command, *TRAINED, "--dim", "15"]) == 0


def test_a_short_corpus_is_told_in_the_words_of_the_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "corpus.txt").write_text("one\ntwo\nthree\n")
    assert main(command) == 1
    said = capsys.readouterr().err
    assert "--weights equal" in said
    assert "weights=" not in said


def test_names_of_encoders_and_files_are_not_taken_for_parameters() -> None:
    for same in ("there is no encoder 'demo?dim=8&seed=1'", "runs/tau=3/pairs.tsv is empty", "the loss is high"):
        assert in_options(same) == same


def test_the_method_is_shown_in_a_few_words(capsys: pytest.CaptureFixture[str], longer: list[str]) -> None:
    for given, shown in (
        ([], "auto"),
        (["--dim", "4"], "auto"),
        (["--method", "svd", "--weights", "reliability"], "svd"),
        (["--method", "gcca", "--tau", "10"], "gcca"),
        (["--method", "gcca", "--tau", "3"], "gcca, tau=3.0"),
    ):
        assert main([*longer, *given]) == 0
        assert (
            next(line for line in capsys.readouterr().out.splitlines() if line.startswith("method")).split(None, 1)[1]
            == shown
        )


def test_a_spectrum_has_six_digits_and_no_noise(capsys: pytest.CaptureFixture[str], longer: list[str]) -> None:
    text, out = longer[1], longer[-2]
    given = ["fit", text, "-e", "demo?dim=4&seed=1", "-e", "demo?dim=6&seed=2", "-o", out, "--force"]
    given += ["--method", "gcca", "--dim", "10", "--tau", "0"]
    assert main([*given, "--json"]) == 0
    spectrum = json.loads(capsys.readouterr().out)["spectrum"]
    assert all(value == float(f"{value:.6g}") for value in spectrum)
    assert 0 < min(abs(value) for value in spectrum) < 1e-12  # views of 4 and 6 dimensions have rho that are zero
    assert main(given) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("spectrum"))
    assert "rho of dimensions 1, 2, 4, 5, 6, 7, 9, 10: " in line
    assert " 0 " in line
    assert "e-1" not in line
