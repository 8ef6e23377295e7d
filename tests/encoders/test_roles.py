"""Queries and documents, and long texts: members get what they were trained with, through everything built on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient

from ensembed import Ensemble, load
from ensembed.encoders import AdjustedEncoder, DemoEncoder, open_encoder
from ensembed.encoders.wrappers import split_text
from ensembed.errors import InputError, SearchIndexError
from ensembed.methods import Concat
from ensembed.models.ensemble import MetaEncoder
from ensembed.search import Index
from ensembed.serve import create_app
from ensembed.testing import check_encoder

E5 = "demo?query_prefix=query: &document_prefix=passage: "
TEXTS = ["a dog runs", "two cats sleep", "it rains"]


@pytest.fixture
def model() -> MetaEncoder:
    return Ensemble([f"{E5}&seed=1", "demo?dim=16&seed=2"]).fit([], Concat())


def prefixed(texts: list[str], prefix: str) -> NDArray[Any]:
    first, second = DemoEncoder(seed=1), DemoEncoder(16, seed=2)
    return (
        Concat()
        .fit([first.encode(texts), second.encode(texts)])
        .transform([first.encode([prefix + text for text in texts]), second.encode(texts)])
    )


def test_prefixes_of_queries_and_documents() -> None:
    encoder, plain = open_encoder(E5), DemoEncoder()
    check_encoder(encoder)
    assert np.array_equal(encoder.encode(TEXTS), plain.encode(TEXTS))
    for encode, prefix in ((encoder.encode_query, "query: "), (encoder.encode_document, "passage: ")):
        assert np.array_equal(encode(TEXTS), plain.encode([prefix + text for text in TEXTS]))
        assert np.array_equal(encode(TEXTS[0]), plain.encode(prefix + TEXTS[0]))
    keys = {encoder.spec.key, encoder.query_encoder.spec.key, encoder.document_encoder.spec.key}
    assert len(keys) == 3  # views of the three are kept apart
    assert encoder.spec.key == plain.spec.key
    assert encoder.query_encoder is encoder.query_encoder
    assert np.array_equal(encoder.query_encoder.encode_query(TEXTS), encoder.encode_query(TEXTS))


def test_a_role_without_a_prefix_of_its_own_has_the_common_one() -> None:
    encoder = open_encoder("demo?prefix=x &query_prefix=query: ")
    assert encoder.document_encoder is encoder
    assert np.array_equal(encoder.encode_query("a dog"), DemoEncoder().encode("query: a dog"))
    assert np.array_equal(encoder.encode_document("a dog"), DemoEncoder().encode("x a dog"))
    plain = DemoEncoder()
    assert plain.query_encoder is plain.document_encoder is plain
    cut = AdjustedEncoder(open_encoder(E5), truncate_dim=4)
    assert np.array_equal(cut.encode_query(TEXTS), open_encoder(E5).encode_query(TEXTS)[:, :4])


def test_every_member_of_an_ensemble_gets_its_own_prefix(model: MetaEncoder, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    for other in (model, load(tmp_path / "model")):
        np.testing.assert_allclose(other.encode_query(TEXTS), prefixed(TEXTS, "query: "), atol=1e-6)
        np.testing.assert_allclose(other.encode_document(TEXTS), prefixed(TEXTS, "passage: "), atol=1e-6)
        np.testing.assert_allclose(other.encode(TEXTS), prefixed(TEXTS, ""), atol=1e-6)
    plain = Ensemble(["demo", "demo?seed=3"]).fit([], Concat())
    assert plain.query_encoder is plain.document_encoder is plain


def test_index_encodes_documents_and_queries(model: MetaEncoder, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    index = Index.create(tmp_path / "index", tmp_path / "model")
    index.add(TEXTS)
    for opened in (index, Index.open(tmp_path / "index")):
        [hits] = opened.search("a dog", k=3)
        documents, query = model.encode_document([hit.text for hit in hits]), model.encode_query(["a dog"])
        cosines = model.similarity(query, documents)[0]
        np.testing.assert_allclose([hit.score for hit in hits], cosines, atol=1e-5)
    changed = Ensemble(["demo?seed=1&document_prefix=text: ", "demo?dim=16&seed=2"]).fit([], Concat())
    with pytest.raises(SearchIndexError, match="their vectors cannot be compared"):
        Index.open(tmp_path / "index", changed)


def test_index_from_before_roles_keeps_plain_vectors(tmp_path: Path) -> None:
    """Its manifest has the spec of the model, and not that of the model's encoder of documents."""
    Index.create(tmp_path / "old", "demo").add(TEXTS)
    index = Index.open(tmp_path / "old", E5)  # the same model, which treats queries apart by now
    assert not index.has_roles
    assert index.search(TEXTS[0], k=1)[0][0].score == pytest.approx(1)
    index.add(["more"])
    assert index.search("more", k=1)[0][0].score == pytest.approx(1)


def test_server_encodes_queries_and_documents(model: MetaEncoder, tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", model)
    index.add(TEXTS)
    with TestClient(create_app(model, name="m", index=index)) as client:
        roles = {None: model.encode, "query": model.encode_query, "document": model.encode_document}
        for role, encode in (roles | {"passage": model.encode_document}).items():
            body = {"model": "m", "input": TEXTS} | ({"input_type": role} if role else {})
            for _ in range(2):  # the second time from the cache
                reply = client.post("/v1/embeddings", json=body).json()
                found = np.array([row["embedding"] for row in reply["data"]], np.float32)
                np.testing.assert_allclose(found, encode(TEXTS), atol=1e-6)
        wrong = client.post("/v1/embeddings", json={"model": "m", "input": "a", "input_type": "title"})
        assert wrong.status_code == 400
        hits = client.post("/search", json={"query": "a dog", "k": 3}).json()["hits"]
        expected = [hit.score for hit in index.search("a dog", k=3)[0]]
        np.testing.assert_allclose([hit["score"] for hit in hits], expected, atol=1e-6)


LONG = "A dog barks at the old cat. The cat sleeps. Stocks fell by nine points today, and nobody knows why they did so."


def test_long_texts_are_pooled_from_their_chunks() -> None:
    chunks = split_text(LONG, 50)
    assert " ".join(chunks) == LONG
    assert all(len(chunk) <= 50 for chunk in chunks)
    parts = DemoEncoder().encode(["x " + chunk for chunk in chunks])
    mean, largest = (open_encoder(f"demo?long={how}&chunk=50&prefix=x ") for how in ("chunk", "chunk-max"))
    check_encoder(mean)
    texts = [LONG, "short", LONG + " More."]
    np.testing.assert_allclose(mean.encode(texts)[0], parts.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(largest.encode(texts)[0], parts.max(axis=0), atol=1e-6)
    for encoder in (mean, largest):  # a short text is encoded as it always was
        assert np.array_equal(encoder.encode(texts)[1], DemoEncoder().encode("x short"))
    assert len({mean.spec.key, largest.spec.key, open_encoder("demo?prefix=x ").spec.key}) == 3
    unit = open_encoder("demo?long=chunk&chunk=50&normalize=true").encode(texts)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)


def test_a_short_text_is_left_as_it_is() -> None:
    assert split_text(" a dog\n", 16) == [" a dog\n"]
    assert split_text(" a dog\n", 6) == ["a dog"]
    text = "a word here. " * 20_000
    assert " ".join(split_text(text, 1000)) == text.rstrip()


def test_chunks_of_texts_without_sentences_or_words() -> None:
    assert split_text("a" * 25, 10) == ["a" * 9, "a" * 8, "a" * 8]
    assert split_text("", 10) == [""]
    assert split_text(" " * 11, 10) == [""]
    assert split_text("ab cd ef gh ij kl", 10) == ["ab cd ef", "gh ij kl"]
    assert all(1 <= len(chunk) <= 20 for chunk in split_text("one. two three four five six. " * 40, 20))


def test_settings_of_long_texts_are_checked() -> None:
    assert open_encoder("demo?long=chunk").spec.key == DemoEncoder().spec.key  # it reads all of a text
    for name, message in (
        ("demo?long=all", "which is cut or chunk or chunk-max"),
        ("demo?chunk=50", "chunk is for long=chunk"),
        ("demo?long=chunk&chunk=3", "at least 16 characters, not 3"),
    ):
        with pytest.raises(InputError, match=message):
            open_encoder(name)
