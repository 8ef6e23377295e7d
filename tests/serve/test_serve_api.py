"""The replies of the endpoints, in this process."""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from served_child import Odd
from starlette.testclient import TestClient

from ensembed import Ensemble, MetaEncoder, ObjectEncoder, open_encoder
from ensembed.encoders import AdjustedEncoder
from ensembed.methods import GCCA, Auto, Concat
from ensembed.search import Index
from ensembed.serve import Settings, create_app
from ensembed.serve.served_model import without_folders

TEXTS = ["a dog barks", "the cat sleeps", "a cat barks at the dog"]
CORPUS = [f"{a} {b} {c}" for a in ("a", "the", "one") for b in ("dog", "cat", "cow") for c in ("barks", "sleeps")]


@pytest.fixture(scope="module")
def model() -> MetaEncoder:
    return Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"]).fit(CORPUS, Auto(weights=(1.0, 0.5)))


@pytest.fixture
def client(model: MetaEncoder) -> Iterator[TestClient]:
    with TestClient(create_app(model, name="tiny", settings=Settings(aliases=("other",)))) as client:
        yield client


def embed(client: TestClient, **body: Any) -> Any:  # noqa: ANN401 - JSON
    reply = client.post("/v1/embeddings", json={"model": "tiny", **body})
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_vectors_equal_those_of_the_model(client: TestClient, model: MetaEncoder) -> None:
    expected = model.encode(TEXTS)
    numbers = embed(client, input=TEXTS)
    packed = embed(client, input=TEXTS, encoding_format="base64")
    for i in range(len(TEXTS)):
        assert numbers["data"][i]["index"] == packed["data"][i]["index"] == i
        np.testing.assert_array_equal(np.array(numbers["data"][i]["embedding"], np.float32), expected[i])
        raw = base64.b64decode(packed["data"][i]["embedding"])
        np.testing.assert_array_equal(np.frombuffer(raw, "<f4"), expected[i])
    assert numbers["usage"] == {"prompt_tokens": 12, "total_tokens": 12}
    assert numbers["model"] == "tiny"
    assert numbers["object"] == "list"


def test_string_is_one_text_and_repeated_texts_keep_their_rows(client: TestClient) -> None:
    alone = embed(client, input="a dog barks")["data"]
    assert len(alone) == 1
    rows = [item["embedding"] for item in embed(client, input=["a dog barks", "x", "a dog barks"])["data"]]
    assert rows[0] == rows[2] == alone[0]["embedding"]
    assert rows[0] != rows[1]


def test_dimensions_are_those_of_a_truncated_model() -> None:
    model = Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"]).fit(CORPUS, GCCA(dim=5))
    with TestClient(create_app(model, name="tiny")) as client:
        rows = [item["embedding"] for item in embed(client, input=TEXTS, dimensions=3)["data"]]
    np.testing.assert_allclose(np.array(rows), model.truncate(3).encode(TEXTS), atol=1e-6)


def test_dimensions_of_a_concatenation_are_the_best_ones_or_refused() -> None:
    ensemble = Ensemble(["demo?dim=8&seed=1", "demo?dim=6&seed=2"])
    model = ensemble.fit(CORPUS, Concat())
    with TestClient(create_app(model, name="tiny")) as client:
        rows = [item["embedding"] for item in embed(client, input=TEXTS, dimensions=3)["data"]]
    np.testing.assert_allclose(np.array(rows), model.truncate(3).encode(TEXTS), atol=1e-6)
    prefixed = AdjustedEncoder(model, prefix="a ")
    with TestClient(create_app(prefixed, name="tiny")) as client:
        rows = [item["embedding"] for item in embed(client, input=TEXTS, dimensions=3)["data"]]
    expected = model.truncate(3).encode([f"a {text}" for text in TEXTS])
    np.testing.assert_allclose(np.array(rows), expected, atol=1e-6)
    with TestClient(create_app(ensemble.fit([], Concat()), name="tiny")) as client:
        reply = client.post("/v1/embeddings", json={"input": "a dog", "model": "tiny", "dimensions": 3})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "dimensions"
    assert "does not know its leading directions" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"input": "", "model": "tiny"}, 400, "empty_input", "input"),
        ({"input": [], "model": "tiny"}, 400, "empty_input", "input"),
        ({"input": ["a", ""], "model": "tiny"}, 400, "empty_input", "input"),
        ({"model": "tiny"}, 400, "empty_input", "input"),
        ({"input": [1, 2, 3], "model": "tiny"}, 400, "token_ids", "input"),
        ({"input": [[1, 2], [3]], "model": "tiny"}, 400, "token_ids", "input"),
        ({"input": [["a"], ["b"]], "model": "tiny"}, 400, "invalid_input", "input"),
        ({"input": [[]], "model": "tiny"}, 400, "invalid_input", "input"),
        ({"input": ["a", 1], "model": "tiny"}, 400, "invalid_input", "input"),
        ({"input": None, "model": "tiny"}, 400, "invalid_input", "input"),
        ({"input": {"a": "b"}, "model": "tiny"}, 400, "invalid_input", "input"),
        ({"input": True, "model": "tiny"}, 400, "invalid_input", "input"),
        ({"input": "a"}, 400, "missing", "model"),
        ({"input": "a", "model": 3}, 400, "string_type", "model"),
        ({"input": "a", "model": "unknown"}, 404, "model_not_found", "model"),
        ({"input": "a", "model": "tiny", "dimensions": 15}, 400, "too_many_dimensions", "dimensions"),
        ({"input": "a", "model": "tiny", "dimensions": 0}, 400, "greater_than_equal", "dimensions"),
        ({"input": "a", "model": "tiny", "dimensions": "3"}, 400, "int_type", "dimensions"),
        ({"input": "a", "model": "tiny", "encoding_format": "hex"}, 400, "literal_error", "encoding_format"),
        (["a"], 400, "invalid_json", None),
        ("a", 400, "invalid_json", None),
        ({"input": ["a"] * 2049, "model": "tiny"}, 400, "too_many_texts", "input"),
        ({"input": "a" * 32769, "model": "tiny"}, 400, "text_too_long", "input"),
    ],
)
def test_invalid_embeddings_request_gets_an_openai_error(
    client: TestClient, body: object, status: int, code: str, param: str | None
) -> None:
    reply = client.post("/v1/embeddings", json=body)
    assert reply.status_code == status
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"], error["type"]) == (code, param, "invalid_request_error")


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"input":"\\ud800","model":"tiny"}', b"[" * 1000, b"\x00"])
def test_body_that_is_not_json_gets_400(client: TestClient, body: bytes) -> None:
    reply = client.post("/v1/embeddings", content=body, headers={"Content-Type": "application/json"})
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] in ("invalid_json", "empty_input")


def test_other_media_types_get_415(client: TestClient) -> None:
    body = json.dumps({"input": "a", "model": "tiny"})
    assert client.post("/v1/embeddings", content=body).status_code == 415
    assert client.post("/v1/embeddings", content=body, headers={"Content-Type": "text/plain"}).status_code == 415
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert client.post("/v1/embeddings", content=body, headers=headers).json()["error"]["code"] == "packed_body"
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert client.post("/v1/embeddings", content=body, headers=headers).status_code == 200


def test_models_lists_the_name_and_the_aliases(client: TestClient) -> None:
    listed = client.get("/v1/models").json()
    assert [entry["id"] for entry in listed["data"]] == ["tiny", "other"]
    assert client.get("/v1/models/other").json()["id"] == "other"
    assert client.get("/v1/models/nobody").status_code == 404
    assert client.post("/v1/embeddings", json={"input": "a", "model": "other"}).json()["model"] == "other"


def test_similarity_matches_each_member_and_the_model(client: TestClient, model: MetaEncoder) -> None:
    facts = client.post("/similarity", json={"texts": TEXTS}).json()
    assert [member["name"] for member in facts["members"]] == ["demo?dim=8&seed=1", "demo?dim=6&seed=2"]
    for member, encoder in zip(facts["members"], model.ensemble.encoders, strict=True):
        np.testing.assert_allclose(member["matrix"], encoder.similarity(TEXTS, TEXTS), atol=2e-6)
    np.testing.assert_allclose(facts["meta"], model.similarity(TEXTS, TEXTS), atol=2e-6)
    first, second = (np.array(member["matrix"]) for member in facts["members"])
    for pair in facts["disagreement"]:
        i, j = pair["first"], pair["second"]
        assert pair["difference"] == pytest.approx(abs(first[i, j] - second[i, j]), abs=1e-5)
    pairs = [(0, 1), (0, 2), (1, 2)]
    ranks = [np.argsort(np.argsort([matrix[pair] for pair in pairs])) / 2 for matrix in (first, second)]
    spreads = {pair: abs(a - b) for pair, a, b in zip(pairs, *ranks, strict=True)}
    assert {(pair["first"], pair["second"]): pair["spread"] for pair in facts["disagreement"]} == spreads
    assert [pair["spread"] for pair in facts["disagreement"]] == sorted(spreads.values(), reverse=True)


class _Flaky:
    """Fails on texts that hold "down"."""

    def encode(self, sentences: Sequence[str]) -> NDArray[np.float64]:
        if any("down" in text for text in sentences):
            raise OSError("a secret of this machine")
        return np.array([[len(text), text.count("e"), 1.0] for text in sentences])


def test_similarity_names_a_member_that_is_down() -> None:
    flaky = ObjectEncoder(_Flaky(), name="flaky", revision="1")
    fitted = Ensemble([flaky, "demo?dim=8&seed=1", "demo?dim=6&seed=2"]).fit(CORPUS, Concat())
    model = MetaEncoder(fitted.ensemble, fitted.meta, missing="drop")
    with TestClient(create_app(model, settings=Settings(batch_texts=2))) as client:
        whole = client.post("/similarity", json={"texts": TEXTS}).json()
        assert [member["name"] for member in whole["members"]] == ["flaky", "demo?dim=8&seed=1", "demo?dim=6&seed=2"]
        assert whole["missing"] == []
        # The second batch of the three texts is the one that fails.
        facts = client.post("/similarity", json={"texts": [*TEXTS[:2], "down"]}).json()
        assert [member["name"] for member in facts["members"]] == ["demo?dim=8&seed=1", "demo?dim=6&seed=2"]
        assert facts["missing"] == ["flaky"]
        assert "flaky" not in {pair[end] for pair in facts["disagreement"] for end in ("highest", "lowest")}
        again = client.post("/similarity", json={"texts": TEXTS}).json()
        assert again == whole


def test_disagreement_names_no_member_if_nothing_differs() -> None:
    one = open_encoder("demo?dim=8")
    twins = Ensemble([one, ObjectEncoder(one, name="twin", revision="1")]).fit(CORPUS, Concat())
    with TestClient(create_app(twins)) as client:
        for texts in (TEXTS, TEXTS[:2], ["same", "same"]):
            pairs = client.post("/similarity", json={"texts": texts}).json()["disagreement"]
            assert pairs
            for pair in pairs:
                assert (pair["spread"], pair["difference"], pair["highest"], pair["lowest"]) == (0, 0, None, None)


def test_disagreement_names_the_members_that_rank_a_pair_highest_and_lowest(client: TestClient) -> None:
    for texts in (CORPUS, TEXTS[:2]):
        facts = client.post("/similarity", json={"texts": texts}).json()
        assert facts["disagreement"]
        for pair in facts["disagreement"]:
            assert {pair["highest"], pair["lowest"]} == {member["name"] for member in facts["members"]}


@pytest.mark.parametrize("texts", [["one"], ["one", "two"], ["same", "same"]])
def test_similarity_of_few_texts(client: TestClient, texts: list[str]) -> None:
    facts = client.post("/similarity", json={"texts": texts}).json()
    assert np.shape(facts["meta"]) == (len(texts), len(texts))
    assert len(facts["disagreement"]) == len(texts) - 1
    assert all(pair["spread"] == 0 for pair in facts["disagreement"])


@pytest.mark.parametrize("body", [{"texts": []}, {"texts": [""]}, {"texts": "a"}, {}, {"texts": ["a"] * 65}])
def test_similarity_of_no_or_too_many_texts_gets_400(client: TestClient, body: object) -> None:
    reply = client.post("/similarity", json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "texts"


def test_single_encoder_has_no_disagreement() -> None:
    with TestClient(create_app(Odd())) as client:
        facts = client.post("/similarity", json={"texts": ["a", "bb"]}).json()
        assert facts["members"] == [{"name": "odd", "matrix": facts["meta"]}]
        assert facts["disagreement"] == []
        assert client.get("/card").json()["method"] is None


def test_card_and_similarity_name_members_without_folders(tmp_path: Path) -> None:
    names = []
    for j in range(2):
        file = tmp_path / f"secret{j}" / "inner.txt"
        file.parent.mkdir()
        file.write_text(f"dog 1 0 {j}\ncat 0 1 {j}\nbarks 1 1 1\n")
        names.append(f"words:{file}")
    model = Ensemble(names).fit(CORPUS, Concat())
    with TestClient(create_app(model)) as client:
        card = client.get("/card")
        facts = client.post("/similarity", json={"texts": ["dog", "cat", "barks"]})
        assert [member["name"] for member in card.json()["members"]] == ["words:inner.txt (1)", "words:inner.txt (2)"]
        assert [member["name"] for member in facts.json()["members"]] == ["words:inner.txt (1)", "words:inner.txt (2)"]
        assert {pair["highest"] for pair in facts.json()["disagreement"]} <= {
            "words:inner.txt (1)",
            "words:inner.txt (2)",
            None,
        }
        assert "secret" not in card.text + facts.text
    with TestClient(create_app(open_encoder(names[0]))) as client:
        assert "secret" not in client.get("/card").text + client.get("/v1/models").text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("st:/home/me/models/mine?normalize=true", "st:mine?normalize=true"),
        (
            "words:../glove.txt?pooling=sif&frequencies=/data/counts.txt",
            "words:glove.txt?pooling=sif&frequencies=counts.txt",
        ),
        ("/home/me/my model/", "my model"),
        ("C:\\models\\mine", "C:mine"),
        ("words:file:///data/glove.txt", "words:file:glove.txt"),
        ("openai:http://127.0.0.1:8000/v1#mini", "openai:http://127.0.0.1:8000/v1#mini"),
        ("words:a.txt?frequencies=%2Fdata%2Fcounts.txt", "words:a.txt?frequencies=counts.txt"),
        ("st:/home/me/bge?prefix=http://x", "st:bge?prefix=http:x"),
        ("st:/home/me/a://b", "st:a:b"),
        ("words:https://x.org/a.txt?frequencies=/home/me/n.txt", "words:https://x.org/a.txt?frequencies=n.txt"),
        ("openai:http://x.org/v1?key=1#mini?prefix=/a/b", "openai:http://x.org/v1?key=1#mini?prefix=b"),
        ("minilm", "minilm"),
    ],
)
def test_names_are_shown_without_folders(name: str, shown: str) -> None:
    assert without_folders(name) == shown


def test_card_describes_the_members(client: TestClient) -> None:
    card = client.get("/card").json()
    assert (card["name"], card["dim"], card["index"]) == ("tiny", 14, None)
    assert [(member["dim"], member["weight"]) for member in card["members"]] == [(8, 1.0), (6, 0.5)]
    assert card["method"]["name"] == "auto"


def test_search_without_an_index_gets_404(client: TestClient) -> None:
    reply = client.post("/search", json={"query": "a"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "no_index")


def test_search_gives_the_hits_of_a_real_index(model: MetaEncoder, tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", model)
    index.add(CORPUS, metadata=[{"row": i} for i in range(len(CORPUS))])
    with TestClient(create_app(model, index=Index.open(tmp_path / "index", model))) as client:
        hits = client.post("/search", json={"query": CORPUS[3], "k": 4}).json()["hits"]
        assert hits[0] == {"id": "3", "score": pytest.approx(1, abs=1e-5), "text": CORPUS[3], "metadata": {"row": 3}}
        expected = index.search([CORPUS[3]], 4)[0]
        assert [(hit["id"], hit["score"]) for hit in hits] == [(hit.id, pytest.approx(hit.score)) for hit in expected]
        assert client.get("/card").json()["index"] == {"texts": len(CORPUS), "kind": "auto", "dtype": "float32"}
        index.add(["what another process added"])
        hits = client.post("/search", json={"query": "what another process added", "k": 1}).json()["hits"]
        assert hits[0]["text"] == "what another process added"
        for wrong in ({"query": ""}, {"query": "a", "k": 0}, {"query": "a", "k": 101}, {"query": ["a"]}, {}):
            assert client.post("/search", json=wrong).status_code == 400


class _Broken:
    def __len__(self) -> int:
        return 1

    def search(self, queries: object, k: int = 10) -> list[list[Any]]:  # noqa: ARG002 - the protocol's
        if k == 1:
            raise ValueError("a secret text")
        return [[SimpleNamespace(id="0", score=float("nan"), text="a", metadata={})]]


def test_failing_index_gets_500_and_its_message_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with TestClient(create_app(Odd(), index=_Broken())) as client:
        for k in (1, 2):
            reply = client.post("/search", json={"query": "a", "k": k})
            assert (reply.status_code, reply.json()["error"]["code"]) == (500, "index_failed")
    assert "secret" not in caplog.text


def test_failing_model_gets_500_and_texts_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with TestClient(create_app(Odd())) as client:
        for path, body in (
            ("/v1/embeddings", {"input": "nan", "model": "odd"}),
            ("/similarity", {"texts": ["secret words", "nan"]}),
            ("/v1/embeddings", {"input": "secret poison", "model": "odd"}),
        ):
            reply = client.post(path, json=body)
            assert (reply.status_code, reply.json()["error"]["type"]) == (500, "server_error")
            assert "null" not in reply.text.partition('"error"')[0]
            assert "poison" not in reply.text
        assert client.post("/v1/embeddings", json={"input": "well", "model": "odd"}).status_code == 200
    assert "ValueError at serve/served_child.py" in caplog.text
    assert "poison" not in caplog.text
    assert "secret" not in caplog.text


def test_unknown_paths_and_methods_get_openai_errors(client: TestClient) -> None:
    assert client.get("/nothing").json()["error"]["type"] == "invalid_request_error"
    for path, status, code in (("/v1/embeddings", 405, "wrong_method"), ("/absent", 404, "not_found")):
        reply = client.get(path)
        assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert client.get("/static/../app.py").status_code == 404
    assert client.get("/static/%2e%2e%2fapp.py").status_code == 404
    assert client.get("/static/__init__.py").status_code == 404


def test_pages_load_nothing_from_other_servers(client: TestClient) -> None:
    for path in ("/", "/docs"):
        reply = client.get(path)
        assert reply.status_code == 200
        assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", reply.text)
        policy = reply.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
    assert "/v1/embeddings" in client.get("/docs").text
    assert client.get("/openapi.json").json()["info"]["title"] == "ensembed: tiny"


def test_page_has_no_inline_code_no_foreign_urls_and_never_inserts_markup() -> None:
    folder = resources.files("ensembed.serve") / "page"
    files = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.is_file()}
    assert not re.search(r"\bstyle=|\son\w+=|<style|<script(?! [^>]*src=)", files["index.html"])
    for name, text in files.items():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), name
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name


def test_metrics_count_known_routes_and_sum_up_all_others(client: TestClient) -> None:
    embed(client, input=TEXTS)
    embed(client, input=TEXTS)
    client.get("/a-secret-path")
    text = client.get("/metrics").text
    assert 'ensembed_requests_total{route="/v1/embeddings",status="200"} 2.0' in text
    assert 'ensembed_requests_total{route="other",status="404"} 1.0' in text
    assert 'ensembed_cache_lookups{result="hit"} 3.0' in text
    assert "secret" not in text


def test_key_is_needed_if_the_server_has_keys(model: MetaEncoder) -> None:
    settings = Settings(keys=("a-long-key", "another-key"))
    with TestClient(create_app(model, name="tiny", settings=settings)) as client:
        for path in ("/card", "/v1/models", "/metrics", "/nothing"):
            for wrong in (None, "Bearer wrong-key", "Bearer ", "a-long-key", "Basic a-long-key", "Bearer a-long-key2"):
                reply = client.get(path, headers={} if wrong is None else {"Authorization": wrong})
                assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")
        for key in settings.keys:
            assert client.get("/card", headers={"Authorization": f"Bearer {key}"}).status_code == 200
        _until_ready(client)
        for path in ("/", "/health", "/ready", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200
    assert "a-long-key" not in repr(settings)


def test_unknown_host_names_get_421_except_for_probes(model: MetaEncoder) -> None:
    settings = Settings(hosts=("localhost:8080", "[::1]"))
    with TestClient(create_app(model, settings=settings)) as client:
        for host in ("localhost", "LocalHost:8080", "[::1]:80", "[::1]"):
            assert client.get("/card", headers={"Host": host}).status_code == 200
        _until_ready(client)
        for host in ("evil.example", "localhost.evil.example", "", "[::2]"):
            for path in (
                "/card",
                "/",
                "/docs",
                "/openapi.json",
                "/metrics",
                "/v1/models",
                "/static/page.js",
                "/healthy",
            ):
                assert client.get(path, headers={"Host": host}).status_code == 421
            for path in ("/health", "/ready"):  # what probes a container calls it by its address
                assert client.get(path, headers={"Host": host}).status_code == 200


def _until_ready(client: TestClient) -> None:
    deadline = time.monotonic() + 60
    while client.get("/ready").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.01)
