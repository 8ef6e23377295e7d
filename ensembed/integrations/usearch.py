"""usearch: a store of a model's vectors in its HNSW graph, in float32 or smaller."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import FloatArray
from ensembed.errors import StoreError
from ensembed.integrations.vector_folders import FolderStore
from ensembed.integrations.vector_stores import Hits, IdArray, Kinds, StoreFacts, checked_settings, padded
from ensembed.models.opening import ModelLike
from ensembed.support.extras import import_extra

usearch: Any = import_extra("usearch.index", "usearch", "a usearch index")

Precision: TypeAlias = Literal["f32", "f16", "i8"]
_KINDS: Kinds = {
    "dtype": get_args(Precision),
    "connectivity": (int,),
    "expansion_add": (int,),
    "expansion_search": (int,),
}
EXACT_UP_TO = 1000
"""In stores of so many vectors each is compared: that is quick, and a small graph may not lead to all of them."""


class UsearchStore(FolderStore):
    """Vectors of sentences by id in a usearch index with the cosine metric.

    Search is exact up to 1,000 vectors, and where more than half of all are asked for; else it is approximate.

    The index is in memory; `save` writes it to its folder. Opened with `view=True` it stays on the disk and is read
    only.

    Example:
        >>> store = UsearchStore.create(None, "demo?dim=16", dtype="f16")
        >>> store.add([7, 9], ["a dog barks", "a cat sleeps"])
        >>> store.search(["the dog barks"], k=1).ids
        array([[7]])
    """

    backend: ClassVar[str] = "usearch"

    @classmethod
    def create(
        cls,
        folder: str | Path | None,
        model: ModelLike,
        *,
        dtype: Precision = "f32",
        connectivity: int = 16,
        expansion_add: int = 128,
        expansion_search: int = 64,
    ) -> UsearchStore:
        """A new, empty store.

        Args:
            folder: where it is saved, now and by `save`; None keeps it in memory.
            model: a model, the folder of a saved one, or an encoder's name.
            dtype: how a number is kept: in 4 bytes, in 2, or in 1.
            connectivity: links per vector of the graph.
            expansion_add: how widely is searched for links.
            expansion_search: how widely is searched for hits.

        Raises:
            StoreError: there is a store already.
        """
        settings = {
            "dtype": dtype,
            "connectivity": connectivity,
            "expansion_add": expansion_add,
            "expansion_search": expansion_search,
        }
        return cls._created(folder, model, checked_settings(settings, _KINDS), _empty_index)

    @classmethod
    def open(cls, folder: str | Path, model: ModelLike, *, view: bool = False) -> UsearchStore:
        """The store that was saved in a folder.

        Args:
            folder: the folder.
            model: the model that made its vectors.
            view: read the index from the disk as it is needed, instead of into memory; the store is read only.

        Raises:
            InputError: it holds another model's vectors.
            StoreError: there is none, or it is damaged.
        """
        return cls._opened(folder, model, partial(_read_index, view=view), read_only=view)

    def __len__(self) -> int:
        return len(self.index)

    def close(self) -> None:
        """Let go of the index."""
        super().close()
        self.index.reset()

    def _add(self, ids: IdArray, vectors: FloatArray, sentences: list[str], *, replace: bool) -> None:  # noqa: ARG002 - usearch keeps no texts
        if replace:
            there = ids[self._present(ids)]
            if len(there):
                self._delete(there)
        self.index.add(ids.astype(np.uint64), vectors)

    def _search(self, vectors: FloatArray, k: int) -> Hits:
        exact = len(self) <= EXACT_UP_TO or 2 * k > len(self)
        # Of one query usearch returns rows, of several matrices with garbage from `counts` on.
        found = self.index.search(vectors if len(vectors) > 1 else vectors[0], k, exact=exact)
        keys, distances = np.atleast_2d(found.keys), np.atleast_2d(found.distances)
        counts = found.counts if len(vectors) > 1 else [keys.shape[1]]
        return padded([(keys[row, :n].astype(np.int64), 1 - distances[row, :n]) for row, n in enumerate(counts)], k)

    def _present(self, ids: IdArray) -> NDArray[np.bool_]:
        return np.asarray(self.index.contains(ids.astype(np.uint64)), bool)

    def _delete(self, ids: IdArray) -> None:
        self.index.remove(ids.astype(np.uint64))

    def _write_index(self, path: Path) -> None:
        self.index.save(str(path))


def _empty_index(facts: StoreFacts) -> Any:  # noqa: ANN401 - usearch is imported when it is there
    return usearch.Index(ndim=facts.dim, metric="cos", **{name: facts.settings[name] for name in _KINDS})


def _read_index(facts: StoreFacts, file: Path, *, view: bool) -> Any:  # noqa: ANN401 - usearch is imported when it is there
    facts.check_settings(_KINDS, str(file.parent))
    # Not `Index.restore`: it does not bring back how widely is searched.
    index = _empty_index(facts)
    try:
        index.view(str(file)) if view else index.load(str(file))
    except (RuntimeError, ValueError) as error:
        raise StoreError(f"usearch cannot read {file}: {error}") from error
    return index
