"""Where Qdrant keeps things: in memory, in a folder, behind a client of one's own or a URL."""

from __future__ import annotations

import importlib
import pickle
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ensembed.errors import InputError, StoreBusyError, StoreError
from ensembed.integrations.qdrant import QdrantStore


class Evil:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self._mark,))


def test_folder_with_foreign_pickles_is_not_opened(tmp_path: Path) -> None:
    with QdrantStore.create(tmp_path / "store", "demo?dim=8") as store:
        store.add([1, 2], ["a dog", "a cat"])
    with QdrantStore.open(tmp_path / "store", "demo?dim=8") as store:  # its own are
        assert store.texts([2]) == ["a cat"]
    [file] = (tmp_path / "store").rglob("*.sqlite")
    with sqlite3.connect(file) as database:
        database.execute("UPDATE points SET point = ?", (pickle.dumps(Evil(tmp_path / "mark")),))
    database.close()
    with pytest.raises(StoreError, match="not opened"):
        QdrantStore.open(tmp_path / "store", "demo?dim=8")
    assert not (tmp_path / "mark").exists()


@pytest.mark.filterwarnings("ignore:unclosed file .*lock:ResourceWarning")  # left by the client that is turned away
def test_memory_busy_folder_own_client_and_absent_server(tmp_path: Path) -> None:
    QdrantClient: Any = importlib.import_module("qdrant_client").QdrantClient
    model = "demo?dim=8"
    with QdrantStore.create(":memory:", model) as store:
        store.add([1, 2], ["a dog", "a cat"])
        assert len(store) == 2
    with QdrantStore.create(tmp_path / "used", model), pytest.raises(StoreBusyError, match="used"):
        QdrantStore.open(tmp_path / "used", model)
    client = QdrantClient(":memory:")
    for name in ("one", "two"):
        with QdrantStore.create(client, model, collection=name) as store:
            store.add([len(name)], [name])
    with QdrantStore.open(client, model, collection="two") as store:  # the client is still open
        assert store.texts([3]) == ["two"]
    client.create_collection("theirs", vectors_config={})
    with pytest.raises(StoreError, match="not a vector store"):
        QdrantStore.open(client, model, collection="theirs")
    client.close()
    with pytest.raises(StoreError, match="cannot be used"):
        QdrantStore.open("http://127.0.0.1:9", model)
    with pytest.raises(InputError, match="location"):
        QdrantStore.create("", model)


def test_points_added_before_a_failure_are_deleted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"sentence {i}" for i in range(300)]
    with QdrantStore.create(":memory:", "demo?dim=8") as store:
        store.add([1000], ["a dog"])
        upsert = store.client.upsert

        def fail_later(collection: str, points: Any, wait: bool) -> None:  # noqa: ANN401 - a batch of theirs
            if 299 in points.ids:
                raise ConnectionError("the server is gone")
            upsert(collection, points=points, wait=wait)

        with monkeypatch.context() as patched:
            patched.setattr(store.client, "upsert", fail_later)
            with pytest.raises(StoreError, match="the server is gone"):
                store.add(range(300), texts)
        assert len(store) == 1
        store.add(range(300), texts)
        assert len(store) == 301
