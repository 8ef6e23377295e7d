"""What the client of `/v1/embeddings` asks, with a server on this machine that refuses, redirects, floods and hangs."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loopback_openai import Exchange, LoopbackOpenAI, changes, fails, good, hangs, says

from ensembed.encoders.openai.api_client import RefusedError, estimated_tokens
from ensembed.encoders.openai.openai_encoder import SERVER_PROBES
from ensembed.errors import EncoderError

TEXTS = [f"sentence {i} has word{i % 5}" for i in range(20)]


@pytest.fixture
def server() -> Iterator[LoopbackOpenAI]:
    with LoopbackOpenAI() as running:
        yield running


FORKED = """
import os, sys
from ensembed.encoders import open_encoder
encoder = open_encoder(sys.argv[1])
child = os.fork()
encoder.encode(["child" if child == 0 else "parent"])
if child:
    sys.exit(os.waitpid(child, 0)[1])
"""


def test_process_that_is_forked_off_has_connections_of_its_own(server: LoopbackOpenAI) -> None:
    """Two processes on one connection read each other's replies: wrong vectors, or none."""
    connections: dict[str, tuple[str, int]] = {}

    def remember(exchange: Exchange) -> None:
        connections[exchange.asked.texts[-1]] = exchange._handler.client_address
        good(exchange)

    server.behave = remember
    subprocess.run([sys.executable, "-c", FORKED, f"openai:{server.url}#m"], check=True, timeout=60)
    assert connections[SERVER_PROBES[-1]] == connections["parent"] != connections["child"]


def assert_right(found: np.ndarray[Any, Any], server: LoopbackOpenAI, texts: list[str]) -> None:
    np.testing.assert_array_equal(found, server.encoder.encode(texts))


@pytest.mark.parametrize("encoding", [None, "base64", "float"])
def test_numbers_are_exact_in_both_encodings(server: LoopbackOpenAI, encoding: str | None) -> None:
    assert_right(server.connect(encoding=encoding).first(TEXTS), server, TEXTS)
    expected = {"model": "m", "input": TEXTS} | ({} if encoding == "float" else {"encoding_format": "base64"})
    assert [asked.body for asked in server.asked] == [expected]


@pytest.mark.parametrize("sent", ["float", "base64"])
@pytest.mark.parametrize("asked", ["float", "base64"])
def test_reply_in_the_other_encoding_is_understood(server: LoopbackOpenAI, sent: str, asked: str) -> None:
    server.behave = changes(lambda rows: rows, sent)
    assert_right(server.connect(encoding=asked).first(TEXTS), server, TEXTS)


@pytest.mark.parametrize("status", [400, 422])
def test_server_that_refuses_base64_is_asked_for_floats(server: LoopbackOpenAI, status: int) -> None:
    def picky(exchange: Exchange) -> None:
        (fails(status, "extra fields") if "encoding_format" in exchange.asked.body else good)(exchange)

    server.behave = picky
    api = server.connect()
    api.first(TEXTS[:3])
    before = len(server.asked)
    assert_right(api.embed(TEXTS), server, TEXTS)
    assert "encoding_format" not in server.asked[-1].body
    assert len(server.asked) == before + 1
    with pytest.raises(RefusedError, match=f"{status}: 'extra fields'"):
        server.connect(encoding="base64").first(TEXTS[:3])


def test_batches_keep_the_order_and_the_limit_of_items(server: LoopbackOpenAI) -> None:
    assert_right(server.connect(batch_items=3).embed(TEXTS), server, TEXTS)
    assert sorted(len(asked.texts) for asked in server.asked) == [2, 3, 3, 3, 3, 3, 3]


def test_batches_keep_the_limit_of_tokens(server: LoopbackOpenAI) -> None:
    texts = ["東" * n for n in (1, 2, 30, 500, 4, 1, 1, 50)]
    assert_right(server.connect(batch_tokens=100).embed(texts), server, texts)
    batches = sorted((asked.texts for asked in server.asked), key=lambda batch: texts.index(batch[0]))
    assert all(len(batch) == 1 or sum(map(estimated_tokens, batch)) <= 100 for batch in batches)
    assert [len(batch) for batch in batches] == [3, 1, 4]


def test_requests_run_concurrently_up_to_the_limit(server: LoopbackOpenAI) -> None:
    together = threading.Barrier(3)

    def slow(exchange: Exchange) -> None:
        together.wait(60)  # no request is answered before three have arrived
        good(exchange)

    server.behave = slow
    api = server.connect(batch_items=1, concurrency=3)
    assert_right(api.embed(TEXTS[:9]), server, TEXTS[:9])
    assert server.most_in_flight == 3


def test_threads_share_the_limit_of_requests(server: LoopbackOpenAI) -> None:
    together = threading.Barrier(2)

    def slow(exchange: Exchange) -> None:
        together.wait(60)  # no request is answered before a second has arrived
        time.sleep(0.005)  # time for a third to arrive, if nothing stopped it
        good(exchange)

    server.behave = slow
    api = server.connect(batch_items=2, concurrency=2)
    callers = [threading.Thread(target=api.embed, args=(TEXTS,)) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(server.asked) == 40
    assert server.most_in_flight == 2


def test_waiting_for_a_slot_is_no_timeout(server: LoopbackOpenAI) -> None:
    def slow(exchange: Exchange) -> None:
        time.sleep(0.35)
        good(exchange)

    server.behave = slow
    api = server.connect(concurrency=1, timeout=3, retries=0)  # the last has to wait for longer
    with ThreadPoolExecutor(9) as pool:
        for found in pool.map(lambda _: api.embed(TEXTS), range(9)):
            assert_right(found, server, TEXTS)


def test_gzip_is_understood(server: LoopbackOpenAI) -> None:
    def zipped(exchange: Exchange) -> None:
        data = gzip.compress(json.dumps({"data": exchange.rows()}).encode())
        exchange.send(200, data, {"Content-Encoding": "gzip"})

    server.behave = zipped
    assert_right(server.connect().embed(TEXTS), server, TEXTS)


@pytest.mark.parametrize("zipped", [False, True])
def test_huge_reply_is_not_read_to_its_end(server: LoopbackOpenAI, zipped: bool) -> None:
    api = server.connect()
    api.first(TEXTS)
    data = b" " * 50_000_000
    server.behave = says(gzip.compress(data), Content_Encoding="gzip") if zipped else says(data)
    with pytest.raises(EncoderError, match=r"sends more than \d{7} bytes for 20 sentences"):
        api.embed(TEXTS)


def test_huge_error_is_not_read_to_its_end(server: LoopbackOpenAI) -> None:
    server.behave = says("long " * 10_000_000, 418)
    with pytest.raises(EncoderError, match=r"fails \(418: 'long long ") as caught:
        server.connect().embed(TEXTS)
    assert len(str(caught.value)) < 500


def test_sentence_that_causes_a_refusal_is_named(server: LoopbackOpenAI) -> None:
    def strict(exchange: Exchange) -> None:
        long = any(len(text) > 100 for text in exchange.asked.texts)
        (fails(400, "maximum context length is 25 tokens") if long else good)(exchange)

    server.behave = strict
    api = server.connect()
    texts = [f"sentence {i}" for i in range(128)]
    texts[77] = "a culprit " * 20
    with pytest.raises(
        RefusedError,
        match=r"refuses a request \(400: 'maximum context length is 25 tokens'\); it was about the sentence "
        "'a culprit .* of 200 characters: .*max_chars",
    ):
        api.embed(texts)
    assert len(server.asked) <= 15
    assert server.asked[-1].texts == [texts[77]]
    texts[77] = "nobody"
    assert_right(api.embed(texts), server, texts)
    assert len(server.asked[-1].texts) == 128  # one bad sentence says nothing about the size of batches


@pytest.mark.parametrize("status", [400, 413, 422])
def test_server_that_refuses_large_batches_gets_smaller_ones(server: LoopbackOpenAI, status: int) -> None:
    def small(exchange: Exchange) -> None:
        (fails(status, "batch size > 4") if len(exchange.asked.texts) > 4 else good)(exchange)

    server.behave = small
    api = server.connect()
    assert_right(api.embed(TEXTS), server, TEXTS)
    first = len(server.asked)
    assert_right(api.embed(TEXTS), server, TEXTS)
    assert all(len(asked.texts) <= 4 for asked in server.asked[first:])


def test_server_that_refuses_everything_gets_few_requests(server: LoopbackOpenAI) -> None:
    server.behave = fails(422)
    with pytest.raises(RefusedError, match="'sentence 0 has word0'"):
        server.connect().embed(TEXTS)
    assert len(server.asked) == 6


@pytest.mark.parametrize(
    ("status", "match"), [(404, "has no such path, or no model 'm'"), (418, "fails"), (501, "fails")]
)
def test_other_failures_are_not_tried_again(server: LoopbackOpenAI, status: int, match: str) -> None:
    server.behave = fails(status, "teapot")
    with pytest.raises(EncoderError, match=rf"{match} \({status}: 'teapot'\)"):
        server.connect().embed(TEXTS)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "body",
    ['{"error": {"message": "why"}}', '{"error": "why"}', '{"message": "why"}', '{"detail": "why"}', "why", '"why"'],
)
def test_error_message_of_the_server_is_shown(server: LoopbackOpenAI, body: str) -> None:
    server.behave = says(body, 418)
    with pytest.raises(EncoderError, match=r"fails \(418: 'why'\)"):
        server.connect().embed(TEXTS)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_reported_and_not_followed(server: LoopbackOpenAI, status: int) -> None:
    with LoopbackOpenAI() as other:
        server.behave = says("", status, Location=f"{other.url}/embeddings")
        with pytest.raises(EncoderError, match=f"redirects to '{other.url}/embeddings', which is not followed"):
            server.connect().embed(TEXTS)
        assert other.asked == []
    assert len(server.asked) == 1


def test_dimensions_are_asked_for_and_checked(server: LoopbackOpenAI) -> None:
    assert server.connect(dimensions=8).first(TEXTS).shape == (20, 8)
    assert server.asked[-1].body["dimensions"] == 8
    with pytest.raises(EncoderError, match=r"gives 8 dimensions instead of 4; leave out .* truncate_dim"):
        server.connect(dimensions=4).first(TEXTS)


def test_another_dimension_than_before_is_refused(server: LoopbackOpenAI) -> None:
    api = server.connect(batch_items=5, encoding="float")
    api.first(TEXTS[:3])
    server.script += [good, changes(lambda rows: [row | {"embedding": row["embedding"][:7]} for row in rows])]
    with pytest.raises(EncoderError, match="gives 7 dimensions instead of 8 for the sentence 'sentence "):
        api.embed(TEXTS)


def test_failure_stops_the_other_requests(server: LoopbackOpenAI) -> None:
    server.behave = fails(418)
    with pytest.raises(EncoderError, match="418"):
        server.connect(batch_items=1, concurrency=2).embed([f"{i}" for i in range(500)])
    time.sleep(0.1)
    assert len(server.asked) < 10


def test_failure_stops_requests_that_are_tried_again(server: LoopbackOpenAI) -> None:
    busy = threading.Event()

    def behave(exchange: Exchange) -> None:
        if exchange.asked.texts[0] == TEXTS[0]:
            fails(500)(exchange)
            busy.set()
        else:
            busy.wait(60)
            fails(418)(exchange)

    server.behave = behave
    with pytest.raises(EncoderError, match="418"):
        server.connect(batch_items=10, concurrency=2, retries=10**6).embed(TEXTS)
    time.sleep(0.1)
    asked = len(server.asked)
    time.sleep(0.1)
    assert len(server.asked) == asked


def test_failure_does_not_wait_for_the_other_requests(server: LoopbackOpenAI) -> None:
    server.script += [hangs, fails(418)]
    start = time.monotonic()
    with pytest.raises(EncoderError, match="418"):
        server.connect(batch_items=10, concurrency=2).embed(TEXTS)
    assert time.monotonic() - start < 20  # it would hang for 30


INTERRUPTED = """
import sys
from ensembed.encoders import open_encoder
encoder = open_encoder(sys.argv[1])
print("ready", flush=True)
try:
    encoder.encode([f"{sys.argv[2]} {i}" for i in range(int(sys.argv[3]))])
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_ctrl_c_ends_the_program_at_once(server: LoopbackOpenAI, tmp_path: Path) -> None:
    """In requests side by side and in a single one, in a request that hangs and in a break between two."""

    def behave(exchange: Exchange) -> None:
        what = exchange.asked.texts[0].split()[0]
        {"hang": hangs, "wait": fails(429, Retry_After="100")}.get(what, good)(exchange)

    server.behave = behave
    environment = os.environ | {"ENSEMBED_CACHE": str(tmp_path)}
    with ExitStack() as stack:
        processes = []
        for what, sentences in itertools.product(["hang", "wait"], ["1", "300"]):
            command = [sys.executable, "-c", INTERRUPTED, f"openai:{server.url}#m", what, sentences]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        while len(server.asked) < 2 * (1 + 3) + len(processes):  # the probes too
            time.sleep(0.01)
        time.sleep(0.1)
        start = time.monotonic()
        for process in processes:
            process.send_signal(signal.SIGINT)
        assert [process.wait(60) for process in processes] == [130] * 4
        assert time.monotonic() - start < 20  # they would hang for 30, or wait for 100


def test_proxy_is_not_used_for_this_machine(server: LoopbackOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert_right(server.connect().embed(TEXTS), server, TEXTS)


def test_unusable_proxy_is_reported(server: LoopbackOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "gopher://proxy")
    with pytest.raises(EncoderError, match=r"encoder 'it' failed: .*gopher"):
        server.connect()
