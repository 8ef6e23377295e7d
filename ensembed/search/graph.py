"""The HNSW graph of a large index (usearch), saved beside the segments.

A graph is of the rows that were there when it was made. What was deleted since is passed over, and what was added since
is compared exactly: the graph need not change with every change of the index. All that it finds are candidates, which
are scored from the rows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import FloatArray
from ensembed.errors import DamagedIndexError
from ensembed.search.codes import encode_rows
from ensembed.search.manifest import WAY_OUT, FileFacts, GraphFacts, read_manifest
from ensembed.search.snapshot import Snapshot
from ensembed.search.storage import check_bytes, facts_of
from ensembed.support.atomic_files import new_file
from ensembed.support.extras import import_extra
from ensembed.support.progress import Progress, silent

# Fewer rows than these are compared faster than a graph is walked, whatever kind the index is.
_LEAST = 1000
# The graph is extended when so large a part of it has been added since, and made anew when so much of it is deleted.
_STALE = 0.25
_BATCH = 4096
# Candidates for every hit, at least; and how far the walk looks around: measured in docs/search.md.
_RESCORE = 4
_EXPANSION_ADD, _EXPANSION_SEARCH, _CONNECTIVITY = 128, 96, 16
# Walking is worth it while fewer than this part of the rows is asked for.
_FEW = 0.1


def usearch() -> Any:  # noqa: ANN401 - a module without types of its own
    """The library."""
    return import_extra("usearch.index", "search", "an HNSW index")


def due(snapshot: Snapshot) -> bool:
    """Whether the graph had better be made or extended now."""
    manifest = snapshot.manifest
    settings, made = manifest.settings, manifest.graph
    least = settings.graph_rows if settings.kind == "auto" else _LEAST
    if settings.kind == "exact" or len(snapshot) < least or (settings.kind == "auto" and not find_spec("usearch")):
        return False
    if made is None:
        return True
    behind, gone = _drift(snapshot, made)
    return max(behind, gone) > _STALE * max(made.rows, _LEAST)


def make(snapshot: Snapshot, number: int, threads: int = 1, progress: Progress = silent) -> GraphFacts | None:
    """The graph of all rows, extended or new; None for no rows. Its file is written, no manifest names it yet."""
    made = snapshot.manifest.graph
    library = usearch()
    behind, gone = (0, 0) if made is None else _drift(snapshot, made)
    if made is not None and not behind and not gone:
        return made
    if len(snapshot) == 0:
        return None
    if made is not None and gone <= _STALE * made.rows:
        check_bytes(snapshot.folder, made.file)
        walked, first = _restored(library, snapshot.folder / made.file.name, view=False), made.upto
    else:
        walked, first = _empty(library, snapshot), 0
    places = np.flatnonzero(snapshot.live & (snapshot.keys >= first))
    for start in range(0, len(places), _BATCH):
        some = places[start : start + _BATCH]
        walked.add(snapshot.keys[some].astype(np.uint64), _vectors(snapshot, snapshot.vectors(some)), threads=threads)
        progress("graph", start + len(some), len(places))
    path = snapshot.folder / f"graph-{number:06d}.usearch"
    with new_file(path, sync_name=False) as temporary:
        walked.save(str(temporary))
    return GraphFacts(facts_of(path), len(walked), snapshot.manifest.next_key)


class OpenGraph:
    """The graph that was last searched; opened when it is first needed."""

    def __init__(self) -> None:
        self._file: FileFacts | None = None
        self._walked: Any = None
        # usearch keeps the state of a walk in the index, by the number of its own thread.
        self._alone = threading.Lock()

    def search(
        self, snapshot: Snapshot, queries: FloatArray, k: int
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]] | None:
        """For every query its k nearest rows, or None where there is no graph or comparing all rows is better."""
        made, settings = snapshot.manifest.graph, snapshot.manifest.settings
        count = k * max(settings.rescore, _RESCORE)
        if made is None or count > _FEW * len(snapshot) or len(snapshot) < _LEAST:
            return None
        if settings.kind == "auto" and not find_spec("usearch"):
            return None  # every row is compared: slower, and right
        with self._alone:
            if made.file != self._file:
                gone = not (snapshot.folder / made.file.name).exists()
                if gone and read_manifest(snapshot.folder).graph != made:
                    return None  # a writer has made another since this was opened: every row is compared
                # A damaged graph would not only be wrong: walking it may end the process.
                check_bytes(snapshot.folder, made.file)
                self._walked = _restored(usearch(), snapshot.folder / made.file.name, view=True)
                self._file = made.file
            near = [self._near(snapshot, query, count) for query in queries]
        first = int(np.searchsorted(snapshot.keys, made.upto))
        late = self._late(snapshot, queries, count, first)
        return [
            snapshot.rescored(query, np.concatenate([places, behind]), k)
            for query, places, behind in zip(queries, near, late, strict=True)
        ]

    def _near(self, snapshot: Snapshot, query: FloatArray, count: int) -> NDArray[np.int64]:
        """Places, ascending, of `count` rows near a query; where many were deleted it has to look further."""
        wanted, most = count, len(self._walked)
        vector = _vectors(snapshot, query[None])[0]
        while True:
            found = self._walked.search(vector, min(wanted, most), threads=1)
            keys = np.sort(np.asarray(found.keys).astype(np.int64))
            places = np.searchsorted(snapshot.keys, keys)
            places = places[
                (places < len(snapshot.keys)) & (snapshot.keys[np.minimum(places, len(snapshot.keys) - 1)] == keys)
            ]
            places = places[snapshot.live[places]]
            if len(places) >= count or wanted >= most:
                return np.asarray(places)
            wanted *= 4

    def _late(self, snapshot: Snapshot, queries: FloatArray, count: int, first: int) -> Iterator[NDArray[np.int64]]:
        """Places of rows that came after the graph."""
        if first == len(snapshot.keys):
            return (np.zeros(0, np.int64) for _ in queries)
        return snapshot.candidates(queries, count, first)


def _drift(snapshot: Snapshot, made: GraphFacts) -> tuple[int, int]:
    """How many rows the graph lacks, and how many of its rows are deleted."""
    inside = int(np.count_nonzero(snapshot.live & (snapshot.keys < made.upto)))
    return len(snapshot) - inside, made.rows - inside


def _empty(library: Any, snapshot: Snapshot) -> Any:  # noqa: ANN401 - usearch has no types
    dtype, dim = snapshot.manifest.settings.dtype, snapshot.manifest.spec.dim
    settings = {
        "connectivity": _CONNECTIVITY,
        "expansion_add": _EXPANSION_ADD,
        "expansion_search": _EXPANSION_SEARCH,
    }
    if dtype == "binary":
        return library.Index(ndim=-(-dim // 64) * 64, metric="hamming", dtype="b1", **settings)
    # Half precision is enough to find candidates.
    return library.Index(ndim=dim, metric="cos", dtype="i8" if dtype == "int8" else "f16", **settings)


def _vectors(snapshot: Snapshot, rows: FloatArray) -> NDArray[Any]:
    """Rows as the graph holds them."""
    dtype = snapshot.manifest.settings.dtype
    if dtype == "float32":
        return rows
    codes = encode_rows(rows, dtype)[0]
    return codes if dtype == "int8" else codes.view(np.uint8)


def _restored(library: Any, path: Path, *, view: bool) -> Any:  # noqa: ANN401 - usearch has no types
    try:
        found = library.Index.restore(str(path), view=view)
    except RuntimeError as error:
        raise DamagedIndexError(f"{path} cannot be read: {error}; {WAY_OUT}") from error
    if found is None:
        raise DamagedIndexError(f"{path} is no graph; {WAY_OUT}")
    found.expansion_search = _EXPANSION_SEARCH
    found.expansion_add = _EXPANSION_ADD
    return found
