"""Sentences, a tokenizer and a plan for students that train in a second."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from make_static import small_tokenizer

from ensembed.corpora.corpus import ListCorpus
from ensembed.distil.distillation import Plan
from ensembed.encoders import DemoEncoder

SENTENCES = [
    " ".join(words)
    for words in itertools.product(
        ("a man", "two dogs", "the dog", "cats"),
        ("is playing", "run", "runs so", "a guitar"),
        ("the snow", "a stock", "two cats", "man so", "playing"),
        (".", "a dog", "run"),
    )
]
CORPUS = ListCorpus(SENTENCES)
TEACHER = DemoEncoder(dim=24)


def write_small_tokenizer(folder: Path) -> Path:
    """Write the tokenizer, and return its file."""
    path = folder / "tokenizer.json"
    small_tokenizer().save(str(path))
    return path


def small_plan(folder: Path, **how: Any) -> Plan:  # noqa: ANN401 - the fields of a plan
    """Return a plan for a static student that starts from nothing."""
    settings = {"start": ("none",), "dim": 12, "epochs": 6, "batch_size": 32, "learning_rate": 0.02}
    return Plan(tokenizer=write_small_tokenizer(folder), **{**settings, **how})
