"""Chroma: collections keep which model filled them, open it again in another process, and refuse another."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb.config import Settings
from small_model import SENTENCES, TEXTS, small_model

from ensembed import load
from ensembed.encoders import open_encoder
from ensembed.errors import InputError, ModelError, SentenceError, StoreError
from ensembed.integrations import chroma as adaptor
from ensembed.integrations.chroma import EnsembedEmbeddingFunction

NAME = "demo?dim=4&seed=2"
CHILD = Path(__file__).with_name("chroma_child.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small_model().save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    """A database on disk, which sends no reports."""
    client = chromadb.PersistentClient(str(tmp_path / "database"), settings=Settings(anonymized_telemetry=False))
    yield client
    client.close()


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """No model of another test is open."""
    yield
    _forget()


def _forget() -> None:
    adaptor._OPEN.clear()
    adaptor._RECENT.clear()


def _filled(client: Any, function: EnsembedEmbeddingFunction) -> Any:  # noqa: ANN401 - Chroma's own
    collection = client.create_collection("sentences", embedding_function=function)
    collection.add(ids=[str(i) for i in range(len(SENTENCES))], documents=SENTENCES)
    return collection


def _reopened(database: Path) -> dict[str, Any]:
    command = [sys.executable, str(CHILD), str(database), "she sees the c"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_function_gives_the_vectors_of_the_model() -> None:
    model = small_model()
    function = EnsembedEmbeddingFunction(model)
    expected = model.encode(TEXTS)
    rows = function(TEXTS)
    assert all(row.dtype == np.float32 for row in rows)
    assert np.array(rows).tobytes() == expected.tobytes()
    assert function.embed_query([TEXTS[0]])[0].tolist() == model.encode([TEXTS[0]])[0].tolist()


@pytest.mark.parametrize(("space", "rounding"), [("l2", 0), ("ip", 0), ("cosine", 1e-6)])
def test_collection_holds_the_vectors_of_the_model(client: Any, space: str, rounding: float) -> None:  # noqa: ANN401 - Chroma's own
    # For cosines Chroma scales vectors to length one, and back when they are read.
    model = small_model()
    collection = client.create_collection(
        "sentences", embedding_function=EnsembedEmbeddingFunction(model), configuration={"hnsw": {"space": space}}
    )
    ids = [str(i) for i in range(len(SENTENCES))]
    collection.add(ids=ids, documents=SENTENCES)
    kept = np.asarray(collection.get(ids=ids, include=["embeddings"])["embeddings"])
    np.testing.assert_allclose(kept, model.encode(SENTENCES), rtol=rounding, atol=rounding)


def test_query_ranks_as_the_model_does(client: Any) -> None:  # noqa: ANN401 - Chroma's own
    model = small_model()
    collection = _filled(client, EnsembedEmbeddingFunction(model))
    assert collection.configuration_json["hnsw"]["space"] == "cosine"
    result = collection.query(query_texts=["she sees the c", "a dog has the b"], n_results=3)
    assert [documents[0] for documents in result["documents"]] == ["she sees the c", "a dog has the b"]
    cosines = model.similarity(["she sees the c"], SENTENCES)[0]
    assert result["distances"][0] == pytest.approx(sorted(1 - cosines)[:3], abs=1e-5)


def test_another_process_opens_the_model_again(client: Any, folder: Path, tmp_path: Path) -> None:  # noqa: ANN401 - Chroma's own
    _filled(client, EnsembedEmbeddingFunction(folder))
    client.close()
    answer = _reopened(tmp_path / "database")
    assert answer["ids"][0] == str(SENTENCES.index("she sees the c"))
    assert answer["count"] == len(SENTENCES) + 1
    np.testing.assert_allclose(answer["vector"], small_model().encode(["a cat sleeps"])[0], rtol=1e-6, atol=1e-6)


def test_another_process_refuses_a_changed_model(client: Any, folder: Path, tmp_path: Path) -> None:  # noqa: ANN401 - Chroma's own
    _filled(client, EnsembedEmbeddingFunction(folder))
    client.close()
    small_model(seed=2).save(folder)
    answer = _reopened(tmp_path / "database")
    assert "is not the one that filled the collection" in answer["error"]
    assert answer["count"] == len(SENTENCES), "nothing is written"


def test_collection_keeps_the_absolute_path_of_the_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    function = EnsembedEmbeddingFunction("model")
    config = function.get_config()
    assert config == {"model": str(folder), "fingerprint": small_model().spec.key}
    assert json.loads(json.dumps(config)) == config
    assert EnsembedEmbeddingFunction(NAME).get_config()["model"] == NAME


def test_reopened_collection_opens_its_model_once(client: Any, folder: Path) -> None:  # noqa: ANN401 - Chroma's own
    _filled(client, EnsembedEmbeddingFunction(folder))
    _forget()
    collection = client.get_collection("sentences")
    collection.query(query_texts=["a dog"])
    (first,) = adaptor._RECENT
    collection.query(query_texts=["a dog"])
    assert list(adaptor._RECENT) == [first]


def test_moved_model_is_an_error_until_it_is_passed_again(client: Any, folder: Path) -> None:  # noqa: ANN401 - Chroma's own
    _filled(client, EnsembedEmbeddingFunction(folder))
    moved = folder.with_name("elsewhere")
    shutil.move(folder, moved)
    _forget()
    collection = client.get_collection("sentences")
    with pytest.raises(ValueError, match=r"is not in .* any more"):
        collection.query(query_texts=["a dog"])
    function = EnsembedEmbeddingFunction(moved)
    function.check(collection)
    collection.modify(configuration={"embedding_function": function})
    _forget()
    collection = client.get_collection("sentences")
    assert collection.configuration_json["embedding_function"]["config"]["model"] == str(moved)
    assert collection.query(query_texts=["she sees the c"])["documents"][0][0] == "she sees the c"


def test_documents_and_queries_get_what_the_model_was_trained_with(client: Any) -> None:  # noqa: ANN401 - Chroma's own
    model = open_encoder(f"{NAME}&query_prefix=query: &document_prefix=passage: ")
    function = EnsembedEmbeddingFunction(model.spec.name)
    _filled(client, function)
    _forget()
    other = EnsembedEmbeddingFunction(f"{NAME}&query_prefix=ask: &document_prefix=passage: ")  # equal documents
    collection = client.get_collection("sentences")
    result = collection.query(query_texts=["she sees the c"], n_results=len(SENTENCES), include=["distances"])
    query, documents = model.encode_query(["she sees the c"]), model.encode_document(SENTENCES)
    cosines = model.similarity(query, documents)[0]
    assert result["distances"][0] == pytest.approx(sorted(1 - cosines), abs=1e-5)
    other.check(collection)  # the documents are the same
    with pytest.raises(ModelError, match="not the one that filled the collection"):
        EnsembedEmbeddingFunction(NAME).check(collection)


def test_collection_of_plain_vectors_keeps_them() -> None:
    """Before the function treated queries and documents apart, collections had plain vectors and the key of these."""
    name = f"{NAME}&query_prefix=query: &document_prefix=passage: "
    _forget()
    for _ in range(2):
        again = EnsembedEmbeddingFunction.build_from_config({"model": name, "fingerprint": open_encoder(NAME).spec.key})
        for rows in (again(["a dog"]), again.embed_query(["a dog"])):
            assert rows[0].tolist() == open_encoder(NAME).encode("a dog").tolist()
        assert "queries" not in again.get_config()
        EnsembedEmbeddingFunction(name)


def test_check_refuses_another_model_that_chroma_accepts(client: Any) -> None:  # noqa: ANN401 - Chroma's own
    _filled(client, EnsembedEmbeddingFunction(small_model()))
    other = EnsembedEmbeddingFunction(small_model(seed=2))
    collection = client.get_or_create_collection("sentences", embedding_function=other)
    with pytest.raises(ModelError, match="not the one that filled the collection"):
        other.check(collection)
    EnsembedEmbeddingFunction(small_model()).check(collection)
    with pytest.raises(ModelError, match="not the one that filled the collection"):
        other.validate_config_update(EnsembedEmbeddingFunction(small_model()).get_config(), other.get_config())


def test_model_in_memory_has_to_be_passed_again(client: Any) -> None:  # noqa: ANN401 - Chroma's own
    model = small_model()
    _filled(client, EnsembedEmbeddingFunction(model))
    assert client.get_collection("sentences").query(query_texts=["she sees the c"])["documents"][0][0] == (
        "she sees the c"
    )
    _forget()
    with pytest.raises(ValueError, match="made with a model in memory"):
        client.get_collection("sentences").query(query_texts=["she sees the c"])
    collection = client.get_collection("sentences", embedding_function=EnsembedEmbeddingFunction(model))
    assert collection.query(query_texts=["she sees the c"])["documents"][0][0] == "she sees the c"


def test_model_whose_vectors_vary_is_refused(folder: Path) -> None:
    for missing in ("error", "drop"):
        model = load(folder, missing=missing)
        if missing == "drop":
            with pytest.raises(StoreError, match="not always the same"):
                EnsembedEmbeddingFunction(model)
        else:
            function = EnsembedEmbeddingFunction(model)
    # It would have taken the place of the other, which has the same fingerprint.
    assert EnsembedEmbeddingFunction.build_from_config(function.get_config()).model is function.model


def test_collection_cannot_grant_trust() -> None:
    config = {"model": "openai:https://example.org/v1#model", "fingerprint": "0" * 32}
    with pytest.raises(ModelError, match="sends your sentences"):
        EnsembedEmbeddingFunction.build_from_config(config)


@pytest.mark.parametrize(
    "config", [{}, {"model": "demo"}, {"model": 3, "fingerprint": "a"}, {"model": "", "fingerprint": "a"}]
)
def test_malformed_configuration_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="has a 'model' and a 'fingerprint'"):
        EnsembedEmbeddingFunction.build_from_config(config)


def test_bad_input_is_refused() -> None:
    function = EnsembedEmbeddingFunction(NAME)
    with pytest.raises(ValueError, match="non-empty"):  # Chroma's own
        function([])
    with pytest.raises(SentenceError, match="not a string"):
        function(["a", None])
    assert function([""])[0].tolist() == [0.0] * 4
