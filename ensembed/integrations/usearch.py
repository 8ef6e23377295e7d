"""usearch: a store of a model's vectors in an HNSW graph, in float32 or smaller."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import FloatArray
from ensembed.encoders.names_and_consent import Trust
from ensembed.errors import StoreError
from ensembed.integrations import vector_stores as stores
from ensembed.models.opening import ModelLike
from ensembed.search.graph_files import check_graph_file
from ensembed.search.hnsw_graph import save_graph
from ensembed.support.extras import import_extra

usearch: Any = import_extra("usearch.index", "usearch", "a usearch index")

Precision: TypeAlias = Literal["f32", "f16", "i8"]

_ALLOWED: stores.Allowed = {
    "dtype": get_args(Precision),
    "connectivity": (stores.LINKS,),
    "expansion_add": (stores.NUMBER,),
    "expansion_search": (stores.NUMBER,),
}
EXACT_UP_TO = 1000
"""Stores of up to so many vectors are searched exactly: that is fast, and a small graph may not reach all of them."""


class UsearchStore(stores.FolderStore):
    """Vectors of sentences by id in a usearch index with the cosine metric.

    The index is in memory. Search is exact up to 1,000 vectors, or if k is over half of them; otherwise approximate.

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
        trust: Trust = False,
    ) -> UsearchStore:
        """Create an empty store.

        Args:
            folder: where it is saved, now and by `save`; None keeps it in memory.
            model: a model, the folder of a saved one, or an encoder's name.
            dtype: the type of a stored number: 4, 2 or 1 bytes.
            connectivity: links per vector in the graph, at least 2.
            expansion_add: breadth of the search for links.
            expansion_search: breadth of the search for hits.
            trust: also open a model that runs code or uses a network; see `ensembed.load`.

        Raises:
            StoreError: there is a store in the folder already, or it cannot be written to.
        """
        values = (dtype, connectivity, expansion_add, expansion_search)
        settings = stores.checked_settings(dict(zip(_ALLOWED, values, strict=True)), _ALLOWED)
        return cls._created(folder, model, settings, trust)

    @classmethod
    def open(cls, folder: str | Path, model: ModelLike, *, trust: Trust = False, view: bool = False) -> UsearchStore:
        """Open a store as `FolderStore.open` does; `view` leaves the index on disk, and the store is then read-only."""
        return cls._opened(folder, model, trust=trust, read_only=view)

    def __len__(self) -> int:
        return len(self.index)

    def close(self) -> None:
        """Release the index."""
        super().close()
        self.index.reset()

    def _search(self, vectors: FloatArray, k: int) -> stores.Hits:
        exact = len(self) <= EXACT_UP_TO or 2 * k > len(self)
        # For one query usearch returns rows, for several it returns matrices with garbage from `counts` on.
        matches = self.index.search(vectors if len(vectors) > 1 else vectors[0], k, exact=exact)
        keys, distances = np.atleast_2d(matches.keys), np.atleast_2d(matches.distances)
        counts = matches.counts if len(vectors) > 1 else [keys.shape[1]]
        return stores.Hits.padded([(keys[row, :n], 1 - distances[row, :n]) for row, n in enumerate(counts)], k)

    def _present(self, ids: stores.IdArray) -> NDArray[np.bool_]:
        return np.asarray(self.index.contains(ids.astype(np.uint64)), bool)

    def _insert(self, ids: stores.IdArray, vectors: FloatArray) -> None:
        self.index.add(ids.astype(np.uint64), vectors)

    def _delete(self, ids: stores.IdArray) -> None:
        self.index.remove(ids.astype(np.uint64))

    @classmethod
    def _empty_index(cls, facts: stores.StoreFacts) -> Any:  # noqa: ANN401 - usearch is optional
        return usearch.Index(ndim=facts.dim, metric="cos", **{name: facts.settings[name] for name in _ALLOWED})

    @classmethod
    def _read_index(cls, facts: stores.StoreFacts, file: Path, *, read_only: bool) -> Any:  # noqa: ANN401 - usearch is optional
        stores.checked_settings(facts.settings, _ALLOWED, str(file.parent))
        try:
            index = cls._empty_index(facts)  # `Index.restore` does not restore the breadth of the search
            check_graph_file(file, index)
            index.view(str(file)) if read_only else index.load(str(file))
        except (RuntimeError, ValueError) as error:
            raise StoreError(f"usearch cannot read {file}: {error}") from error
        return index

    def _write_index(self, path: Path) -> None:
        save_graph(self.index, path)
