"""The encoder `openai:URL#MODEL`: what it sends, what it is known by, and that its key is seen nowhere."""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from loopback_openai import Behaviour, Exchange, LoopbackOpenAI, as_base64, drops, fails, good, says
from make_openai import make_openai

from ensembed import Ensemble, load
from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders import DemoEncoder, open_encoder
from ensembed.encoders.base import FloatArray
from ensembed.encoders.openai.openai_encoder import SERVER_PROBES
from ensembed.errors import EncoderError, EnsembedError, InputError, MissingError, ModelError
from ensembed.methods import Concat
from ensembed.testing import files_of
from ensembed.views import ViewStore

KEY = "sk-Zq9vWx71nobodyMaySeeThis"


@pytest.fixture
def server() -> Iterator[LoopbackOpenAI]:
    with LoopbackOpenAI() as running:
        yield running


class Noisy(DemoEncoder):
    """Never gives the same numbers twice: they differ by a given part of their length."""

    def __init__(self, part: float, seed: int = 3) -> None:
        super().__init__(8, seed)
        self._part = part
        self._generator = np.random.default_rng()

    def embed(self, sentences: list[str]) -> FloatArray:
        vectors = super().embed(sentences)
        noise = self._generator.standard_normal(vectors.shape)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True) / np.linalg.norm(noise, axis=1, keepdims=True)
        return np.asarray(vectors + self._part * lengths * noise, np.float32)


def test_vectors_are_those_of_the_server(tmp_path: Path) -> None:
    encoder = open_encoder(make_openai(tmp_path))
    sentences = ["a dog", "", "two cats", "a dog"]
    np.testing.assert_array_equal(encoder.encode(sentences), DemoEncoder(16, seed=5).encode(sentences))


def test_spec_holds_model_dimensions_and_max_chars(server: LoopbackOpenAI) -> None:
    name = f"openai:{server.url}#org/model:tag?max_chars=9&timeout=5"
    spec = open_encoder(name).spec
    assert (spec.name, spec.kind, spec.dim, spec.pooling) == (name, "openai", 8, "unknown")
    assert spec.extra == (("max_chars", "9"), ("model", "org/model:tag"))
    assert server.asked[0].body["model"] == "org/model:tag"
    assert server.asked[0].texts == list(SERVER_PROBES)
    assert server.asked[0].path == "/v1/embeddings"
    assert "authorization" not in server.asked[0].headers
    spec = open_encoder(f"openai:{server.url}#m?dimensions=8").spec
    assert spec.extra == (("dimensions", "8"), ("max_chars", "8000"), ("model", "m"))


def test_query_of_a_url_is_sent(server: LoopbackOpenAI) -> None:
    open_encoder(f"openai:{server.url}/deployments/d?api-version=2024-02-01#m?retries=0")
    assert server.asked[0].path == "/v1/deployments/d/embeddings?api-version=2024-02-01"


def test_key_depends_on_what_is_asked_and_not_on_how(server: LoopbackOpenAI) -> None:
    def key(options: str) -> str:
        return open_encoder(f"openai:{server.url}#m{options}").spec.key

    plain = key("")
    for same in ("batch_items=1", "batch_tokens=9", "concurrency=1", "timeout=9", "retries=0", "encoding=float"):
        assert key(f"?{same}") == plain
    others = [key(f"?{other}") for other in ("dimensions=8", "max_chars=100", "revision=2024-01", "prefix=query: ")]
    assert len({plain, *others}) == 5
    assert open_encoder(f"openai:{server.url}#n").spec.key != plain


def test_options_change_the_requests(server: LoopbackOpenAI) -> None:
    sentences = [f"sentence {i}" for i in range(10)]
    encoder = open_encoder(f"openai:{server.url}#m?batch_items=4&concurrency=1&encoding=float")
    server.asked.clear()
    encoder.encode(sentences)
    assert [asked.texts for asked in server.asked] == [sentences[:4], sentences[4:8], sentences[8:]]
    assert all("encoding_format" not in asked.body for asked in server.asked)
    encoder = open_encoder(f"openai:{server.url}#m?batch_tokens=14&concurrency=1")
    server.asked.clear()
    encoder.encode(sentences)
    assert [len(asked.texts) for asked in server.asked] == [2] * 5


@pytest.mark.parametrize(
    "option",
    [
        "batch_items=0",
        "batch_items=x",
        "batch_tokens=0",
        "concurrency=0",
        "timeout=0",
        "timeout=nan",
        "timeout=inf",
        "timeout=-1",
        "timeout=1e9",
        "retries=-1",
        "dimensions=0",
        "max_chars=0",
        "encoding=utf-8",
        "revision=",
    ],
)
def test_options_are_checked_before_any_request(server: LoopbackOpenAI, option: str) -> None:
    with pytest.raises(InputError, match=f"is not a value for {option.partition('=')[0]}"):
        open_encoder(f"openai:{server.url}#m?{option}")
    with pytest.raises(InputError, match="has no option 'user'; it has: batch_items, "):
        open_encoder(f"openai:{server.url}#m?user=me")
    assert server.asked == []


def test_missing_httpx_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingError, match=r"pip install 'ensembed\[openai\]'"):
        open_encoder("openai:http://localhost:1#m")


def test_sentences_are_cut_and_blank_ones_sent_as_a_space(server: LoopbackOpenAI) -> None:
    encoder = open_encoder(f"openai:{server.url}#m?max_chars=5")
    server.asked.clear()
    encoder.encode(["a long sentence", "", " \t\n", "      too late", "東京は日本の首都です"])
    assert server.asked[0].texts == ["a lon", " ", " ", " ", "東京は日本"]
    encoder = open_encoder(f"openai:{server.url}#m")
    encoder.encode(["x" * 10_000_000])
    assert server.asked[-1].texts == ["x" * 8000]


def test_refused_sentence_is_named(server: LoopbackOpenAI) -> None:
    def strict(exchange: Exchange) -> None:
        (fails(400, "too long") if max(map(len, exchange.asked.texts)) > 100 else good)(exchange)

    server.behave = strict
    encoder = open_encoder(f"openai:{server.url}#m?concurrency=2&batch_items=16")
    sentences = [f"sentence {i}" for i in range(100)]
    with pytest.raises(EncoderError, match=r"400: 'too long'.* the sentence 'so long so long .*option max_chars"):
        encoder.encode([*sentences[:42], "so long " * 20, *sentences[42:]])
    assert open_encoder(f"openai:{server.url}#m?max_chars=100").encode(["so long " * 20]).shape == (1, 8)


def test_server_that_fails_later_is_named(server: LoopbackOpenAI) -> None:
    encoder = open_encoder(f"openai:{server.url}#m?retries=0")
    server.behave = drops
    with pytest.raises(
        EncoderError, match=rf"^encoder 'openai:{server.url}#m\?retries=0': {server.url}/embeddings failed"
    ):
        encoder.encode(["a"])


def test_spec_key_survives_noise_and_a_move_to_another_host() -> None:
    with LoopbackOpenAI(Noisy(0.003)) as one, LoopbackOpenAI(Noisy(0.003)) as other:
        keys = {open_encoder(f"openai:{server.url}#m").spec.key for server in (one, other, one, other)}
        assert len(keys) == 1
        other.encoder = DemoEncoder(8, seed=4)
        assert open_encoder(f"openai:{other.url}#m").spec.key not in keys
        assert open_encoder(f"openai:{one.url}#m").spec.key in keys


def test_views_are_reused_by_the_next_opening(tmp_path: Path) -> None:
    with LoopbackOpenAI(Noisy(0.003)) as server:
        store, corpus = ViewStore(tmp_path / "views"), ListCorpus(["a dog", "two cats"])
        first = store.embed(corpus, open_encoder(f"openai:{server.url}#m"))[:]
        again = store.embed(corpus, open_encoder(f"openai:{server.url}#m"))[:]
        np.testing.assert_array_equal(first, again)


def test_model_loads_on_a_machine_that_saw_other_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LoopbackOpenAI(Noisy(0.003)) as server:
        name = f"openai:{server.url}#m?normalize=true"
        model = Ensemble([name, "demo?dim=4"]).fit(["a dog"], Concat())
        model.save(tmp_path / "model")
        monkeypatch.setenv("ENSEMBED_CACHE", str(tmp_path / "another cache"))
        again = load(tmp_path / "model")
        np.testing.assert_allclose(again.encode(["two cats"]), model.encode(["two cats"]), atol=0.05)
        assert again.ensemble.encoders[0].spec.revision != model.ensemble.encoders[0].spec.revision
        server.encoder = DemoEncoder(8, seed=4)
        with pytest.raises(ModelError, match="is not the encoder this model was fitted on"):
            load(tmp_path / "model")


@pytest.mark.parametrize("option", ["revision", "max_chars"])
def test_model_does_not_load_with_other_settings(
    server: LoopbackOpenAI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """A revision that was given is compared as ever, and so is everything beside a probed one."""
    options = {"revision": "?revision=2024-01", "max_chars": ""}[option]
    Ensemble([f"openai:{server.url}#m{options}", "demo?dim=4"]).fit(["a dog"], Concat()).save(tmp_path / "model")
    load(tmp_path / "model")
    if option == "revision":
        monkeypatch.setattr("ensembed.encoders.openai.openai_encoder.Checked", lambda *_: lambda value: f"{value}-02")
    else:
        monkeypatch.setattr(
            "ensembed.encoders.openai.openai_encoder.OpenAIEncoder.__init__.__kwdefaults__",
            {"max_chars": 3, "revision": None},
        )
    with pytest.raises(ModelError, match=r"has changed: .*; fit again"):
        load(tmp_path / "model")


def repeats(status: int, headers: bool = False) -> Behaviour:
    """A server that throws back at us what we sent, cut in the middle of the key where messages are cut."""

    def behave(exchange: Exchange) -> None:
        sent = exchange.asked.headers["authorization"]
        location = {"Location": f"http://127.0.0.1:9/{sent}"} if headers else {}
        exchange.send(status, f"{sent} {'x' * 60} {sent} {'x' * 200} {sent}", location)

    return behave


@pytest.mark.parametrize(
    "behave",
    [repeats(status) for status in (200, 400, 401, 403, 404, 418, 429, 500)]
    + [
        repeats(302, headers=True),
        says(f'{{"data": [{{"embedding": "{KEY}"}}]}}'),
        says(f'{{"error": "{KEY}"}}'),
        drops,
    ]
    + [says(f'{{"data": ["{KEY}", {{"a": "{KEY}"}}]}}'), says(KEY, 429, Retry_After="999"), fails(401, KEY)],
)
def test_api_key_is_not_shown_by_failures(
    server: LoopbackOpenAI, behave: Behaviour, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("ENSEMBED_API_KEY_127_0_0_1", KEY)
    encoder = open_encoder(f"openai:{server.url}#m?retries=0")
    server.behave = behave
    with pytest.raises(EnsembedError) as caught:
        encoder.encode(["a dog"])
    assert server.asked[-1].headers["authorization"] == f"Bearer {KEY}"
    outputs = [str(caught.value), repr(caught.value), "".join(traceback.format_exception(caught.value)), repr(encoder)]
    outputs += [record.getMessage() for record in caplog.records if not _echoed(record)]
    assert any("httpcore" in record.name for record in caplog.records)
    for text in outputs:
        assert KEY[:9] not in text


def _echoed(record: logging.LogRecord) -> bool:
    """Httpcore logs the headers of replies; a server that puts our own key there has given it away itself."""
    return "receive_response_headers.complete" in record.getMessage()


def test_api_key_is_not_shown_by_logs_reprs_or_files(
    server: LoopbackOpenAI, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(f"ENSEMBED_API_KEY_127_0_0_1_{server.port}", KEY)
    model = Ensemble([f"openai:{server.url}#m", "demo?dim=4"]).fit(["a dog"], Concat())
    model.save(tmp_path / "model")
    assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {KEY}"}
    member = model.ensemble.encoders[0]
    outputs = [record.getMessage() for record in caplog.records] + [repr(member), repr(member.spec), repr(model)]
    outputs += [repr(value) for value in vars(member).values()]
    assert len(outputs) > 20
    assert all(KEY not in text for text in outputs)
    assert all(KEY.encode() not in content for content in files_of(tmp_path).values())


@pytest.mark.parametrize("status", [401, 403])
def test_missing_and_wrong_api_keys_give_different_errors(
    server: LoopbackOpenAI, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    def guarded(exchange: Exchange) -> None:
        right = exchange.asked.headers.get("authorization") == f"Bearer {KEY}"
        (good if right else fails(status, "who are you?"))(exchange)

    server.behave = guarded
    name, variable = f"openai:{server.url}#m", "ENSEMBED_API_KEY_127_0_0_1"
    with pytest.raises(
        EncoderError, match=rf"wants a key \({status}: 'who are you\?'\); set the variable {variable} to it$"
    ):
        open_encoder(name)
    monkeypatch.setenv(variable, "wrong")
    with pytest.raises(EncoderError, match=rf"does not accept the key in the variable {variable} \({status}"):
        open_encoder(name)
    assert len(server.asked) == 2
    monkeypatch.setenv(variable, KEY)
    assert open_encoder(name).encode(["a"]).shape == (1, 8)


def test_redirect_does_not_send_the_api_key(server: LoopbackOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENSEMBED_API_KEY_127_0_0_1", KEY)
    with LoopbackOpenAI() as other:
        server.behave = says("", 307, Location=f"{other.url}/embeddings")
        with pytest.raises(
            EncoderError, match=re.escape(f"redirects to '{other.url}/embeddings', which is not followed")
        ):
            open_encoder(f"openai:{server.url}#m")
        assert other.asked == []


def test_nan_in_a_reply_is_refused_with_its_sentence(server: LoopbackOpenAI) -> None:
    encoder = open_encoder(f"openai:{server.url}#m")
    server.behave = lambda exchange: exchange.give(
        [{"index": 0, "embedding": as_base64(np.full(8, np.nan, np.float32))}]
    )
    with pytest.raises(EncoderError, match="gives NaN or Inf for the sentence 'a dog'"):
        encoder.encode(["a dog"])
