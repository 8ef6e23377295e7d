"""A small model2vec model, in the files that model2vec writes."""

from __future__ import annotations

from pathlib import Path

from make_static import small_tokenizer, small_vectors
from model2vec import StaticModel


def make_model2vec(folder: Path) -> str:
    """Save a model that normalises its vectors; returns the encoder's name."""
    model = StaticModel(small_vectors(1), small_tokenizer(), normalize=True)
    model.save_pretrained(folder / "small")
    return f"model2vec:{folder / 'small'}"
