"""Encoders in MTEB: its real tasks on data of this machine, without the hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest

from ensembed import Ensemble
from ensembed.errors import DatasetError, InputError
from ensembed.integrations.mteb import MtebModel, local_sts
from ensembed.integrations.sentence_transformers import to_sentence_transformer
from ensembed.methods import Concat
from ensembed.models.ensemble import MetaEncoder
from ensembed.sts import Dataset, Pairs, evaluate
from ensembed.sts.find import find_sts
from ensembed.testing import SENTENCES, Recorder

# MTEB names a newer version of STS-B; the one that everybody reports is meant here.
pytestmark = pytest.mark.filterwarnings("ignore:The task 'STSBenchmark.*' is superseded:UserWarning")

METADATA = mteb.get_task("STSBenchmark").metadata


@pytest.fixture
def model() -> MetaEncoder:
    return Ensemble(["demo?dim=8&seed=1", "demo?dim=10&seed=2"]).fit(SENTENCES, Concat())


@pytest.fixture
def pairs() -> Dataset:
    texts = [f"{text} {i}" for i in range(5) for text in SENTENCES]
    return Dataset.of(Pairs("mine", tuple(texts), tuple(texts[::-1]), np.arange(float(len(texts))) % 6))


def scores(result: Any, split: str = "test") -> list[float]:  # noqa: ANN401 - the library's
    (values,) = result.task_results[0].scores[split]
    return [values[name] for name in ("cosine_pearson", "cosine_spearman", "pearson", "spearman", "main_score")]


def run(model: Any, *tasks: Any, **options: Any) -> Any:  # noqa: ANN401 - the library's
    return mteb.evaluate(model, list(tasks), **{"cache": None, "show_progress_bar": False} | options)


def ours(model: Any, dataset: Dataset) -> list[float]:  # noqa: ANN401 - a model of either kind
    score = evaluate(model, dataset, "all").score
    return [score.pearson, score.spearman, score.pearson, score.spearman, score.spearman]


def test_model_satisfies_the_protocol_of_mteb(model: MetaEncoder) -> None:
    wrapped = MtebModel(model)
    assert isinstance(wrapped, mteb.models.EncoderProtocol)
    meta = wrapped.mteb_model_meta
    assert isinstance(meta, mteb.models.ModelMeta)
    assert meta.name == "ensembed/conc-demo-dim-8-seed-1-demo-dim-10-seed-2"
    assert (meta.revision, meta.embed_dim, meta.similarity_fn_name) == (model.spec.key, 18, "cosine")
    assert meta.model_validate(meta.model_dump()) == meta  # which `create_empty` does not check
    assert json.loads(json.dumps(meta.to_dict()))["name"] == meta.name
    assert MtebModel(model, "me/mine").mteb_model_meta.name == "me/mine"
    for wrong in ("mine", "a/b/c", "a b/c", "/mine"):
        with pytest.raises(InputError, match="organization/name"):
            MtebModel(model, wrong)


def test_another_fit_has_another_revision(model: MetaEncoder) -> None:
    assert MtebModel(model).mteb_model_meta.revision != MtebModel(model.truncate(2)).mteb_model_meta.revision


def test_encode_gives_the_vectors_of_the_model(model: MetaEncoder) -> None:
    texts = list(SENTENCES)
    batches: list[dict[str, list[str]]] = [{"text": texts[:2]}, {"text": texts[2:]}, {"text": []}]
    vectors = MtebModel(model).encode(
        batches, task_metadata=METADATA, hf_split="test", hf_subset="default", batch_size=2
    )
    np.testing.assert_array_equal(vectors, model.encode(texts))
    empty = MtebModel(model).encode([], task_metadata=METADATA, hf_split="test", hf_subset="default")
    assert empty.shape == (0, 18)


def test_images_and_rounded_vectors_are_refused(model: MetaEncoder) -> None:
    about = {"task_metadata": METADATA, "hf_split": "test", "hf_subset": "default"}
    with pytest.raises(InputError, match=r"'STSBenchmark' has batches of \['image'\]"):
        MtebModel(model).encode([{"image": [0]}], **about)
    with pytest.raises(InputError, match="precision='int8' is not made here"):
        MtebModel(model).encode([{"text": ["a"]}], precision="int8", **about)
    MtebModel(model).encode([{"text": ["a"]}], precision="float32", **about)


def test_sts_task_gives_our_own_score(model: MetaEncoder, pairs: Dataset) -> None:
    result = run(MtebModel(model), local_sts("STSBenchmark", pairs))
    np.testing.assert_allclose(scores(result), ours(model, pairs), rtol=0, atol=1e-6)
    assert result.model_name == MtebModel(model).mteb_model_meta.name
    assert result.task_results[0].dataset_revision == pairs.fingerprint


def test_several_tasks_and_splits_run_together(model: MetaEncoder, pairs: Dataset) -> None:
    half = Dataset.of(Pairs("half", pairs.parts[0].sentences1[:20], pairs.parts[0].sentences2[:20], np.arange(20.0)))
    both = local_sts("STSBenchmark.v2", {"validation": half, "test": pairs})
    two_parts = Dataset("two", (*half.parts, *pairs.parts))
    result = run(MtebModel(model), both, local_sts("STS12", two_parts))
    names = [task.task_name.partition("-local-")[0] for task in result.task_results]
    assert names == ["STSBenchmark.v2", "STS12"]
    for split, data in (("validation", half), ("test", pairs)):
        np.testing.assert_allclose(scores(result, split), ours(model, data), rtol=0, atol=1e-6)
    pooled = result.task_results[1].scores["test"][0]["cosine_spearman"]
    assert pooled == pytest.approx(evaluate(model, two_parts, "all").score.spearman, abs=1e-6)


def test_mteb_keeps_results_by_revision(model: MetaEncoder, pairs: Dataset, tmp_path: Path) -> None:
    cache = mteb.ResultCache(tmp_path)
    recorder = Recorder(model)
    first = run(MtebModel(recorder), local_sts("STSBenchmark", pairs), cache=cache)
    seen = len(recorder.seen)
    again = run(MtebModel(recorder), local_sts("STSBenchmark", pairs), cache=cache)
    assert len(recorder.seen) == seen
    assert scores(again) == pytest.approx(scores(first), abs=1e-6)  # kept to six digits
    other = Recorder(model.truncate(1))
    assert scores(run(MtebModel(other), local_sts("STSBenchmark", pairs), cache=cache)) != scores(first)
    assert other.seen


def test_results_on_other_pairs_have_another_name(model: MetaEncoder, pairs: Dataset, tmp_path: Path) -> None:
    cache = mteb.ResultCache(tmp_path)
    part = pairs.parts[0]
    reversed_pairs = Dataset.of(Pairs("mine", part.sentences1, part.sentences2, part.scores[::-1].copy()))
    for data in (pairs, reversed_pairs):
        values = scores(run(MtebModel(model), local_sts("STSBenchmark", data), cache=cache))
        np.testing.assert_allclose(values, ours(model, data), rtol=0, atol=1e-5)


def test_saved_model_is_opened_by_its_folder(model: MetaEncoder, tmp_path: Path) -> None:
    model.save(tmp_path / "saved")
    assert MtebModel(str(tmp_path / "saved")).model.spec.key == model.spec.key
    assert to_sentence_transformer(tmp_path / "saved", device="cpu").encode(["a dog"]).shape == (1, model.spec.dim)


@pytest.mark.filterwarnings("ignore:The fill_missing parameter is deprecated:DeprecationWarning")  # of mteb, by mteb
@pytest.mark.filterwarnings("ignore:The `get_sentence_embedding_dimension` method:FutureWarning")  # mteb calls it
def test_sentence_transformer_has_the_same_scores(model: MetaEncoder, pairs: Dataset) -> None:
    direct = run(MtebModel(model), local_sts("STSBenchmark", pairs))
    through = run(to_sentence_transformer(model, device="cpu"), local_sts("STSBenchmark", pairs))
    np.testing.assert_allclose(scores(through), scores(direct), rtol=0, atol=1e-6)


def test_classification_task_runs() -> None:
    """Of another kind of task: a word in each text tells its class."""
    import datasets

    task = mteb.get_task("Banking77Classification.v2")
    columns = {"text": [f"{('blue', 'red')[i % 2]} thing {i}" for i in range(60)], "label": [i % 2 for i in range(60)]}
    data = datasets.Dataset.from_dict(columns)
    task.dataset, task.data_loaded = {"default": {"train": data, "test": data}}, True
    (values,) = run(MtebModel("demo?dim=32"), task).task_results[0].scores["test"]
    assert values["accuracy"] > 0.95


def test_retrieval_task_runs() -> None:
    import datasets

    names = [f"{i}" for i in range(12)]
    texts = [f"word{i} is about thing{i}" for i in range(12)]
    data = {
        "corpus": datasets.Dataset.from_dict({"id": names, "title": [""] * 12, "text": texts}),
        "queries": datasets.Dataset.from_dict({"id": names, "text": [f"thing{i}" for i in range(12)]}),
        "relevant_docs": {name: {name: 1} for name in names},
        "top_ranked": None,
    }
    task = mteb.get_task("NFCorpus")
    task.dataset, task.data_loaded = {"default": {"test": data}}, True
    (values,) = run(MtebModel("demo?dim=256"), task).task_results[0].scores["test"]
    assert values["ndcg_at_10"] > 0.95


@pytest.mark.parametrize(
    ("task", "splits", "message"),
    [
        ("STSBenchmrk", {}, "MTEB has no task 'STSBenchmrk'"),
        ("Banking77Classification", {}, "is no STS task in one language: MTEB calls it Classification"),
        ("STS17", {}, "is no STS task in one language"),
        ("STSBenchmark", {"dev": 1}, r"has the splits \['test'\], and not \['dev'\]"),
    ],
)
def test_unsuitable_tasks_and_splits_are_refused(
    pairs: Dataset, task: str, splits: dict[str, int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        local_sts(task, dict.fromkeys(splits or {"test": 1}, pairs))
    with pytest.raises(DatasetError, match="there is no split"):
        local_sts("STSBenchmark", {})


@pytest.mark.real
def test_sts_benchmark_has_our_own_score_with_real_encoders(
    pulled: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("stsb", "wordllama", "glove"):
        pulled(name)
    model = Ensemble(["wordllama", "glove"]).fit([], Concat())
    dataset = find_sts("stsb-test")
    assert len(dataset) == 1379
    result = run(MtebModel(model), local_sts("STSBenchmark", dataset))
    np.testing.assert_allclose(scores(result), ours(model, dataset), rtol=0, atol=1e-6)
    assert scores(result)[-1] > 0.6
