"""A small model that the tests put on a hub on this machine, and what pytest has to know of the hub's client."""

from __future__ import annotations

import pytest

from ensembed import Ensemble, MetaEncoder
from ensembed.methods import GCCA

SENTENCES = [f"the {color} {animal} {verb}" for color in ("red", "blue", "old") for animal in ("dog", "cat", "fox")
             for verb in ("runs", "sleeps")]  # fmt: skip
MEMBERS = ["demo?dim=8&seed=1", "demo?dim=6&seed=2"]
REPO = "me/model"

# The client's own upload of large files passes them on in a way that its transport would have otherwise.
UPLOADS = pytest.mark.filterwarnings("ignore:Use 'content=<...>' to upload raw bytes:DeprecationWarning")


def hub_model() -> MetaEncoder:
    """Four dimensions out of two demo encoders."""
    return Ensemble(MEMBERS).fit(SENTENCES, GCCA(dim=4))
