"""Tasks of MTEB, on data of this machine: our figures are those of MTEB's own evaluators."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest
from numpy.typing import NDArray

from ensembed.encoders import AdjustedEncoder, DemoEncoder, Encoder, ObjectEncoder
from ensembed.errors import DatasetError, InputError
from ensembed.integrations.mteb import MtebModel
from ensembed.integrations.mteb_tasks import MtebTask, local_tasks, mteb_tasks
from ensembed.tasks import PairClassification, Ranking, evaluate_tasks, find_tasks
from ensembed.views import ViewStore

pytestmark = pytest.mark.filterwarnings("ignore:The task .* is superseded:UserWarning")


class Noisy:
    """Hashed words, and some noise that depends on the whole text: no two texts have the same vector.

    Pairs with equal cosines are ranked by our rule, but by the rounding of float32 in MTEB.
    """

    def encode(self, texts: list[str]) -> NDArray[np.float64]:
        noise = b"".join(hashlib.shake_256(text.encode()).digest(96) for text in texts)
        return DemoEncoder(48).encode(texts) + np.frombuffer(noise, np.int16).reshape(len(texts), 48) / 2.0**17


MODEL = AdjustedEncoder(ObjectEncoder(Noisy(), name="noisy"), query_prefix="find: ")


def theirs(task: Any, model: Encoder = MODEL) -> dict[str, float]:  # noqa: ANN401 - the library's
    result = mteb.evaluate(MtebModel(model), [task], cache=None, show_progress_bar=False)
    (values,) = result.task_results[0].scores[task.eval_splits[0]]
    return dict(values)


def ours(task: Any, folder: Path, model: Encoder = MODEL) -> dict[str, float]:  # noqa: ANN401 - the library's
    [[result]] = evaluate_tasks({"m": model}, local_tasks(task), resamples=0, store=ViewStore(folder)).results.values()
    return {name: figure.value for name, figure in result.figures.items()}


def filled(name: str, data: Any, subset: str = "default") -> Any:  # noqa: ANN401 - the library's
    task = mteb.get_task(name, eval_splits=["test"], hf_subsets=[subset] if subset != "default" else None)
    task.dataset, task.data_loaded = {subset: {"test": data}}, True
    return task


def retrieval_data(task: Ranking, **more: Any) -> Any:  # noqa: ANN401 - the library's
    import datasets

    documents = {"id": task.document_ids, "title": ["A title"] * len(task.documents), "text": task.documents}
    return {
        "corpus": datasets.Dataset.from_dict(documents),
        "queries": datasets.Dataset.from_dict({"id": task.query_ids, "text": task.queries}),
        "relevant_docs": {query: {id_: int(g) for id_, g in some.items()} for query, some in task.relevance.items()},
        "top_ranked": None,
        **more,
    }


@pytest.fixture(scope="module")
def animals() -> Ranking:
    words = ["dog", "cat", "cow", "fox", "owl", "ant", "bee", "elk", "old", "red", "big", "shy"]
    texts = tuple(f"the {a} {b} {c}" for a in words for b in words for c in words[:6])
    ids = tuple(f"d{i}" for i in range(len(texts)))
    random = np.random.default_rng(0)
    queries = tuple(f"{a} and {b}" for a in words for b in words[:4] if a != b)
    names = tuple(f"q{i}" for i in range(len(queries)))
    relevance = {name: {ids[j]: 1 + j % 2 for j in random.choice(len(ids), 5)} for name in names}
    return Ranking("animals", names, queries, ids, texts, relevance)


def test_retrieval_has_the_scores_of_mteb(animals: Ranking, tmp_path: Path) -> None:
    task = filled("SciFact", retrieval_data(animals))
    found, expected = ours(task, tmp_path), theirs(filled("SciFact", retrieval_data(animals)))
    assert found["ndcg@10"] == pytest.approx(expected["ndcg_at_10"], abs=1e-5)  # which is rounded to five digits
    assert found["map"] == pytest.approx(expected["map_at_1000"], abs=1e-5)
    assert found["recall@100"] == pytest.approx(expected["recall_at_100"], abs=1e-5)


def test_reranking_has_the_scores_of_mteb(animals: Ranking, tmp_path: Path) -> None:
    ranked = {
        query: list(dict.fromkeys([*grades, *animals.document_ids[:30]])) for query, grades in animals.relevance.items()
    }
    data = retrieval_data(animals, top_ranked=ranked)
    found, expected = (
        ours(filled("AskUbuntuDupQuestions", data), tmp_path),
        theirs(filled("AskUbuntuDupQuestions", data)),
    )
    assert found["map"] == pytest.approx(expected["map_at_1000"], abs=1e-5)
    assert found["mrr"] == pytest.approx(expected["mrr_at_1000"], abs=1e-5)


def test_pairs_have_the_scores_of_mteb(tmp_path: Path) -> None:
    import datasets

    words = ["dog", "cat", "cow", "fox", "owl", "ant"]
    pairs = [(f"a {a} is {b}", f"the {c} is {b}", a == c) for a in words for b in words[:3] for c in words]
    first, second, same = zip(*pairs, strict=True)
    columns = {"sentence1": first, "sentence2": second, "labels": [int(value) for value in same]}
    task = filled("PawsXPairClassification", datasets.Dataset.from_dict(columns), "en")
    assert ours(task, tmp_path)["ap"] == pytest.approx(theirs(task)["cosine_ap"], abs=1e-6)
    graded = {"sentence1": first, "sentence2": second, "score": [i % 7 / 2 for i in range(len(first))]}
    sts = filled("STSBenchmark", datasets.Dataset.from_dict(graded))
    found, expected = ours(sts, tmp_path), theirs(sts)
    assert found["spearman"] == pytest.approx(expected["cosine_spearman"], abs=1e-6)
    assert found["pearson"] == pytest.approx(expected["cosine_pearson"], abs=1e-6)


def test_other_tasks_are_run_by_mteb_itself(tmp_path: Path) -> None:
    import datasets

    columns = {"text": [f"{('blue', 'red')[i % 2]} thing {i}" for i in range(60)], "label": [i % 2 for i in range(60)]}
    data = datasets.Dataset.from_dict(columns)
    task = mteb.get_task("Banking77Classification.v2")
    task.dataset, task.data_loaded = {"default": {"train": data, "test": data}}, True
    [one] = local_tasks(task)
    assert isinstance(one, MtebTask)
    assert (one.kind, one.items) == ("mteb", 60)
    results = evaluate_tasks({"m": MODEL, "n": "demo"}, [one], resamples=100, store=ViewStore(tmp_path))
    figures = results.results["m"][0].figures
    assert next(iter(figures)) == "main score"
    assert figures["main score"].value == pytest.approx(theirs(task)["main_score"])
    assert figures["accuracy"].value == figures["main score"].value
    assert results.comparisons() == []


def test_unknown_tasks_and_missing_data_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="MTEB has no task 'SciFcat'"):
        mteb_tasks("SciFcat")
    with pytest.raises(InputError, match="and not of texts alone"):
        mteb_tasks("CIFAR10")
    task = mteb.get_task("SciFact")

    def fail(**_: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(task, "load_data", fail)
    with pytest.raises(
        DatasetError, match="the data of MTEB's task 'SciFact' cannot be loaded: ConnectionError: no net"
    ):
        local_tasks(task)


def test_real_sets_have_the_scores_of_mteb(sts_data: Path, tmp_path: Path) -> None:
    """On scifact and on PAWS-X, which MTEB has, too."""
    import datasets

    if not (sts_data / "tasks").is_dir():
        pytest.skip("no tasks beside the STS data")
    [whole], [paws] = find_tasks("scifact", sts_data), find_tasks("pawsx_en_dev", sts_data)
    assert isinstance(whole, Ranking)
    judged = {id_ for grades in whole.relevance.values() for id_ in grades}  # the others take long to encode
    kept = [i for i, id_ in enumerate(whole.document_ids) if id_ in judged or i % 5 == 0]
    ids, texts = (tuple(column[i] for i in kept) for column in (whole.document_ids, whole.documents))
    scifact = replace(whole, document_ids=ids, documents=texts)
    assert isinstance(paws, PairClassification)
    store = ViewStore(tmp_path)
    [results] = evaluate_tasks({"m": MODEL}, [scifact, paws], resamples=0, store=store).results.values()
    data = retrieval_data(scifact)
    columns = {"id": scifact.document_ids, "title": [""] * len(scifact.documents), "text": scifact.documents}
    data["corpus"] = datasets.Dataset.from_dict(columns)
    expected = theirs(filled("SciFact", data))
    found = {name: figure.value for name, figure in results[0].figures.items()}
    names = {"ndcg@10": "ndcg_at_10", "map": "map_at_1000", "recall@100": "recall_at_100"}
    for name, other in names.items():
        assert found[name] == pytest.approx(expected[other], abs=1e-5)  # which is rounded to five digits
    sentences = {"sentence1": paws.pairs.sentences1, "sentence2": paws.pairs.sentences2}
    pairs = datasets.Dataset.from_dict(sentences | {"labels": paws.pairs.scores.astype(int).tolist()})
    expected = theirs(filled("PawsXPairClassification", pairs, "en"))
    assert results[1].figures["ap"].value == pytest.approx(expected["cosine_ap"], abs=1e-6)
