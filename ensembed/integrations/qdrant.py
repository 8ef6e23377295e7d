"""Qdrant: a store of a model's vectors and texts in a collection, in this process, in a folder or on a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders import Encoder
from ensembed.encoders.base import FloatArray
from ensembed.errors import EnsembedError, InputError, StoreBusyError, StoreError
from ensembed.integrations.qdrant_folders import check_folder
from ensembed.integrations.vector_stores import (
    Hits,
    IdArray,
    StoreFacts,
    VectorStore,
    checked_ids,
    closing_failures,
    padded,
    store_model,
)
from ensembed.models.opening import ModelLike
from ensembed.support.extras import import_extra

qdrant: Any = import_extra("qdrant_client", "qdrant", "a Qdrant collection")

MEMORY = ":memory:"
TEXT = "text"
_FACTS = "ensembed"
# Points per request: a server refuses requests of more than 32 MiB.
_POINTS = 256


class QdrantStore(VectorStore):
    """Vectors of sentences by id in a collection of Qdrant, with the sentence as payload `text`.

    Embedded (in memory or in a folder) search is exact; a server searches a graph once a collection is large. Every
    change is kept at once. A folder is for one process at a time; a server is for many.

    Example:
        >>> store = QdrantStore.create(":memory:", "demo?dim=16")
        >>> store.add([7, 9], ["a dog barks", "a cat sleeps"])
        >>> store.texts(store.search(["the dog barks"], k=1).ids[0])
        ['a dog barks']
        >>> store.close()
    """

    backend: ClassVar[str] = "qdrant"

    def __init__(self, model: Encoder, facts: StoreFacts, client: Any, collection: str, *, own: bool) -> None:  # noqa: ANN401 - a QdrantClient
        super().__init__(model, facts, f"the qdrant collection {collection!r}")
        self.client = client
        self.collection = collection
        self._own = own

    @classmethod
    def create(cls, location: str | Path | Any, model: ModelLike, *, collection: str = "ensembed") -> QdrantStore:  # noqa: ANN401 - a QdrantClient
        """A new, empty collection.

        Args:
            location: ":memory:", a folder, the URL of a server, or a `QdrantClient` of your own, for instance one with
                an API key; yours is not closed with the store.
            model: a model, the folder of a saved one, or an encoder's name.
            collection: its name.

        Raises:
            StoreError: there is such a collection already, or the server cannot be reached.
            StoreBusyError: another process has the folder open.
        """
        opened = store_model(model)
        facts = StoreFacts.of(cls.backend, opened)
        client, own = _client(location)
        store = cls(opened, facts, client, collection, own=own)
        with closing_failures(store), store._failures():
            if client.collection_exists(collection):
                raise StoreError(f"there is a collection {collection!r} already: open it, or choose another name")
            client.create_collection(
                collection,
                vectors_config=qdrant.models.VectorParams(size=facts.dim, distance=qdrant.models.Distance.COSINE),
                metadata={_FACTS: facts.to_json()},
            )
            if not (client.get_collection(collection).config.metadata or {}).get(_FACTS):
                client.delete_collection(collection)
                raise StoreError("this Qdrant server keeps no metadata of collections: update it to 1.16 or later")
        return store

    @classmethod
    def open(cls, location: str | Path | Any, model: ModelLike, *, collection: str = "ensembed") -> QdrantStore:  # noqa: ANN401 - a QdrantClient
        """The store that was created there.

        Raises:
            InputError: it holds another model's vectors.
            StoreError: there is none, it is not ensembed's, or the server cannot be reached.
            StoreBusyError: another process has the folder open.
        """
        opened = store_model(model)
        if isinstance(location, (str, Path)) and not _is_url(location) and not Path(location).exists():
            raise StoreError(f"there is no qdrant folder {location}: create the store")
        client, own = _client(location)
        store = cls(opened, StoreFacts.of(cls.backend, opened), client, collection, own=own)
        with closing_failures(store):
            with store._failures():
                if not client.collection_exists(collection):
                    raise StoreError(f"there is no collection {collection!r}: create the store")
                metadata = client.get_collection(collection).config.metadata or {}
            store.facts = StoreFacts.from_json(metadata.get(_FACTS), cls.backend, store.where)
            store.facts.check(opened, store.where)
        return store

    def texts(self, ids: Sequence[int]) -> list[str]:
        """The sentences of these ids.

        Raises:
            InputError: one is not in the store.
        """
        self._check_usable()
        wanted = checked_ids(ids).tolist()
        with self._failures():
            found = {record.id: record.payload for record in self._retrieve(wanted, payload=True)}
        for number in wanted:
            if number not in found:
                raise InputError(f"{self.where} has no id {number}")
        return [str((found[number] or {}).get(TEXT, "")) for number in wanted]

    def __len__(self) -> int:
        self._check_usable()
        with self._failures():
            return int(self.client.count(self.collection, exact=True).count)

    def close(self) -> None:
        """Let go of the folder or the connection."""
        if self._own and not self._closed:
            self.client.close()
        super().close()

    def _add(self, ids: IdArray, vectors: FloatArray, sentences: list[str], *, replace: bool) -> None:
        done: list[int] = []
        try:
            with self._failures():
                for start in range(0, len(ids), _POINTS):
                    part = slice(start, start + _POINTS)
                    batch = qdrant.models.Batch(
                        ids=ids[part].tolist(),
                        vectors=vectors[part].tolist(),
                        payloads=[{TEXT: sentence} for sentence in sentences[part]],
                    )
                    done += batch.ids
                    self.client.upsert(self.collection, points=batch, wait=True)
        except BaseException:
            # Qdrant has no transactions. What was new is taken back; what was to be replaced cannot be brought back.
            if not replace and done:
                with self._failures():
                    self._delete(np.array(done, np.int64))
            raise

    def _search(self, vectors: FloatArray, k: int) -> Hits:
        requests = [qdrant.models.QueryRequest(query=vector.tolist(), limit=k) for vector in vectors]
        with self._failures():
            answers = self.client.query_batch_points(self.collection, requests=requests)
        found = [([hit.id for hit in answer.points], [hit.score for hit in answer.points]) for answer in answers]
        return padded(found, k)

    def _present(self, ids: IdArray) -> NDArray[np.bool_]:
        with self._failures():
            there = [record.id for record in self._retrieve(ids.tolist(), payload=False)]
        return np.isin(ids, np.array(there, np.int64))

    def _delete(self, ids: IdArray) -> None:
        with self._failures():
            self.client.delete(
                self.collection, points_selector=qdrant.models.PointIdsList(points=ids.tolist()), wait=True
            )

    def _retrieve(self, ids: list[int], *, payload: bool) -> Iterator[Any]:
        for start in range(0, len(ids), _POINTS):
            yield from self.client.retrieve(self.collection, ids=ids[start : start + _POINTS], with_payload=payload)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Make what the client raises a StoreError."""
        failures = import_extra("qdrant_client.http.exceptions", "qdrant", "a Qdrant collection").ApiException
        try:
            yield
        except EnsembedError:
            raise
        except (failures, OSError, ValueError, RuntimeError) as error:
            raise StoreError(f"{self.where} cannot be used: {error}") from error


def _is_url(location: str | Path) -> bool:
    return str(location).startswith(("http://", "https://"))


def _client(location: str | Path | Any) -> tuple[Any, bool]:  # noqa: ANN401 - a QdrantClient
    """The client, and whether it is ours to close."""
    if isinstance(location, qdrant.QdrantClient):
        return location, False
    if not isinstance(location, (str, Path)) or str(location) == "":
        raise InputError(f"a location is ':memory:', a folder, a URL or a QdrantClient, not {location!r}")
    if str(location) == MEMORY:
        return qdrant.QdrantClient(MEMORY), True
    if _is_url(location):
        # The check would ask the server, and warn, before there is anything to ask.
        return qdrant.QdrantClient(url=str(location), check_compatibility=False), True
    if Path(location).is_dir():
        check_folder(Path(location))
    try:
        return qdrant.QdrantClient(path=str(location)), True
    except RuntimeError as error:
        raise StoreBusyError(
            f"another process, or another store of this one, has {location} open: close it, or use a Qdrant server"
        ) from error
    except OSError as error:
        raise StoreError(f"cannot keep a store in {location}: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # of what it has written down itself
        raise StoreError(
            f"the qdrant folder {location} is damaged: {error!r}; put back a copy of it from before, or create it anew"
        ) from error
