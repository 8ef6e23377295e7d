"""The measures of tasks equal those of the libraries that everybody uses, on the items and on resamples of them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.neighbors import KNeighborsClassifier

from ensembed.errors import DatasetError
from ensembed.numerics.row_matrices import unit_rows
from ensembed.sts import Pairs, pearson, spearman
from ensembed.tasks import Classification, Clustering, GradedPairs, PairClassification, Ranking, Reranking
from ensembed.tasks.class_and_cluster_tasks import nearest_centroid, nearest_neighbours, v_measure
from ensembed.tasks.pair_tasks import average_precision
from ensembed.tasks.task import Measuring, VectorTask, draws, mean_of

RANDOM = np.random.default_rng(7)


def unit(*shape: int) -> NDArray[np.float32]:
    return np.asarray(unit_rows(RANDOM.standard_normal(shape).astype(np.float32)))


def names(letter: str, count: int) -> tuple[str, ...]:
    return tuple(f"{letter}{i}" for i in range(count))


def values(task: VectorTask, **vectors: NDArray[np.float32]) -> dict[str, float]:
    return {name: figure.value for name, figure in task.figures(vectors, Measuring()).items()}


def retrieval(queries: int = 12, documents: int = 1500) -> Ranking:
    relevance = {
        f"q{i}": {f"d{j}": int(grade) for j, grade in zip(RANDOM.choice(documents, 9), [0, 1, 2] * 3, strict=True)}
        for i in range(queries - 1)  # the last query has no judgement
    }
    ids = names("q", queries), names("d", documents)
    return Ranking("random", ids[0], ids[0], ids[1], ids[1], relevance)


def trec(task: Ranking, Q: NDArray[Any], D: NDArray[Any], candidates: Mapping[str, Sequence[str]] | None = None) -> Any:  # noqa: ANN401 - the library's
    import pytrec_eval

    run = {
        f"q{i}": {f"d{j}": float(s) for j, s in enumerate(row) if not candidates or f"d{j}" in candidates[f"q{i}"]}
        for i, row in enumerate(Q @ D.T)
    }
    best = {
        query: dict(sorted(scores.items(), key=lambda item: (item[1], item[0]), reverse=True)[:1000])
        for query, scores in run.items()
    }
    judged = {query: {id_: int(grade) for id_, grade in grades.items()} for query, grades in task.relevance.items()}
    wanted = {"ndcg_cut.10", "map", "recall.100", "recip_rank"}
    evaluator = pytrec_eval.RelevanceEvaluator(judged, wanted)
    scores = evaluator.evaluate(best)
    return {name: np.mean([one[name] for one in scores.values()]) for name in next(iter(scores.values()))}


@pytest.mark.parametrize("ties", [False, True])
def test_retrieval_equals_trec_eval(ties: bool) -> None:
    task = retrieval()
    Q, D = unit(11, 8), unit(1500, 8)
    if ties:  # equal documents in groups of three
        D = np.repeat(D[:500], 3, axis=0)
    expected, found = trec(task, Q, D), values(task, queries=Q, documents=D)
    assert task.items == 11
    assert found["ndcg@10"] == pytest.approx(expected["ndcg_cut_10"], abs=1e-9)
    assert found["map"] == pytest.approx(expected["map"], abs=1e-9)
    assert found["recall@100"] == pytest.approx(expected["recall_100"], abs=1e-9)


def test_reranking_ranks_the_candidates_alone() -> None:
    whole = retrieval(6, 40)
    some = {
        f"q{i}": [f"d{j}" for j in range(40) if f"d{j}" in whole.relevance[f"q{i}"] or j % 3 == 0] for i in range(5)
    }
    facts = (whole.query_ids, whole.queries, whole.document_ids, whole.documents, whole.relevance)
    task = Reranking("random", *facts, some)
    Q, D = unit(5, 4), unit(40, 4)
    expected, found = trec(task, Q, D, some), values(task, queries=Q, documents=D)
    assert found == pytest.approx({"map": expected["map"], "mrr": expected["recip_rank"]}, abs=1e-9)


def test_queries_without_candidates_are_not_judged() -> None:
    grades: dict[str, dict[str, float]] = {"a": {"x": 1}, "b": {"y": 1}}
    texts, documents = {"a": "a", "b": "b"}, {"x": "x", "y": "y"}
    task = Reranking.of("some", texts, documents, grades, candidates={"b": ["y", "x"]})
    assert (task.items, task.texts()["queries"].texts) == (1, ("b",))
    vectors = np.array([[1, 0], [0.8, 0.6]], np.float32)
    assert values(task, queries=vectors[:1], documents=vectors)["map"] == pytest.approx(0.5)
    assert len(task.fingerprint) == 16
    assert task.fingerprint is task.fingerprint, "millions of documents are hashed once, and not for every model"
    with pytest.raises(DatasetError, match="no query has a relevant document and candidates"):
        Reranking.of("none", texts, documents, grades, candidates={"c": ["y"]})


def test_a_candidate_that_is_named_twice_is_ranked_once() -> None:
    grades, texts = {"q": {"x": 1}}, {"x": "x", "y": "y"}
    task = Ranking.of("twice", {"q": "q"}, texts, grades, candidates={"q": ["x", "x", "y"]})
    vectors = np.array([[1, 0], [0.8, 0.6]], np.float32)
    assert set(values(task, queries=vectors[:1], documents=vectors).values()) == {1.0}


def test_a_candidate_that_is_no_document_is_named() -> None:
    with pytest.raises(DatasetError, match="the candidate 'z' is not among the documents"):
        Ranking.of("gone", {"q": "q"}, {"x": "x"}, {"q": {"x": 1}}, candidates={"q": ["x", "z"]})


def test_document_with_the_id_of_the_query_can_be_left_out() -> None:
    ids = ("a", "b", "c")
    for skip, expected in ((False, 1 / np.log2(3)), (True, 1.0)):
        task = Ranking("same", ids, ids, ids, ids, {"a": {"b": 1}}, skip_same_id=skip)
        vectors = np.array([[1, 0], [0.8, 0.6], [0, 1]], np.float32)
        assert values(task, queries=vectors[:1], documents=vectors)["ndcg@10"] == pytest.approx(expected)


def test_tasks_that_differ_in_the_ids_of_documents_have_other_fingerprints() -> None:
    def task(ids: tuple[str, ...], **settings: Any) -> Ranking:  # noqa: ANN401 - of `Ranking`
        return Ranking("search", ("q",), ("a dog",), ids, ("a puppy", "stocks"), {"q": {"x": 1}}, **settings)

    tasks = [task(("x", "y")), task(("y", "x")), task(("x", "y"), skip_same_id=True)]
    tasks += [task(("x", "y"), candidates={"q": ids}) for ids in (["x"], ["x", "y"])]
    assert len({each.fingerprint for each in tasks}) == len(tasks)
    assert task(("x", "y")).fingerprint == tasks[0].fingerprint


def repeated(counts: NDArray[Any]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(counts)), counts.astype(int))


def test_measures_of_counts_are_those_of_repeated_items() -> None:
    scores, gold = np.round(RANDOM.random(60), 1), RANDOM.integers(2, size=60).astype(float)
    classes, clusters = RANDOM.integers(4, size=60), RANDOM.integers(5, size=60)
    counts = np.concatenate(list(draws(60, 5, [1])))
    assert counts.shape == (5, 60)
    assert (counts.sum(axis=1) == 60).all()
    precision, v, mean = average_precision(scores, gold), v_measure(classes, clusters), mean_of(scores)
    for i, own in enumerate(map(repeated, counts)):
        expected = metrics.average_precision_score(gold[own], scores[own])
        assert precision(counts)[i] == pytest.approx(expected, abs=1e-12)
        assert v(counts)[i] == pytest.approx(metrics.v_measure_score(classes[own], clusters[own]), abs=1e-12)
        assert mean(counts)[i] == pytest.approx(scores[own].mean())


def test_draws_depend_on_the_seed_alone_and_not_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.concatenate(list(draws(7, 9, [3, 4])))
    monkeypatch.setattr("ensembed.tasks.task._BLOCK", 14)
    assert np.array_equal(np.concatenate(list(draws(7, 9, [3, 4]))), whole)
    assert not np.array_equal(np.concatenate(list(draws(7, 9, [3, 5]))), whole)


def test_pairs_are_scored_by_their_cosines() -> None:
    texts = names("t", 30)
    U = unit(30, 5)
    cosines = (U[:-1] * U[1:]).sum(axis=1).astype(float)
    grades = cosines + 0.1 * RANDOM.random(29)
    graded = GradedPairs(Pairs("graded", texts[:-1], texts[1:], grades))
    found = values(graded, texts=U)
    assert found["pearson"] == pytest.approx(pearson(cosines, grades), abs=1e-6)
    assert found["spearman"] == pytest.approx(spearman(cosines, grades), abs=1e-6)
    verdicts = (grades > np.median(grades)).astype(float)
    classes = PairClassification(Pairs("classes", texts[:-1], texts[1:], verdicts))
    assert values(classes, texts=U)["ap"] == pytest.approx(metrics.average_precision_score(verdicts, cosines), abs=1e-6)


def groups(rows: int, labels: int, noise: float) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    which = np.arange(rows) % labels
    return np.asarray(unit_rows(unit(labels, 16)[which] + noise * unit(rows, 16))), tuple(f"label {i}" for i in which)


def test_clear_groups_are_found_and_learned() -> None:
    U, labels = groups(120, 4, 0.2)
    texts = names("t", 120)
    found = values(Clustering("clear", texts, labels), texts=U)
    assert found["own"] == 1
    assert found["v-measure"] > 0.8  # of three starts one may end in a worse place
    task = Classification("clear", texts, labels)
    assert task.items == 60  # every second text of each label
    assert values(task, texts=U) == {"centroid": 1, "knn": 1, "logistic": 1}
    apart = Classification("apart", texts[:20], labels[:20], texts[20:], labels[20:])
    assert apart.items == 20
    assert values(apart, texts=U[:20], train=U[20:]) == {"centroid": 1, "knn": 1, "logistic": 1}


def test_too_few_texts_for_clusters_have_the_other_figures() -> None:
    U, labels = groups(8, 2, 0.2)
    task = Clustering("few", names("t", 8), labels)
    assert values(task, texts=U) == {"v-measure": 1}
    with pytest.raises(DatasetError, match="few: 8 texts are too few for clusters: take 12 or more"):
        task.statistic("own", {"texts": U})


def test_neighbours_and_centroids_are_those_of_scikit_learn() -> None:
    U, labels = groups(300, 5, 1.5)
    y = np.unique(labels, return_inverse=True)[1]
    found = nearest_neighbours(U[:200], y[:200], U[200:], k=1)
    expected = KNeighborsClassifier(1, metric="cosine", algorithm="brute").fit(U[:200], y[:200]).predict(U[200:])
    assert np.array_equal(found, expected)
    voted = nearest_neighbours(U[:200], y[:200], U[200:], k=5)
    theirs = KNeighborsClassifier(5, metric="cosine", algorithm="brute").fit(U[:200], y[:200]).predict(U[200:])
    assert (voted == theirs).mean() > 0.85  # equal votes are decided by distance here, by the label's number there
    centres = unit_rows(np.array([U[:200][y[:200] == label].mean(axis=0) for label in range(5)]))
    assert np.array_equal(nearest_centroid(U[:200], y[:200], U[200:]), (U[200:] @ centres.T).argmax(axis=1))


def test_a_long_label_takes_no_memory_for_the_other_texts() -> None:
    labels = (*["a", "b"] * 20, "c" * 1_000_000, "c" * 1_000_000)
    texts = tuple(f"text {i}" for i in range(len(labels)))
    vectors = {"texts": unit_rows(np.random.default_rng(0).standard_normal((len(labels), 4)).astype(np.float32))}
    tracemalloc.start()
    try:
        for task, measure in (
            (Classification("long", texts, labels), "centroid"),
            (Clustering("long", texts, labels), "v-measure"),
        ):
            task.statistic(measure, vectors)
        assert tracemalloc.get_traced_memory()[1] < 50e6  # 42 texts of a million characters take 168 MB as an array
    finally:
        tracemalloc.stop()
