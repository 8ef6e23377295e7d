from __future__ import annotations

import doctest
import importlib
import pkgutil
import tempfile
from pathlib import Path

import pytest

import ensembed

# The command line's docstrings are help texts, importing `__main__` runs it, and kernels need triton, which comes with
# torch for GPUs.
KERNELS = ("ensembed.methods.autoencoder.triton_kernels", "ensembed.distil.bert_kernels")
SKIPPED = ("ensembed.cli", "ensembed.__main__", *KERNELS)
FOUND = [module.name for module in pkgutil.walk_packages(ensembed.__path__, "ensembed.")]
MODULES = ["ensembed", *(name for name in FOUND if not name.startswith(SKIPPED))]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    examples = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(examples) >= 5
