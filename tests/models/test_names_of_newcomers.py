"""Names that newcomers write: of the hub, with commas between them, of methods and encoders in Python."""

from __future__ import annotations

import json
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import ensembed
from ensembed import Ensemble, load, open_encoder
from ensembed.cli import main
from ensembed.encoders import Encoder
from ensembed.errors import ConsentError, DimensionError, InputError, ModelError, UnknownEncoderError
from ensembed.methods import GCCA, METHODS, Auto, Autoencoder, make_method
from ensembed.models.named_ensembles import split_names

TEXTS = ["a dog barks", "a cat sleeps", "the dog sleeps", "the cat barks"]


@pytest.mark.parametrize(
    ("name", "suggestions"),
    [
        ("all-MiniLM-L6-v2", ["'minilm'"]),
        ("all-minilm-l6-v2", ["'minilm'"]),
        ("sentence-transformers/all-MiniLM-L6-v2", ["'minilm'", "'st:sentence-transformers/all-MiniLM-L6-v2'"]),
        ("Xenova/all-MiniLM-L6-v2", ["'minilm'"]),
        ("thenlper/gte-small", ["'gte-small'", "'st:thenlper/gte-small'"]),
        ("all-mpnet-base-v2", ["'mpnet'"]),
        ("sentence-transformers/all-mpnet-base-v2", ["'mpnet'", "'st:sentence-transformers/all-mpnet-base-v2'"]),
        ("all-distilroberta-v1", ["'st:sentence-transformers/all-distilroberta-v1'"]),
        ("org/model", ["st:org/model"]),
        ("minlm", ["'minilm'"]),
        ("text-embedding-3-small", ["'openai:https://api.openai.com/v1#text-embedding-3-small'"]),
        ("MiniLM", ["'minilm'"]),
        ("Use-M3", ["'use-m3'"]),
    ],
)
def test_names_of_the_hub_are_answered_by_what_to_write(
    name: str, suggestions: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    errors = []
    for opened in (open_encoder, load, lambda name: Ensemble([name])):
        with pytest.raises(UnknownEncoderError) as failure:
            opened(name)
        errors.append(str(failure.value))
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
    for command in (["similarity", name, "a", "b"], ["fit", str(tmp_path / "corpus.txt"), "-e", name, "-o", "never"]):
        assert main(command) == 1
        errors.append(capsys.readouterr().err)
    for error in errors:
        for suggestion in suggestions:
            assert suggestion in error


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("minilm", ["minilm"]),
        ("minilm,wordllama", ["minilm", "wordllama"]),
        ("minilm, wordllama,", ["minilm", "wordllama"]),
        ("minilm,wordlama", ["minilm", "wordlama"]),  # so that the error is about the name that is wrong
        ("words:a,b.txt,minilm", ["words:a,b.txt", "minilm"]),
        ("demo?seed=1,demo?seed=2", ["demo?seed=1", "demo?seed=2"]),
        ("st:a/b?prefix=Well, then: ", ["st:a/b?prefix=Well, then: "]),
    ],
)
def test_commas_divide_names_and_nothing_else(text: str, names: list[str]) -> None:
    assert list(split_names(text)) == names


def test_members_with_commas_are_fitted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
    command = ["fit", str(tmp_path / "corpus.txt"), "-e", "demo?seed=1,demo?seed=2", "-e", "demo?seed=3"]
    assert main([*command, "--method", "CONC", "--out", str(tmp_path / "m"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["members"] == ["demo?seed=1", "demo?seed=2", "demo?seed=3"]
    with pytest.raises(InputError, match=r"write \['minilm', 'wordllama'\]"):
        Ensemble("minilm,wordllama")


def test_scored_and_compared_models_can_have_commas_between_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Ensemble(["demo"]).fit(TEXTS, "conc").save("a,demo")  # a folder with a comma in its name
    Path("pairs.tsv").write_text("".join(f"{i}\t{a}\t{b}\n" for i, (a, b) in enumerate(pairwise(TEXTS))))
    assert main(["evaluate", "a,demo", "demo?seed=1,demo?seed=2", "--pairs", "pairs.tsv", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["models"]) == ["a,demo", "demo?seed=1", "demo?seed=2"]


def test_methods_are_accepted_by_name() -> None:
    ensemble = Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"])
    texts = [f"{text} {i}" for text in TEXTS for i in range(5)]
    expected = ensemble.fit(texts, GCCA()).encode(TEXTS)
    for name in ("gcca", "GCCA"):
        np.testing.assert_array_equal(ensemble.fit(texts, name).encode(TEXTS), expected)
    with pytest.raises(InputError, match=r"no method 'gca' \(did you mean 'gcca'\?\); there are: auto"):
        ensemble.fit(TEXTS, "gca")
    with pytest.raises(InputError, match="method up needs dim"):
        ensemble.fit(TEXTS, "up")
    for kind in METHODS.values():
        dim = {"dim": 4} if kind.name == "up" else {}
        assert make_method(kind.__name__, **dim) == make_method(kind.name, **dim)
        assert make_method(kind.name.upper(), **dim) == make_method(kind.name, **dim)
    assert isinstance(make_method("autoencoder"), Autoencoder)
    assert isinstance(make_method("Auto"), Auto)


def test_parameters_of_a_method_stand_beside_its_name() -> None:
    ensemble = Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"])
    texts = [f"{text} {i}" for text in TEXTS for i in range(5)]
    expected = ensemble.fit(texts, GCCA(dim=3, tau=2.0)).encode(TEXTS)
    np.testing.assert_array_equal(ensemble.fit(texts, "gcca", dim=3, tau=2.0).encode(TEXTS), expected)
    automatic = ensemble.fit(texts, Auto(dim=4, weights="equal")).encode(TEXTS)
    np.testing.assert_array_equal(ensemble.fit(texts, dim=4, weights="equal").encode(TEXTS), automatic)
    with pytest.raises(InputError, match=r"method gcca has no parameter 'epochs'; it has: dim, tau, weights"):
        ensemble.fit(texts, "gcca", epochs=3)
    with pytest.raises(InputError, match="there is no method ''"):
        ensemble.fit(texts, "")
    with pytest.raises(InputError, match=r"are its own: GCCA\(dim=…\)"):
        ensemble.fit(texts, GCCA(), dim=3)


def test_load_opens_an_encoder_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    encoder = load("demo?dim=8")
    assert isinstance(encoder, Encoder)
    np.testing.assert_array_equal(encoder.encode(TEXTS), open_encoder("demo?dim=8").encode(TEXTS))
    Ensemble(["demo?dim=8"]).fit(TEXTS, "conc").save("demo")
    assert load("demo").members[0].dim == 8  # a folder comes first
    with pytest.raises(ModelError):
        load(Path("demo?dim=8"))  # a path is no name
    with pytest.raises(ConsentError, match="trust"):
        load("tfhub:https://example.org/a-program/1")


def test_a_text_in_the_place_of_a_model_is_no_model() -> None:
    text = "a text " * 100
    assert split_names(text) == (text.strip(),)
    with pytest.raises(UnknownEncoderError, match="neither a folder with a saved model nor an encoder"):
        load(text)


def test_load_takes_the_dimensions_to_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = Ensemble(["demo?dim=8", "demo?dim=6&seed=2"]).fit([f"text {i} of {i % 7}" for i in range(50)], "conc")
    model.save("model")
    for name in ("model", Path("model")):
        np.testing.assert_array_equal(load(name, truncate_dim=3).encode(TEXTS), model.truncate(3).encode(TEXTS))
    assert load("demo?dim=8", truncate_dim=3).dim == 3
    with pytest.raises(DimensionError):
        load("model", truncate_dim=15)
    with pytest.raises(InputError, match="name of a model is empty"):
        load("")


def test_pull_of_a_model_of_the_hub_says_its_whole_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "BAAI/bge-small-en-v1.5"]) == 1
    assert "'st:BAAI/bge-small-en-v1.5'" in capsys.readouterr().err


def test_an_ensemble_that_was_not_fitted_says_so() -> None:
    ensemble = Ensemble(["demo"])
    for name in ("encode", "similarity", "save", "truncate"):
        with pytest.raises(AttributeError, match="fit it first"):
            getattr(ensemble, name)
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        ensemble.nonsense  # type: ignore[attr-defined] # noqa: B018 - it is not there


def test_names_of_the_rooms_say_where_they_are() -> None:
    for name, room in ensembed._ELSEWHERE.items():
        assert hasattr(import_module(f"ensembed.{room}"), name)
        with pytest.raises(AttributeError, match=f"write from ensembed.{room} import {name}"):
            getattr(ensembed, name)
