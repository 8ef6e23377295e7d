"""FAISS: a store of a model's vectors, and indexes that apply a linear meta-embedding themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import FloatArray
from ensembed.encoders.names_and_consent import Trust
from ensembed.errors import DimensionError, InputError, StoreError
from ensembed.integrations import vector_stores as stores
from ensembed.methods.meta import Layer, Meta
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.opening import ModelLike
from ensembed.numerics.row_matrices import unit_rows
from ensembed.support.extras import import_extra

faiss: Any = import_extra("faiss", "faiss", "a FAISS index")

Kind: TypeAlias = Literal["flat", "hnsw"]
_ALLOWED: dict[Kind, stores.Allowed] = {
    "flat": {"kind": ("flat",)},
    "hnsw": {
        "kind": ("hnsw",),
        "connectivity": (stores.LINKS,),
        "ef_construction": (stores.NUMBER,),
        "ef_search": (stores.NUMBER,),
    },
}


class FaissStore(stores.FolderStore):
    """Vectors of sentences by id in a FAISS index in memory, "flat" (exact) or "hnsw" (a graph); `save` writes it.

    Example:
        >>> store = FaissStore.create(None, "demo?dim=16")
        >>> store.add([7, 9], ["a dog barks", "a cat sleeps"])
        >>> store.search(["the dog barks"], k=1).ids
        array([[7]])
    """

    backend: ClassVar[str] = "faiss"

    @classmethod
    def create(
        cls,
        folder: str | Path | None,
        model: ModelLike,
        *,
        kind: Kind = "flat",
        connectivity: int = 32,
        ef_construction: int = 200,
        ef_search: int = 64,
        trust: Trust = False,
    ) -> FaissStore:
        """Create an empty store.

        Args:
            folder: where it is saved, now and by `save`; None keeps it in memory.
            model: a model, the folder of a saved one, or an encoder's name.
            kind: "flat" compares all vectors; "hnsw" is faster from about ten thousand on, but may miss some.
            connectivity: links per vector in the graph, at least 2.
            ef_construction: breadth of the search for links.
            ef_search: breadth of the search for hits.
            trust: also open a model that runs code or uses a network; see `ensembed.load`.

        Raises:
            StoreError: there is a store in the folder already, or it cannot be written to.
        """
        if kind not in _ALLOWED:
            raise InputError(f"kind is 'flat' or 'hnsw', not {kind!r}")
        settings: dict[str, Any] = {"kind": kind}
        if kind == "hnsw":
            settings |= {"connectivity": connectivity, "ef_construction": ef_construction, "ef_search": ef_search}
        return cls._created(folder, model, stores.checked_settings(settings, _ALLOWED[kind]), trust)

    def __len__(self) -> int:
        return int(self.index.ntotal)

    def _search(self, vectors: FloatArray, k: int) -> stores.Hits:
        options = {}
        if self.facts.settings["kind"] == "hnsw":  # FAISS itself does not search wider for a larger k
            options["params"] = faiss.SearchParametersHNSW(efSearch=max(k, self.facts.settings["ef_search"]))
        scores, ids = self.index.search(np.ascontiguousarray(vectors), k, **options)
        scores[ids < 0] = np.nan  # a graph may lead to fewer than k
        return stores.Hits(ids, scores)

    def _present(self, ids: stores.IdArray) -> NDArray[np.bool_]:
        return np.isin(ids, faiss.vector_to_array(self.index.id_map))

    def _insert(self, ids: stores.IdArray, vectors: FloatArray) -> None:
        self.index.add_with_ids(np.ascontiguousarray(vectors), ids)

    def _delete(self, ids: stores.IdArray) -> None:
        if self.facts.settings["kind"] == "flat":
            self.index.remove_ids(ids)
            return
        # FAISS cannot remove a vector from a graph: build a new graph from the remaining vectors.
        numbers = faiss.vector_to_array(self.index.id_map)
        kept = ~np.isin(numbers, ids)
        vectors = faiss.downcast_index(self.index.index).reconstruct_n(0, len(numbers))
        self.index = self._empty_index(self.facts)
        if kept.any():
            self._insert(numbers[kept], vectors[kept])

    @classmethod
    def _empty_index(cls, facts: stores.StoreFacts) -> Any:  # noqa: ANN401 - faiss has no types
        if facts.settings["kind"] == "flat":
            return faiss.IndexIDMap2(faiss.IndexFlatIP(facts.dim))
        graph = faiss.IndexHNSWFlat(facts.dim, facts.settings["connectivity"], faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = facts.settings["ef_construction"]
        graph.hnsw.efSearch = facts.settings["ef_search"]
        return faiss.IndexIDMap2(graph)

    @classmethod
    def _read_index(cls, facts: stores.StoreFacts, file: Path, *, read_only: bool) -> Any:  # noqa: ANN401, ARG003 - faiss has no types, and no view
        try:
            index = _read_bounded(file)
        except (RuntimeError, MemoryError) as error:
            raise StoreError(f"FAISS cannot read {file}: {error}") from error
        rows = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexIDMap2) else None
        graph = isinstance(rows, faiss.IndexHNSWFlat)
        counted = rows is not None and index.ntotal == rows.ntotal
        if index.d != facts.dim or not counted or not (graph or isinstance(rows, faiss.IndexFlatIP)):
            raise StoreError(f"{file} is an {type(index).__name__} of {index.d} dimensions, which no store writes")
        stores.checked_settings(facts.settings, _ALLOWED["hnsw" if graph else "flat"], str(file.parent))
        return index

    def _write_index(self, path: Path) -> None:
        with path.open("wb") as file:  # faiss itself does not report a full disk reliably
            faiss.write_index(self.index, faiss.PyCallbackIOWriter(file.write))


def _read_bounded(file: Path) -> Any:  # noqa: ANN401 - faiss has no types
    """Read an index. No array in it is larger than the file, whatever the file says; older versions have no bound.

    An index may name a file with its lists, which FAISS opens before we see what it read: only in the same folder.
    """
    limit = getattr(faiss, "set_deserialization_vector_byte_limit", lambda _: None)
    before = getattr(faiss, "get_deserialization_vector_byte_limit", lambda: 0)()
    limit(max(file.stat().st_size, 1))
    try:
        return faiss.read_index(str(file), faiss.IO_FLAG_ONDISK_SAME_DIR | faiss.IO_FLAG_READ_ONLY)
    finally:
        limit(before)


def export_index(model: MetaEncoder, index: Any = None) -> Any:  # noqa: ANN401 - faiss has no types
    """Return an index, independent of ensembed, that applies the model's map to the result of `member_vectors`.

    Args:
        model: a meta-encoder whose map is linear: concatenation, average, svd, gcca, and what `Auto` fits of these.
        index: the index behind the map, by inner product or L2; None takes a flat one by inner product with ids.

    Raises:
        InputError: the map is not linear, or the index has another metric.
        DimensionError: the index is for vectors of another length.
    """
    matrix, bias = linear_map(_meta_of(model))
    dim = matrix.shape[1]
    if index is None:
        index = faiss.IndexIDMap2(faiss.IndexFlatIP(dim))
    if index.d != dim:
        raise DimensionError(f"the index is for vectors of {index.d} dimensions, the model gives {dim}")
    if index.metric_type not in (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2):
        raise InputError(f"the index has FAISS's metric {index.metric_type}: take inner product, or L2")
    linear = faiss.LinearTransform(matrix.shape[0], dim, True)
    faiss.copy_array_to_vector(np.ascontiguousarray(matrix.T).ravel(), linear.A)
    faiss.copy_array_to_vector(bias, linear.b)
    linear.is_trained = True
    linear.set_is_orthonormal()
    whole = faiss.IndexPreTransform(index)
    whole.prepend_transform(faiss.NormalizationTransform(dim, 2.0))
    whole.prepend_transform(linear)
    return whole


def member_vectors(model: MetaEncoder, sentences: list[str]) -> FloatArray:
    """Return the input of an exported index [n, D]: the members' vectors side by side, scaled if the method does so."""
    meta = _meta_of(model)
    views = [model.ensemble.encoders[j].encode(sentences) for j in meta.counted]
    return np.concatenate([unit_rows(view) if meta.normalize else view for view in views], axis=1)


def linear_map(meta: Meta) -> tuple[FloatArray, FloatArray]:
    """Return the map x @ matrix [D, d] + bias [d] of a meta-embedding; raise an InputError if it is not linear."""
    layers: list[Layer] = []
    for j in meta.counted:
        network = meta.projections[j].as_network(meta.dim)
        if len(network.layers) > 1:
            raise InputError(
                f"{meta.method['name']} is not linear: it sends member {j} through {len(network.layers)} layers with "
                f"{network.activation!r} between them; keep the model's own vectors in a FaissStore"
            )
        layers += network.layers
    return np.concatenate([layer.matrix for layer in layers]), np.sum([layer.bias for layer in layers], axis=0)


def _meta_of(model: MetaEncoder) -> Meta:
    if not isinstance(model, MetaEncoder):
        raise InputError(f"only a meta-encoder has a map to export, not {model!r}; a FaissStore takes any encoder")
    return model.meta
