"""How often the client of `/v1/embeddings` tries again, and how long it waits, with a server that fails."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import numpy as np
import pytest
from loopback_openai import Behaviour, Exchange, LoopbackOpenAI, drops, fails, good, hangs, says

from ensembed.errors import EncoderError

TEXTS = [f"sentence {i} has word{i % 5}" for i in range(20)]


@pytest.fixture
def server() -> Iterator[LoopbackOpenAI]:
    with LoopbackOpenAI() as running:
        yield running


def assert_right(found: np.ndarray[Any, Any], server: LoopbackOpenAI, texts: list[str]) -> None:
    np.testing.assert_array_equal(found, server.encoder.encode(texts))


PASSING: dict[str, Behaviour] = {
    **{str(status): fails(status) for status in (408, 409, 425, 429, 500, 502, 503, 504)},
    "drops": drops,
    "no answer": lambda exchange: exchange.hang_up(),
    "HTML": says("<html>Bad gateway</html>"),
    "half of the JSON": says('{"data": [{"ind'),
    "nothing": says(""),
    "not the gzip it says": says(b"\x1f\x8b broken", Content_Encoding="gzip"),
    "200 with a passing error": says(json.dumps({"error": {"message": "overloaded", "code": 503}})),
}


@pytest.mark.parametrize("behave", PASSING.values(), ids=PASSING)
def test_temporary_failure_is_tried_again(server: LoopbackOpenAI, behave: Behaviour) -> None:
    server.script += [behave, behave]
    assert_right(server.connect().embed(TEXTS), server, TEXTS)
    assert len(server.asked) == 3
    assert len(server.pauses) == 2
    assert 0 <= server.pauses[0] <= 0.5
    assert 0 <= server.pauses[1] <= 1


@pytest.mark.parametrize("behave", PASSING.values(), ids=PASSING)
def test_permanent_failure_is_given_up_after_the_retries(server: LoopbackOpenAI, behave: Behaviour) -> None:
    api = server.connect(retries=3)
    api.embed(TEXTS)
    server.behave = behave
    with pytest.raises(
        EncoderError, match=rf"^encoder 'it': http://127.0.0.1:{server.port}/v1/embeddings failed 4 times"
    ):
        api.embed(TEXTS)
    assert len(server.asked) == 5


def test_pauses_grow_differ_and_are_bounded(server: LoopbackOpenAI) -> None:
    server.behave = fails(500)
    with pytest.raises(EncoderError, match="failed 101 times; the last time: 500: 'no'"):
        server.connect(retries=100).embed(TEXTS)
    assert len(set(server.pauses)) == 100
    assert max(server.pauses[:3]) <= 2
    assert 15 < max(server.pauses) <= 30


def test_zero_retries_make_one_attempt(server: LoopbackOpenAI) -> None:
    server.behave = fails(500)
    with pytest.raises(EncoderError, match="failed 1 time; the last time"):
        server.connect(retries=0).embed(TEXTS)
    assert server.pauses == []


def in_seconds(seconds: float) -> str:
    return format_datetime(datetime.now(timezone.utc) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        ("7", 7, 7),
        ("7.5", 7.5, 7.5),
        ("0", 0, 0.5),
        (lambda: in_seconds(60), 30, 60),
        (lambda: in_seconds(-60), 0, 0.5),
        ("soon", 0, 0.5),
    ],
)
def test_retry_after_is_respected(
    server: LoopbackOpenAI, asked: str | Callable[[], str], least: float, most: float
) -> None:
    server.script.append(fails(429, Retry_After=asked if isinstance(asked, str) else asked()))
    assert_right(server.connect().embed(TEXTS), server, TEXTS)
    assert len(server.pauses) == 1
    assert least <= server.pauses[0] <= most


@pytest.mark.parametrize("asked", ["3600", lambda: in_seconds(3600.9)])
def test_client_gives_up_when_retry_after_is_too_long(server: LoopbackOpenAI, asked: str | Callable[[], str]) -> None:
    server.behave = fails(429, "slow down", Retry_After=asked if isinstance(asked, str) else asked())
    with pytest.raises(EncoderError, match=r"asks for a pause of 3\d\d\d seconds; the most is 120 \(429: 'slow"):
        server.connect().embed(TEXTS)
    assert server.pauses == []


@pytest.mark.parametrize("field", ["code", "type"])
def test_used_up_quota_is_not_tried_again(server: LoopbackOpenAI, field: str) -> None:
    server.behave = says(json.dumps({"error": {"message": "pay", field: "insufficient_quota"}}), 429)
    with pytest.raises(EncoderError, match=r"your quota is used up \(429: 'pay'\)"):
        server.connect().embed(TEXTS)
    assert len(server.asked) == 1


def test_client_gives_up_on_a_server_that_never_answers(server: LoopbackOpenAI) -> None:
    server.script += [hangs, hangs]
    with pytest.raises(EncoderError, match=r"failed 2 times; the last time: no reply within 0.1 s.* \(ReadTimeout\)"):
        server.connect(timeout=0.1, retries=1).embed(TEXTS)


def test_client_gives_up_on_a_reply_that_never_ends(server: LoopbackOpenAI) -> None:
    def drips(exchange: Exchange) -> None:
        exchange.send_part(200, b" ", 1000)
        while not exchange.server.over.wait(0.02):
            exchange.send_more(b" ")

    server.behave = drips
    with pytest.raises(EncoderError, match=r"no whole reply within 1 seconds"):
        server.connect(timeout=1, retries=0).embed(TEXTS)


def test_client_waits_for_a_slow_server(server: LoopbackOpenAI) -> None:
    def slow(exchange: Exchange) -> None:
        time.sleep(0.2)
        good(exchange)

    server.behave = slow
    assert_right(server.connect(timeout=10).embed(TEXTS), server, TEXTS)


def test_refused_connection_fails_after_two_retries(server: LoopbackOpenAI) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1/embeddings"
        with pytest.raises(EncoderError, match=f"^encoder 'it': {url} failed 3 times; the last time: ConnectError"):
            server.connect(url=url).first(TEXTS)
    assert sum(server.pauses) <= 1.5


def test_unknown_host_fails_after_two_retries(server: LoopbackOpenAI) -> None:
    with pytest.raises(EncoderError, match=r"http://no-such-host\.invalid/v1/embeddings failed 3 times"):
        server.connect(url="http://no-such-host.invalid/v1/embeddings").first(TEXTS)
