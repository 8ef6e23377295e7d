"""The clusters of a corpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora import as_corpus
from ensembed.corpora.corpus import Corpus
from ensembed.corpora.record_reader import Record, has_ids, records_of
from ensembed.encoders import EncoderLike, open_encoder
from ensembed.errors import InputError
from ensembed.search.groups.cluster_count import choose_number
from ensembed.search.groups.cluster_words import distinguishing_words
from ensembed.search.groups.partition import Partition, density_partition, kmeans_partition
from ensembed.search.groups.unit_vectors import stored_vectors, unit_matrix
from ensembed.support.checks import check_whole
from ensembed.support.progress import Progress, silent
from ensembed.views import ViewStore

Method: TypeAlias = Literal["kmeans", "hdbscan"]

# Sentences of a cluster whose words are counted, drawn by lot: the words of more are the same.
_SENTENCES = 2000


@dataclass(frozen=True)
class Cluster:
    """A cluster, for a person.

    Attributes:
        number: the largest cluster is 0.
        size: rows, repeats among them.
        sentences: (row, cosine with the centre, text) of the sentences nearest to the centre, no two the same.
        words: what its sentences say more often than others.
        ids: of these sentences, where the corpus has ids.
    """

    number: int
    size: int
    sentences: tuple[tuple[int, float, str], ...]
    words: tuple[str, ...]
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Clusters:
    """The clusters of a corpus. Row i is the i-th sentence that is not blank, from 0.

    Attributes:
        corpus: the sentences.
        labels: [n] the cluster of each row; -1 for rows that belong to none.
        cosine: [n] of each row with its cluster's centre.
        clusters: what they are about, the largest first.
        silhouettes: of the numbers of clusters that were tried; empty where the number was given.
        method: "kmeans" or "hdbscan".
        seed: of everything that was drawn by lot.
    """

    corpus: Corpus
    labels: NDArray[np.int64]
    cosine: NDArray[np.float32]
    clusters: tuple[Cluster, ...]
    silhouettes: dict[int, float]
    method: Method
    seed: int

    @property
    def fields(self) -> tuple[str, ...]:
        """Of a row's record."""
        return ("cluster", "row", *(("id",) if has_ids(self.corpus) else ()), "cosine", "text")

    def records(self) -> Iterator[dict[str, Any]]:
        """A record for every row, in the order of the corpus, as it is read, with its id if the corpus has ids."""
        # A file that has grown is not read beyond its rows: that it changed is said in the end.
        for row, record in zip(range(len(self.labels)), records_of(self.corpus), strict=False):
            yield {
                "cluster": int(self.labels[row]),
                "row": row,
                **({} if record.id is None else {"id": record.id}),
                "cosine": round(float(self.cosine[row]), 6),
                "text": record.text,
            }
        self.corpus.check_unchanged()


def find_clusters(
    sentences: Corpus | Path | Sequence[str],
    model: EncoderLike,
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
    """Find out what the sentences of a corpus are about.

    Every distinct sentence counts once; repeats go where their first occurrence goes.

    Args:
        sentences: a list, the path of a text file with a sentence a line, or a corpus.
        model: a meta-encoder, or an encoder or its name.
        clusters: how many; None chooses the number (`choose_number`). hdbscan finds its own.
        method: "kmeans", for any number of sentences, or "hdbscan", which leaves out what belongs to no cluster, for up
            to 20,000.
        least: with hdbscan, the sentences of the smallest cluster.
        representatives: how many sentences say what a cluster is about.
        words: and how many words.
        seed: of everything that is drawn by lot.
        store: where the vectors are kept; by default the user's cache.
        progress: told of rows.

    Example:
        >>> texts = ["a dog barks", "a dog sleeps", "a dog runs", "stocks fall", "stocks rise", "stocks soar"]
        >>> found = find_clusters(texts, "demo", clusters=2)
        >>> sorted({tuple(found.labels[:3].tolist()), tuple(found.labels[3:].tolist())})
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
    corpus, encoder = as_corpus(sentences), open_encoder(model)
    first = corpus.index.first_rows
    distinct = np.flatnonzero(first == np.arange(len(first)))
    if clusters is not None and clusters > len(distinct):
        raise InputError(f"{len(distinct)} distinct sentences cannot make {clusters} clusters: ask for fewer")
    vectors = stored_vectors(corpus, encoder, store or ViewStore(), progress=progress)
    silhouettes: dict[int, float] = {}
    with unit_matrix(vectors, distinct, progress=progress) as U:
        if method == "hdbscan":
            found = density_partition(U, least=least, progress=progress)
        else:
            if clusters is None:
                clusters, silhouettes = choose_number(U, seed=seed, progress=progress)
            found = kmeans_partition(U, clusters, seed=seed, progress=progress)
    labels, cosine = np.empty(len(first), np.int64), np.empty(len(first), np.float32)
    labels[distinct], cosine[distinct] = found.labels, found.cosine
    labels, cosine = labels[first], cosine[first]
    described = _describe(corpus, labels, distinct, found, (representatives, words, seed))
    return Clusters(corpus, labels, cosine, described, silhouettes, method, seed)


def _describe(
    corpus: Corpus,
    labels: NDArray[np.int64],
    distinct: NDArray[np.int64],
    found: Partition,
    wanted: tuple[int, int, int],
) -> tuple[Cluster, ...]:
    """What each cluster is about, from one pass over the corpus."""
    representatives, words, seed = wanted
    random = np.random.default_rng(seed)
    nearest, counted = [], np.zeros(len(labels), bool)
    for number in range(-1, len(found.centres)):
        own = np.flatnonzero(found.labels == number)
        if number >= 0:
            nearest.append(own[np.argsort(-found.cosine[own], kind="stable")[:representatives]])
        counted[distinct[own if len(own) <= _SENTENCES else random.choice(own, _SENTENCES, replace=False)]] = True
    wanted_rows = distinct[np.concatenate(nearest)].tolist() if nearest else []
    shown: dict[int, Record] = dict.fromkeys(wanted_rows, Record(""))

    def read() -> Iterator[tuple[int, str]]:
        # No further than the rows: that a file has grown is said below.
        for row, record in zip(range(len(labels)), records_of(corpus), strict=False):
            if row in shown:
                shown[row] = record
            if counted[row]:
                yield int(labels[row]), record.text

    said = distinguishing_words(read(), len(nearest), words)
    corpus.check_unchanged()
    sizes = np.bincount(labels[labels >= 0], minlength=len(nearest))
    return tuple(
        Cluster(
            number,
            int(sizes[number]),
            tuple((int(distinct[i]), round(float(found.cosine[i]), 6), shown[int(distinct[i])].text) for i in rows),
            tuple(said[number]),
            tuple(one.id for one in (shown[int(distinct[i])] for i in rows) if one.id is not None),
        )
        for number, rows in enumerate(nearest)
    )
