"""Looking up known sentences in a view store against encoding them again."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks.ensemble import ENCODERS
from benchmarks.texts import news
from benchmarks.timing import Comparison, Section, best_in_turn
from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.fetch.fetcher import pull
from ensembed.models.ensemble import Ensemble
from ensembed.views import ViewStore

SAMPLE = 2000
STATIC = "wordllama"
"""An average of token vectors: making it takes hardly longer than reading it."""


class Stand(Encoder):
    """Has the name and the shape of an encoder and makes vectors at once: only what is stored is timed."""

    def __init__(self, spec: EncoderSpec) -> None:
        self._spec = spec
        self._generator = np.random.default_rng(spec.dim)

    @property
    def spec(self) -> EncoderSpec:
        """That of the encoder."""
        return self._spec

    def embed(self, sentences: list[str]) -> FloatArray:
        """Anything."""
        return self._generator.standard_normal((len(sentences), self._spec.dim), np.float32)


def run(known: int = 100_000, repeats: int = 3) -> Section:
    """Sentences that the store has seen, for each member and for all four."""
    pull(ENCODERS)
    texts = news(known)
    members = Ensemble(ENCODERS).encoders
    # Evenly from the whole: sentences at the beginning may be shorter than others.
    sample = texts[:: max(1, len(texts) // SAMPLE)][:SAMPLE]
    for member in members:
        member.encode(sample[:64])
    encoding = best_in_turn([partial(member.encode, sample) for member in members], 1)
    scale = len(texts) / len(sample)
    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as folder:
        store = ViewStore(folder)
        stands = [Stand(member.spec) for member in members]
        store.embed_all(ListCorpus(texts), stands)
        groups = [[stand] for stand in stands] + [list(stands)]
        looked = best_in_turn([partial(_look_up, store, texts, group) for group in groups], repeats)
    names = [*ENCODERS, "all four"]
    comparisons = [
        Comparison(
            f"{len(texts):,} known sentences, {name}",
            "encoding them again",
            seconds,
            scale * again,
            "" if name == STATIC else "<= 0.01",
            f"{again * scale / seconds:,.0f} times as fast",
        )
        for name, seconds, again in zip(names, looked, [*encoding, sum(encoding)], strict=True)
    ]
    return Section(
        "Known sentences",
        comparisons,
        notes=[
            f"Encoding was timed on {len(sample):,} of the sentences, once, and multiplied by {scale:.0f}.",
            "A look-up finds the corpus by its content, opens the views and reads all rows; every byte is checked.",
        ],
    )


def _look_up(store: ViewStore, texts: list[str], encoders: Sequence[Encoder]) -> list[FloatArray]:
    return [np.asarray(view) for view in store.embed_all(ListCorpus(texts), encoders)]
