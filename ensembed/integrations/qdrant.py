"""Qdrant: a store of a model's vectors and texts in a collection, in this process, in a folder or on a server."""

from __future__ import annotations

import io
import pickle
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from ensembed.encoders.base import Encoder, FloatArray
from ensembed.encoders.names_and_consent import Trust
from ensembed.errors import InputError, StoreBusyError, StoreError
from ensembed.integrations.vector_stores import DatabaseStore, Hits, IdArray, StoreFacts, store_model
from ensembed.models.opening import ModelLike
from ensembed.support.extras import import_extra

_WHAT = "a Qdrant collection"
qdrant: Any = import_extra("qdrant_client", "qdrant", _WHAT)
_ApiException = import_extra("qdrant_client.http.exceptions", "qdrant", _WHAT).ApiException

Location: TypeAlias = str | Path | Any  # or a QdrantClient
MEMORY = ":memory:"
TEXT = "text"
_FACTS = "ensembed"
_POINTS = 256  # per request: a server refuses requests of more than 32 MiB
# What the client raises while it reads damaged files of its own.
_DAMAGED = (AttributeError, KeyError, TypeError, ValueError, sqlite3.Error)
_DATA_CLASSES = "qdrant_client.http.models"  # the module with the client's data classes


class QdrantStore(DatabaseStore):
    """Vectors of sentences by id in a collection of Qdrant, with the sentence as payload `text`.

    Without a server, search is exact and one process can use a folder; a server searches large collections by a graph.

    Example:
        >>> store = QdrantStore.create(":memory:", "demo?dim=16")
        >>> store.add([7, 9], ["a dog barks", "a cat sleeps"])
        >>> store.texts(store.search(["the dog barks"], k=1).ids[0])
        ['a dog barks']
        >>> store.close()
    """

    backend: ClassVar[str] = "qdrant"
    _errors = (_ApiException, OSError, ValueError, RuntimeError)

    def __init__(self, model: Encoder, location: Location, collection: str) -> None:
        self.client = _client(location)
        self.collection = collection
        facts = StoreFacts.of(self.backend, model)
        owned = None if self.client is location else self.client
        super().__init__(model, facts, f"the qdrant collection {collection!r}", owned)

    @classmethod
    def create(
        cls, location: Location, model: ModelLike, *, collection: str = "ensembed", trust: Trust = False
    ) -> Self:
        """Create an empty collection.

        Args:
            location: ":memory:", a folder, a server's URL, or your own `QdrantClient`, not closed with the store.
            model: a model, the folder of a saved one, or an encoder's name.
            collection: the collection's name.
            trust: also open a model that runs code or uses a network; see `ensembed.load`.

        Raises:
            StoreError: there is a collection of that name already, or the location cannot be used.
            StoreBusyError: another process has the folder open.
        """
        store = cls(store_model(model, trust=trust), location, collection)
        with store._failures(close=True):
            if store.client.collection_exists(collection):
                raise StoreError(f"there is a collection {collection!r} already: open it, or choose another name")
            vectors = qdrant.models.VectorParams(size=store.facts.dim, distance=qdrant.models.Distance.COSINE)
            metadata = {_FACTS: store.facts.to_json()}
            store.client.create_collection(collection, vectors_config=vectors, metadata=metadata)
            if not store._recorded_facts():
                store.client.delete_collection(collection)
                raise StoreError("this Qdrant server keeps no metadata of collections: update it to 1.16 or later")
        return store

    @classmethod
    def open(cls, location: Location, model: ModelLike, *, collection: str = "ensembed", trust: Trust = False) -> Self:
        """Open a collection that `create` made. The arguments are those of `create`.

        Raises:
            InputError: the collection was created with another model.
            StoreError: there is no such collection, or the location cannot be used.
            StoreBusyError: another process has the folder open.
        """
        encoder = store_model(model, trust=trust)
        if isinstance(location, (str, Path)) and not _is_url(location) and not Path(location).exists():
            raise StoreError(f"there is no qdrant folder {location}: create the store")
        store = cls(encoder, location, collection)
        with store._failures(close=True):
            if not store.client.collection_exists(collection):
                raise StoreError(f"there is no collection {collection!r}: create the store")
            store.facts = StoreFacts.from_json(store._recorded_facts(), cls.backend, store.where)
            store.facts.check_model(encoder, store.where)
        return store

    def __len__(self) -> int:
        self._check_usable()
        with self._failures():
            return int(self.client.count(self.collection, exact=True).count)

    def _recorded_facts(self) -> object:
        return (self.client.get_collection(self.collection).config.metadata or {}).get(_FACTS)

    def _add(self, ids: IdArray, vectors: FloatArray, sentences: list[str], *, replace: bool) -> None:
        done: list[int] = []
        try:
            with self._failures():
                for start in range(0, len(ids), _POINTS):
                    part = slice(start, start + _POINTS)
                    payloads = [{TEXT: sentence} for sentence in sentences[part]]
                    numbers = ids[part].tolist()
                    batch = qdrant.models.Batch(ids=numbers, vectors=vectors[part].tolist(), payloads=payloads)
                    done += numbers
                    self.client.upsert(self.collection, points=batch, wait=True)
        except BaseException:
            # Qdrant has no transactions. New points are deleted again; replaced points cannot be restored.
            if not replace and done:
                self._delete(np.array(done, np.int64))
            raise

    def _search(self, vectors: FloatArray, k: int) -> Hits:
        requests = [qdrant.models.QueryRequest(query=vector.tolist(), limit=k) for vector in vectors]
        with self._failures():
            answers = self.client.query_batch_points(self.collection, requests=requests)
        return Hits.padded([([hit.id for hit in a.points], [hit.score for hit in a.points]) for a in answers], k)

    def _present(self, ids: IdArray) -> NDArray[np.bool_]:
        with self._failures():
            present = [record.id for record in self._retrieve(ids.tolist(), payload=False)]
        return np.isin(ids, np.array(present, np.int64))

    def _delete(self, ids: IdArray) -> None:
        points = qdrant.models.PointIdsList(points=ids.tolist())
        with self._failures():
            self.client.delete(self.collection, points_selector=points, wait=True)

    def _texts(self, ids: list[int]) -> dict[int, str]:
        records = self._retrieve(ids, payload=True)
        return {record.id: str((record.payload or {}).get(TEXT, "")) for record in records}

    def _retrieve(self, ids: list[int], *, payload: bool) -> Iterator[Any]:
        for start in range(0, len(ids), _POINTS):
            yield from self.client.retrieve(self.collection, ids=ids[start : start + _POINTS], with_payload=payload)


def _is_url(location: str | Path) -> bool:
    return str(location).startswith(("http://", "https://"))


def _client(location: Location) -> Any:  # noqa: ANN401 - a QdrantClient
    """Return a client for the location; a client is returned as it is."""
    if isinstance(location, qdrant.QdrantClient):
        return location
    if not isinstance(location, (str, Path)) or str(location) == "":
        raise InputError(f"a location is ':memory:', a folder, a URL or a QdrantClient, not {location!r}")
    if str(location) == MEMORY:
        return qdrant.QdrantClient(MEMORY)
    if _is_url(location):
        return qdrant.QdrantClient(url=str(location), check_compatibility=False)  # which would ask the server too early
    if Path(location).is_dir():
        _check_pickles(Path(location))
    try:
        return qdrant.QdrantClient(path=str(location))
    except RuntimeError as error:
        problem = f"another process, or another store of this one, has {location} open"
        raise StoreBusyError(f"{problem}: close it, or use a Qdrant server") from error
    except OSError as error:
        raise StoreError(f"cannot keep a store in {location}: {error}") from error
    except _DAMAGED as error:
        raise StoreError(f"the qdrant folder {location} is damaged: {error!r}; restore a copy of it") from error


class _PointUnpickler(pickle.Unpickler):
    """Reads pickles that hold nothing but the client's data classes, so that unpickling runs no code.

    It is the unpickler in C, as the client's own: the one in Python, which reads word vectors, takes ten times as long.
    """

    def find_class(self, module: str, name: str) -> type:
        from pydantic import BaseModel

        if module == _DATA_CLASSES or module.startswith(f"{_DATA_CLASSES}."):
            kind = super().find_class(module, name)
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                return kind
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def _check_pickles(folder: Path) -> None:
    """Raise a StoreError if a folder's pickles, which the client is about to read, hold anything but points."""
    for path in folder.rglob("*"):  # the client follows links, and waits for pipes
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StoreError(f"{path} is neither a file nor a folder, which no Qdrant folder has; it is not opened")
    for path in sorted(folder.rglob("*.sqlite")):
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
                for _, blob in database.execute("SELECT id, point FROM points"):  # as the client reads them
                    _PointUnpickler(io.BytesIO(blob)).load()
        except (*_DAMAGED, pickle.UnpicklingError, EOFError, ImportError, MemoryError) as error:
            raise StoreError(f"{path} is damaged, or not written by Qdrant: {error}; it is not opened") from error
