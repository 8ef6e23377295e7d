"""Near-duplicates of a corpus: the threshold, the groups, and the files that are written of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TextIO, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora import as_corpus
from ensembed.corpora.corpus import Corpus
from ensembed.corpora.record_files import Record, RecordCorpus, has_ids, write_records
from ensembed.encoders.base import Encoder, FloatArray
from ensembed.errors import InputError
from ensembed.models.model_vectors import model_vectors
from ensembed.models.opening import ModelLike, open_model
from ensembed.numerics.row_matrices import unit_rows
from ensembed.search.groups.group_rows import distinct_rows, numbered_records, row_facts, unit_matrix
from ensembed.support.checks import check_whole
from ensembed.support.progress import Progress, silent
from ensembed.support.shown_objects import Facts, Shown
from ensembed.views import ViewStore

Keep: TypeAlias = Literal["first", "longest"]

FALSE_PAIRS = 1e-3
"""False neighbours per row that a threshold is chosen for by default: one row in a thousand has one."""

LEAST_ROWS = 100
"""The least number of distinct rows to find a threshold: fewer have too few pairs to fit a tail."""

_MOST, _SPAN, _POINTS = 100.0, 10.0, 20  # the tail is fitted where a row has from 100 down to 10 neighbours
_SHOWN = (100.0, 10.0, 1.0, 0.1, 0.01, 0.001)  # neighbours per row at which the fitted tail is shown
_BINS = 20_000  # of a cosine: 1e-4 wide
_ROUNDING = 1e-5  # by rounding, a cosine of equal vectors can be this much less than one
_TILE = 2048  # rows and columns of a block of cosines: 16 MB, large enough for BLAS to be at its best
_SENTENCES = 100_000  # in memory at a time when groups are written: the rows of a group are apart in the corpus
_SHOWN_ROWS = 5  # rows of a group that `to_json` shows


@dataclass(frozen=True)
class Threshold:
    """A threshold, and what it was found from.

    Attributes:
        value: two sentences are duplicates if their cosine is at least this; 1 means equal up to rounding.
        false_pairs: the false neighbours per row it was chosen for; None if the user gave the threshold.
        rows: how many rows were compared with all others; 0 if the user gave it.
        near_identical: the cosine that near-identical texts have (`near_identical_cosine`); None if the user gave it.
        candidates_from: the cosine above which unrelated rows make only so many pairs: below `value`, such pairs are
            candidates, which are named and stay.
        levels: (cosine, expected unrelated neighbours per row from there on, observed ones) for some cosines.
    """

    value: float
    false_pairs: float | None = None
    rows: int = 0
    levels: tuple[tuple[float, float, float], ...] = ()
    near_identical: float | None = None
    candidates_from: float | None = None

    @classmethod
    def given(cls, value: float) -> Threshold:
        """Return a threshold that the user gave."""
        if not 0 < value <= 1:  # refuses NaN, too
            raise InputError(f"a threshold is a cosine above 0 and at most 1, not {value}")
        return cls(float(value))


@dataclass(frozen=True, eq=False, repr=False)
class Duplicates(Shown):
    """Which sentences of a corpus say the same. Row i is the i-th sentence that is not blank, from 0.

    Attributes:
        kept: [n] for every row the row that represents its group.
        cosine: [n] its cosine with that row; 1 for that row itself and for exact repeats.
        threshold: the cosine from which two are duplicates.
        keep: which sentence of a group represents it.
        candidates: (row, row, cosine) of pairs that stay but may be duplicates, the nearest first: their cosine is
            below what near-identical texts have and above what unrelated ones have.
    """

    corpus: Corpus
    kept: NDArray[np.int64]
    cosine: NDArray[np.float32]
    threshold: Threshold
    keep: Keep
    candidates: tuple[tuple[int, int, float], ...] = ()

    def __len__(self) -> int:
        return len(self.kept)

    def _facts(self) -> Facts:
        facts = {"corpus": self.corpus, "sentences": len(self), "groups": len(self.groups), "keep": self.keep}
        dropped = len(self) - int(self.is_kept.sum())
        facts |= {"duplicates": dropped, "threshold": f"{self.threshold.value:.4f}", "candidates": len(self.candidates)}
        return [(name, str(value)) for name, value in facts.items()]

    @property
    def is_kept(self) -> NDArray[np.bool_]:
        """[n] whether a row stays when duplicates are dropped: no two of those have a cosine above the threshold."""
        return np.asarray(self.kept == np.arange(len(self.kept)))

    @property
    def repeats(self) -> int:
        """The number of rows that repeat an earlier one exactly."""
        return len(self) - len(distinct_rows(self.corpus)[1])

    @cached_property
    def groups(self) -> list[NDArray[np.int64]]:
        """The rows of every group of two or more, in their order; the group with the earliest row first."""
        order = np.argsort(self.kept, kind="stable")
        ends = np.flatnonzero(np.diff(self.kept[order])) + 1
        groups = [rows for rows in np.split(order, ends) if len(rows) > 1]
        return sorted(groups, key=lambda rows: int(rows[0]))

    def sentences(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, str]]:
        """Yield the number and text of these rows, in the order of the corpus, from one pass over it."""
        return ((row, record.text) for row, record in self.records(rows))

    def records(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, Record]]:
        """Yield the number and record of these rows; a record has an id if the corpus is a file with ids."""
        wanted = np.zeros(len(self), bool)
        wanted[rows] = True
        return ((row, record) for row, record in numbered_records(self.corpus, len(self)) if wanted[row])

    def to_json(self, show: int) -> dict[str, Any]:
        """Return a summary as plain JSON, with some rows of the `show` largest groups."""
        largest = sorted(range(len(self.groups)), key=lambda number: -len(self.groups[number]))[:show]
        shown = {number: self.groups[number][:_SHOWN_ROWS] for number in largest}
        pairs = self.candidates[:show]
        rows = [*shown.values(), *(np.array(pair[:2], np.int64) for pair in pairs)]
        records = dict(self.records(np.concatenate(rows))) if rows else {}
        return {
            "rows": len(self),
            "repeats": self.repeats,
            "groups": len(self.groups),
            "kept": int(self.is_kept.sum()),
            "keep": self.keep,
            "threshold": round(self.threshold.value, 6),
            "false_pairs": self.threshold.false_pairs,
            "near_identical": self.threshold.near_identical and round(self.threshold.near_identical, 6),
            "candidates_from": self.threshold.candidates_from and round(self.threshold.candidates_from, 6),
            "candidate_pairs": len(self.candidates),
            "candidates": [
                {"cosine": round(cosine, 6), "pair": [row_facts(row, records[row], cosine) for row in (first, second)]}
                for first, second, cosine in pairs
            ],
            "levels": [
                {"cosine": round(cosine, 4), "unrelated": unrelated, "found": round(observed, 6)}
                for cosine, unrelated, observed in self.threshold.levels
            ],
            "largest": [
                {"group": number, "size": len(self.groups[number])}
                | {"rows": [row_facts(row, records[row], self.cosine[row]) for row in rows.tolist()]}
                for number, rows in shown.items()
            ],
        }


def find_duplicates(
    sentences: Corpus | Path | Sequence[str],
    model: ModelLike,
    *,
    threshold: float | None = None,
    false_pairs: float = FALSE_PAIRS,
    keep: Keep = "first",
    seed: int = 0,
    store: ViewStore | None = None,
    progress: Progress = silent,
) -> Duplicates:
    """Find groups of sentences that say the same (`star_groups`); exact repeats are found by text and not encoded.

    Args:
        sentences: a list, the path of a text file with a sentence a line, or a corpus.
        model: a model, the folder of a saved one, or an encoder's name.
        threshold: the cosine from which two sentences are duplicates. None is careful: the one that near-identical
            texts have, or that of `find_threshold` if it is higher; pairs between the two are `candidates`.
        false_pairs: with threshold=None, how many unrelated sentences per sentence may be taken for its duplicates.
        keep: which sentence represents a group: the "first" of the corpus, or the (first) "longest" in characters.
        seed: seed of the random sample on which a threshold is found.
        store: where the vectors are stored; by default the user's cache.
        progress: receives the number of rows.

    Example:
        >>> duplicates = find_duplicates(["A dog runs.", "a dog runs", "Stocks fell."], "demo", threshold=0.8)
        >>> [rows.tolist() for rows in duplicates.groups]
        [[0, 1]]
    """
    if keep not in get_args(Keep):
        raise InputError(f"keep is 'first' or 'longest', not {keep!r}")
    chosen = None if threshold is None else Threshold.given(threshold)
    corpus, encoder = as_corpus(sentences), open_model(model)
    first, order = distinct_rows(corpus)
    if keep == "longest":
        lengths = np.fromiter((len(text) for text in corpus), np.int64, len(corpus))
        order = order[np.argsort(-lengths[order], kind="stable")]
    [vectors] = model_vectors(corpus, [encoder], store or ViewStore(), progress=progress)
    with unit_matrix(vectors, order, progress=progress) as U:
        if chosen is None:
            tail = find_threshold(U, false_pairs=false_pairs, seed=seed, progress=progress)
            near = near_identical_cosine(corpus, encoder, seed=seed)
            value = min(max(tail.value, near), 1 - _ROUNDING)
            chosen = replace(tail, value=value, near_identical=near, candidates_from=tail.value)
        of, cosines = star_groups(U, min(chosen.value, 1 - _ROUNDING), progress=progress)
        candidates = _candidates(U, of, chosen, progress)
    kept, cosine = np.empty(len(first), np.int64), np.empty(len(first), np.float32)
    kept[order], cosine[order] = order[of], cosines
    named = tuple((int(order[i]), int(order[j]), value) for i, j, value in candidates)
    return Duplicates(corpus, kept[first], cosine[first], chosen, keep, named)  # a repeat goes where its first row goes


def near_identical_cosine(corpus: Corpus, encoder: Encoder, *, rows: int = 200, seed: int = 0) -> float:
    """Return the cosine that texts have with themselves after a change that keeps their meaning.

    The changes are lower case, no punctuation, and a letter that is missing in the longest word. Of each the median
    over a sample of the corpus is taken, and the lowest of these: what is further apart is more than a slip.
    """
    wanted = np.random.default_rng(seed).choice(len(corpus), min(rows, len(corpus)), replace=False)
    texts = list(itertools.compress(corpus, np.isin(np.arange(len(corpus)), wanted)))
    vectors = unit_rows(encoder.encode(texts))
    medians = []
    for change in (str.lower, _without_punctuation, _with_a_slip):
        changed = unit_rows(encoder.encode([change(text) for text in texts]))
        medians.append(float(np.median(np.einsum("ij,ij->i", vectors, changed))))
    return min(medians)


def _without_punctuation(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s]", " ", text).split()) or text


def _with_a_slip(text: str) -> str:
    """Return the text without the letter in the middle of its longest word."""
    longest = max(text.split(), key=len)
    middle = len(longest) // 2
    return text.replace(longest, longest[:middle] + longest[middle + 1 :], 1).strip() or text


def _candidates(
    U: FloatArray, of: NDArray[np.int64], threshold: Threshold, progress: Progress
) -> list[tuple[int, int, float]]:
    """Return rows that stay and are nearer than unrelated ones, and their cosine, the nearest first."""
    if threshold.candidates_from is None or threshold.candidates_from >= threshold.value:
        return []
    stay = np.flatnonzero(of == np.arange(len(of)))
    with unit_matrix(U, stay) as kept:
        near, cosines = star_groups(kept, threshold.candidates_from, progress=progress)
    apart = np.flatnonzero(near != np.arange(len(stay)))
    pairs = [(int(stay[near[i]]), int(stay[i]), float(cosines[i])) for i in apart]
    return sorted(pairs, key=lambda pair: -pair[2])


def star_groups(
    U: FloatArray, threshold: float, *, progress: Progress = silent
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Put every row of U [m, d], all of length one or zero, into a group around a row that represents it.

    The rows are visited in order. One that is near no earlier representative becomes one; others go to the nearest. So
    no two representatives are duplicates; connected components would make chains whose ends have nothing in common.
    Return for every row its representative [m] (itself, if it is alone) and the cosine with that [m], exactly.

    Example:
        >>> U = np.array([[1, 0], [0.8, 0.6], [0.26, 0.966]], np.float32)  # along the chain: 0.80 and 0.79
        >>> star_groups(U, 0.75)[0]
        array([0, 0, 2])
    """
    is_leader = _representatives(U, threshold, progress)
    of, cosine = np.arange(len(U)), np.ones(len(U), np.float32)
    others, leaders = np.flatnonzero(~is_leader), np.flatnonzero(is_leader)
    for start in range(0, len(others), _TILE):
        rows = others[start : start + _TILE]
        own, best = U[rows], np.full(len(rows), -np.inf, np.float32)
        for begin in range(0, len(leaders), _TILE):
            some = leaders[begin : begin + _TILE]
            C = own @ U[some].T
            column = C.argmax(axis=1)  # the first of equally near ones
            value = C[np.arange(len(rows)), column]
            better = value > best
            best[better], of[rows[better]] = value[better], some[column[better]]
        cosine[rows] = np.minimum(best, 1)  # rounding can make a cosine larger than one
        progress("groups", start + len(rows), len(others))
    return of, cosine


def _representatives(U: FloatArray, threshold: float, progress: Progress) -> NDArray[np.bool_]:
    """Return which rows [m] represent a group: those that are near no representative before them."""
    is_leader = np.zeros(len(U), bool)
    for start in range(0, len(U), _TILE):
        free = np.arange(start, min(start + _TILE, len(U)))
        for earlier in range(0, start, _TILE):
            leaders = earlier + np.flatnonzero(is_leader[earlier : earlier + _TILE])
            if len(leaders) and len(free):
                free = free[(U[free] @ U[leaders].T).max(axis=1) < threshold]
        near = np.triu(U[free] @ U[free].T >= threshold, 1)
        taken = np.zeros(len(free), bool)
        for i in np.flatnonzero(near.any(axis=1)):  # most rows are near none
            if not taken[i]:
                taken |= near[i]
        is_leader[free[~taken]] = True
        progress("duplicates", min(start + _TILE, len(U)), len(U))
    return is_leader


def find_threshold(
    U: FloatArray, *, false_pairs: float = FALSE_PAIRS, rows: int = 2000, seed: int = 0, progress: Progress = silent
) -> Threshold:
    """Find the cosine from which unrelated rows would make only so many pairs.

    A sample of rows is compared with all others; nearly all these pairs are unrelated. The tail of their cosines c is
    close to normal after Fisher's transformation: the normal quantile of the part of pairs above c is a line in
    atanh(c). It is fitted where a row has 100 down to 10 neighbours, and followed to where it has `false_pairs`.

    Args:
        U: [m, d], distinct sentences, rows of length one, at least 100 of them.
        false_pairs: the unrelated neighbours per row to allow.
        rows: how many rows to sample, by `seed`.
        seed: seed of the random sample.
        progress: receives the number of rows.
    """
    if not 0 < false_pairs < 1:
        raise InputError(f"false_pairs is a number of neighbours per row above 0 and below 1, not {false_pairs}")
    check_whole("rows", rows, 1)
    check_whole("seed", seed, 0)
    m = len(U)
    if m < LEAST_ROWS:
        problem = f"{m} distinct sentences are too few to find a threshold on: it takes {LEAST_ROWS}"
        raise InputError(f"{problem}; give one, such as 0.9 (threshold=0.9, --threshold 0.9)")
    sample = np.sort(np.random.default_rng(seed).choice(m, min(rows, m), replace=False))
    edges, neighbours = _neighbours(U, sample, progress)
    most = min(_MOST, (m - 1) / 4)
    counts = np.geomspace(most, most / _SPAN, _POINTS)
    # The first edge above which there are no more neighbours than that: their number falls along the edges.
    cosines = edges[np.minimum(np.searchsorted(-neighbours, -counts), _BINS)]
    if cosines[-1] > 1 - 10 / _BINS or cosines[-1] - cosines[0] < 10 / _BINS:
        raise InputError(
            f"the cosines tell too little apart to find a threshold: {most:.0f} neighbours of a row are above "
            f"{cosines[0]:.4f}, {most / _SPAN:.0f} above {cosines[-1]:.4f}; give one (threshold=…, --threshold)"
        )
    from scipy.special import ndtri

    slope, base = np.polyfit(np.arctanh(cosines), -ndtri(counts / (m - 1)), 1)

    def cosine_at(count: float) -> float:
        return float(np.tanh((-ndtri(count / (m - 1)) - base) / slope))

    shown = [(cosine_at(count), count) for count in _SHOWN if count <= most]
    levels = tuple((c, count, float(neighbours[np.searchsorted(edges, c)])) for c, count in shown)
    return Threshold(min(cosine_at(false_pairs), 1 - _ROUNDING), false_pairs, len(sample), levels)


def _neighbours(
    U: FloatArray, sample: NDArray[np.int64], progress: Progress
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return cosines [b + 1], rising, and the mean number of other rows [b + 1] at or above each."""
    own = np.asarray(U[sample])
    counts = np.zeros(_BINS + 1, np.int64)
    for start in range(0, len(U), _TILE):
        C = own @ np.asarray(U[start : start + _TILE]).T
        here = np.flatnonzero((sample >= start) & (sample < start + _TILE))
        C[here, sample[here] - start] = -1  # a row is not its own neighbour
        bins = ((C + 1) * (_BINS / 2)).astype(np.int32)
        counts += np.bincount(np.clip(bins, 0, _BINS).ravel(), minlength=_BINS + 1)
        progress("threshold", min(start + _TILE, len(U)), len(U))
    return np.linspace(-1, 1, _BINS + 1), np.cumsum(counts[::-1])[::-1] / len(sample)


def write_groups(duplicates: Duplicates, file: TextIO, form: str) -> int:
    """Write every row of every group as "csv" or "jsonl" and return the number of rows."""
    id_ = ("id",) if has_ids(duplicates.corpus) else ()
    return write_records(_group_records(duplicates), ("group", "row", *id_, "kept", "cosine", "text"), file, form)


def _group_records(duplicates: Duplicates) -> Iterator[dict[str, Any]]:
    """Yield a record for every row of a group, group by group; to save memory, the corpus may be read repeatedly."""
    groups = duplicates.groups
    totals = np.cumsum([0, *map(len, groups)])
    begin = 0
    while begin < len(groups):
        end = max(begin + 1, int(np.searchsorted(totals, totals[begin] + _SENTENCES, "right")) - 1)
        records = dict(duplicates.records(np.concatenate(groups[begin:end])))
        for number in range(begin, end):
            for row in groups[number].tolist():
                kept = int(duplicates.kept[row]) == row
                yield {"group": number} | row_facts(row, records[row], duplicates.cosine[row], kept=kept)
        begin = end


def write_kept(duplicates: Duplicates, file: TextIO) -> int:
    """Write the sentences that stay, one a line, or their records as they are in the file; return their number."""
    rows, corpus = 0, duplicates.corpus
    if isinstance(corpus, RecordCorpus):
        if (header := corpus.file.header()) is not None:
            file.write(f"{header}\n")
        stay = iter(duplicates.is_kept)
        for record in corpus.file:
            has_text = bool(record.text.strip())
            # A file that has grown is not read beyond its rows.
            if (not has_text or next(stay, False)) and record.raw:
                file.write(f"{record.raw}\n")
                rows += has_text
        corpus.check_unchanged()
        return rows
    for row, record in duplicates.records(np.flatnonzero(duplicates.is_kept)):
        if "\n" in record.text:
            raise InputError(f"row {row} holds a line break, so that it cannot be a line of a file; replace it first")
        file.write(f"{record.text}\n")
        rows += 1
    return rows
