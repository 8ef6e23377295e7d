"""Models on tasks: vectors come through the store in their roles, ensembles are compared with the best member."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensembed import Ensemble
from ensembed.cli import main
from ensembed.encoders import DemoEncoder, Encoder, open_encoder
from ensembed.errors import InputError
from ensembed.methods import Concat
from ensembed.numerics.row_matrices import unit_rows
from ensembed.sts import Pairs
from ensembed.tasks import Ranking, TaskResults, evaluate_tasks, find_tasks, pair_task
from ensembed.tasks.task import Texts
from ensembed.tasks.task_evaluation import text_vectors
from ensembed.testing import Recorder
from ensembed.views import ViewStore

ANIMALS = ("dog", "cat", "cow", "fox", "owl", "ant", "bee", "elk")
DOCUMENTS = tuple(f"the {animal} is {state}" for animal in ANIMALS for state in ("here", "asleep", "old"))


@pytest.fixture
def search() -> Ranking:
    relevance = {f"q{i}": {f"d{j}": 1 for j in range(3 * i, 3 * i + 3)} for i in range(len(ANIMALS))}
    ids = tuple(f"q{i}" for i in range(len(ANIMALS))), tuple(f"d{j}" for j in range(len(DOCUMENTS)))
    return Ranking("animals", ids[0], ANIMALS, ids[1], DOCUMENTS, relevance)


def test_ensemble_is_compared_with_the_best_member(search: Ranking, tmp_path: Path) -> None:
    members = ["demo?dim=4&seed=1", "demo?dim=256&seed=2"]
    model = Ensemble(members).fit([], Concat())
    pairs = pair_task(
        Pairs("pairs", ("a dog", "a cat", "a cow"), ("the dog", "an owl", "the cow"), np.array([1, 0, 1]))
    )
    models: dict[str, Any] = {"both": model} | {name: name for name in members}
    results = evaluate_tasks(models, [search, pairs], resamples=300, store=ViewStore(tmp_path))
    assert [result.task for result in results.results["both"]] == ["animals", "pairs"]
    best = results.results[members[1]][0].figures["ndcg@10"].value
    assert best == 1.0  # every word has a direction of its own in 256 dimensions
    [first, *_, last] = results.comparisons()
    own = results.results["both"][0].figures["ndcg@10"]
    assert (first.model, first.member, first.task, first.figure) == ("both", members[1], "animals", "ndcg@10")
    assert first.difference == pytest.approx(own.value - best)
    assert first.low <= first.difference <= first.high
    assert (last.task, last.model) == ("mean", "both")
    mean = np.mean([result.figures[result.main].value for result in results.results["both"]])
    assert results.mean("both").value == pytest.approx(float(mean))
    data = json.loads(json.dumps(results.to_json()))
    assert data["models"]["both"][0]["figures"]["ndcg@10"] == own.to_json()
    assert len(data["comparisons"]) == 5  # three figures of the search, one of the pairs, the mean


def test_figures_do_not_depend_on_other_models_or_tasks(search: Ranking, tmp_path: Path) -> None:
    store = ViewStore(tmp_path)
    pairs = pair_task(Pairs("pairs", ("a dog", "a cat"), ("the dog", "an owl"), np.array([1, 0])))
    alone = evaluate_tasks({"m": "demo?dim=4"}, [search], resamples=50, store=store)
    among = evaluate_tasks({"o": "demo?dim=8", "m": "demo?dim=4"}, [pairs, search], resamples=50, store=store)
    one, other = alone.results["m"][0], among.results["m"][1]
    assert one.to_json() == other.to_json()
    low, high = one.figures["map"].interval
    assert low < one.figures["map"].value < high


def test_nothing_is_encoded_twice_and_roles_are_kept(search: Ranking, tmp_path: Path) -> None:
    store = ViewStore(tmp_path)
    inner = Recorder(open_encoder("demo?dim=8"))
    evaluate_tasks({"m": inner}, [search], resamples=0, store=store)
    seen = len(inner.seen)
    assert seen
    evaluate_tasks({"m": inner}, [search], resamples=0, store=store)
    assert len(inner.seen) == seen
    plain = evaluate_tasks({"m": "demo?dim=64"}, [search], resamples=0, store=store)
    prefixed = evaluate_tasks({"m": "demo?dim=64&query_prefix=ant bee "}, [search], resamples=0, store=store)
    values = [results.results["m"][0].figures["ndcg@10"].value for results in (plain, prefixed)]
    assert values[1] < values[0]  # every query speaks of ants and bees


def test_blank_texts_have_the_vector_that_the_model_gives_them(search: Ranking, tmp_path: Path) -> None:
    """Corpora leave blank sentences out, which moved the vectors behind them to other texts."""
    store, ids, documents = ViewStore(tmp_path), ("blank", *search.document_ids), ("", *search.documents)
    with_blank = replace(search, document_ids=ids, documents=documents)
    results = [evaluate_tasks({"m": "demo?dim=64"}, [task], resamples=0, store=store) for task in (search, with_blank)]
    plain, blank = (
        {name: figure.value for name, figure in result.results["m"][0].figures.items()} for result in results
    )
    assert blank == plain
    vectors = text_vectors(Blank(dim=8), Texts("text", ("a dog", " ", "a cat")), store=store)
    np.testing.assert_allclose(vectors, unit_rows(Blank(dim=8).encode(["a dog", "", "a cat"])), atol=1e-6)


class Blank(DemoEncoder):
    """Gives an empty text a vector, as transformers do."""

    def embed(self, sentences: list[str]) -> Any:  # noqa: ANN401 - what embed gives
        return super().embed([sentence or "nothing" for sentence in sentences])


def test_few_texts_with_labels_are_classified(tmp_path: Path) -> None:
    (tmp_path / "few.tsv").write_text("".join(f"{label} {i}\t{label}\n" for i in range(3) for label in ("cat", "dog")))
    results = evaluate_tasks({"m": "demo"}, find_tasks(str(tmp_path / "few.tsv")), store=ViewStore(tmp_path / "views"))
    classes, clusters = results.results["m"]
    assert classes.figures["knn"].value >= 0
    assert list(clusters.figures) == ["v-measure"]


def test_without_resamples_there_is_neither_interval_nor_test(search: Ranking, tmp_path: Path) -> None:
    model = Ensemble(["demo?dim=4"]).fit([], Concat())
    models: dict[str, Encoder | str] = {"both": model, "one": "demo?dim=4"}
    results = evaluate_tasks(models, [search], resamples=0, store=ViewStore(tmp_path))
    assert results.comparisons() == []
    assert set(results.results["one"][0].figures["map"].to_json()) == {"value"}
    assert TaskResults({"one": results.results["one"]}).comparisons() == []
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"resamples": -1}, "resamples must be a whole number of at least 0, not -1"),
        ({"resamples": 2.5}, "resamples must be a whole number of at least 0, not 2.5"),
        ({"seed": -1}, "seed must be a whole number of at least 0, not -1"),
    ]
    for settings, message in wrong:
        with pytest.raises(InputError, match=message):
            evaluate_tasks(models, [search], **settings)
    with pytest.raises(InputError, match="there is no task to score the models on"):
        evaluate_tasks(models, [])


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "animals"
    folder.mkdir()
    (folder / "docs.tsv").write_text("".join(f"d{j}\t{text}\n" for j, text in enumerate(DOCUMENTS)))
    (folder / "queries.tsv").write_text("".join(f"q{i}\t{text}\n" for i, text in enumerate(ANIMALS)))
    judged = [(i, j) for i in range(len(ANIMALS)) for j in range(3 * i, 3 * i + 3)]
    (folder / "qrels.tsv").write_text("".join(f"q{i}\td{j}\t1\n" for i, j in judged))
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("5\ta dog\tthe dog\n0\ta cat\tan owl\n3\ta cow\tthe cow\n")
    model = tmp_path / "model"
    Ensemble(["demo?dim=4&seed=1", "demo?dim=256&seed=2"]).fit([], Concat()).save(model)
    how = [str(model), "demo?dim=256&seed=2", "--task", str(folder), "--pairs", str(pairs), "--resamples", "100", "-q"]
    assert main(["evaluate", *how, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    sts, task = data["models"][str(model)]
    assert (sts["dataset"], task["task"], task["kind"], task["items"]) == ("pairs", "animals", "retrieval", 8)
    assert task["main"] == "ndcg@10"
    assert [found["figure"] for found in data["comparisons"]] == ["ndcg@10", "map", "recall@100"]
    assert main(["evaluate", *how, "--parts"]) == 0
    printed = capsys.readouterr().out
    assert "animals ndcg@10" in printed
    assert "Against the best single encoder" in printed
    assert "recall@100" in printed
    assert "Pearson/Spearman x 100" in printed
    assert main(["evaluate", "demo", "--task", str(tmp_path / "nothing")]) == 1
    assert "there is no task" in capsys.readouterr().err


def test_sets_beside_the_project_have_the_counts_of_their_readme(sts_data: Path) -> None:
    if not (sts_data / "tasks").is_dir():
        pytest.skip("no tasks beside the STS data")
    counts = {"scifact": 300, "scifact:train": 809, "cisi": 76, "cacm": 52, "trecqa": 68, "trecqa:dev": 65}
    counts |= {"pawsx_en_dev": 2000, "clss_sentence2phrase_train": 500}
    assert {name: find_tasks(name, sts_data)[0].items for name in counts} == counts
    classes, clusters = find_tasks("banking77", sts_data)
    assert (classes.items, clusters.items) == (3080, 3080)
