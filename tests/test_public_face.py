"""The names that users rely on: they import as written, load nothing heavy, and are documented."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

MODULES = ["ensembed", "ensembed.methods", "ensembed.encoders"]


@pytest.mark.parametrize(("module", "names"), [
    ("ensembed", ["Ensemble", "load", "MetaEncoder", "ObjectEncoder", "ViewStore", "ListCorpus", "TextCorpus"]),
    ("ensembed.methods", ["Concat", "Average", "SVD", "GCCA", "Auto", "Autoencoder", "UpProjection", "METHODS"]),
    ("ensembed.errors", ["EnsembedError", "InputError", "ViewError", "DimensionError", "EncoderError", "ModelError"]),
])  # fmt: skip
def test_the_names_of_the_readme_are_there(module: str, names: list[str]) -> None:
    for name in names:
        assert hasattr(importlib.import_module(module), name), name


@pytest.mark.parametrize("module", MODULES)
def test_everything_that_is_listed_is_there_once(module: str) -> None:
    listed = importlib.import_module(module).__all__
    assert len(set(listed)) == len(listed)
    for name in listed:
        assert hasattr(importlib.import_module(module), name), name


def _public() -> list[tuple[str, object]]:
    """Every public class and function, and the public methods and properties that our classes add."""
    found: dict[str, object] = {module: importlib.import_module(module) for module in MODULES}
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            value = getattr(importlib.import_module(module), name)
            if inspect.isclass(value) or inspect.isfunction(value):
                found[f"{module}.{name}"] = value
            if inspect.isclass(value):
                members = {k: v for k, v in vars(value).items() if not k.startswith("_")}
                wanted = (property, classmethod, staticmethod, type(lambda: None))
                found |= {f"{module}.{name}.{k}": v for k, v in members.items() if isinstance(v, wanted)}
    return sorted(found.items())


@pytest.mark.parametrize(("name", "value"), [pytest.param(name, value, id=name) for name, value in _public()])
def test_every_public_name_is_documented(name: str, value: object) -> None:
    own = value.__doc__ if isinstance(value, (type, ModuleType)) else inspect.getdoc(value)
    assert own, name
    # What a dataclass makes up by itself says nothing.
    assert not own.startswith(name.rsplit(".", 1)[-1] + "("), name


def test_the_methods_show_objective_reference_and_example() -> None:
    from ensembed.methods import METHODS

    for method in METHODS.values():
        assert method.__doc__ is not None
        assert ">>> " in method.__doc__, method
        assert method.__doc__.startswith("`") or "random" in method.__doc__, method


def test_importing_loads_nothing_heavy() -> None:
    """Attempts count too: a heavy package may not be installed here."""
    script = """
import sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "onnxruntime", "tokenizers", "sentence_transformers", "ray", "rich"}:
            print(name)
sys.meta_path.insert(0, Watch())
import ensembed, ensembed.methods, ensembed.encoders
ensembed.Ensemble(["demo"])
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_error_is_an_ensembed_error_and_blame_of_the_input_a_value_error() -> None:
    import ensembed.errors as errors

    tree = [value for value in vars(errors).values() if inspect.isclass(value)]
    assert all(issubclass(error, errors.EnsembedError) for error in tree)
    assert issubclass(errors.InputError, ValueError)
    drawing = errors.__doc__ or ""
    for error in tree:
        assert error.__name__ in drawing, error
