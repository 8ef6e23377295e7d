"""A small fitted model, and what the tests of every adaptor ask of it."""

from __future__ import annotations

import importlib
import sys

import pytest

from ensembed import Ensemble, MetaEncoder
from ensembed.errors import MissingError
from ensembed.methods import GCCA

SENTENCES = [f"{who} {does} the {what}" for who in ("a dog", "she") for does in ("sees", "has") for what in "abcd"]
# New ones, equal ones, an empty one, other letters.
TEXTS = ["she has a dog", "", "something else", "she has a dog", "größer 🙂"]


def small_model(seed: int = 1) -> MetaEncoder:
    """Three dimensions out of two demo encoders; another seed, another model."""
    return Ensemble([f"demo?dim=5&seed={seed}", "demo?dim=4&seed=9"]).fit(SENTENCES, GCCA(dim=3))


def check_install_line(monkeypatch: pytest.MonkeyPatch, adaptor: str, library: str, extra: str) -> None:
    """Without its library the adaptor cannot be imported, and says what to install."""
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"ensembed.integrations.{adaptor}", raising=False)
    with pytest.raises(MissingError, match=rf"pip install 'ensembed\[{extra}\]'"):
        importlib.import_module(f"ensembed.integrations.{adaptor}")
