"""Means of word vectors in which frequent words count less, without the directions that all sentences share.

`sif` is the smooth inverse frequency of Arora, Liang and Ma, "A Simple but Tough-to-Beat Baseline for Sentence
Embeddings", ICLR 2017. `usif` is its unsupervised form by Ethayarajh, "Unsupervised Random Walk Sentence Embeddings",
RepL4NLP 2018, which derives the weights' parameter from the frequencies and removes five directions in part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError

Kind: TypeAlias = Literal["mean", "sif", "usif"]
Source: TypeAlias = Literal["wordfreq", "corpus"]

KINDS: tuple[Kind, ...] = get_args(Kind)
SOURCES: tuple[Source, ...] = get_args(Source)

VERSION = "1"
"""Of the formulas: part of the key, so that vectors of others are not taken for these."""

PAPER_LENGTH = 11.0
"""What the uSIF paper expects a sentence to have, in words."""

# Settings that change nothing: whoever gives one expects something else.
_USELESS: dict[Kind, tuple[str, ...]] = {
    "mean": ("a", "components", "frequencies", "lang", "length", "rescale"),
    "sif": ("length", "rescale"),
    "usif": ("a",),
}
# Directions with less than this part of the first one's strength are rounding noise.
_NOISE = 1e-12


@dataclass(frozen=True)
class Pooling:
    """How the vectors of a sentence's words become one; None stands for the default of the kind.

    Attributes:
        kind: `mean` of the words; `sif` weights a word of probability p by a / (a + p), `usif` by a' / (a' / 2 + p).
        a: of sif; 1e-3.
        components: how many common directions are removed: 1 by sif, wholly; 5 by usif, each by its part of the
            five's variance. 0 leaves them in.
        frequencies: `wordfreq`, the package, or `corpus`, counted on the corpus.
        lang: the language of wordfreq; `en`.
        length: of usif, the expected number of words of a sentence; that of the corpus, or 11 without one.
        rescale: of usif, whether each dimension is divided by its norm over the words of the sentence, as the
            author's program does and the paper does not say; true, as it is better on STS-B dev by 0.9 points (GloVe,
            Pearson's r). The vector of a single word keeps its signs only.
    """

    kind: Kind = "mean"
    a: float | None = None
    components: int | None = None
    frequencies: Source | None = None
    lang: str | None = None
    length: float | None = None
    rescale: bool | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"pooling is one of {', '.join(KINDS)}, not {self.kind!r}")
        for option in (*_USELESS[self.kind], *(("lang",) if self.frequencies == "corpus" else ())):
            if getattr(self, option) is not None:
                where = "frequencies=corpus" if option == "lang" and self.kind != "mean" else f"pooling={self.kind}"
                raise InputError(f"{where} has no use for {option}={getattr(self, option)}; leave it out")
        if self.frequencies not in (None, *SOURCES):
            raise InputError(f"frequencies is one of {', '.join(SOURCES)}, not {self.frequencies!r}")
        for option in ("a", "length"):
            if (value := getattr(self, option)) is not None and not 0 < value < np.inf:
                raise InputError(f"{option} must be a number above 0, not {value}")
        if self.components is not None and self.components < 0:
            raise InputError(f"components must be at least 0, not {self.components}")

    @property
    def removed(self) -> int:
        """How many directions are removed."""
        return {"mean": 0, "sif": 1, "usif": 5}[self.kind] if self.components is None else self.components

    @property
    def rescaled(self) -> bool:
        """Whether dimensions are rescaled within a sentence."""
        return self.kind == "usif" and self.rescale is not False

    @property
    def needs_corpus(self) -> bool:
        """Whether it cannot do without one."""
        return self.removed > 0 or self.frequencies == "corpus"

    @property
    def uses_corpus(self) -> bool:
        """Whether one changes anything."""
        return self.needs_corpus or (self.kind == "usif" and self.length is None)


def sif_weight(p: float, a: float) -> float:
    """The weight a / (a + p) of a word of probability p."""
    return a / (a + p)


def usif_weight(p: float, a: float) -> float:
    """The weight a / (a / 2 + p) of a word of probability p."""
    return a / (a / 2 + p)


def usif_a(probabilities: NDArray[np.float64], length: float) -> float:
    """The parameter of `usif_weight`.

    A word is frequent if its probability is above 1 - (1 - 1/|V|)^n, the chance that a sentence of n random words has
    it. With alpha the share of frequent words and Z = |V| / 2, a = (1 - alpha) / (alpha Z).

    Args:
        probabilities: [|V|] of all words of the frequency list.
        length: n, the expected number of words of a sentence.

    Example:
        >>> round(usif_a(np.array([0.5, 0.2, 0.1, 0.1, 0.05, 0.05]), 1), 4)
        0.6667
    """
    size = len(probabilities)
    threshold = 1 - (1 - 1 / size) ** length
    share = float((probabilities > threshold).mean())
    # At least one word counts as frequent and one as rare: a tiny list would give an infinite weight, or none at all.
    alpha = min(max(share, min(1 / size, 0.5)), max(1 - 1 / size, 0.5))
    return (1 - alpha) / (alpha * size / 2)


@dataclass(frozen=True, eq=False)
class CommonComponents:
    """Directions that the sentences of a corpus share, and how much of each is removed.

    Attributes:
        directions: [m, d], orthonormal.
        shares: [m] from 0 to 1.
    """

    directions: NDArray[np.float64]
    shares: NDArray[np.float64]

    @classmethod
    def of(cls, products: NDArray[np.float64], count: int, *, piecewise: bool) -> CommonComponents:
        """The first right singular vectors of the sentence vectors X [n, d], which are not centred.

        Args:
            products: X'X [d, d]; its eigenvectors are X's right singular vectors, its eigenvalues their squared
                singular values.
            count: how many directions; those in which the sentences have nothing are left out.
            piecewise: remove lambda_i = sigma_i^2 / (the sum of the first `count` of them) of direction i, instead
                of all of it.
        """
        values, vectors = np.linalg.eigh(products)
        values, directions = values[::-1][:count], vectors.T[::-1][:count]
        present = values > _NOISE * max(values[0], 0) if count else np.zeros(0, bool)
        values, directions = values[present], np.ascontiguousarray(directions[present])
        return cls(directions, values / values.sum() if piecewise else np.ones(len(values)))

    def removed_from(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """X [n, d] without them, row by row: a product of matrices would round differently in other batches."""
        for direction, share in zip(self.directions, self.shares, strict=True):
            X = X - share * (X * direction).sum(axis=1, keepdims=True) * direction
        return X
