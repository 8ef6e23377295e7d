"""From vectors to figures: cosine, the two correlations, and how a year's sub-testsets become one score.

The protocol changes a figure by several points, so every result names its own:

| protocol | score of a data set | used by |
| --- | --- | --- |
| `mean` | the unweighted mean over its sub-testsets | the paper (Poerner et al. 2020), Wieting et al. 2018 |
| `wmean` | the mean weighted by the number of pairs | the shared tasks |
| `all` | one correlation over the pooled pairs | SimCSE, MTEB |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from ensembed.corpora.corpus import shorten
from ensembed.encoders.base import SupportsEncode, checked_rows
from ensembed.errors import DatasetError, InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ensembed.sts.datasets import Dataset

Protocol: TypeAlias = Literal["mean", "wmean", "all"]
Encode: TypeAlias = SupportsEncode | Callable[[list[str]], Any]

PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

# Values that differ by less than this share of their size are equal but for rounding (scipy warns at the same ratio).
ROUNDING = 1e-13
# Rows of float64 at a time: bounds the memory of `cosine` whatever the number of pairs.
_BLOCK = 1024


@dataclass(frozen=True)
class Score:
    """Pearson's r and Spearman's rho, as fractions in [-1, 1]; printed x 100, as papers do."""

    pearson: float
    spearman: float

    def __str__(self) -> str:
        return f"{100 * self.pearson:.1f}/{100 * self.spearman:.1f}"

    def to_json(self) -> dict[str, float]:
        """Return plain data; correlations are fractions."""
        return {"pearson": self.pearson, "spearman": self.spearman}


@dataclass(frozen=True)
class PartScore:
    """A sub-testset's name, number of pairs and score; it is 0 if all predictions are equal (`constant`)."""

    name: str
    pairs: int
    score: Score
    constant: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {"name": self.name, "pairs": self.pairs, **self.score.to_json(), "constant_predictions": self.constant}


@dataclass(frozen=True)
class Result:
    """The score of a data set, with everything that a table has to say beside it."""

    dataset: str
    layout: str  # which version of the text was read
    fingerprint: str  # the hash of the sentences and scores
    protocol: Protocol  # how the parts became one score
    score: Score  # the overall score
    parts: tuple[PartScore, ...]
    missing: tuple[str, ...] = ()  # sub-testsets that belong to the data set but could not be read

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return sum(part.pairs for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Return plain data; correlations are fractions."""
        names = ("dataset", "layout", "fingerprint", "protocol", "pairs")
        facts = {name: getattr(self, name) for name in names} | self.score.to_json()
        return {**facts, "missing": list(self.missing), "parts": [part.to_json() for part in self.parts]}


def pearson(predictions: ArrayLike, gold: ArrayLike) -> float:
    """Return Pearson's r of predictions [n] with gold scores [n], in float64; never NaN.

    Constant predictions (a spread below 1e-13 of the largest value) give 0.0; constant gold scores are an error.

    Raises:
        DatasetError: fewer than two pairs, or constant gold scores.
        InputError: the lengths differ, or there is a NaN or Inf.

    >>> pearson([1, 2, 3], [2, 4, 6])
    1.0
    """
    x, y = _checked(predictions, gold)
    return 0.0 if _constant(x) else _correlation(x, y)


def spearman(predictions: ArrayLike, gold: ArrayLike) -> float:
    """Return Spearman's rho: Pearson's r of the ranks, where equal values share their average rank.

    Constant values and errors are treated as in `pearson`.

    >>> spearman([1, 10, 100], [1, 2, 3])
    1.0
    """
    x, y = _checked(predictions, gold)
    return 0.0 if _constant(x) else _correlation(ranks(x), ranks(y))


def cosine(A: ArrayLike, B: ArrayLike) -> NDArray[np.float64]:
    """Return the cosine of row i of A [n, d] and row i of B [n, d] -> [n], in float64; 0 where a row is 0, never NaN.

    Equal rows give exactly 1, so that pairs of equal sentences are ties for Spearman.

    Raises:
        InputError: the shapes differ or are not [n, d], or there is a NaN or Inf.
    """
    A, B = np.asarray(A), np.asarray(B)
    if A.ndim != 2 or A.shape != B.shape:
        raise InputError(f"cosine takes two arrays of the same shape [n, d], not {A.shape} and {B.shape}")
    result = np.empty(len(A))
    for start in range(0, len(A), _BLOCK):
        rows = slice(start, start + _BLOCK)
        a, b = _scaled_rows(A[rows], start), _scaled_rows(B[rows], start)
        # sqrt(t * t) is t in floating point, which is why equal rows give 1 and not a number next to it.
        lengths = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
        np.divide((a * b).sum(axis=1), lengths, out=result[rows], where=lengths > 0)
        result[rows][lengths == 0] = 0.0
    return np.clip(result, -1.0, 1.0)  # rounding may have left 1.0000000000000002


def score(predictions: Sequence[ArrayLike], dataset: Dataset, protocol: Protocol = "mean") -> Result:
    """Score predictions, one array per part of the data set: each part, and all of it by the protocol.

    Raises:
        DatasetError: a part has fewer than two pairs or constant gold (in every protocol, as each part is scored).
        InputError: the protocol is not known, or the predictions do not fit the data set.
    """
    overall = aggregate(predictions, dataset, protocol)
    cosines = _fitting(predictions, dataset)
    parts = tuple(
        PartScore(part.name, len(part), score, _constant(x))
        for x, part, score in zip(cosines, dataset.parts, _part_scores(cosines, dataset), strict=True)
    )
    return Result(dataset.name, dataset.layout, dataset.fingerprint, protocol, overall, parts, dataset.missing)


def aggregate(predictions: Sequence[ArrayLike], dataset: Dataset, protocol: Protocol = "mean") -> Score:
    """Return one score of a data set from the predictions for each of its parts; raise the errors of `score`."""
    _check_protocol(protocol)
    cosines = _fitting(predictions, dataset)
    if protocol == "all":
        gold = np.concatenate([part.scores for part in dataset.parts])
        return _score(np.concatenate(cosines), gold, dataset.name)
    scores = _part_scores(cosines, dataset)
    weights = [len(part) if protocol == "wmean" else 1 for part in dataset.parts]
    columns = ([score.pearson for score in scores], [score.spearman for score in scores])
    return Score(*(float(np.average(column, weights=weights)) for column in columns))


def distinct_sentences(datasets: Sequence[Dataset]) -> list[str]:
    """Return every sentence of the data sets once, in order of appearance; the sets overlap a lot."""
    parts = [part for dataset in datasets for part in dataset.parts]
    return list(dict.fromkeys(text for part in parts for text in (*part.sentences1, *part.sentences2)))


def predict(encode: Encode, datasets: Sequence[Dataset]) -> list[list[NDArray[np.float64]]]:
    """Return the cosine of every pair: for each data set, one array per part. Each distinct sentence is encoded once.

    Args:
        encode: an encoder (any object with `encode(list[str])`), or a function from sentences to rows.
        datasets: the data sets; one call of `encode` serves them all.

    Raises:
        EncoderError: the encoder failed, or did not return one finite row per sentence.
    """
    sentences = distinct_sentences(datasets)
    if not sentences:
        return []
    vectors = _encoded(encode, sentences)
    place = {text: i for i, text in enumerate(sentences)}

    def rows(texts: tuple[str, ...]) -> NDArray[Any]:
        return vectors[[place[text] for text in texts]]

    return [[cosine(rows(part.sentences1), rows(part.sentences2)) for part in dataset.parts] for dataset in datasets]


def evaluate_all(encode: Encode, datasets: Sequence[Dataset], protocol: Protocol = "mean") -> list[Result]:
    """Score an encoder, or any function from sentences to rows, on several data sets, encoding each sentence once.

    Raises:
        DatasetError: a correlation is undefined on the data: fewer than two pairs, or constant gold.
        InputError: the protocol is not known, or `encode` is not an encoder.
        EncoderError: the encoder failed, or did not return one finite row per sentence.
    """
    _check_protocol(protocol)  # before hours of encoding
    predictions = predict(encode, datasets)
    return [score(cosines, dataset, protocol) for cosines, dataset in zip(predictions, datasets, strict=True)]


def evaluate(encode: Encode, dataset: Dataset, protocol: Protocol = "mean") -> Result:
    """Score an encoder on one data set: see `evaluate_all`.

    >>> from ensembed.sts import Dataset, Pairs
    >>> pairs = Pairs("toy", ("a", "a b", "b"), ("a", "a c", "c"), [5.0, 2.5, 0.0])
    >>> print(evaluate(lambda texts: [[letter in text for letter in "abc"] for text in texts], Dataset.of(pairs)).score)
    100.0/100.0
    """
    return evaluate_all(encode, [dataset], protocol)[0]


def _encoded(encode: Encode, sentences: list[str]) -> NDArray[Any]:
    """Return one row per sentence, checked."""
    # A model may be callable as well (torch's are, on something else), so `encode` comes first; str has one, too.
    if isinstance(encode, str) or not (isinstance(encode, SupportsEncode) or callable(encode)):
        raise InputError(f"expected an encoder or a function from sentences to vectors, got {shorten(encode)}")
    call = encode.encode if isinstance(encode, SupportsEncode) else encode
    spec_name = getattr(getattr(encode, "spec", None), "name", None)
    name = str(spec_name or getattr(encode, "__name__", type(encode).__name__))
    return checked_rows(name, call, sentences)


def _fitting(predictions: Sequence[ArrayLike], dataset: Dataset) -> list[NDArray[np.float64]]:
    cosines = [np.asarray(x, np.float64) for x in predictions]
    seen, expected = [x.shape for x in cosines], [(len(part),) for part in dataset.parts]
    if seen != expected:
        raise InputError(f"predictions for {dataset.name} should be arrays of shapes {expected}, got {seen}")
    return cosines


def _check_protocol(protocol: Protocol) -> None:
    if protocol not in PROTOCOLS:
        raise InputError(f"there is no protocol {protocol!r}; choose one of {', '.join(PROTOCOLS)}")


def _part_scores(cosines: Sequence[NDArray[np.float64]], dataset: Dataset) -> list[Score]:
    both = zip(cosines, dataset.parts, strict=True)
    return [_score(x, part.scores, f"{dataset.name}/{part.name}") for x, part in both]


def _score(predictions: NDArray[np.float64], gold: NDArray[np.float64], where: str) -> Score:
    try:
        return Score(pearson(predictions, gold), spearman(predictions, gold))
    except InputError as error:
        raise type(error)(f"{where}: {error}") from None


def _checked(predictions: ArrayLike, gold: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x, y = np.asarray(predictions, np.float64), np.asarray(gold, np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise InputError(f"a correlation takes two arrays of the same length, not of shapes {x.shape} and {y.shape}")
    for values, what in ((x, "prediction"), (y, "gold score")):
        if not np.isfinite(values).all():
            bad = int(np.argmin(np.isfinite(values)))
            raise InputError(f"{what} {bad} is {values[bad]}; a correlation needs finite numbers")
    if len(y) < 2:
        raise DatasetError(f"a correlation needs at least two pairs, got {len(y)}")
    if _constant(y):
        raise DatasetError(f"all {len(y)} gold scores are {y[0]:g}, so no correlation with them is defined")
    return x, y


def _constant(values: NDArray[np.float64]) -> bool:
    scaled = _scaled(values)
    return bool(np.ptp(scaled) <= ROUNDING * np.abs(scaled).max())


def _correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    x, y = (values - values.mean() for values in (_scaled(x), _scaled(y)))
    # Not `x @ y`: the order in which BLAS adds up, and with it the last digit, depends on where the arrays lie.
    r = (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum())
    return float(np.clip(r, -1.0, 1.0))  # rounding may have left 1.0000000000000002


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ranks from 1, equal values sharing their average; importing scipy.stats.rankdata takes a second."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = np.cumsum(counts) - (counts - 1) / 2
    return ranks[group]


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale the values, or each row, by a power of two: that is exact, and squares neither overflow nor vanish."""
    exponents = np.frexp(np.abs(values).max(axis=-1, keepdims=True, initial=0.0))[1]
    scaled: NDArray[np.float64] = np.ldexp(values, -exponents)
    return scaled


def _scaled_rows(rows: NDArray[Any], start: int) -> NDArray[np.float64]:
    values = np.ascontiguousarray(rows, np.float64)  # the sum of a contiguous row does not depend on the other rows
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        raise InputError(f"row {start + int(np.argmin(finite))} holds NaN or Inf, so it has no cosine")
    return _scaled(values)
