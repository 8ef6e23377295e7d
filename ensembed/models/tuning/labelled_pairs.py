"""Labelled pairs: a score and two texts each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import ListCorpus, check_sentences, shorten
from ensembed.errors import InputError

LEAST = 10
"""With fewer pairs nothing can be chosen: two folds of five tell nothing about each other."""


class PairsLike(Protocol):
    """What `ensembed.sts.read_pairs` gives, or anything like it."""

    @property
    def sentences1(self) -> Sequence[str]:
        """The first text of every pair."""

    @property
    def sentences2(self) -> Sequence[str]:
        """The second text of every pair."""

    @property
    def scores(self) -> NDArray[np.float64]:
        """How similar the two are, on any scale, larger is more similar."""


Labels: TypeAlias = PairsLike | Sequence[tuple[float, str, str]]


@dataclass(frozen=True, eq=False)
class LabelledPairs:
    """Pairs that were looked through.

    Attributes:
        texts: every distinct text once.
        first: [n] for every pair the place of its first text in `texts`.
        second: [n] the same of its second text.
        scores: [n] float64.
    """

    texts: tuple[str, ...]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, labels: Labels) -> LabelledPairs:
        """Look through what a user gave.

        Raises:
            InputError: it is not pairs with scores, fewer than ten are different, or all have the same score.

        Example:
            >>> LabelledPairs.of([(i, f"text {i}", "the same") for i in range(10)]).texts[:3]
            ('text 0', 'the same', 'text 1')
        """
        scores, one, two = _columns(labels)
        if not len(scores) == len(one) == len(two):
            raise InputError(
                f"there are {len(scores)} scores, {len(one)} first and {len(two)} second texts: every labelled pair "
                "has one of each"
            )
        _check_number(len(scores), "")
        if not np.isfinite(scores).all():
            bad = int(np.argmin(np.isfinite(scores)))
            raise InputError(f"the score of pair {bad} is {scores[bad]}; remove the pair or score it")
        if np.ptp(scores) <= 1e-13 * np.abs(scores).max():
            raise InputError(f"all {len(scores)} labelled pairs have the score {scores[0]}: nothing can be told apart")
        for i, text in enumerate(check_sentences([*one, *two])):
            if not text.strip():
                raise InputError(f"a text of labelled pair {i % len(one)} is empty; remove the pair")
        place = {
            text: i for i, text in enumerate(dict.fromkeys(t for both in zip(one, two, strict=True) for t in both))
        }
        found = cls(
            tuple(place), np.array([place[text] for text in one]), np.array([place[text] for text in two]), scores
        )
        _check_number(len(np.unique(found.groups)), "different ")
        return found

    @property
    def corpus(self) -> ListCorpus:
        """The distinct texts, whose views a store keeps."""
        return ListCorpus(self.texts)

    @property
    def groups(self) -> NDArray[np.int64]:
        """[n] the same number for pairs of the same two texts, in whichever order."""
        low, high = np.minimum(self.first, self.second), np.maximum(self.first, self.second)
        return np.asarray(low * len(self.texts) + high, np.int64)

    def __len__(self) -> int:
        return len(self.scores)

    def cosines(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        """The cosine of every pair [n] from the vectors [len(texts), d]; 0 where a vector is zero."""
        X = np.asarray(vectors, np.float64)
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        X = np.divide(X, lengths, out=np.zeros_like(X), where=lengths > 0)
        cosines: NDArray[np.float64] = np.einsum("nd,nd->n", X[self.first], X[self.second])
        return cosines


def _columns(labels: Any) -> tuple[NDArray[np.float64], list[str], list[str]]:  # noqa: ANN401 - whatever a user gave
    if all(hasattr(labels, name) for name in ("scores", "sentences1", "sentences2")):
        return _scores(list(labels.scores)), list(labels.sentences1), list(labels.sentences2)
    if isinstance(labels, str | bytes) or not isinstance(labels, Sequence):
        raise InputError(
            f"labelled pairs are a list of (score, text, text), not {shorten(labels)}; "
            "a file of them is read by ensembed.sts.read_pairs"
        )
    rows = list(labels)
    for i, row in enumerate(rows):
        if isinstance(row, str) or not isinstance(row, Sequence) or len(row) != 3:
            raise InputError(f"labelled pair {i} is not (score, text, text): {shorten(row)}")
    return _scores([row[0] for row in rows]), [row[1] for row in rows], [row[2] for row in rows]


def _scores(values: Sequence[Any]) -> NDArray[np.float64]:
    """The scores; text is refused, although numpy would read it as numbers."""
    for i, value in enumerate(values):
        if not isinstance(value, (int, float, np.integer, np.floating)):
            raise InputError(f"the score of labelled pair {i} is not a number: {shorten(value)}")
    return np.array(values, np.float64)


def _check_number(pairs: int, which: str) -> None:
    if pairs < LEAST:
        raise InputError(
            f"tuning needs at least {LEAST} {which}labelled pairs, got {pairs}: label more, or leave `tune` out"
        )
