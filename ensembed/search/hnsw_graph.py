"""The HNSW graph of a large index (usearch): it finds candidates; rows newer than the graph are compared exactly."""

from __future__ import annotations

import errno
import shutil
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import FloatArray
from ensembed.errors import DamagedIndexError
from ensembed.search.exact_search import Ranking, find_candidates, rank
from ensembed.search.graph_files import check_graph_file
from ensembed.search.index_files import (
    FileFacts,
    GraphFacts,
    Manifest,
    check_bytes,
    damaged,
    facts_of,
    read_manifest,
)
from ensembed.search.segments import Snapshot, encode_rows
from ensembed.support.atomic_files import new_file
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress, silent

_LEAST_ROWS = 1000  # comparing all of fewer rows is faster than any graph
_STALE_PART = 0.25  # the graph is extended when this part of it was added since, built again when it is deleted
_BATCH = 4096
# The least number of candidates for every hit, and usearch's parameters: measured in docs/guides/search.md.
_RESCORE, _EXPANSION_ADD, _EXPANSION_SEARCH, _CONNECTIVITY = 4, 128, 96, 16
_WANTED_PART = 0.1  # a graph is used if fewer than this part of the rows is wanted


def usearch() -> Any:  # noqa: ANN401 - a module without types of its own
    """Import the library."""
    return import_extra("usearch.index", "search", "an HNSW index")


def graph_is_due(snapshot: Snapshot) -> bool:
    """Return whether the graph should be built or extended now."""
    settings, graph = snapshot.manifest.settings, snapshot.manifest.graph
    least = settings.graph_rows if settings.kind == "auto" else _LEAST_ROWS
    if settings.kind == "exact" or len(snapshot) < least or _is_unavailable(snapshot.manifest):
        return False
    return graph is None or max(_drift(snapshot, graph)) > _STALE_PART * max(graph.rows, _LEAST_ROWS)


def build_graph(snapshot: Snapshot, threads: int = 1, progress: Progress = silent) -> GraphFacts | None:
    """Write a graph of all rows, extended or new, or return the present one if it is up to date; None for no rows."""
    graph = snapshot.manifest.graph
    missing, deleted = (0, 0) if graph is None else _drift(snapshot, graph)
    if graph is not None and not missing and not deleted:
        return graph
    if len(snapshot) == 0:
        return None
    if graph is not None and deleted <= _STALE_PART * graph.rows:
        check_bytes(snapshot.folder, graph.file)
        built, first = _restore(snapshot, graph, view=False), graph.upto
    else:
        built, first = _empty_graph(snapshot.manifest), 0
    places = np.flatnonzero(snapshot.live & (snapshot.keys >= first))
    for start in range(0, len(places), _BATCH):
        batch = places[start : start + _BATCH]
        rows = _graph_vectors(snapshot.manifest, snapshot.vectors(batch))
        built.add(snapshot.keys[batch].astype(np.uint64), rows, threads=threads)
        progress("graph", start + len(batch), len(places))
    path = snapshot.folder / f"graph-{snapshot.manifest.next_segment:06d}.usearch"
    with new_file(path, sync_name=False) as temporary:
        save_graph(built, temporary)
    return GraphFacts(facts_of(path), len(built), snapshot.manifest.next_key)


def save_graph(graph: Any, path: Path) -> None:  # noqa: ANN401 - usearch has no types
    """Write a graph; an OSError says why it cannot be written, a full disk included.

    usearch does not say why, and raises nothing at all if only the last bytes cannot be written.
    """
    try:
        graph.save(str(path))
        problem = "" if path.stat().st_size == graph.serialized_length else "its last bytes cannot be written"
    except RuntimeError as error:
        problem = str(error)
    if problem:
        full = shutil.disk_usage(path.parent).free < graph.serialized_length
        raise OSError(errno.ENOSPC if full else errno.EIO, problem, str(path))


class OpenGraph:
    """The graph that was searched last; it is opened when it is first needed."""

    def __init__(self) -> None:
        self._file: FileFacts | None = None
        self._graph: Any = None
        # usearch keeps the state of a search in the index, by the number of its own thread.
        self._lock = threading.Lock()

    def search(self, snapshot: Snapshot, queries: FloatArray, k: int) -> list[Ranking] | None:
        """Return the k nearest rows of every query, or None if all rows should be compared."""
        graph = snapshot.manifest.graph
        count = k * max(snapshot.manifest.settings.rescore, _RESCORE)
        few = count > _WANTED_PART * len(snapshot) or len(snapshot) < _LEAST_ROWS
        if graph is None or few or _is_unavailable(snapshot.manifest):
            return None
        with self._lock:
            if graph.file != self._file:
                try:
                    check_bytes(snapshot.folder, graph.file)
                    self._graph, self._file = _restore(snapshot, graph, view=True), graph.file
                except (DamagedIndexError, FileNotFoundError):
                    if read_manifest(snapshot.folder).graph == graph:
                        raise
                    return None  # a writer has replaced the graph since this snapshot was opened
            near = [self._near(snapshot, query, count) for query in queries]
        first = int(np.searchsorted(snapshot.keys, graph.upto))  # rows from here on were added after the graph
        late = find_candidates(snapshot, queries, count, first)
        return [
            rank(snapshot, query, np.concatenate([places, added]), k)
            for query, places, added in zip(queries, near, late, strict=True)
        ]

    def _near(self, snapshot: Snapshot, query: FloatArray, count: int) -> NDArray[np.int64]:
        """Return the ascending places of `count` rows near a query, asking for more while hits are deleted rows."""
        wanted, most = count, len(self._graph)
        vector = _graph_vectors(snapshot.manifest, query[None])[0]
        while True:
            hits = self._graph.search(vector, min(wanted, most), threads=1)
            keys = np.sort(hits.keys.astype(np.int64))
            first, last = (np.searchsorted(snapshot.keys, keys, side) for side in ("left", "right"))
            places = first[last > first]  # the others were deleted, and then compacted away
            places = places[snapshot.live[places]]
            if len(places) >= count or wanted >= most:
                return places
            wanted *= 4


def _is_unavailable(manifest: Manifest) -> bool:
    """Return whether the graph is optional and usearch is not installed; then every row is compared."""
    return manifest.settings.kind == "auto" and not find_spec("usearch")


def _drift(snapshot: Snapshot, graph: GraphFacts) -> tuple[int, int]:
    """Return how many rows the graph lacks, and how many of its rows are deleted."""
    inside = int(np.count_nonzero(snapshot.live & (snapshot.keys < graph.upto)))
    return len(snapshot) - inside, graph.rows - inside


def _empty_graph(manifest: Manifest) -> Any:  # noqa: ANN401 - usearch has no types
    dim = manifest.spec.dim
    ndim, metric, dtype = {
        "float32": (dim, "cos", "f16"),  # half precision is enough to find candidates
        "int8": (dim, "cos", "i8"),
        "binary": (-(-dim // 64) * 64, "hamming", "b1"),
    }[manifest.settings.dtype]
    size = {"connectivity": _CONNECTIVITY, "expansion_add": _EXPANSION_ADD, "expansion_search": _EXPANSION_SEARCH}
    return usearch().Index(ndim=ndim, metric=metric, dtype=dtype, **size)


def _graph_vectors(manifest: Manifest, rows: FloatArray) -> NDArray[Any]:
    """Convert rows to what the graph holds."""
    dtype = manifest.settings.dtype
    if dtype == "float32":
        return rows
    codes = encode_rows(rows, dtype)[0]
    return codes if dtype == "int8" else codes.view(np.uint8)


def _restore(snapshot: Snapshot, facts: GraphFacts, *, view: bool) -> Any:  # noqa: ANN401 - usearch has no types
    path, graph = snapshot.folder / facts.file.name, _empty_graph(snapshot.manifest)
    try:
        check_graph_file(path, graph)
        graph.view(str(path)) if view else graph.load(str(path))
    except (RuntimeError, ValueError) as error:
        raise damaged(path, str(error)) from error
    if len(graph) != facts.rows:
        raise damaged(path, "it is the graph of other rows")
    return graph
