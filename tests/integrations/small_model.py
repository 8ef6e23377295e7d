"""A small fitted model and texts for the tests of every adaptor."""

from __future__ import annotations

from ensembed import Ensemble, MetaEncoder
from ensembed.methods import GCCA

SENTENCES = [f"{who} {does} the {what}" for who in ("a dog", "she") for does in ("sees", "has") for what in "abcd"]
# New ones, equal ones, an empty one, other letters.
TEXTS = ["she has a dog", "", "something else", "she has a dog", "größer 🙂"]


def small_model(seed: int = 1) -> MetaEncoder:
    """Three dimensions out of two demo encoders; another seed, another model."""
    return Ensemble([f"demo?dim=5&seed={seed}", "demo?dim=4&seed=9"]).fit(SENTENCES, GCCA(dim=3))
