"""The clusters of a corpus: their number, the partition (with scikit-learn's algorithms), and what they are about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora import as_corpus
from ensembed.corpora.corpus import Corpus
from ensembed.corpora.record_files import Record, has_ids
from ensembed.encoders.base import FloatArray
from ensembed.errors import InputError
from ensembed.models.model_vectors import model_vectors
from ensembed.models.opening import ModelLike, open_model
from ensembed.numerics.row_matrices import unit_rows
from ensembed.search.groups.group_rows import (
    distinct_rows,
    leading_directions,
    numbered_records,
    row_facts,
    unit_matrix,
)
from ensembed.support.checks import check_whole
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress, silent
from ensembed.support.shown_objects import Facts, Shown
from ensembed.views import ViewStore

Method: TypeAlias = Literal["kmeans", "hdbscan"]

CANDIDATES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of clusters that are tried: differences between closer numbers are noise."""

DIRECTIONS = 50
"""Leading directions in which numbers of clusters are compared."""

LEAST_ROWS = 12
"""The least number of rows on which a number of clusters is chosen."""

MOST_DENSITY = 20_000
"""The largest number of rows for HDBSCAN, which looks at all pairs."""

# Rows on which numbers of clusters are tried (silhouettes look at all pairs), and the least mean size of a cluster.
_TRIED_ROWS, _TRIED_SIZE = 2000, 5
_SAMPLE = 10_000  # k-means on fewer rows is exact; of more rows, it gives the centres from which the stream begins
_BATCH = 4096  # rows of a step of the stream, and rows that are assigned at a time
_SENTENCES = 2000  # sentences of a cluster whose words are counted, chosen at random: more give the same words
# Forms of common verbs, and titles, that scikit-learn's list of stop words lacks.
_FURTHER_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "say says said saying does did doing gets got getting make makes making takes took taken goes going went gone "
        "come comes came use used using like just really thing things want wants wanted let told tell mr mrs ms",
    )
)
_WORD = re.compile(r"[^\W\d_][\w'’-]*\w")  # letters and what may stand inside a word; single letters say little
_PRIOR = 0.01  # this part of a word's count in all clusters is added to its count in each
_LEAST_COUNT = 2  # the least count of a word in a cluster: a word that occurs once belongs to a sentence


@dataclass(frozen=True, eq=False)
class Partition:
    """Rows in clusters.

    Attributes:
        labels: [m] the cluster of each row, the largest being 0; -1 for rows that belong to none.
        centres: [k, d] of length one.
        cosine: [m] of each row with the centre of its cluster, or with the nearest one if it belongs to none.
    """

    labels: NDArray[np.int64]
    centres: FloatArray
    cosine: NDArray[np.float32]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows of each cluster [k]."""
        return np.bincount(self.labels[self.labels >= 0], minlength=len(self.centres))


@dataclass(frozen=True)
class Cluster:
    """A cluster as it is shown to people.

    Attributes:
        number: the largest cluster is 0.
        size: number of rows, including repeats.
        sentences: (row, cosine with the centre, text) of the sentences nearest to the centre, no two the same.
        words: words that its sentences use more often than others.
        ids: the ids of these sentences, if the corpus has ids.
    """

    number: int
    size: int
    sentences: tuple[tuple[int, float, str], ...]
    words: tuple[str, ...]
    ids: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the cluster as plain JSON."""
        ids = self.ids or (None,) * len(self.sentences)
        rows = zip(ids, self.sentences, strict=True)
        sentences = [row_facts(row, Record(text, id_), cosine) for id_, (row, cosine, text) in rows]
        return {"cluster": self.number, "size": self.size, "words": list(self.words), "sentences": sentences}


@dataclass(frozen=True, eq=False, repr=False)
class Clusters(Shown):
    """The clusters of a corpus. Row i is the i-th sentence that is not blank, from 0.

    Attributes:
        labels: [n] the cluster of each row; -1 for rows that belong to none.
        cosine: [n] of each row with its cluster's centre.
        clusters: what they are about, the largest first.
        silhouettes: of the numbers of clusters that were tried; empty if the number was given.
    """

    corpus: Corpus
    labels: NDArray[np.int64]
    cosine: NDArray[np.float32]
    clusters: tuple[Cluster, ...]
    silhouettes: dict[int, float]
    method: Method
    seed: int

    def __repr__(self) -> str:
        return f"Clusters({len(self.clusters)} of {len(self.labels)} sentences, method={self.method!r})"

    def _facts(self) -> Facts:
        clusters = [(each.size, ", ".join(each.words)) for each in self.clusters]
        return [
            ("corpus", str(self.corpus)),
            ("sentences", str(len(self.labels))),
            ("method", self.method),
            *(("cluster", f"{size} sentences: {words}") for size, words in clusters),
        ]

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields of `records`."""
        return ("cluster", "row", *(("id",) if has_ids(self.corpus) else ()), "cosine", "text")

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield a record for every row, in the order of the corpus, with its id if the corpus has ids."""
        for row, record in numbered_records(self.corpus, len(self.labels)):
            yield {"cluster": int(self.labels[row])} | row_facts(row, record, self.cosine[row])

    def to_json(self) -> dict[str, Any]:
        """Return a summary as plain JSON."""
        return {
            "rows": len(self.labels),
            "method": self.method,
            "seed": self.seed,
            "left_out": int((self.labels < 0).sum()),
            "silhouettes": {str(k): round(value, 6) for k, value in self.silhouettes.items()},
            "clusters": [cluster.to_json() for cluster in self.clusters],
        }


def find_clusters(
    sentences: Corpus | Path | Sequence[str],
    model: ModelLike,
    *,
    clusters: int | None = None,
    method: Method = "kmeans",
    least: int = 5,
    representatives: int = 3,
    words: int = 8,
    seed: int = 0,
    store: ViewStore | None = None,
    progress: Progress = silent,
) -> Clusters:
    """Find out what the sentences of a corpus are about; repeated sentences are in the same cluster.

    Args:
        sentences: a list, the path of a text file with a sentence a line, or a corpus.
        model: a model, the folder of a saved one, or an encoder's name.
        clusters: how many; None chooses the number (`choose_number`). hdbscan finds its own.
        method: "kmeans", or "hdbscan", which leaves out what belongs to no cluster, for up to 20,000 sentences.
        least: with hdbscan, the number of sentences of the smallest cluster.
        representatives: how many sentences describe a cluster.
        words: how many words describe a cluster.
        seed: seed of all random choices.
        store: where the vectors are stored; by default the user's cache.
        progress: receives the number of rows.

    Example:
        >>> texts = ["a dog barks", "a dog sleeps", "a dog runs", "stocks fall", "stocks rise", "stocks soar"]
        >>> result = find_clusters(texts, "demo", clusters=2)
        >>> sorted({tuple(result.labels[:3].tolist()), tuple(result.labels[3:].tolist())})
        [(0, 0, 0), (1, 1, 1)]
    """
    if method not in get_args(Method):
        raise InputError(f"method is 'kmeans' or 'hdbscan', not {method!r}")
    if method == "hdbscan" and clusters is not None:
        raise InputError("hdbscan finds the number of clusters: leave it out, or use kmeans")
    check_whole("representatives", representatives, 1)
    check_whole("words", words, 0)
    check_whole("seed", seed, 0)
    if clusters is not None:
        check_whole("clusters", clusters, 1)
    corpus, encoder = as_corpus(sentences), open_model(model)
    first, distinct = distinct_rows(corpus)
    if clusters is not None and clusters > len(distinct):
        raise InputError(f"{len(distinct)} distinct sentences cannot make {clusters} clusters: ask for fewer")
    import_extra("sklearn.cluster", "cluster", "clustering")  # before the work, and not after it
    if method == "hdbscan":
        _check_density(len(distinct), least)
    [vectors] = model_vectors(corpus, [encoder], store or ViewStore(), progress=progress)
    silhouettes: dict[int, float] = {}
    with unit_matrix(vectors, distinct, progress=progress) as U:
        if method == "hdbscan":
            partition = density_partition(U, least=least, progress=progress)
        else:
            if clusters is None:
                clusters, silhouettes = choose_number(U, seed=seed, progress=progress)
            partition = kmeans_partition(U, clusters, seed=seed, progress=progress)
    labels, cosine = np.empty(len(first), np.int64), np.empty(len(first), np.float32)
    labels[distinct], cosine[distinct] = partition.labels, partition.cosine
    labels, cosine = labels[first], cosine[first]
    described = _describe(corpus, labels, distinct, partition, representatives, words, seed)
    return Clusters(corpus, labels, cosine, described, silhouettes, method, seed)


def _describe(
    corpus: Corpus, labels: NDArray[np.int64], distinct: NDArray[np.int64], partition: Partition, *wanted: int
) -> tuple[Cluster, ...]:
    """Describe each cluster, from one pass over the corpus."""
    representatives, words, seed = wanted
    random = np.random.default_rng(seed)
    nearest, counted = [], np.zeros(len(labels), bool)
    for number in range(-1, len(partition.centres)):
        own = np.flatnonzero(partition.labels == number)
        if number >= 0:
            nearest.append(own[np.argsort(-partition.cosine[own], kind="stable")[:representatives]])
        counted[distinct[own if len(own) <= _SENTENCES else random.choice(own, _SENTENCES, replace=False)]] = True
    shown: dict[int, Record] = dict.fromkeys(distinct[np.concatenate([own[:0], *nearest])].tolist(), Record(""))

    def read() -> Iterator[tuple[int, str]]:
        for row, record in numbered_records(corpus, len(labels)):
            if row in shown:
                shown[row] = record
            if counted[row]:
                yield int(labels[row]), record.text

    cluster_words = distinguishing_words(read(), len(nearest), words)
    sizes = np.bincount(labels[labels >= 0], minlength=len(nearest)).tolist()
    clusters = []
    for number, places in enumerate(nearest):
        rows = distinct[places].tolist()
        cosines = partition.cosine[places].astype(float).round(6).tolist()
        texts = tuple((row, cosine, shown[row].text) for row, cosine in zip(rows, cosines, strict=True))
        ids = tuple(id_ for row in rows if (id_ := shown[row].id) is not None)
        clusters.append(Cluster(number, sizes[number], texts, tuple(cluster_words[number]), ids))
    return tuple(clusters)


def choose_number(
    U: FloatArray,
    *,
    candidates: Sequence[int] = CANDIDATES,
    directions: int | None = DIRECTIONS,
    seed: int = 0,
    progress: Progress = silent,
) -> tuple[int, dict[int, float]]:
    """Return the number of clusters of U [m, d] with the largest mean silhouette (Rousseeuw 1987), and all of those.

    Silhouettes are of the leading `directions` of the centred rows, scaled to length one; None takes the whole rows. In
    all dimensions distances between sentences are nearly the same, and two clusters always have the largest silhouette.
    """
    metrics = import_extra("sklearn.metrics", "cluster", "choosing the number of clusters")
    if len(U) < LEAST_ROWS:
        raise InputError(
            f"{len(U)} distinct sentences are too few to choose the number: set it (clusters=…, --clusters)"
        )
    sample = np.sort(np.random.default_rng(seed).choice(len(U), min(len(U), _TRIED_ROWS), replace=False))
    rows = np.asarray(U[sample])
    different = len(np.unique(rows, axis=0))  # a model may give many sentences one vector
    if directions is not None and directions < rows.shape[1]:
        rows = unit_rows(leading_directions(rows, directions)[0])
        different = min(different, len(np.unique(rows, axis=0)))
    tried = [k for k in candidates if k * _TRIED_SIZE <= len(rows)] or [2]
    tried = [k for k in tried if k <= different]
    distances = np.maximum(1 - rows @ rows.T, 0)
    np.fill_diagonal(distances, 0)
    scores = {}
    for done, k in enumerate(tried, 1):
        labels = kmeans_partition(rows, k, seed=seed).labels
        if len(np.unique(labels)) > 1:
            scores[k] = float(metrics.silhouette_score(distances, labels, metric="precomputed"))
        progress("clusters", done, len(tried))
    if not scores:
        way_out = "set the number (clusters=1, --clusters 1), or take another model"
        raise InputError(f"the sentences cannot be told apart: there is one cluster; {way_out}")
    return max(scores, key=lambda k: scores[k]), scores


def kmeans_partition(U: FloatArray, clusters: int, *, seed: int = 0, progress: Progress = silent) -> Partition:
    """K-means on rows U [m, d] of length one; the centres are scaled to length one, so that the cosine decides.

    Of more than 10,000 rows a sample is clustered by KMeans, and MiniBatchKMeans moves its centres through all rows.
    """
    check_whole("clusters", clusters, 1)
    check_whole("seed", seed, 0)
    learn = import_extra("sklearn.cluster", "cluster", "clustering")
    random = np.random.default_rng(seed)
    sample = np.sort(random.choice(len(U), min(len(U), _SAMPLE), replace=False))
    rows = np.asarray(U[sample])
    if clusters > len(rows) or clusters > len(np.unique(rows, axis=0)):
        raise InputError(f"there are fewer than {clusters} different vectors: ask for fewer clusters")
    progress("k-means", 0, len(U))
    centres = learn.KMeans(clusters, n_init=2, random_state=seed).fit(rows).cluster_centers_
    if len(U) > len(sample):
        # The sample goes first, so that its centres have weight: a file may be sorted, and no batch may move them all.
        stream = learn.MiniBatchKMeans(clusters, init=centres, n_init=1, reassignment_ratio=0, random_state=seed)
        stream.partial_fit(rows)
        done = 0
        for start in random.permutation(np.arange(0, len(U), _BATCH)).tolist():
            batch = np.asarray(U[start : start + _BATCH])
            stream.partial_fit(batch)
            done += len(batch)
            progress("k-means", done, len(U))
        centres = stream.cluster_centers_
    progress("k-means", len(U), len(U))
    return _largest_first(U, unit_rows(centres.astype(np.float32)), None)


def density_partition(U: FloatArray, *, least: int = 5, progress: Progress = silent) -> Partition:
    """HDBSCAN on rows U [m, d] of length one: dense regions of `least` rows and more; other rows belong to none."""
    _check_density(len(U), least)
    learn = import_extra("sklearn.cluster", "cluster", "clustering")
    progress("hdbscan", 0, len(U))
    labels = learn.HDBSCAN(min_cluster_size=least, copy=True).fit(np.asarray(U)).labels_.astype(np.int64)
    progress("hdbscan", len(U), len(U))
    sums = np.zeros((int(labels.max()) + 1, U.shape[1]), np.float64)
    np.add.at(sums, labels[labels >= 0], U[labels >= 0])
    return _largest_first(U, unit_rows(sums.astype(np.float32)), labels)


def _check_density(rows: int, least: int) -> None:
    """Raise an InputError if HDBSCAN cannot cluster so many rows."""
    check_whole("least", least, 2)
    if rows > MOST_DENSITY:
        raise InputError(f"hdbscan takes at most {MOST_DENSITY} sentences, not {rows}: use kmeans")
    if rows < 2 * least:
        raise InputError(f"{rows} sentences have no two clusters of {least}: ask for smaller ones, or use kmeans")


def _largest_first(U: FloatArray, centres: FloatArray, labels: NDArray[np.int64] | None) -> Partition:
    """Return the partition with its clusters ordered by size; without labels, rows go to the nearest centre."""
    cosine = np.zeros(len(U), np.float32)
    nearest = np.empty(len(U), np.int64)
    for start in range(0, len(U) if len(centres) else 0, _BATCH):
        C = np.asarray(U[start : start + _BATCH]) @ centres.T
        to = slice(start, start + len(C))
        nearest[to] = C.argmax(axis=1)
        own = nearest[to] if labels is None else np.where(labels[to] >= 0, labels[to], nearest[to])
        cosine[to] = C[np.arange(len(C)), own]
    labels = nearest if labels is None else labels
    sizes = np.bincount(labels[labels >= 0], minlength=len(centres))
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]  # after the centres are scaled one may be nearest to nothing
    number = np.full(len(centres) + 1, -1, np.int64)  # the last one is for the label -1
    number[order] = np.arange(len(order))
    return Partition(number[labels], centres[order], np.minimum(cosine, 1))


def distinguishing_words(sentences: Iterable[tuple[int, str]], clusters: int, most: int = 8) -> list[list[str]]:
    """Return at most `most` words that sentences of each cluster use more than those of the others.

    Words are ranked by the log of the ratio of their odds, with a prior from all of the text, over its standard error
    (Monroe, Colaresi and Quinn 2008), once a sentence, without the stop words of English. Sentences are
    (cluster, text); clusters below 0 are none.

    Example:
        >>> pets, shares = "the dog barks", "the stocks fall"
        >>> distinguishing_words([(0, pets), (0, pets), (1, shares), (1, shares)], 2, most=2)
        [['barks', 'dog'], ['fall', 'stocks']]
    """
    listed = import_extra("sklearn.feature_extraction.text", "cluster", "naming clusters").ENGLISH_STOP_WORDS
    stop_words = listed | _FURTHER_STOP_WORDS
    counts: Sequence[Counter[str]] = [Counter() for _ in range(clusters)]
    total: Counter[str] = Counter()
    for cluster, text in sentences:
        words = {word for word in _WORD.findall(text.lower()) if not _is_stop_word(word, stop_words)}
        total.update(words)
        if cluster >= 0:
            counts[cluster].update(words)
    return [_distinguishing_words(own, total, most) for own in counts]


def _is_stop_word(word: str, stop_words: Collection[str]) -> bool:
    """Return whether a word is one of the list, or begins as one does before an apostrophe: it's, don't, they’ll."""
    return re.split("n?['’]", word)[0] in stop_words or re.search("n['’]t$", word) is not None


def _distinguishing_words(own: Counter[str], total: Counter[str], most: int) -> list[str]:
    words = sorted(word for word, count in own.items() if count >= _LEAST_COUNT)
    if not words or most < 1:
        return []
    here = np.array([own[word] for word in words], float)
    everywhere = np.array([total[word] for word in words], float)
    prior, elsewhere = _PRIOR * everywhere, everywhere - here
    all_here, all_text = float(sum(own.values())), float(sum(total.values()))
    # Where a cluster, or the whole text, has one word only, there are no others.
    odds = np.log((here + prior) / np.maximum(all_here + _PRIOR * all_text - here - prior, _PRIOR))
    others = np.log(
        (elsewhere + prior) / np.maximum(all_text - all_here + _PRIOR * all_text - elsewhere - prior, _PRIOR)
    )
    score = (odds - others) / np.sqrt(1 / (here + prior) + 1 / (elsewhere + prior))
    best = np.argsort(-score, kind="stable")[:most]
    return [words[i] for i in best if score[i] > 0]
