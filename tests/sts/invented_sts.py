"""Sentences of few words, members that know them, and data sets with random scores."""

from __future__ import annotations

import numpy as np

from ensembed import ListCorpus
from ensembed.sts import Dataset, Pairs

WORDS = ["dog", "cat", "fox", "man", "red", "old", "blue", "runs", "eats", "sleeps"]
CORPUS = ListCorpus([f"the {a} {b} {c}" for a in WORDS for b in WORDS[:5] for c in WORDS[5:]])
MEMBERS = ["demo?dim=8&seed=1", "demo?dim=6&seed=2", "demo?dim=5&seed=3"]


def dataset(name: str, parts: tuple[str, ...], missing: tuple[str, ...] = ()) -> Dataset:
    generator = np.random.default_rng(len(name) + len(parts))
    texts = [tuple(" ".join(generator.choice(WORDS, 4)) for _ in range(20)) for _ in range(2 * len(parts))]
    pairs = [Pairs(part, texts[2 * k], texts[2 * k + 1], generator.uniform(0, 5, 20)) for k, part in enumerate(parts)]
    return Dataset(name, tuple(pairs), missing, "tsv")
