"""Retrieval and reranking: for each query, documents in the order of their cosine; measured as trec_eval does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from ensembed.encoders.base import FloatArray
from ensembed.errors import DatasetError
from ensembed.tasks.task import Statistic, Texts, VectorTask, hash_facts, mean_of

DEPTH = 1000
"""Documents of a ranking that count for MAP and MRR, as in BEIR and MTEB."""

_SCORES = 1 << 24  # scores (queries times documents) that are in memory at a time


@dataclass(frozen=True, eq=False)
class Ranking(VectorTask):
    """Queries, documents, and which of them are relevant to which query.

    Attributes:
        name: name in tables.
        query_ids, queries: the queries.
        document_ids, documents: the documents.
        relevance: by the query's id, the grade of each judged document. A grade above 0 is relevant. Queries without
            a relevant document are not judged.
        candidates: by the query's id, the documents that are ranked, each once; None ranks all documents (retrieval).
            Queries that are not among them are not judged.
        skip_same_id: a document with the id of the query is no result, as in collections whose queries are documents.
    """

    name: str
    query_ids: tuple[str, ...]
    queries: tuple[str, ...]
    document_ids: tuple[str, ...]
    documents: tuple[str, ...]
    relevance: Mapping[str, Mapping[str, float]]
    candidates: Mapping[str, Sequence[str]] | None = None
    skip_same_id: bool = False
    judged: tuple[int, ...] = field(init=False, default=())

    kind: ClassVar[str] = "retrieval"
    measures: ClassVar[tuple[str, ...]] = ("ndcg@10", "map", "recall@100")

    def __post_init__(self) -> None:
        for what, ids, texts in (
            ("query", self.query_ids, self.queries),
            ("document", self.document_ids, self.documents),
        ):
            if len(ids) != len(texts):
                raise DatasetError(f"{self.name}: {len(ids)} ids and {len(texts)} texts of the kind {what!r}")
            if len(set(ids)) < len(ids):
                twice = next(id_ for id_ in ids if ids.count(id_) > 1)
                raise DatasetError(f"{self.name}: the {what} id {twice!r} is there twice; ids name one text each")
        relevant = {query for query, grades in self.relevance.items() if any(grade > 0 for grade in grades.values())}
        if self.candidates is not None:
            relevant &= self.candidates.keys()
            if unknown := {id_ for ids in self.candidates.values() for id_ in ids}.difference(self.document_ids):
                raise DatasetError(f"{self.name}: the candidate {min(unknown)!r} is not among the documents")
        judged = tuple(i for i, id_ in enumerate(self.query_ids) if id_ in relevant)
        if not judged:
            needs = "a relevant document" if self.candidates is None else "a relevant document and candidates"
            raise DatasetError(f"{self.name}: no query has {needs}; do the ids of the judgements match?")
        object.__setattr__(self, "judged", judged)

    @classmethod
    def of(
        cls,
        name: str,
        queries: Mapping[str, str],
        documents: Mapping[str, str],
        relevance: Mapping[str, Mapping[str, float]],
        **settings: Any,  # noqa: ANN401 - the other attributes
    ) -> Self:
        """Return the task of queries and documents by their ids."""
        texts = (tuple(queries), tuple(queries.values()), tuple(documents), tuple(documents.values()))
        return cls(name, *texts, relevance, **settings)

    @property
    def items(self) -> int:
        """The number of judged queries."""
        return len(self.judged)

    def texts(self) -> Mapping[str, Texts]:
        """Return the judged queries, and the documents."""
        queries = Texts("query", tuple(self.queries[i] for i in self.judged))
        return {"queries": queries, "documents": Texts("document", self.documents)}

    def gold(self) -> Any:  # noqa: ANN401 - see `Task`
        """Return the judgements."""
        return [[self.query_ids[i], dict(self.relevance[self.query_ids[i]])] for i in self.judged]

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the data, with the documents' ids, by which judgements and candidates name them."""
        candidates = None
        if self.candidates is not None:
            candidates = [list(self.candidates[self.query_ids[i]]) for i in self.judged]
        return hash_facts([self.texts_hash, self.document_ids, candidates, self.skip_same_id])

    def statistic(self, measure: str, vectors: Mapping[str, FloatArray]) -> Statistic:
        """Return the mean of a measure over queries."""
        return self.statistics([measure], vectors)[measure]

    def statistics(self, measures: Sequence[str], vectors: Mapping[str, FloatArray]) -> dict[str, Statistic]:
        """Return the means of several measures; the documents are ranked only once."""
        rankings = self.rank(vectors["queries"], vectors["documents"])
        return {name: self.measure_rankings(name, rankings) for name in measures}

    def rank(self, Q: FloatArray, D: FloatArray) -> list[NDArray[np.int64]]:
        """Return for each judged query the best `DEPTH` documents by their cosine, best first; unit rows Q, D."""
        rankings = []
        step = max(1, _SCORES // max(1, len(D)))
        for start in range(0, len(Q), step):
            for query, scores in enumerate(Q[start : start + step] @ D.T, start):
                rankings.append(self.rank_scores(query, scores))
        return rankings

    def rank_scores(self, query: int, scores: NDArray[Any], depth: int = DEPTH) -> NDArray[np.int64]:
        """Return the best documents for the judged query of that number, from scores of all documents [n].

        Of equal scores the larger id comes first, as in trec_eval.
        """
        places = self._candidates(query)
        scores = scores[places]
        if depth < len(places):
            least = np.partition(scores, len(places) - depth)[len(places) - depth]
            kept = np.flatnonzero(scores >= least)
            places, scores = places[kept], scores[kept]
        order = np.lexsort((-self._id_ranks[places], -scores))[:depth]
        return places[order]

    def measure_rankings(self, measure: str, rankings: Sequence[NDArray[np.int64]]) -> Statistic:
        """Return the mean of a measure over rankings of the judged queries."""
        rows = [self._gains(query, ranking) for query, ranking in enumerate(rankings)]
        return mean_of([_MEASURES[measure](gains, ideal) for gains, ideal in rows])

    def _gains(self, query: int, ranking: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the grades of the ranked documents, and all grades above 0, the largest first."""
        grades = self.relevance[self.query_ids[self.judged[query]]]
        gains = np.array([max(0.0, grades.get(self.document_ids[place], 0.0)) for place in ranking])
        ideal = np.array(sorted((grade for grade in grades.values() if grade > 0), reverse=True))
        return gains, ideal

    def _candidates(self, query: int) -> NDArray[np.int64]:
        id_ = self.query_ids[self.judged[query]]
        if self.candidates is not None:
            places = np.array([self._places[document] for document in dict.fromkeys(self.candidates[id_])], np.int64)
        else:
            places = np.arange(len(self.documents))
        if self.skip_same_id and id_ in self._places:
            places = places[places != self._places[id_]]
        return places

    @cached_property
    def _places(self) -> dict[str, int]:
        return {id_: i for i, id_ in enumerate(self.document_ids)}

    @cached_property
    def _id_ranks(self) -> NDArray[np.int64]:
        """The place of each document's id among all ids in ascending order."""
        ranks = np.empty(len(self.document_ids), np.int64)
        ranks[sorted(range(len(ranks)), key=lambda i: self.document_ids[i])] = np.arange(len(ranks))
        return ranks


@dataclass(frozen=True, eq=False)
class Reranking(Ranking):
    """A `Ranking` in which each query has candidates of its own."""

    kind: ClassVar[str] = "reranking"
    measures: ClassVar[tuple[str, ...]] = ("map", "mrr")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.candidates is None:
            raise DatasetError(f"{self.name}: reranking needs candidates of each query")

    def gold(self) -> Any:  # noqa: ANN401 - see `Task`
        """Return the judgements and the candidates."""
        assert self.candidates is not None  # noqa: S101 - for the type checker
        return [super().gold(), [list(self.candidates[self.query_ids[i]]) for i in self.judged]]


def _ndcg(gains: NDArray[np.float64], ideal: NDArray[np.float64]) -> float:
    """Return nDCG@10 with linear gains (Järvelin and Kekäläinen 2002)."""
    discounts = 1 / np.log2(np.arange(2, 12))
    best = ideal[:10] @ discounts[: len(ideal[:10])]
    return float(gains[:10] @ discounts[: len(gains[:10])] / best)


def _average_precision(gains: NDArray[np.float64], ideal: NDArray[np.float64]) -> float:
    hits = gains[:DEPTH] > 0
    precisions = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float(precisions[hits].sum() / len(ideal))


def _recall(gains: NDArray[np.float64], ideal: NDArray[np.float64]) -> float:
    return float((gains[:100] > 0).sum() / len(ideal))


def _reciprocal_rank(gains: NDArray[np.float64], ideal: NDArray[np.float64]) -> float:  # noqa: ARG001 - as the others
    hits = np.flatnonzero(gains[:DEPTH] > 0)
    return 1 / (1 + int(hits[0])) if len(hits) else 0.0


_MEASURES: dict[str, Callable[[NDArray[np.float64], NDArray[np.float64]], float]] = {
    "ndcg@10": _ndcg,
    "map": _average_precision,
    "recall@100": _recall,
    "mrr": _reciprocal_rank,
}
