"""Haystack: both embedders give the model's vectors, in real pipelines that are written down and read back."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_model import SENTENCES, TEXTS, small_model

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"  # read when Haystack is imported

from haystack import Document, Pipeline
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.components.writers import DocumentWriter
from haystack.core.errors import DeserializationError
from haystack.document_stores.in_memory import InMemoryDocumentStore

from ensembed.errors import InputError, ModelError
from ensembed.integrations.haystack import EnsembedDocumentEmbedder, EnsembedTextEmbedder

NAME = "demo?dim=4&seed=2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small_model().save(tmp_path / "model")
    return tmp_path / "model"


def test_embedders_give_the_vectors_of_the_model() -> None:
    model = small_model()
    documents = [Document(content=text) for text in TEXTS]
    embedded = EnsembedDocumentEmbedder(model).run(documents)["documents"]
    expected = model.encode(TEXTS)
    assert np.array([document.embedding for document in embedded], np.float32).tobytes() == expected.tobytes()
    assert {type(value) for document in embedded for value in document.embedding} == {float}
    assert [document.content for document in embedded] == TEXTS
    assert all(document.embedding is None for document in documents), "the documents that came in are not changed"
    assert EnsembedTextEmbedder(model).run(TEXTS[4]) == {"embedding": model.encode([TEXTS[4]])[0].tolist()}


def test_empty_list_and_document_without_content() -> None:
    embedder = EnsembedDocumentEmbedder(NAME)
    assert embedder.run([]) == {"documents": []}
    assert embedder.run([Document(content=None)])["documents"][0].embedding == [0.0] * 4
    assert EnsembedTextEmbedder(NAME).run("") == {"embedding": [0.0] * 4}


def test_asynchronous_methods_give_the_same_vectors() -> None:
    model, documents = small_model(), [Document(content=text) for text in TEXTS]
    embedder, text_embedder = EnsembedDocumentEmbedder(model), EnsembedTextEmbedder(model)
    assert asyncio.run(embedder.run_async(documents)) == embedder.run(documents)
    assert asyncio.run(text_embedder.run_async("a dog")) == text_embedder.run("a dog")


def test_meta_fields_prefix_and_suffix_are_embedded() -> None:
    model = small_model()
    embedder = EnsembedDocumentEmbedder(
        model,
        prefix="the ",
        suffix=" sees",
        meta_fields_to_embed=["title", "year", "none"],
        embedding_separator=" has ",
    )
    document = Document(content="a cat", meta={"year": 2020, "title": "she", "none": None, "other": "dog"})
    (embedded,) = embedder.run([document])["documents"]
    assert embedded.embedding == model.encode(["the she has 2020 has a cat sees"])[0].tolist()
    text = EnsembedTextEmbedder(model, prefix="the ", suffix=" sees").run("a cat")["embedding"]
    assert text == model.encode(["the a cat sees"])[0].tolist()


def _pipelines(model: Any) -> tuple[Pipeline, Pipeline, InMemoryDocumentStore]:  # noqa: ANN401 - whatever an embedder takes
    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    index = Pipeline()
    index.add_component("embedder", EnsembedDocumentEmbedder(model, progress_bar=False))
    index.add_component("writer", DocumentWriter(store))
    index.connect("embedder.documents", "writer.documents")
    query = Pipeline()
    query.add_component("embedder", EnsembedTextEmbedder(model))
    query.add_component("retriever", InMemoryEmbeddingRetriever(store, top_k=3, scale_score=False))
    query.connect("embedder.embedding", "retriever.query_embedding")
    return index, query, store


def test_pipeline_ranks_as_the_model_does(folder: Path) -> None:
    index, query, store = _pipelines(str(folder))
    index.run({"embedder": {"documents": [Document(content=sentence) for sentence in SENTENCES]}})
    assert store.count_documents() == len(SENTENCES)
    hits = query.run({"embedder": {"text": "she sees the c"}})["retriever"]["documents"]
    cosines = small_model().similarity(["she sees the c"], SENTENCES)[0]
    assert hits[0].content == "she sees the c"
    assert [hit.score for hit in hits] == pytest.approx(sorted(cosines.tolist(), reverse=True)[:3], abs=1e-5)


def test_pipeline_is_written_to_yaml_and_read_back(folder: Path) -> None:
    index, query, _ = _pipelines(folder)
    for pipeline in (index, query):
        text = pipeline.dumps()
        assert str(folder) in text
        assert "trust" not in text
        with pytest.raises(DeserializationError, match="allow"):
            Pipeline.loads(text)
        again = Pipeline.loads(text, allowed_modules=["ensembed.integrations.*"])
        assert again.to_dict() == pipeline.to_dict()
    result = Pipeline.loads(query.dumps(), allowed_modules=["ensembed.integrations.*"])
    vector = result.get_component("embedder").run("a dog")["embedding"]
    assert vector == small_model().encode(["a dog"])[0].tolist()


def test_every_setting_is_written_and_read_back() -> None:
    embedder = EnsembedDocumentEmbedder(
        NAME,
        prefix="p",
        suffix="s",
        meta_fields_to_embed=["title"],
        embedding_separator="|",
        progress_bar=False,
        threads=1,
    )
    data = embedder.to_dict()
    assert data["init_parameters"] == {
        "model": NAME,
        "prefix": "p",
        "suffix": "s",
        "meta_fields_to_embed": ["title"],
        "embedding_separator": "|",
        "progress_bar": False,
        "threads": 1,
    }
    assert EnsembedDocumentEmbedder.from_dict(data).to_dict() == data
    text = EnsembedTextEmbedder(NAME, prefix="p", suffix="s").to_dict()
    assert EnsembedTextEmbedder.from_dict(text).to_dict() == text


def test_model_is_opened_when_it_is_needed(tmp_path: Path) -> None:
    embedder = EnsembedTextEmbedder(tmp_path / "later")
    with pytest.raises(ModelError, match="not a saved model"):
        embedder.warm_up()
    small_model().save(tmp_path / "later")
    embedder.warm_up()
    first = embedder.encoder
    embedder.warm_up()
    assert embedder.encoder is first


def test_yaml_cannot_grant_trust() -> None:
    data = EnsembedTextEmbedder("openai:https://example.org/v1#model", trust=True).to_dict()
    with pytest.raises(ModelError, match="sends your sentences"):
        EnsembedTextEmbedder.from_dict(data).run("a dog")
    data["init_parameters"]["trust"] = True  # as somebody else could write it
    with pytest.raises(InputError, match="cannot ask for trust"):
        EnsembedTextEmbedder.from_dict(data)


def test_model_in_memory_cannot_be_written_to_yaml() -> None:
    with pytest.raises(InputError, match=r"model\.save\(folder\)"):
        EnsembedTextEmbedder(small_model()).to_dict()


def test_bad_input_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a string, not list"):
        EnsembedTextEmbedder(NAME).run(["a dog"])
    for bad in ("a dog", ["a dog"], [Document(content="a"), "b"]):
        with pytest.raises(TypeError, match="takes a list of documents"):
            EnsembedDocumentEmbedder(NAME).run(bad)
    with pytest.raises(InputError, match="list of names"):
        EnsembedDocumentEmbedder(NAME, meta_fields_to_embed="title")  # type: ignore[arg-type] # it is refused
    with pytest.raises(InputError, match="a model is"):
        EnsembedTextEmbedder("")
