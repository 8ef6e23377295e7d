"""LlamaIndex: its vectors are the model's, in a real index, and its configuration opens the same model again."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.ingestion import IngestionCache, IngestionPipeline
from llama_index.core.schema import TextNode
from small_model import SENTENCES, TEXTS, small_model

from ensembed.errors import InputError, ModelError, SentenceError
from ensembed.integrations.llama_index import EnsembedEmbedding

NAME = "demo?dim=4&seed=2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small_model().save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("batch", [1, 2, 512])
def test_embedding_gives_the_vectors_of_the_model(batch: int) -> None:
    model = small_model()
    embedding = EnsembedEmbedding(model, embed_batch_size=batch)
    # A text may differ in another batch by a rounding, in the model as well.
    expected = np.concatenate([model.encode(TEXTS[start : start + batch]) for start in range(0, len(TEXTS), batch)])
    rows = embedding.get_text_embedding_batch(TEXTS)
    assert np.array(rows, np.float32).tobytes() == expected.tobytes()
    assert {type(value) for row in rows for value in row} == {float}
    alone = model.encode([TEXTS[4]])[0].tolist()
    assert embedding.get_query_embedding(TEXTS[4]) == embedding.get_text_embedding(TEXTS[4]) == alone
    assert embedding.get_text_embedding_batch([]) == []


def test_asynchronous_methods_give_the_same_vectors() -> None:
    async def ask(embedding: EnsembedEmbedding) -> list[Any]:
        return [
            await embedding.aget_text_embedding_batch(TEXTS),
            await embedding.aget_text_embedding(TEXTS[0]),
            await embedding.aget_query_embedding(TEXTS[0]),
        ]

    model = small_model()
    alone = model.encode(TEXTS[:1])[0].tolist()
    assert asyncio.run(ask(EnsembedEmbedding(model))) == [model.encode(TEXTS).tolist(), alone, alone]


def test_index_ranks_as_the_model_does() -> None:
    model = small_model()
    nodes = [TextNode(text=sentence, id_=str(i)) for i, sentence in enumerate(SENTENCES)]
    index = VectorStoreIndex(nodes, embed_model=EnsembedEmbedding(model))
    hits = index.as_retriever(similarity_top_k=3).retrieve("she sees the c")
    cosines = model.similarity(["she sees the c"], SENTENCES)[0]
    assert hits[0].text == "she sees the c"
    assert [hit.score for hit in hits] == pytest.approx(sorted(cosines.tolist(), reverse=True)[:3], abs=1e-5)


def test_configuration_and_pickle_open_the_same_model(folder: Path) -> None:
    embedding = EnsembedEmbedding(folder, embed_batch_size=7, threads=1)
    data = json.loads(embedding.to_json())
    assert data["class_name"] == "EnsembedEmbedding"
    assert (data["model"], data["model_name"], data["embed_batch_size"]) == (str(folder), "model", 7)
    assert "trust" not in data
    again = EnsembedEmbedding.from_dict(data)
    assert again.get_text_embedding("a dog") == embedding.get_text_embedding("a dog")
    assert again.to_dict() == embedding.to_dict()
    pickled = pickle.loads(pickle.dumps(embedding))  # noqa: S301 - our own
    assert pickled.get_text_embedding("a dog") == embedding.get_text_embedding("a dog")


def test_changed_model_is_refused(folder: Path) -> None:
    data = EnsembedEmbedding(folder).to_dict()
    small_model(seed=2).save(folder)
    with pytest.raises(ModelError, match="has changed: its fingerprint was"):
        EnsembedEmbedding.from_dict(data)


def test_model_in_memory_cannot_be_read_back() -> None:
    embedding = EnsembedEmbedding(small_model())
    assert embedding.to_dict()["fingerprint"] != EnsembedEmbedding(small_model(seed=2)).to_dict()["fingerprint"]
    with pytest.raises(InputError, match="pass that object again"):
        EnsembedEmbedding.from_dict(embedding.to_dict())
    with pytest.raises(InputError, match=r"model\.save"):
        pickle.dumps(embedding)
    assert copy.deepcopy(embedding).get_text_embedding("a dog") == embedding.get_text_embedding("a dog")


def test_ingestion_cache_distinguishes_models() -> None:
    cache = IngestionCache()
    vectors = []
    for model in (small_model(), small_model(seed=2), small_model()):
        pipeline = IngestionPipeline(transformations=[EnsembedEmbedding(model)], cache=cache)
        (node,) = pipeline.run(nodes=[TextNode(text="a dog", id_="1")])
        assert node.embedding == model.encode(["a dog"])[0].tolist()
        vectors.append(node.embedding)
    assert vectors[0] == vectors[2] != vectors[1]


def test_bad_input_is_refused() -> None:
    embedding = EnsembedEmbedding(NAME)
    with pytest.raises(SentenceError, match="not a string"):
        embedding.get_text_embedding_batch(["a", 3])
    with pytest.raises(ValueError, match="greater than 0"):
        EnsembedEmbedding(NAME, embed_batch_size=0)


def test_configuration_cannot_grant_trust() -> None:
    data = {"model": "openai:https://example.org/v1#model", "trust": True}
    with pytest.raises(ModelError, match="sends your sentences"):
        EnsembedEmbedding.from_dict(data)
