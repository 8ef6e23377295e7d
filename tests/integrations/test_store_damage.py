"""What a vector store remembers of itself, with every key damaged in turn: an error that says so, and no other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
import psycopg
import pytest
from damage import Keys, changed, damages
from postgres import postgres

from ensembed.errors import EnsembedError, InputError, StoreError
from ensembed.integrations.faiss import FaissStore
from ensembed.integrations.pgvector import PgvectorStore
from ensembed.integrations.qdrant import QdrantStore
from ensembed.integrations.usearch import UsearchStore

MODEL = "demo?dim=8"


class Kept(NamedTuple):
    """A store with two sentences, and where it keeps what it remembers."""

    open: Callable[[], Any]
    read: Callable[[], Any]
    write: Callable[[Any], None]
    top: Keys = ()


def _folder(store: Any, folder: Path, file: str, top: Keys = (), **settings: Any) -> Kept:  # noqa: ANN401 - classes that differ
    with store.create(folder, MODEL, **settings) as made:
        made.add([1, 2], ["a dog", "a cat"])
    path = folder / file

    def write(data: object) -> None:
        path.write_text(json.dumps(data))

    return Kept(lambda: store.open(folder, MODEL), lambda: json.loads(path.read_text()), write, top)


def _table(connection: Any) -> Kept:  # noqa: ANN401 - a psycopg.Connection
    connection.execute("DROP TABLE IF EXISTS damaged")
    with PgvectorStore.create(connection, MODEL, table="damaged") as made:
        made.add([1, 2], ["a dog", "a cat"])

    def read() -> Any:  # noqa: ANN401 - whatever JSON holds
        return json.loads(connection.execute("SELECT obj_description('damaged'::regclass)").fetchone()[0])

    def write(data: object) -> None:
        text = psycopg.sql.Literal(json.dumps(data))
        connection.execute(psycopg.sql.SQL("COMMENT ON TABLE damaged IS {}").format(text))

    return Kept(lambda: PgvectorStore.open(connection, MODEL, table="damaged"), read, write)


STORES: dict[str, Callable[[Path], Kept]] = {
    "faiss": lambda folder: _folder(FaissStore, folder, "store.json"),
    "faiss-hnsw": lambda folder: _folder(FaissStore, folder, "store.json", kind="hnsw"),
    "usearch": lambda folder: _folder(UsearchStore, folder, "store.json"),
    "qdrant": lambda folder: _folder(
        QdrantStore, folder, "meta.json", ("collections", "ensembed", "metadata", "ensembed")
    ),
}


def _use(kept: Kept) -> None:
    """Whatever a store can be asked."""
    store = kept.open()
    try:
        assert store.search(["a dog"], k=1).ids.tolist() == [[1]]
        store.add([3], ["a horse"])
        store.delete([3])
        assert len(store) == 2
        assert 3 not in store
    finally:
        store.close()  # not saved, where saving is a step of its own


def _check(kept: Kept) -> None:
    """Damage every key in every way; what is let through must work."""
    whole = kept.read()
    facts = whole
    for step in kept.top:
        facts = facts[step]
    assert facts["dim"] == 8
    accepted = set()
    for keys, data in damages(whole):
        kept.write(data)
        try:
            _use(kept)
        except EnsembedError:
            continue
        if keys[: len(kept.top)] == kept.top:
            accepted.add(keys[len(kept.top) :])
    # Any string is a name, True is 1, an index may be there or not, and without settings anything can be read as none.
    fine = {("model",), ("format",), ("settings", "index"), *([] if facts["settings"] else [("settings",)])}
    assert accepted <= fine
    kept.write(whole)
    _use(kept)


@pytest.mark.parametrize("name", STORES)
def test_damaged_store_raises_our_errors_only(name: str, tmp_path: Path) -> None:
    _check(STORES[name](tmp_path / "store"))


def test_damaged_table_raises_our_errors_only() -> None:
    with psycopg.connect(postgres(), autocommit=True) as connection:
        _check(_table(connection))


@pytest.mark.parametrize("index", [faiss.IndexLSH(8, 8), faiss.IndexFlatIP(8), faiss.IndexIDMap2(faiss.IndexFlatIP(9))])
def test_index_with_a_right_hash_that_no_store_writes_is_refused(tmp_path: Path, index: Any) -> None:  # noqa: ANN401 - faiss has no types
    _replace_index(tmp_path / "store", index)
    with pytest.raises(StoreError, match=r"is an Index\w+ of \d dimensions, which no store writes"):
        FaissStore.open(tmp_path / "store", MODEL)


def _replace_index(folder: Path, index: Any) -> None:  # noqa: ANN401 - faiss has no types
    """Put another index into a new store, with a right hash."""
    FaissStore.create(folder, MODEL).close()
    facts = json.loads((folder / "store.json").read_text())
    file = folder / facts["index"]
    faiss.write_index(index, str(file))
    facts["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    (folder / "store.json").write_text(json.dumps(facts))


def test_index_that_names_a_file_elsewhere_does_not_open_it(tmp_path: Path) -> None:
    rows = np.eye(8, dtype=np.float32)
    lists = faiss.IndexIVFFlat(faiss.IndexFlatIP(8), 8, 2, faiss.METRIC_INNER_PRODUCT)
    lists.train(rows)
    elsewhere = faiss.OnDiskInvertedLists(2, lists.code_size, str(tmp_path / "elsewhere"))
    lists.replace_invlists(elsewhere, False)
    index = faiss.IndexIDMap2(lists)
    index.add_with_ids(rows, np.arange(8))
    _replace_index(tmp_path / "store", index)
    with pytest.raises(StoreError, match=r"could not open .*store.*elsewhere"):
        FaissStore.open(tmp_path / "store", MODEL)


def test_kind_that_differs_from_the_index_is_refused(tmp_path: Path) -> None:
    kept = _folder(FaissStore, tmp_path / "store", "store.json", kind="hnsw")
    kept.write(changed(kept.read(), ("settings", "kind"), "flat"))
    with pytest.raises(StoreError, match="damaged: its setting 'kind' is 'flat'; restore a copy"):
        kept.open()


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "16", None, 10**30])
def test_invalid_settings_are_refused_at_creation(wrong: Any) -> None:  # noqa: ANN401 - none of them is one
    with pytest.raises(InputError, match="connectivity is a whole number from 2 to 1,000,000, not"):
        UsearchStore.create(None, MODEL, connectivity=wrong)
    with pytest.raises(InputError, match="ef_search is a whole number from 1 to 1,000,000, not"):
        FaissStore.create(None, MODEL, kind="hnsw", ef_search=wrong)


def test_a_graph_of_single_links_is_refused() -> None:
    with pytest.raises(InputError, match="connectivity is a whole number from 2 to 1,000,000, not 1"):
        UsearchStore.create(None, MODEL, connectivity=1)
    with pytest.raises(InputError, match="connectivity is a whole number from 2 to 1,000,000, not 1"):  # FAISS crashes
        FaissStore.create(None, MODEL, kind="hnsw", connectivity=1)
