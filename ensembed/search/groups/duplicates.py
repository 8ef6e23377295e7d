"""The duplicates of a corpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora import as_corpus
from ensembed.corpora.corpus import Corpus
from ensembed.corpora.record_reader import Record, records_of
from ensembed.encoders import EncoderLike, open_encoder
from ensembed.errors import InputError
from ensembed.search.groups.stars import star_groups
from ensembed.search.groups.threshold import FALSE_PAIRS, Threshold, find_threshold
from ensembed.search.groups.unit_vectors import stored_vectors, unit_matrix
from ensembed.support.progress import Progress, silent
from ensembed.views import ViewStore

Keep: TypeAlias = Literal["first", "longest"]


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Which sentences of a corpus say the same. Row i is the i-th sentence that is not blank, from 0.

    Attributes:
        corpus: the sentences.
        kept: [n] for every row the row that stands for it: the one of its group that is kept.
        cosine: [n] its cosine with that row; 1 for that row itself and for exact repeats.
        threshold: from which cosine on two are duplicates.
        keep: which sentence of a group stands for it.
    """

    corpus: Corpus
    kept: NDArray[np.int64]
    cosine: NDArray[np.float32]
    threshold: Threshold
    keep: Keep

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def is_kept(self) -> NDArray[np.bool_]:
        """[n] whether a row stays when duplicates are dropped: no two of those have a cosine above the threshold."""
        return np.asarray(self.kept == np.arange(len(self.kept)))

    @property
    def repeats(self) -> int:
        """How many rows repeat an earlier one letter by letter."""
        first = self.corpus.index.first_rows
        return int((first != np.arange(len(first))).sum())

    @cached_property
    def groups(self) -> list[NDArray[np.int64]]:
        """The rows of every group of two or more, in their order; the group with the earliest row first."""
        order = np.argsort(self.kept, kind="stable")
        ends = np.flatnonzero(np.diff(self.kept[order])) + 1
        found = [rows for rows in np.split(order, ends) if len(rows) > 1]
        return sorted(found, key=lambda rows: int(rows[0]))

    def sentences(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, str]]:
        """Number and text of these rows, in the order of the corpus, from one pass over it."""
        return ((row, record.text) for row, record in self.records(rows))

    def records(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, Record]]:
        """The same with the record that a text comes from, which has its id if the corpus is a file of records."""
        wanted = np.zeros(len(self), bool)
        wanted[rows] = True
        # A file that has grown is not read beyond its rows: that it changed is said in the end.
        for row, record in zip(range(len(self)), records_of(self.corpus), strict=False):
            if wanted[row]:
                yield row, record
        self.corpus.check_unchanged()


def find_duplicates(
    sentences: Corpus | Path | Sequence[str],
    model: EncoderLike,
    *,
    threshold: float | None = None,
    false_pairs: float = FALSE_PAIRS,
    keep: Keep = "first",
    seed: int = 0,
    store: ViewStore | None = None,
    progress: Progress = silent,
) -> Duplicates:
    """Find groups of sentences that say the same (`star_groups`).

    Exact repeats are found by their letters and cost nothing: neither an encoding nor a comparison.

    Args:
        sentences: a list, the path of a text file with a sentence a line, or a corpus.
        model: a meta-encoder, or an encoder or its name.
        threshold: from which cosine on two sentences are duplicates; None finds it without labels (`find_threshold`).
        false_pairs: with threshold=None, how many unrelated sentences per sentence may be taken for its duplicates.
        keep: which sentence stands for a group: the "first" of the corpus, or the "longest" (in characters; the first
            of those).
        seed: of the sample that a threshold is found on.
        store: where the vectors are kept; by default the user's cache.
        progress: told of rows.

    Example:
        >>> found = find_duplicates(["A dog runs.", "a dog runs", "Stocks fell."], "demo", threshold=0.8)
        >>> [rows.tolist() for rows in found.groups]
        [[0, 1]]
    """
    if keep not in get_args(Keep):
        raise InputError(f"keep is 'first' or 'longest', not {keep!r}")
    chosen = None if threshold is None else Threshold.given(threshold)
    corpus, encoder = as_corpus(sentences), open_encoder(model)
    first = corpus.index.first_rows
    order = np.flatnonzero(first == np.arange(len(first)))
    if keep == "longest":
        lengths = np.fromiter((len(text) for text in corpus), np.int64, len(corpus))
        order = order[np.argsort(-lengths[order], kind="stable")]
    vectors = stored_vectors(corpus, encoder, store or ViewStore(), progress=progress)
    with unit_matrix(vectors, order, progress=progress) as U:
        if chosen is None:
            chosen = find_threshold(U, false_pairs=false_pairs, seed=seed, progress=progress)
        of, cosines = star_groups(U, chosen.value, progress=progress)
    kept, cosine = np.empty(len(first), np.int64), np.empty(len(first), np.float32)
    kept[order], cosine[order] = order[of], cosines
    kept, cosine = kept[first], cosine[first]  # a repeat goes where its first occurrence goes
    return Duplicates(corpus, kept, cosine, chosen, keep)
