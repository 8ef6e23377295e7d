"""What sif and usif learn from a corpus, without labels: word counts, weights, common components; kept in the cache."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.words import tokens
from ensembed.encoders.words.bags import WordBags, count_words, second_moment
from ensembed.encoders.words.frequencies import CorpusFrequencies, Frequencies
from ensembed.encoders.words.word_pooling import (
    PAPER_LENGTH,
    VERSION,
    CommonComponents,
    Pooling,
    sif_weight,
    usif_a,
    usif_weight,
)
from ensembed.encoders.words.word_vectors import WordVectors
from ensembed.support.atomic_files import write_atomically
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class PoolingFit:
    """Fits a pooling, step by step; each is read from the cache where it was done before.

    Attributes:
        vectors: the word vectors.
        pooling: sif or usif.
        frequencies: those of wordfreq; None counts them on the corpus.
        corpus: the sentences, and their key; None where the pooling needs none.
        progress: told of the passes over the corpus.
    """

    vectors: WordVectors
    pooling: Pooling
    frequencies: Frequencies | None
    corpus: tuple[Corpus, str] | None
    progress: Progress

    @cached_property
    def bags(self) -> WordBags:
        """Sums of weighted vectors."""
        probability, a = self._probability, self._a
        weight = sif_weight if self.pooling.kind == "sif" else usif_weight
        return WordBags(self.vectors, lambda word: weight(probability(word), a), rescale=self.pooling.rescaled)

    @cached_property
    def facts(self) -> dict[str, str]:
        """All that changes the numbers, apart from the vectors. The expected length does so through `a` alone."""
        pooling = self.pooling
        facts = {
            "formulas": VERSION,
            "a": repr(self._a),
            "frequencies": self._probability.source,
            "components": str(pooling.removed),
        }
        if pooling.rescaled:
            facts["rescale"] = "true"
        if pooling.removed and self.corpus:
            facts["corpus"] = self.corpus[1]
        return facts

    @cached_property
    def components(self) -> CommonComponents | None:
        """The directions to remove."""
        if not self.pooling.removed or not self.corpus:
            return None
        corpus = self.corpus[0]

        def fit() -> Arrays:
            products = second_moment(self.bags, self.vectors.dim, corpus, self.progress)
            found = CommonComponents.of(products, self.pooling.removed, piecewise=self.pooling.kind == "usif")
            return {"directions": found.directions, "shares": found.shares}

        found = self._kept({"components of": self.pooling.kind, **self.facts}, fit)
        return CommonComponents(found["directions"], found["shares"])

    @cached_property
    def _probability(self) -> Frequencies:
        if self.frequencies is not None:
            return self.frequencies
        if self.corpus is None:
            raise ValueError("frequencies=corpus without a corpus")
        counted = self._counted(*self.corpus)
        counts: dict[str, int] = {}
        for row, count in zip(counted["rows"].tolist(), counted["counts"].tolist(), strict=True):
            word = self.vectors.word(row)
            counts[word] = counts.get(word, 0) + count
        return CorpusFrequencies(counts, self.corpus[1])

    @cached_property
    def _a(self) -> float:
        if self.pooling.kind == "sif":
            return self.pooling.a or 1e-3
        length = self.pooling.length
        if length is None and self.corpus:
            counted = self._counted(*self.corpus)
            length = float(counted["counts"].sum() / counted["sentences"])
        return usif_a(self._probability.probabilities, length or PAPER_LENGTH)

    def _counted(self, corpus: Corpus, key: str) -> Arrays:
        """How often the corpus has each word that it has, and its number of sentences."""

        def count() -> Arrays:
            counts, sentences = count_words(WordBags(self.vectors), len(self.vectors), corpus, self.progress)
            rows = np.flatnonzero(counts)
            return {"rows": rows, "counts": counts[rows], "sentences": np.array(sentences)}

        return self._kept({"words of": key}, count)

    def _kept(self, facts: Mapping[str, str], compute: Callable[[], Arrays]) -> Arrays:
        """Arrays from the cache, or computed and put there; they depend on the vectors, the tokens and these facts."""
        vectors = self.vectors
        all_facts = [vectors.revision, vectors.format, tokens.VERSION, sorted(facts.items())]
        name = hashlib.sha256(json.dumps(all_facts).encode()).hexdigest()[:32]
        path = cache_dir() / "words" / "fitted" / f"{name}.npz"
        # A damaged file is made again; the format has a checksum.
        damage = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)
        with suppress(*damage), np.load(io.BytesIO(path.read_bytes())) as stored:
            return {key: stored[key] for key in stored["names"].tolist()}
        arrays = compute()
        buffer = io.BytesIO()
        named: dict[str, Any] = {"names": np.array(sorted(arrays)), **arrays}
        np.savez(buffer, **named)
        with suppress(OSError):  # a cache that cannot be written costs time only
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, buffer.getvalue())
        return arrays
