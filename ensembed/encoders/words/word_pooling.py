"""Means of word vectors in which frequent words count less, without the directions that all sentences share.

`sif`: Arora, Liang and Ma, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", ICLR 2017. `usif`:
Ethayarajh, "Unsupervised Random Walk Sentence Embeddings", RepL4NLP 2018. Both are fitted on a corpus without labels.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.words.word_vectors import TOKENS_VERSION, WordFinder, WordVectors
from ensembed.errors import EncoderError, InputError, MissingError
from ensembed.support.atomic_files import make_folder, write_atomically
from ensembed.support.extras import import_extra
from ensembed.support.file_limits import open_regular
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress

Kind: TypeAlias = Literal["mean", "sif", "usif"]
Source: TypeAlias = Literal["wordfreq", "corpus"]
Arrays: TypeAlias = Mapping[str, NDArray[Any]]

KINDS: tuple[Kind, ...] = get_args(Kind)
SOURCES: tuple[Source, ...] = get_args(Source)

_VERSION = "1"  # of the formulas: part of the key of an encoder
_PAPER_LENGTH = 11.0  # the number of words that the uSIF paper expects of a sentence
# Settings that change nothing: a user who gives one expects something else.
_USELESS: dict[Kind, tuple[str, ...]] = {
    "mean": ("a", "components", "frequencies", "lang", "length", "rescale"),
    "sif": ("length", "rescale"),
    "usif": ("a",),
}
_NOISE = 1e-12  # directions with less than this part of the first one's strength are rounding noise
_BLOCK = 1 << 16  # tokens summed at a time: bounds the memory that one very long sentence takes
_DIGEST_BYTES = 32
_SENTENCES, _CHARACTERS = 1024, 1 << 22  # of a corpus that are in memory together


@dataclass(frozen=True)
class Pooling:
    """How the vectors of a sentence's words become one vector; None stands for the default of the kind.

    Attributes:
        kind: `mean` of the words; `sif` weights a word of probability p by a / (a + p), `usif` by a' / (a' / 2 + p).
        a: the parameter of sif; 1e-3.
        components: common directions to remove: 1 by sif, wholly; 5 by usif, each by its part of their variance.
        frequencies: `wordfreq`, the package, or `corpus`, counted on the corpus.
        lang: the language of wordfreq; `en`.
        length: for usif, the expected number of words of a sentence; that of the corpus, or 11 without one.
        rescale: for usif, divide each dimension by its norm over the sentence's words, as the author's code does; true.
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
        """Whether it cannot do without a corpus."""
        return self.removed > 0 or self.frequencies == "corpus"

    @property
    def uses_corpus(self) -> bool:
        """Whether a corpus changes anything."""
        return self.needs_corpus or (self.kind == "usif" and self.length is None)


@dataclass(frozen=True)
class Frequencies:
    """The probability of a word, in whichever case, and of all known words [|V|]; the source is part of a key."""

    source: str
    probability: Callable[[str], float]
    probabilities: Callable[[], NDArray[np.float64]]

    @classmethod
    def of_wordfreq(cls, lang: str = "en") -> Frequencies:
        """Return those of the package wordfreq, from eight kinds of text; a word that it does not know has 0."""
        wordfreq = import_extra("wordfreq", "words", "pooling by word frequency")
        if lang not in (known := wordfreq.available_languages()):
            raise InputError(f"wordfreq has no language {lang!r}; it has: {', '.join(sorted(known))}")
        try:
            wordfreq.word_frequency("a", lang)
        except ImportError as error:  # it splits some languages with packages of their own
            raise MissingError(f"wordfreq cannot read {lang!r} here: {error}; see its documentation") from error
        return cls(
            f"wordfreq {version('wordfreq')} {lang}",
            lambda word: float(wordfreq.word_frequency(word, lang)),
            lambda: np.array(list(wordfreq.get_frequency_dict(lang).values())),
        )

    @classmethod
    def of_corpus(cls, tokens: Iterable[tuple[str, int]], key: str) -> Frequencies:
        """Return shares of the tokens of a corpus, in any case; a word that it lacks counts as half a token.

        Example:
            >>> frequencies = Frequencies.of_corpus([("the", 2), ("The", 1), ("dog", 1)], "key")
            >>> [frequencies.probability(word) for word in ("THE", "dog", "cat")]
            [0.75, 0.25, 0.125]
        """
        counts: Counter[str] = Counter()
        for word, count in tokens:
            counts[word.lower()] += count
        total = max(sum(counts.values()), 1)
        return cls(
            f"corpus {key}",
            lambda word: (counts.get(word.lower()) or 0.5) / total,
            lambda: np.array(list(counts.values()), float) / total,
        )


def usif_a(probabilities: NDArray[np.float64], length: float) -> float:
    """Return the parameter a of uSIF's weights a / (a / 2 + p).

    A word is frequent if its probability is above 1 - (1 - 1/|V|)^n, the chance that a sentence of n (`length`) random
    words has it. With alpha the share of frequent words and Z = |V| / 2, a = (1 - alpha) / (alpha Z).

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
    """Orthonormal directions [m, d] that the sentences of a corpus share, and the part [m] of each that is removed."""

    directions: NDArray[np.float64]
    shares: NDArray[np.float64]

    @classmethod
    def of(cls, products: NDArray[np.float64], count: int, *, piecewise: bool) -> CommonComponents:
        """Return the first `count` right singular vectors of the sentence vectors X [n, d], which are not centred.

        They are the eigenvectors of X'X, the products [d, d]. Null directions are left out. `piecewise` removes the
        part sigma_i^2 / (sigma_1^2 + … + sigma_count^2) of direction i, instead of all of it.
        """
        values, vectors = np.linalg.eigh(products)
        values, directions = values[::-1][:count], vectors.T[::-1][:count]
        present = values > _NOISE * max(values[0], 0) if count else np.zeros(0, bool)
        values, directions = values[present], np.ascontiguousarray(directions[present])
        return cls(directions, values / values.sum() if piecewise else np.ones(len(values)))

    def removed_from(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return X [n, d] without them, row by row: a product of matrices would round differently in other batches."""
        for direction, share in zip(self.directions, self.shares, strict=True):
            X = X - share * (X * direction).sum(axis=1, keepdims=True) * direction
        return X


class WordBags:
    """Sums over the words of sentences; `weigh` returns the weight of a word, None weighs all alike."""

    def __init__(
        self, vectors: WordVectors, weigh: Callable[[str], float] | None = None, *, rescale: bool = False
    ) -> None:
        self._vectors, self._weigh, self._rescale = vectors, weigh, rescale
        self._finder = WordFinder(vectors.row)
        # A weight is computed when its word is first seen. Threads may do it twice, with the same outcome.
        self._weights = np.full(len(vectors) if weigh else 0, np.nan)

    def means(self, sentences: Sequence[str]) -> NDArray[np.float64]:
        """Return the weighted mean [n, d] of the vectors of each sentence's known words, or zeros."""
        shape = (len(sentences), self._vectors.dim)
        totals, counts = np.zeros(shape), np.zeros(len(sentences))
        squares = np.zeros(shape) if self._rescale else None
        for start, ends, tokens in self.blocks(sentences):
            rows, columns = np.unique(tokens, return_inverse=True)
            block = slice(start, start + len(ends) - 1)
            X = self._vectors.vectors[rows].astype(np.float64)
            matrix = csr_array((self._weights_of(rows)[columns], columns, ends), shape=(len(ends) - 1, len(rows)))
            # The product adds up a sentence's words in their order, so that a row does not depend on its batch.
            totals[block] += np.asarray(matrix @ X)
            counts[block] += np.diff(ends)
            if squares is not None:
                matrix.data[:] = 1
                squares[block] += np.asarray(matrix @ (X * X))
        means = totals / np.maximum(counts, 1)[:, None]
        if squares is not None:
            np.divide(means, np.sqrt(squares), out=means, where=squares > 0)  # a zero stays zero
        return means

    def blocks(self, sentences: Iterable[str]) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield rows of known words in blocks: the first sentence's number, where sentences end [n + 1], the rows."""
        start, ends, tokens = 0, [0], list[int]()
        for number, sentence in enumerate(sentences):
            for rows in self._finder.find(sentence):
                tokens.extend(rows)
                if len(tokens) >= _BLOCK:
                    yield start, np.array([*ends, len(tokens)]), np.array(tokens)
                    start, ends, tokens = number, [0], []
            ends.append(len(tokens))
        yield start, np.array(ends), np.array(tokens, np.int64)

    def _weights_of(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        if self._weigh is None:
            return np.ones(len(rows))
        for row in rows[np.isnan(self._weights[rows])]:
            self._weights[row] = self._weigh(self._vectors.word(row))
        return self._weights[rows]


def fit_pooling(
    vectors: WordVectors,
    pooling: Pooling,
    frequencies: Frequencies | None,
    corpus: Corpus | None,
    key: str,
    progress: Progress,
) -> tuple[WordBags, CommonComponents | None, dict[str, str]]:
    """Return the weighted sums, the directions to remove, and all settings; passes are cached under `key`."""
    if pooling.kind == "mean":
        return WordBags(vectors), None, {}
    a, length = pooling.a or 1e-3, pooling.length
    if corpus is not None and (frequencies is None or (pooling.kind == "usif" and length is None)):
        counts = _cached(vectors, {"words of": key}, lambda: count_words(vectors, corpus, progress))
        length = length or float(counts["counts"].sum() / counts["sentences"])
        tokens = zip(map(vectors.word, counts["rows"].tolist()), counts["counts"].tolist(), strict=True)
        frequencies = frequencies or Frequencies.of_corpus(tokens, key)
    if frequencies is None:
        raise ValueError("frequencies=corpus without a corpus")
    if pooling.kind == "usif":
        a = usif_a(frequencies.probabilities(), length or _PAPER_LENGTH)
    smooth, probability = a if pooling.kind == "sif" else a / 2, frequencies.probability
    bags = WordBags(vectors, lambda word: a / (smooth + probability(word)), rescale=pooling.rescaled)
    # The expected length changes the numbers through `a` alone.
    facts = {"formulas": _VERSION, "a": repr(a), "frequencies": frequencies.source, "components": str(pooling.removed)}
    facts |= {"rescale": "true"} if pooling.rescaled else {}
    if not pooling.removed or corpus is None:
        return bags, None, facts
    facts["corpus"] = key

    def fit() -> Arrays:
        products = second_moment(bags, vectors.dim, corpus, progress)
        if not np.isfinite(products).all():
            problem = "numbers that are too large, or not finite: delete the folder, and it is made again"
            raise EncoderError(f"{vectors.folder} has {problem}")
        return vars(CommonComponents.of(products, pooling.removed, piecewise=pooling.kind == "usif"))

    fitted = _cached(vectors, {"components of": pooling.kind, **facts}, fit)
    return bags, CommonComponents(fitted["directions"], fitted["shares"]), facts


def count_words(vectors: WordVectors, corpus: Corpus, progress: Progress) -> Arrays:
    """Count the rows of known words in a corpus, and its sentences, in one pass."""
    bags, counts, sentences = WordBags(vectors), np.zeros(len(vectors), np.int64), 0
    for batch in _batches(corpus, "count words", progress):
        for _, _, tokens in bags.blocks(batch):
            np.add.at(counts, tokens, 1)
        sentences += len(batch)
    rows = np.flatnonzero(counts)
    if not len(rows):
        raise InputError(f"{corpus} holds no word that the vectors know")
    return {"rows": rows, "counts": counts[rows], "sentences": np.array(sentences)}


def second_moment(bags: WordBags, dim: int, corpus: Corpus, progress: Progress) -> NDArray[np.float64]:
    """Return X'X [dim, dim] of the means X of a corpus's sentences; one pass, in memory that does not grow with it."""
    products = np.zeros((dim, dim))
    for batch in _batches(corpus, "common components", progress):
        X = bags.means(batch)
        products += X.T @ X
    if not products.any():
        raise InputError(f"{corpus} holds no word that the vectors know")
    return products


def _batches(corpus: Corpus, label: str, progress: Progress) -> Iterator[list[str]]:
    sentences, done = iter(corpus), 0
    while batch := list(islice(sentences, 1)):
        characters = len(batch[0])
        while len(batch) < _SENTENCES and characters < _CHARACTERS and (more := list(islice(sentences, 1))):
            batch += more
            characters += len(more[0])
        yield batch
        done += len(batch)
        progress(label, done, None)
    corpus.check_unchanged()
    progress(label, done, done)


def _cached(vectors: WordVectors, facts: Mapping[str, str], compute: Callable[[], Arrays]) -> Arrays:
    """Return arrays from the cache, or compute and keep them; the vectors, the tokens and the facts are their key."""
    key = [vectors.revision, vectors.format, TOKENS_VERSION, sorted(facts.items())]
    path = cache_dir() / "words" / "fitted" / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]}.arrays"
    with suppress(OSError), open_regular(path) as file:
        digest, data = file.read(_DIGEST_BYTES), file.read()
        if digest == hashlib.sha256(path.name.encode() + data).digest():  # a damaged file is made again
            return dict(np.load(io.BytesIO(data)))
    arrays = compute()
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # one of its options is no array
    with suppress(OSError):  # without a writable cache it takes time only
        make_folder(path.parent)
        data = buffer.getvalue()
        write_atomically(path, hashlib.sha256(path.name.encode() + data).digest() + data)
    return arrays
