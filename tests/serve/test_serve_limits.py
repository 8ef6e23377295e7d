"""The limits on a request: bytes, time, values, texts, characters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from served_child import Odd
from starlette.requests import ClientDisconnect, Request
from starlette.testclient import TestClient

from ensembed.serve import Settings, create_app
from ensembed.serve.api_errors import ApiError
from ensembed.serve.limits import (
    OTHER_VALUES,
    EmbeddingsRequest,
    Limits,
    SearchRequest,
    SimilarityRequest,
    check_values,
)

# Characters that have a meaning in JSON, and characters of one to four bytes.
_SPECIAL = st.text(st.sampled_from('"\\,:[]{}un/0 \n\t\b\x00\x7fé\u2028狗😀'), min_size=1)
_TEXTS = st.lists(st.one_of(_SPECIAL, st.text(min_size=1).filter(lambda text: text.isprintable())), min_size=1)
_ANY = st.recursive(st.none() | st.integers() | _SPECIAL, lambda some: st.lists(some) | st.dictionaries(_SPECIAL, some))
_OTHERS = st.dictionaries(st.sampled_from(["a", '"input"', "user "]), _ANY)
_JSON = {"Content-Type": "application/json"}


def request(messages: Iterable[dict[str, Any]]) -> Request:
    """A request whose body comes in these messages; then nothing follows."""
    remaining: Iterator[dict[str, Any]] = iter(messages)

    async def receive() -> dict[str, Any]:
        for message in remaining:
            return message
        await asyncio.Event().wait()
        return {}

    return Request({"type": "http", "headers": [(b"content-type", b"application/json")]}, receive)


def part(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def searching(size: int) -> bytes:
    """The body of a search, of so many bytes."""
    return b'{"query":"%s"}' % (b"x" * (size - 12))


@lru_cache  # making the models of a request takes longer than reading it
def limits_of(**changes: Any) -> Limits:  # noqa: ANN401 - settings
    return Limits(Settings(**changes), ["m"], 4)


async def search(limits: Limits, *messages: dict[str, Any]) -> int:
    """Read a search, and return the length of its query."""
    return len((await limits.read(request(messages), limits.search)).query)


def test_bodies_of_all_clients_together_are_limited_and_freed() -> None:
    async def work() -> None:
        limits = limits_of(max_body_bytes=100, held_bytes=150, body_seconds=1)
        slow = asyncio.ensure_future(search(limits, part(searching(90)[:89])))
        await asyncio.sleep(0)  # it has its first part now
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as full:
            await search(limits, part(searching(90), more=False))
        assert (full.value.status, full.value.headers["Retry-After"]) == (429, "1")
        assert await search(limits, part(searching(50)[:30]), part(searching(50)[30:], more=False)) == 38
        with pytest.raises(ApiError) as late:
            await slow
        assert late.value.status == 408
        assert await search(limits, part(searching(90), more=False)) == 78

    asyncio.run(work())


def test_body_of_a_client_that_goes_away_is_freed() -> None:
    async def work() -> None:
        limits = limits_of(max_body_bytes=100, held_bytes=100)
        for _ in range(5):
            with pytest.raises(ClientDisconnect):
                await search(limits, part(searching(90)), {"type": "http.disconnect"})
        assert await search(limits, part(searching(100)[:50]), part(searching(100)[50:], more=False)) == 88

    asyncio.run(work())


@pytest.mark.parametrize("more", [True, False])
def test_body_without_a_stated_length_is_refused_as_soon_as_it_is_too_large(more: bool) -> None:
    async def work() -> None:
        limits = limits_of(max_body_bytes=100)
        with pytest.raises(ApiError) as refused:
            await search(limits, part(searching(150)[:90]), part(searching(150)[90:], more), part(b"", more=False))
        assert (refused.value.status, refused.value.code) == (413, "body_too_large")

    asyncio.run(work())


def read(body: bytes, **changes: Any) -> EmbeddingsRequest:  # noqa: ANN401 - settings
    """Read a request for embeddings."""
    limits = limits_of(**changes)
    return asyncio.run(limits.read(request([part(body, more=False)]), limits.embeddings))


def written(texts: str | list[str], others: dict[str, Any], escaped: bool, spaced: bool) -> bytes:
    """A request for embeddings of the texts, in one of the spellings of JSON."""
    facts = {**others, "input": texts, "model": "m"}
    return json.dumps(facts, ensure_ascii=escaped, indent=1 if spaced else None).encode()


@given(_TEXTS, _OTHERS, st.booleans(), st.booleans())
def test_request_at_the_limits_is_accepted(
    texts: list[str], others: dict[str, Any], escaped: bool, spaced: bool
) -> None:
    longest = max(map(len, texts))
    for value in (texts, texts[0]):
        body = written(value, others, escaped, spaced)
        assert read(body, max_items=len(texts), max_characters=longest).input == value


@given(_TEXTS.filter(lambda texts: max(map(len, texts)) > 1), _OTHERS, st.booleans(), st.booleans())
def test_characters_of_a_request_are_counted_exactly(
    texts: list[str], others: dict[str, Any], escaped: bool, spaced: bool
) -> None:
    longest = max(map(len, texts))
    with pytest.raises(ApiError) as refused:
        read(written(texts, others, escaped, spaced), max_characters=longest - 1)
    place = [len(text) for text in texts].index(longest)
    assert refused.value.message.startswith(f"input[{place}] has {longest} characters, the limit is {longest - 1}:")
    assert (refused.value.status, refused.value.code, refused.value.param) == (400, "text_too_long", "input")


@given(st.lists(_SPECIAL, min_size=2))
@settings(max_examples=20)
def test_texts_of_a_request_are_counted_exactly(texts: list[str]) -> None:
    with pytest.raises(ApiError) as refused:
        read(written(texts, {}, escaped=False, spaced=False), max_items=len(texts) - 1)
    assert refused.value.message.startswith(f"input has {len(texts)} texts, the limit is {len(texts) - 1}:")
    assert (refused.value.status, refused.value.code, refused.value.param) == (400, "too_many_texts", "input")


def test_length_of_other_fields_is_not_limited() -> None:
    long = "x" * 50
    for facts in (
        {"input": "a", "user": long},
        {"user": long, "input": ["a", "input"]},
        {"more": {"input": long}, "input": "a"},
        {"more": ["input", long], "input": "a"},
    ):
        read(json.dumps({**facts, "model": "m"}).encode(), max_items=2, max_characters=10)


@given(st.binary())
def test_bytes_that_are_not_json_are_left_to_the_parser(body: bytes) -> None:
    check_values(body, "input", 1)


_MANY = 300_000
_HOSTILE = {
    "nested": (b"[" * _MANY, "too_many_texts"),
    "objects": (b'{"a":' * _MANY, "too_many_texts"),
    "tiny": (b'{"model":"odd","input":[' + b'"a",' * _MANY + b'"a"]}', "too_many_texts"),
    "empty": (b'{"model":"odd","input":[' + b'"",' * _MANY + b'""]}', "too_many_texts"),
    "lists": (b'{"model":"odd","input":[' + b"[]," * _MANY + b"[]]}", "too_many_texts"),
    "elsewhere": (b'{"model":"odd","input":"a","user":[' + b"{}," * _MANY + b"{}]}", "too_many_texts"),
    "tokens": (b'{"model":"odd","input":[[' + b"17, " * _MANY + b"17]]}", "token_ids"),
}


def test_too_many_values_are_refused_before_they_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object) -> None:
        raise AssertionError("it was parsed")

    for model in (EmbeddingsRequest, SimilarityRequest, SearchRequest):
        monkeypatch.setattr(model, "model_validate_json", parse)
    with TestClient(create_app(Odd())) as client:
        for body, code in _HOSTILE.values():
            reply = client.post("/v1/embeddings", content=body, headers=_JSON)
            assert (reply.status_code, reply.json()["error"]["code"]) == (400, code)
            assert reply.json()["error"]["param"] == "input"
            for path, param in (("/similarity", "texts"), ("/search", "query")):
                reply = client.post(path, content=body.replace(b"input", param.encode()), headers=_JSON)
                assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def test_text_that_is_too_long_is_refused_by_every_endpoint_and_not_encoded() -> None:
    model, long = Odd(), "x" * 32_769
    with TestClient(create_app(model)) as client:
        for path, param, value in (
            ("/v1/embeddings", "input", ["a", long]),
            ("/v1/embeddings", "input", long),
            ("/similarity", "texts", ["a", long]),
            ("/search", "query", long),
        ):
            reply = client.post(path, json={"model": "odd", param: value})
            error = reply.json()["error"]
            assert (reply.status_code, error["code"], error["param"]) == (400, "text_too_long", param)
        assert model.batches in ([], [["ready"]])  # the server's own


def test_other_values_have_room_beside_the_texts() -> None:
    texts = ['","","', "\\\\\\\\\\\\\\", '"""""""']
    body = json.dumps({"model": "m", "input": texts, "more": ["a"] * (OTHER_VALUES - 50)}).encode()
    assert read(body, max_items=3, max_characters=7).input == texts


@pytest.mark.parametrize("item", [1, "", []])
def test_only_the_first_of_many_bad_items_is_reported(item: object) -> None:
    """An error for each of a million items would take seconds and gigabytes, while every other client waits."""
    limits = limits_of(max_items=10_000, max_similarity=10_000)
    with pytest.raises(ValidationError) as failure:
        limits.embeddings.model_validate({"model": "m", "input": [item] * 10_000})
    assert failure.value.error_count() <= 2  # neither a text nor a list of texts
    with pytest.raises(ValidationError) as failure:
        limits.similarity.model_validate({"texts": [item] * 10_000})
    assert failure.value.error_count() == 1
