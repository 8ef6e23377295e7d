"""LangChain: its own standard tests pass, and its vectors are the model's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests
from small_model import SENTENCES, TEXTS, small_model

from ensembed import Ensemble
from ensembed.errors import ModelError, SentenceError, UnknownEncoderError
from ensembed.integrations.langchain import EnsembedEmbeddings
from ensembed.methods import Concat

NAME = "demo?dim=4&seed=2"


class TestStandardUnit(EmbeddingsUnitTests):  # type: ignore[misc] # its types are not read
    @property
    def embeddings_class(self) -> type[Embeddings]:
        return EnsembedEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"model": NAME}


@pytest.mark.anyio
class TestStandardIntegration(EmbeddingsIntegrationTests):  # type: ignore[misc] # its types are not read
    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @property
    def embeddings_class(self) -> type[Embeddings]:
        return EnsembedEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"model": NAME}


def test_embeddings_give_the_vectors_of_the_model() -> None:
    model = small_model()
    embeddings = EnsembedEmbeddings(model)
    expected = model.encode(TEXTS)
    rows = embeddings.embed_documents(TEXTS)
    assert np.array(rows, np.float32).tobytes() == expected.tobytes()
    assert {type(value) for row in rows for value in row} == {float}
    # Alone a text may differ from itself among others by a rounding, in the model as well.
    alone = model.encode([TEXTS[4]])[0].tolist()
    assert embeddings.embed_query(TEXTS[4]) == alone
    assert embeddings.embed_documents([]) == []
    assert asyncio.run(embeddings.aembed_documents(TEXTS)) == rows
    assert asyncio.run(embeddings.aembed_query(TEXTS[4])) == alone


@pytest.mark.parametrize("kind", [str, Path])
def test_folder_of_a_saved_model_is_opened(tmp_path: Path, kind: Callable[[Path], Any]) -> None:
    model = small_model()
    model.save(tmp_path / "model")
    embeddings = EnsembedEmbeddings(kind(tmp_path / "model"))
    assert embeddings.embed_query("a dog") == model.encode(["a dog"])[0].tolist()
    assert repr(embeddings) == "EnsembedEmbeddings('model')"


def test_any_object_with_encode_is_accepted() -> None:
    class Lengths:
        def encode(self, sentences: list[str]) -> list[list[int]]:
            return [[len(sentence), 1] for sentence in sentences]

    assert EnsembedEmbeddings(Lengths()).embed_query("abc") == [3.0, 1.0]


def test_texts_that_are_not_strings_are_refused() -> None:
    embeddings = EnsembedEmbeddings(NAME)
    with pytest.raises(SentenceError, match="sentence 1 is not a string"):
        embeddings.embed_documents(["a", None])  # type: ignore[list-item] # it is refused
    with pytest.raises(SentenceError, match="write \\[text\\]"):
        embeddings.embed_documents("a dog")  # type: ignore[arg-type] # it is refused


def test_sources_without_a_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownEncoderError, match="neither a folder with a saved model nor an encoder"):
        EnsembedEmbeddings("no-such-thing")
    with pytest.raises(ModelError, match=r"there is no config\.json in it"):
        EnsembedEmbeddings(str(tmp_path))
    with pytest.raises(ModelError, match="is not a saved model"):
        EnsembedEmbeddings(tmp_path)
    with pytest.raises(ModelError, match=r"sends your sentences to https://example\.org.*trust=True"):
        EnsembedEmbeddings("openai:https://example.org/v1#model")


def test_vector_store_ranks_as_the_model_does() -> None:
    model = small_model()
    store = InMemoryVectorStore(EnsembedEmbeddings(model))
    store.add_texts(SENTENCES, ids=[str(i) for i in range(len(SENTENCES))])
    hits = store.similarity_search_with_score("a dog has the b", k=3)
    cosines = model.similarity(["a dog has the b"], SENTENCES)[0]
    best = np.argsort(-cosines, kind="stable")[:3]
    assert hits[0][0].page_content == SENTENCES[best[0]] == "a dog has the b"
    assert [score for _, score in hits] == pytest.approx(cosines[best].tolist(), abs=1e-5)


@pytest.mark.real
def test_real_encoders_give_the_vectors_of_the_model(pulled: Callable[[str], Path], tmp_path: Path) -> None:
    pulled("wordllama")
    model = Ensemble(["wordllama", "demo"]).fit(TEXTS, Concat())
    model.save(tmp_path / "model")
    rows = EnsembedEmbeddings(tmp_path / "model").embed_documents(TEXTS)
    assert np.array(rows, np.float32).tobytes() == model.encode(TEXTS).tobytes()
