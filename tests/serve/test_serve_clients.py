"""Unchanged clients of OpenAI and LangChain with `ensembed serve`, which runs in another process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openai
import pytest
from serving import Running, serving

from ensembed import open_encoder
from ensembed.encoders.base import FloatArray

MODEL = "demo?dim=8&seed=1"
KEY = "a-key-for-tests"
TEXTS = ["a dog barks", "the cat sleeps", "ein Hund bellt", "狗在叫", "a dog barks"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("clients")
    arguments = ["cli", MODEL, "--port", "0", "--name", "tiny", "--log-requests"]
    with serving(folder, *arguments, env={"ENSEMBED_API_KEYS": KEY}) as running:
        yield running


@pytest.fixture(scope="module")
def expected() -> FloatArray:
    return open_encoder(MODEL).encode(TEXTS)


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, timeout=30) as client:
        yield client


def test_openai_client_gets_the_vectors_of_the_model(client: openai.OpenAI, expected: FloatArray) -> None:
    for reply in (
        client.embeddings.create(model="tiny", input=TEXTS),  # which asks for base64 and unpacks it
        client.embeddings.create(model="tiny", input=TEXTS, encoding_format="float"),
    ):
        np.testing.assert_array_equal(np.array([item.embedding for item in reply.data], np.float32), expected)
        assert [item.index for item in reply.data] == list(range(len(TEXTS)))
        assert reply.usage.total_tokens == 13


def test_openai_client_gets_dimensions_and_models(client: openai.OpenAI) -> None:
    reply = client.embeddings.create(model="tiny", input="a dog barks", dimensions=3)
    assert len(reply.data[0].embedding) == 3
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "ensembed"


def test_openai_client_raises_its_own_errors(client: openai.OpenAI, server: Running) -> None:
    with pytest.raises(openai.NotFoundError) as absent:
        client.embeddings.create(model="text-embedding-3-small", input="a")
    assert absent.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="token ids"):
        client.embeddings.create(model="tiny", input=[1, 2, 3])
    with pytest.raises(openai.BadRequestError, match="empty"):
        client.embeddings.create(model="tiny", input="")
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong-key-here") as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.embeddings.create(model="tiny", input="a")


def test_openai_async_client_gets_the_vectors_of_the_model(server: Running, expected: FloatArray) -> None:
    async def work() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, timeout=30) as client:
            replies = await asyncio.gather(
                *(client.embeddings.create(model="tiny", input=text) for text in TEXTS for _ in range(4))
            )
        for i, reply in enumerate(replies):
            np.testing.assert_array_equal(np.array(reply.data[0].embedding, np.float32), expected[i // 4])

    asyncio.run(work())


def test_langchain_gets_the_vectors_of_the_model(server: Running, expected: FloatArray) -> None:
    from langchain_openai import OpenAIEmbeddings
    from pydantic import SecretStr

    embeddings = OpenAIEmbeddings(
        base_url=f"{server.url}/v1",
        api_key=SecretStr(KEY),
        model="tiny",
        check_embedding_ctx_length=False,
    )
    np.testing.assert_allclose(embeddings.embed_documents(TEXTS), expected, rtol=1e-6)
    np.testing.assert_allclose(embeddings.embed_query(TEXTS[0]), expected[0], rtol=1e-6)

    async def work() -> None:
        np.testing.assert_allclose(await embeddings.aembed_documents(TEXTS), expected, rtol=1e-6)
        np.testing.assert_allclose(await embeddings.aembed_query(TEXTS[1]), expected[1], rtol=1e-6)
        await embeddings.async_client._client.close()  # LangChain leaves it open, and Python warns

    asyncio.run(work())


def test_openai_encoder_gets_the_vectors_of_the_model(
    server: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ENSEMBED_API_KEY_127_0_0_1", KEY)
    monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path))
    encoder = open_encoder(f"openai:{server.url}/v1#tiny")
    np.testing.assert_allclose(encoder.encode(TEXTS), open_encoder(MODEL).encode(TEXTS), atol=1e-6)


def test_log_has_no_text_and_no_key(server: Running, client: openai.OpenAI) -> None:
    client.embeddings.create(model="tiny", input="an unmistakable sentence", user="somebody")
    assert "POST /v1/embeddings 200" in server.logged
    for secret in ("unmistakable", "somebody", KEY, "dog barks"):
        assert secret not in server.logged
