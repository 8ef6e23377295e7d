"""The speed of a static student against minilm, which a user would replace by it, in the same run."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.encode import sts_sentences
from benchmarks.timing import Section, compare
from ensembed.distil.static_files import PRECISIONS, save_folder, static_files
from ensembed.encoders import open_encoder
from ensembed.fetch.catalog import require
from ensembed.fetch.fetcher import pull

_DIM = 384


def run(count: int = 2_000, repeats: int = 3) -> Section:
    """Random vectors for minilm's tokens: what a lookup costs does not depend on the numbers."""
    pull(["minilm"])
    texts = sts_sentences(count)
    tokenizer = (require("minilm") / "tokenizer.json").read_text()
    minilm = open_encoder("minilm")
    table = np.random.default_rng(0).standard_normal((30_522, _DIM)).astype(np.float32)
    comparisons = []
    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as folder:
        for precision in PRECISIONS:
            place = Path(folder) / precision
            save_folder(place, static_files(table, tokenizer, precision, {}))
            student = open_encoder(f"model2vec:{place}")
            for encoder in (student, minilm):
                encoder.encode(texts[:64])
            what = f"static student of {_DIM} dimensions in {precision}, {len(texts):,} sentences"
            ours, peer = partial(student.encode, texts), partial(minilm.encode, texts)
            target = "<= 0.025" if precision == "float32" else ""
            comparisons.append(compare(what, ours, "minilm, float32", peer, target, repeats))
    return Section("Students", comparisons)
