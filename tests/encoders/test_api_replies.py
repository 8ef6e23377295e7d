"""Replies that are short, reordered, of another dimension, not finite or no replies at all, through a real server."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback_openai import LoopbackOpenAI, changes, good, says

from ensembed.encoders.openai.api_client import ReplyError, read_reply, read_vector
from ensembed.errors import EncoderError

TEXTS = ["a dog", "two cats", "a third sentence"]
Rows: TypeAlias = list[dict[str, Any]]


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackOpenAI]:
    with LoopbackOpenAI() as running:
        yield running


def packed(*numbers: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def numbered(*indices: object) -> Callable[[Rows], Rows]:
    return lambda rows: [row | {"index": index} for row, index in zip(rows, indices, strict=True)]


def with_last(embedding: object) -> Callable[[Rows], Rows]:
    return lambda rows: [*rows[:-1], rows[-1] | {"embedding": embedding}]


def without_index(rows: Rows) -> Rows:
    return [{"embedding": row["embedding"]} for row in rows]


RIGHT: dict[str, Callable[[Rows], Rows]] = {
    "as they should be": lambda rows: rows,
    "reordered, and numbered so": lambda rows: rows[::-1],
    "in order and not numbered": without_index,
    "numbered null": numbered(None, None, None),
}


@pytest.mark.parametrize("encoding", ["float", "base64"])
@pytest.mark.parametrize("change", RIGHT.values(), ids=RIGHT)
def test_rows_are_ordered_by_their_indices(
    server: LoopbackOpenAI, change: Callable[[Rows], Rows], encoding: str
) -> None:
    server.behave = changes(change, encoding)
    np.testing.assert_array_equal(server.connect().first(TEXTS), server.encoder.encode(TEXTS))


LAST = "for the sentence 'a third sentence'"
WRONG: dict[str, tuple[Callable[[Rows], object], str]] = {
    "too few": (lambda rows: rows[:-1], "gives 2 vectors for 3 sentences"),
    "none": (lambda _: [], "gives 0 vectors for 3 sentences"),
    "too many": (lambda rows: [*rows, rows[0]], "gives 4 vectors for 3 sentences"),
    "an index twice": (numbered(0, 1, 1), r"numbers its 3 vectors \[0, 1, 1\], not from 0 to 2"),
    "an index too large": (numbered(0, 1, 3), "not from 0 to 2"),
    "indices from 1 on": (numbered(1, 2, 3), "not from 0 to 2"),
    "a negative index": (numbered(0, 1, -1), "not from 0 to 2"),
    "some indices": (numbered(0, None, 2), "not from 0 to 2"),
    "strings for indices": (numbered("0", "1", "2"), "not from 0 to 2"),
    "a truth for an index": (numbered(0, True, 2), "not from 0 to 2"),
    "a list for an index": (numbered(0, [1], 2), "not from 0 to 2"),
    "a shorter vector": (with_last([0.5] * 7), f"gives 7 dimensions instead of 8 {LAST}"),
    "a longer vector": (with_last(packed(*[0.5] * 9)), f"gives 9 dimensions instead of 8 {LAST}"),
    "NaN": (with_last([0.5] * 7 + [float("nan")]), f"gives NaN or Inf {LAST}"),
    "Inf": (with_last([0.5] * 7 + [float("-inf")]), f"gives NaN or Inf {LAST}"),
    "too large for float32": (with_last([0.5] * 7 + [1e39]), f"gives NaN or Inf {LAST}"),
    "too large for any float": (with_last([0.5] * 7 + [10**400]), f"gives NaN or Inf {LAST}"),
    "NaN in base64": (with_last(packed(*[0.5] * 7, float("nan"))), f"gives NaN or Inf {LAST}"),
    "Inf in base64": (with_last(packed(*[0.5] * 7, float("inf"))), f"gives NaN or Inf {LAST}"),
    "no base64": (with_last("what is this?"), f"gives 'what is this\\?', which is not base64, {LAST}"),
    "half of base64": (with_last(packed(*[0.5] * 8)[:-3]), f"which is not base64, {LAST}"),
    "base64 with a blot": (with_last("!" + packed(*[0.5] * 8)), f"which is not base64, {LAST}"),
    "letters beyond ASCII": (with_last("é" * 8), f"which is not base64, {LAST}"),
    "odd base64": (with_last("AAAAAAA="), f"gives 5 bytes, which are no whole float32 numbers, {LAST}"),
    "empty base64": (with_last(""), f"gives a vector without numbers {LAST}"),
    "an empty vector": (with_last([]), f"gives a vector without numbers {LAST}"),
    "no vector": (with_last(None), f"gives null instead of numbers {LAST}"),
    "strings": (with_last(["0.5"] * 8), f"instead of numbers {LAST}"),
    "nulls": (with_last([0.5] * 7 + [None]), f"instead of numbers {LAST}"),
    "truths": (with_last([True] * 8), f"instead of numbers {LAST}"),
    "a matrix": (with_last([[0.5] * 8]), f"instead of numbers {LAST}"),
    "an object": (with_last({"0": 0.5}), f"instead of numbers {LAST}"),
    "rows that are lists": (lambda rows: [row["embedding"] for row in rows], "a list of something else than objects"),
    "no list": (lambda _: {"0": 1}, "replies with something else than vectors"),
}


@pytest.mark.parametrize(("change", "match"), WRONG.values(), ids=WRONG)
def test_wrong_reply_is_refused_with_the_reason(
    server: LoopbackOpenAI, change: Callable[[Rows], object], match: str
) -> None:
    server.behave = good
    api = server.connect()
    api.first(TEXTS)
    server.behave = changes(change, "float")
    asked = len(server.asked)
    with pytest.raises(EncoderError, match=f"^encoder 'it': {server.url}/embeddings .*{match}"):
        api.embed(TEXTS)
    assert len(server.asked) == asked + 1


def test_vectors_of_several_lengths_are_refused_in_the_first_reply(server: LoopbackOpenAI) -> None:
    server.behave = changes(with_last([0.5] * 7))
    with pytest.raises(EncoderError, match=f"gives 7 dimensions instead of 8 {LAST}"):
        server.connect().first(TEXTS)


@pytest.mark.parametrize(
    "body",
    ['{"error": {"message": "no such model", "code": "x"}}', '{"error": "no such model"}', '["no such model"]', "17"],
)
def test_error_with_status_200_is_an_error(server: LoopbackOpenAI, body: str) -> None:
    server.behave = says(body)
    with pytest.raises(EncoderError, match=r"replies with something else than vectors: .*(no such model|17)"):
        server.connect().first(TEXTS)


@pytest.mark.parametrize(
    "body",
    ['{"data": [' + "[]," * 30_000 + "[]]}", "[" * 100_000, '{"data": ' + "[" * 200 + "]" * 200 + "}"],
    ids=["many values", "very deep", "deep"],
)
def test_reply_with_more_values_or_levels_than_vectors_have_is_refused(server: LoopbackOpenAI, body: str) -> None:
    server.behave = good
    api = server.connect(retries=0)
    api.first(TEXTS)
    server.behave = says(body)
    with pytest.raises(EncoderError, match=r"replies with JSON that is too large \(.*(values|levels deep)\)"):
        api.embed(TEXTS)


def test_reply_that_is_packed_in_another_way_than_asked_for_is_refused(server: LoopbackOpenAI) -> None:
    server.behave = says(b"x" * 100, Content_Encoding="br")
    with pytest.raises(EncoderError, match="packs its reply as 'br', which it was not asked for"):
        server.connect().embed(TEXTS)


def test_reply_that_is_not_json_is_shown(server: LoopbackOpenAI) -> None:
    for body in ("<html>hello</html>", b"\xff\xfe"):
        server.behave = says(body)
        with pytest.raises(EncoderError, match=r"the last time: it replies with something that is not JSON: "):
            server.connect(retries=0).first(TEXTS)


def test_floats_and_base64_give_the_same_vector() -> None:
    numbers = [1.5, -2.25, 3e-7, 0.1]
    expected = struct.unpack("<4f", struct.pack("<4f", *numbers))
    assert read_vector(packed(*numbers)).tolist() == list(expected)
    assert read_vector(numbers).tolist() == list(expected)
    assert read_vector([1, 0, -3]).tolist() == [1, 0, -3]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["data", "embedding", "index", "error", "x"]), inner, max_size=3)
        ),
    )
)
def test_any_json_is_read_or_refused(reply: object) -> None:
    for data in (json.dumps(reply), json.dumps({"data": reply}), json.dumps({"data": [{"embedding": reply}]})):
        try:
            vectors = read_reply(data.encode(), ["a"], None)
        except ReplyError:
            continue
        assert vectors.shape[0] == 1
        assert np.isfinite(vectors).all()
