"""One body of tests for all vector stores: what is added is found, by its cosine, by its id, and after reopening."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from postgres import postgres

from ensembed import Ensemble, MetaEncoder
from ensembed.encoders.demo_encoder import DemoEncoder
from ensembed.errors import EnsembedError, InputError, ModelError, SentenceError, StoreBusyError, StoreError
from ensembed.integrations.faiss import FaissStore
from ensembed.integrations.pgvector import PgvectorStore
from ensembed.integrations.qdrant import QdrantStore
from ensembed.integrations.usearch import UsearchStore
from ensembed.integrations.vector_stores import VectorStore
from ensembed.methods import GCCA, Concat

NOUNS, VERBS, PLACES = ("dog", "cat", "man", "child"), ("runs", "sleeps", "eats"), ("home", "there", "today", "alone")
SENTENCES = [f"the {noun} {verb} {place}" for noun in NOUNS for verb in VERBS for place in PLACES]
# Neither from 0 on nor in order, and one that needs 63 bits.
IDS = [2**62, *(1000 - 7 * i for i in range(1, len(SENTENCES)))]
QUERIES = ["a dog runs", "the cat eats there now", "nobody sleeps"]
MEMBERS = ["demo?dim=24&seed=1", "demo?dim=16&seed=2"]


def concatenation() -> MetaEncoder:
    return Ensemble(MEMBERS).fit(SENTENCES, Concat())


@dataclass(frozen=True)
class Backend:
    """A kind of store at a place of its own."""

    store: type[VectorStore]
    where: str
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-6

    def create(self, model: Any) -> Any:  # noqa: ANN401 - the backends differ in what they have beside the common
        return self.store.create(self.where, model, **self.options, **self.settings)  # type: ignore[attr-defined] # each subclass has its own

    def open(self, model: Any) -> Any:  # noqa: ANN401 - as `create`
        return self.store.open(self.where, model, **self.options)  # type: ignore[attr-defined] # each subclass has its own


def _faiss(tmp_path: Path, kind: str = "flat") -> Backend:
    return Backend(FaissStore, str(tmp_path / "faiss"), settings={"kind": kind})


def _usearch(tmp_path: Path, dtype: str, tolerance: float) -> Backend:
    return Backend(UsearchStore, str(tmp_path / "usearch"), settings={"dtype": dtype}, tolerance=tolerance)


def _pgvector(column: str, tolerance: float) -> Backend:
    where, table = postgres(), f"stores_{column}"
    with psycopg.connect(where) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    return Backend(PgvectorStore, where, {"table": table}, {"column": column}, tolerance)


# What the smaller numbers cost: 11 bits of a float16 or halfvec; 127 steps of an int8, of each of 40 numbers.
BACKENDS: dict[str, Callable[[Path], Backend]] = {
    "faiss": _faiss,
    "usearch": lambda tmp_path: _usearch(tmp_path, "f32", 1e-6),
    "qdrant": lambda tmp_path: Backend(QdrantStore, str(tmp_path / "qdrant")),
    "pgvector": lambda _: _pgvector("vector", 1e-6),
    "faiss-hnsw": lambda tmp_path: _faiss(tmp_path, kind="hnsw"),
    "usearch-f16": lambda tmp_path: _usearch(tmp_path, "f16", 1e-3),
    "usearch-i8": lambda tmp_path: _usearch(tmp_path, "i8", 2e-2),
    "pgvector-halfvec": lambda _: _pgvector("halfvec", 1e-3),
}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return BACKENDS[request.param](tmp_path)


def check_hits(store: VectorStore, backend: Backend, kept: dict[int, str], k: int = 5) -> None:
    """The hits are those of comparing every query with everything that is kept."""
    ids, scores = store.search(QUERIES, k=k)
    cosines = store.model.similarity(QUERIES, list(kept.values()))
    best = -np.sort(-cosines, axis=1)[:, :k]
    assert ids.shape == scores.shape == best.shape
    assert (ids.dtype.name, scores.dtype.name) == ("int64", "float32")
    np.testing.assert_allclose(scores, best, atol=backend.tolerance)
    column = {number: j for j, number in enumerate(kept)}
    for row, numbers in enumerate(ids.tolist()):
        assert len(set(numbers)) == len(numbers)
        own = cosines[row, [column[number] for number in numbers]]  # a score is that of the id beside it
        np.testing.assert_allclose(scores[row], own, atol=backend.tolerance)


ROLES = ["demo?dim=24&seed=1&query_prefix=query: &document_prefix=passage: ", MEMBERS[1]]


def test_queries_and_sentences_get_what_members_were_trained_with(backend: Backend) -> None:
    model = Ensemble(ROLES).fit(SENTENCES, Concat())
    with backend.create(model) as store:
        store.add(IDS, SENTENCES)
    expected = model.query_encoder.similarity(QUERIES, model.encode_document(SENTENCES))
    with backend.open(model) as store:
        scores = store.search(QUERIES, k=len(IDS)).scores
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1), atol=backend.tolerance)
    with pytest.raises(InputError, match="is another model"):
        backend.open(concatenation())


def test_store_of_plain_vectors_stays_one(tmp_path: Path) -> None:
    """Before stores treated queries and sentences apart, they kept plain vectors and the key of these."""
    with FaissStore.create(tmp_path / "store", concatenation()) as store:
        store.add(IDS[:9], SENTENCES[:9])
    model = Ensemble(ROLES).fit(SENTENCES, Concat())
    assert model.spec.key == store.facts.key
    with FaissStore.open(tmp_path / "store", model) as store:
        store.add(IDS[9:], SENTENCES[9:])
        check_hits(store, Backend(FaissStore, ""), dict(zip(IDS, SENTENCES, strict=True)))


def test_store_finds_what_brute_force_finds_also_after_reopening(backend: Backend) -> None:
    model = concatenation()
    store = backend.create(model)
    assert len(store) == 0
    assert store.search(QUERIES, k=3).ids.shape == (len(QUERIES), 0)
    store.add([], [])
    store.add(IDS[:30], SENTENCES[:30])
    store.add(IDS[30:], SENTENCES[30:])
    kept = dict(zip(IDS, SENTENCES, strict=True))
    assert len(store) == len(kept)
    assert IDS[0] in store
    assert 3 not in store
    check_hits(store, backend, kept)
    check_hits(store, backend, kept, k=len(kept))
    assert store.search(QUERIES[:1], k=10**9).ids.shape == (1, len(kept))
    assert store.search([], k=3).ids.shape == (0, 3)

    for number in IDS[:3]:
        del kept[number]
    store.delete(IDS[:3])
    store.delete([])
    assert len(store) == len(kept)
    assert IDS[0] not in store
    check_hits(store, backend, kept)

    store.add([IDS[5], 3, IDS[0]], ["a dog runs", "nobody sleeps", "a dog"], replace=True)
    kept |= {IDS[5]: "a dog runs", 3: "nobody sleeps", IDS[0]: "a dog"}
    assert len(store) == len(kept)
    check_hits(store, backend, kept)
    assert store.search(["a dog runs", "nobody sleeps"], k=1).ids.tolist() == [[IDS[5]], [3]]
    if hasattr(store, "texts"):
        assert store.texts([3, IDS[5], IDS[7]]) == ["nobody sleeps", "a dog runs", SENTENCES[7]]
        with pytest.raises(InputError, match="has no id 4"):
            store.texts([4])

    store.save()
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.search(QUERIES)
    with backend.open(concatenation()) as reopened:
        assert len(reopened) == len(kept)
        check_hits(reopened, backend, kept)
        reopened.delete([3])
        reopened.add([4], ["nobody sleeps here"])
        reopened.save()
    del kept[3]
    kept[4] = "nobody sleeps here"
    with backend.open(model) as reopened:
        check_hits(reopened, backend, kept)
        reopened.delete(list(kept))
        assert len(reopened) == 0
        reopened.add(IDS, SENTENCES)
        check_hits(reopened, backend, dict(zip(IDS, SENTENCES, strict=True)))


def test_refused_calls_change_nothing(backend: Backend) -> None:
    with backend.create(concatenation()) as store:
        store.add(IDS[:9], SENTENCES[:9])
        refused: list[tuple[type[EnsembedError], str, list[Any], Any]] = [
            (InputError, f"id {IDS[8]} already", [7, IDS[8]], ["a dog", "a cat"]),
            (InputError, "twice", [7, 7], ["a dog", "a cat"]),
            (InputError, "1 ids for 2 sentences", [7], ["a dog", "a cat"]),
            (InputError, "whole number", [7, "8"], ["a dog", "a cat"]),
            (InputError, "whole number", [7, True], ["a dog", "a cat"]),
            (InputError, "from 0 to", [7, -1], ["a dog", "a cat"]),
            (InputError, "from 0 to", [7, 2**63], ["a dog", "a cat"]),
            (SentenceError, "zero", [7, 8], ["a dog", ""]),
            (SentenceError, "NoneType|None", [7, 8], ["a dog", None]),
            (SentenceError, "list", [7], "a dog"),
        ]
        for kind, message, ids, sentences in refused:
            with pytest.raises(kind, match=message):
                store.add(ids, sentences)
        with pytest.raises(InputError, match="list of whole numbers"):
            store.add(7, ["a dog"])
        with pytest.raises(SentenceError, match="zero"):
            store.add([IDS[0]], [""], replace=True)
        with pytest.raises(InputError, match="has no id 7"):
            store.delete([IDS[0], 7])
        for k in (0, -1, 1.5, True):
            with pytest.raises(InputError, match="k must be"):
                store.search(QUERIES, k=k)
        with pytest.raises(SentenceError, match="zero"):
            store.search(["a dog", ""])
        assert len(store) == 9
        check_hits(store, backend, dict(zip(IDS[:9], SENTENCES[:9], strict=True)))


def test_store_refuses_another_model_and_names_both(backend: Backend) -> None:
    model = concatenation()
    with pytest.raises(StoreError):
        backend.open(model)
    with backend.create(model) as store:
        store.add(IDS[:3], SENTENCES[:3])
        store.save()
    others: list[Any] = [Ensemble([*MEMBERS[:1], "demo?dim=16&seed=3"]).fit(SENTENCES, Concat()), "demo?dim=40"]
    for other in others:
        with pytest.raises(InputError, match="another model") as refused:
            backend.open(other)
        assert model.spec.name in str(refused.value)
        assert model.spec.key in str(refused.value)
        assert (other if isinstance(other, str) else other.spec.key) in str(refused.value)
    with pytest.raises(StoreError, match="already"):
        backend.create(model)
    dropping = MetaEncoder(model.ensemble, model.meta, missing="drop")
    with pytest.raises(StoreError, match="not always the same"):
        backend.open(dropping)
    with backend.open(model) as store:  # the failures let go of it, and left it whole
        assert len(store) == 3


def test_a_server_without_a_key_is_used_only_with_trust(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    server = "openai:https://embeddings.example.org/v1#model"
    monkeypatch.setattr("ensembed.models.opening.open_encoder", lambda *_, **__: DemoEncoder(8))
    with pytest.raises(ModelError, match=r"sends your sentences.*trust=\"network\""):
        backend.create(server)
    trusting = replace(backend, options=backend.options | {"trust": True})
    with trusting.create(server) as store:
        store.add([1], ["a dog"])
        store.save()
    with pytest.raises(ModelError, match=r"sends your sentences.*trust=\"network\""):
        backend.open(server)
    with trusting.open(server) as store:
        assert len(store) == 1


CHILD = """
import importlib, json, sys
module, name, where, options, folder = json.loads(sys.argv[1])
store = getattr(importlib.import_module(module), name).open(where, folder, **options)
hits = store.search(json.loads(sys.argv[2]), k=4)
store.add([1], ["written by another process"])
store.save()
store.close()
print(json.dumps([hits.ids.tolist(), hits.scores.tolist()]))
"""


@pytest.mark.parametrize("name", ["faiss", "usearch", "qdrant", "pgvector"])
def test_another_process_opens_the_store_with_the_saved_model(name: str, tmp_path: Path) -> None:
    backend = BACKENDS[name](tmp_path)
    model = Ensemble(MEMBERS).fit(SENTENCES, GCCA(dim=10))
    model.save(tmp_path / "model")
    with backend.create(tmp_path / "model") as store:
        store.add(IDS, SENTENCES)
        store.save()
        here = store.search(QUERIES, k=4)
    facts = [backend.store.__module__, backend.store.__name__, backend.where, backend.options, str(tmp_path / "model")]
    child = [sys.executable, "-c", CHILD, json.dumps(facts), json.dumps(QUERIES)]
    done = subprocess.run(child, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    ids, scores = json.loads(done.stdout)
    assert ids == here.ids.tolist()
    np.testing.assert_allclose(scores, here.scores, atol=1e-6)
    with backend.open(model) as store:
        assert store.search(["written by another process"], k=1).ids.tolist() == [[1]]


@pytest.mark.parametrize("name", ["faiss", "usearch"])
def test_damaged_truncated_or_foreign_files_are_refused(name: str, tmp_path: Path) -> None:
    backend, model = BACKENDS[name](tmp_path), concatenation()
    with backend.create(model) as store:
        store.add(IDS, SENTENCES)
        store.save()
    folder = Path(backend.where)
    facts, index = folder / "store.json", next(folder.glob("index-*"))
    assert len(list(folder.glob("index-*"))) == 1
    for damaged, data, message in [
        (index, index.read_bytes()[:-100], "damaged"),
        (index, index.read_bytes()[:200] + b"\xff" + index.read_bytes()[201:], "damaged"),
        (index, None, "missing"),
        (facts, facts.read_bytes()[:40], "damaged"),
        (facts, b"{}", "not a vector store"),
        (facts, facts.read_bytes().replace(b'"format": 1', b'"format": 2'), "format 2"),
        (facts, facts.read_bytes().replace(name.encode(), b"other"), "a store of other"),
        (facts, facts.read_bytes().replace(b"index-", b"../index-"), "damaged"),
    ]:
        whole = damaged.read_bytes()
        damaged.unlink()
        if data is not None:
            damaged.write_bytes(data)
        with pytest.raises(StoreError, match=message):
            backend.open(model)
        damaged.write_bytes(whole)
    with backend.open(model) as store:
        assert len(store) == len(SENTENCES)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="not a folder"):
        backend.store.create(tmp_path / "file", model)  # type: ignore[attr-defined] # each subclass has its own


@pytest.mark.parametrize("name", ["faiss", "usearch"])
def test_second_of_two_writers_is_refused(name: str, tmp_path: Path) -> None:
    backend, model = BACKENDS[name](tmp_path), concatenation()
    with backend.create(model) as first, backend.open(model) as second:
        first.add([1, 2], SENTENCES[:2])
        first.save()
        first.add([4], SENTENCES[3:4])
        first.save()
        second.add([3], SENTENCES[2:3])
        with pytest.raises(StoreBusyError, match="another process has saved"):
            second.save()
        second.close()
    with backend.open(model) as store:
        assert [number in store for number in (1, 2, 3, 4)] == [True, True, False, True]


@pytest.mark.parametrize("name", ["faiss", "usearch"])
def test_failed_save_leaves_the_store_as_it_was(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, model = BACKENDS[name](tmp_path), concatenation()
    with backend.create(model) as store:
        store.add([1], SENTENCES[:1])  # saved at the end of `with`
    folder = Path(backend.where)
    (folder / ".index.ended.tmp").write_bytes(b"left by a process that was ended")

    def fail(path: Path, _: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    with backend.open(model) as store:
        store.add([2], SENTENCES[1:2])
        with monkeypatch.context() as patched:
            patched.setattr("ensembed.integrations.vector_stores.write_atomically", fail)
            with pytest.raises(StoreError, match="No space left"):
                store.save()
        with backend.open(model) as before:
            assert [number in before for number in (1, 2)] == [True, False]
        store.save()  # there is room again
    with backend.open(model) as store:
        assert [number in store for number in (1, 2)] == [True, True]
    assert len([path for path in folder.iterdir() if "index" in path.name]) == 1
    store = backend.open(model)
    store.add([3], SENTENCES[2:3])
    with pytest.raises(InputError, match="no id 4"), store:  # after an error nothing is saved
        store.delete([4])
    with backend.open(model) as store:
        assert 3 not in store


def test_store_in_memory_cannot_be_saved() -> None:
    for store in (FaissStore.create(None, "demo?dim=8"), UsearchStore.create(None, "demo?dim=8")):
        store.add([1], ["a dog"])
        with pytest.raises(StoreError, match="no folder"):
            store.save()
    for bad in (FaissStore, UsearchStore):
        with pytest.raises(InputError):
            bad.create("", "demo?dim=8")
    with pytest.raises(InputError, match="kind"):
        FaissStore.create(None, "demo?dim=8", kind="ivf")  # type: ignore[arg-type] # it is refused
    with pytest.raises(InputError, match="dtype"):
        UsearchStore.create(None, "demo?dim=8", dtype="f8")  # type: ignore[arg-type] # it is refused


def test_viewed_usearch_store_is_read_only(tmp_path: Path) -> None:
    backend, model = BACKENDS["usearch"](tmp_path), concatenation()
    with backend.create(model) as store:
        store.add(IDS, SENTENCES)
        store.save()
    with UsearchStore.open(backend.where, model, view=True) as seen:
        check_hits(seen, backend, dict(zip(IDS, SENTENCES, strict=True)))
        changes: list[Callable[[], None]] = [lambda: seen.add([1], ["a dog"]), lambda: seen.delete(IDS[:1]), seen.save]
        for change in changes:
            with pytest.raises(StoreError, match="read only"):
                change()
