"""FAISS: a store of a model's vectors, and indexes that apply a linear meta-embedding themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import FloatArray
from ensembed.errors import DimensionError, InputError, StoreError
from ensembed.integrations.vector_folders import FolderStore
from ensembed.integrations.vector_stores import NO_ID, Hits, IdArray, Kinds, StoreFacts, checked_settings
from ensembed.methods.meta import Meta
from ensembed.methods.projections import Dense, Network, Placement
from ensembed.models.ensemble import MetaEncoder
from ensembed.models.opening import ModelLike
from ensembed.numerics.row_matrices import unit_rows
from ensembed.support.extras import import_extra

faiss: Any = import_extra("faiss", "faiss", "a FAISS index")

Kind: TypeAlias = Literal["flat", "hnsw"]
_KINDS: Kinds = {"kind": get_args(Kind), "connectivity": (int,), "ef_construction": (int,), "ef_search": (int,)}


class FaissStore(FolderStore):
    """Vectors of sentences by id in a FAISS index: exact ("flat") or an HNSW graph ("hnsw").

    The index is in memory; `save` writes it to its folder.

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
    ) -> FaissStore:
        """A new, empty store.

        Args:
            folder: where it is saved, now and by `save`; None keeps it in memory.
            model: a model, the folder of a saved one, or an encoder's name.
            kind: "flat" compares with every vector; "hnsw" is quicker from some ten thousand vectors on, and may miss.
            connectivity: links per vector of the graph.
            ef_construction: how widely is searched for links.
            ef_search: how widely is searched for hits.

        Raises:
            StoreError: there is a store already.
        """
        settings: dict[str, Any] = {"kind": kind}
        if kind == "hnsw":
            settings |= {"connectivity": connectivity, "ef_construction": ef_construction, "ef_search": ef_search}
        kinds = _KINDS if kind == "hnsw" else {"kind": _KINDS["kind"]}
        return cls._created(folder, model, checked_settings(settings, kinds), _empty_index)

    @classmethod
    def open(cls, folder: str | Path, model: ModelLike) -> FaissStore:
        """The store that was saved in a folder.

        Raises:
            InputError: it holds another model's vectors.
            StoreError: there is none, or it is damaged.
        """
        return cls._opened(folder, model, _read_index)

    def __len__(self) -> int:
        return int(self.index.ntotal)

    def _add(self, ids: IdArray, vectors: FloatArray, sentences: list[str], *, replace: bool) -> None:  # noqa: ARG002 - FAISS keeps no texts
        if replace:
            there = ids[self._present(ids)]
            if len(there):
                self._delete(there)
        self.index.add_with_ids(np.ascontiguousarray(vectors), ids)

    def _search(self, vectors: FloatArray, k: int) -> Hits:
        how = {}
        if self.facts.settings["kind"] == "hnsw":  # FAISS itself looks no wider for a larger k
            how["params"] = faiss.SearchParametersHNSW(efSearch=max(k, self.facts.settings["ef_search"]))
        scores, ids = self.index.search(np.ascontiguousarray(vectors), k, **how)
        scores[ids == NO_ID] = np.nan  # a graph may lead to fewer than k
        return Hits(ids, scores)

    def _present(self, ids: IdArray) -> NDArray[np.bool_]:
        return np.isin(ids, faiss.vector_to_array(self.index.id_map))

    def _delete(self, ids: IdArray) -> None:
        if self.facts.settings["kind"] == "flat":
            self.index.remove_ids(ids)
            return
        # FAISS cannot take a vector out of a graph: a new one is made of those that are left.
        numbers = faiss.vector_to_array(self.index.id_map)
        kept = ~np.isin(numbers, ids)
        vectors = faiss.downcast_index(self.index.index).reconstruct_n(0, len(numbers))
        index = _empty_index(self.facts)
        if kept.any():
            index.add_with_ids(np.ascontiguousarray(vectors[kept]), numbers[kept])
        self.index = index

    def _write_index(self, path: Path) -> None:
        faiss.write_index(self.index, str(path))


def export_index(model: MetaEncoder, index: Any = None) -> Any:  # noqa: ANN401 - faiss has no types of its own
    """An index that applies the model's map itself: it takes what `member_vectors` gives.

    It is an `IndexPreTransform` with a `LinearTransform`, which is the map, and a `NormalizationTransform`, which makes
    the inner product the cosine. Written to a file it needs nothing of ensembed.

    Args:
        model: a meta-encoder whose map is linear: concatenation, average, svd, gcca, and what `Auto` fits of these.
        index: the index behind the map, for vectors of the model's dimension, by inner product or L2; by default a flat
            one by inner product that takes ids.

    Raises:
        InputError: the map is not linear.
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
    """What an exported index takes [n, D]: the vectors of the members that count, one after the other.

    Where the method scales each member's vectors to length one before it combines them (concatenation, average, svd),
    these are scaled: no transform of FAISS scales a part of a vector. For others they are as the members give them.
    """
    meta = _meta_of(model)
    views = [model.ensemble.encoders[j].encode(sentences) for j in meta.counted]
    return np.concatenate([unit_rows(view) if meta.normalize else view for view in views], axis=1)


def linear_map(meta: Meta) -> tuple[FloatArray, FloatArray]:
    """The matrix [D, d] and the bias [d] of a linear meta-embedding: rows x of member vectors become x @ matrix + bias.

    Raises:
        InputError: it is not linear.
    """
    blocks, bias = [], np.zeros(meta.dim, np.float32)
    for j in meta.counted:
        projection = meta.projections[j]
        block = np.zeros((projection.columns, meta.dim), np.float32)
        if isinstance(projection, Placement):
            width = min(projection.columns, meta.dim - projection.start)
            if width > 0:
                block[:width, projection.start : projection.start + width] = projection.scale * np.eye(width)
        elif isinstance(projection, Dense):
            block[:] = projection.matrix
            bias -= projection.offset
        elif isinstance(projection, Network) and len(projection.layers) == 1:
            layer = projection.layers[0]
            place = slice(projection.start, projection.start + layer.matrix.shape[1])
            block[:, place] = layer.matrix
            bias[place] += layer.bias
        else:
            raise InputError(
                f"{meta.method['name']} is not linear: it sends member {j} through {len(projection.layers)} layers "
                f"with {projection.activation!r} between them, and a FAISS index can only multiply and add; keep the "
                "model's own vectors in a FaissStore"
            )
        blocks.append(block)
    return np.concatenate(blocks), bias


def _meta_of(model: MetaEncoder) -> Meta:
    if not isinstance(model, MetaEncoder):
        raise InputError(f"only a meta-encoder has a map to export, not {model!r}; a FaissStore takes any encoder")
    return model.meta


def _read_index(facts: StoreFacts, file: Path) -> Any:  # noqa: ANN401 - faiss has no types of its own
    try:
        index = faiss.read_index(str(file))
    except RuntimeError as error:
        raise StoreError(f"FAISS cannot read {file}: {error}") from error
    graph = isinstance(faiss.downcast_index(index.index), faiss.IndexHNSWFlat)
    facts.check_settings({**_KINDS, "kind": ("hnsw",)} if graph else {"kind": ("flat",)}, str(file.parent))
    return index


def _empty_index(facts: StoreFacts) -> Any:  # noqa: ANN401 - faiss has no types of its own
    if facts.settings["kind"] == "flat":
        return faiss.IndexIDMap2(faiss.IndexFlatIP(facts.dim))
    graph = faiss.IndexHNSWFlat(facts.dim, facts.settings["connectivity"], faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = facts.settings["ef_construction"]
    graph.hnsw.efSearch = facts.settings["ef_search"]
    return faiss.IndexIDMap2(graph)
