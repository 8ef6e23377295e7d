"""What is counted on a body's bytes before it is parsed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from served_child import Odd

from ensembed.serve import Settings, create_app, endpoints, openai
from ensembed.serve.outline import OTHERS, check_outline
from ensembed.serve.replies import ApiError

# Signs that stand for something in JSON, and characters of one to four bytes.
_SIGNS = st.text(st.sampled_from('"\\,:[]{}un/0 \n\t\b\x00\x7fé\u2028狗😀'), min_size=1)
_TEXTS = st.lists(st.one_of(_SIGNS, st.text(min_size=1).filter(lambda text: text.isprintable())), min_size=1)
_ANY = st.recursive(st.none() | st.integers() | _SIGNS, lambda some: st.lists(some) | st.dictionaries(_SIGNS, some))
_JSON = {"Content-Type": "application/json"}


def written(value: object, escaped: bool, spaced: bool) -> bytes:
    return json.dumps(value, ensure_ascii=escaped, indent=1 if spaced else None).encode()


@given(_TEXTS, st.dictionaries(st.sampled_from(["a", "model", '"input"', "user"]), _ANY), st.booleans(), st.booleans())
def test_what_is_within_the_limits_passes(
    texts: list[str], others: dict[str, Any], escaped: bool, spaced: bool
) -> None:
    longest = max(map(len, texts))
    for value in (texts, texts[0]):
        check_outline(written({**others, "input": value, **others}, escaped, spaced), "input", len(texts), longest)
        check_outline(written({"input": value, **others}, escaped, spaced), "input", len(texts), longest)


@given(_TEXTS, st.dictionaries(st.sampled_from(["a", "model", "user"]), _ANY), st.booleans(), st.booleans())
def test_characters_are_counted_exactly(texts: list[str], others: dict[str, Any], escaped: bool, spaced: bool) -> None:
    longest = max(map(len, texts))
    with pytest.raises(ApiError) as refused:
        check_outline(written({**others, "input": texts}, escaped, spaced), "input", len(texts), longest - 1)
    place = [len(text) for text in texts].index(longest)
    assert refused.value.message.startswith(f"input[{place}] has {longest} characters, at most {longest - 1} ")
    assert (refused.value.status, refused.value.code, refused.value.param) == (400, "text_too_long", "input")


def test_long_texts_of_other_fields_are_nobodys_business() -> None:
    long = "x" * 50
    for body in (
        {"input": "a", "user": long},
        {"user": long, "input": ["a", "input"]},
        {"more": {"input": long}, "input": "a"},
        {"more": ["input", long], "input": "a"},
    ):
        check_outline(json.dumps(body).encode(), "input", 2, 10)
    with pytest.raises(ApiError):
        check_outline(json.dumps({"more": {"input": "a"}, "input": ["input", long]}).encode(), "input", 2, 10)


@given(st.binary())
def test_rubbish_is_left_to_the_parser(body: bytes) -> None:
    check_outline(body, "input", 1, 1)


_MILLION = 300_000
_HOSTILE = {
    "nested": (b"[" * _MILLION, "too_many_texts"),
    "objects": (b'{"a":' * _MILLION, "too_many_texts"),
    "tiny": (b'{"model":"odd","input":[' + b'"a",' * _MILLION + b'"a"]}', "too_many_texts"),
    "empty": (b'{"model":"odd","input":[' + b'"",' * _MILLION + b'""]}', "too_many_texts"),
    "lists": (b'{"model":"odd","input":[' + b"[]," * _MILLION + b"[]]}", "too_many_texts"),
    "elsewhere": (b'{"model":"odd","input":"a","user":[' + b"{}," * _MILLION + b"{}]}", "too_many_texts"),
    "tokens": (b'{"model":"odd","input":[[' + b"17, " * _MILLION + b"17]]}", "token_ids"),
    "long": (b'{"model":"odd","input":["a","' + b"x" * 32_769 + b'"]}', "text_too_long"),
}


@pytest.mark.parametrize("kind", _HOSTILE)
def test_what_is_too_much_is_refused_without_being_parsed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object) -> None:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(openai, "parse", parse)
    monkeypatch.setattr(endpoints, "parse", parse)
    body, code = _HOSTILE[kind]
    with TestClient(create_app(Odd())) as client:
        reply = client.post("/v1/embeddings", content=body, headers=_JSON)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, code)
        assert reply.json()["error"]["param"] == "input"
        for path, param in (("/similarity", "texts"), ("/search", "query")):
            reply = client.post(path, content=body.replace(b"input", param.encode()), headers=_JSON)
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def test_as_many_as_are_allowed_are_taken() -> None:
    settings = Settings(max_items=3, max_characters=7)
    with TestClient(create_app(Odd(), settings=settings)) as client:
        for texts in (['","","', "\\\\\\\\\\\\\\", '"""""""'], ["😀" * 7]):
            body = {"model": "odd", "input": texts, "more": ["a"] * (OTHERS - 50)}
            assert client.post("/v1/embeddings", json=body).status_code == 200
