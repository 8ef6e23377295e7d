"""Blocks of rows that are sent to tasks: of stored views only the names of their shards are sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ensembed.methods.meta import MetaRows
from ensembed.numerics.moments import STRETCH
from ensembed.numerics.row_matrices import Matrix
from ensembed.views import View


@runtime_checkable
class Portable(Protocol):
    """A matrix that knows how some of its rows are read in another process, as a stored view does."""

    def stretch(self, start: int, stop: int) -> Matrix:
        """Return the rows from start to stop as something small that can be pickled and is read where it arrives."""


def cuts(views: Sequence[Matrix], blocks: int) -> list[tuple[int, int]]:
    """Return the rows of at most so many similar blocks of whole shards, cut where a pass would begin to read."""
    rows = views[0].shape[0]
    shards = (view.manifest.shard_rows for view in views if isinstance(view, View))
    grain = max((1, *shards, *(STRETCH for view in views if isinstance(view, MetaRows))))
    grains = -(-rows // grain)
    edges = [grain * int(edge) for edge in np.linspace(0, grains, min(blocks, grains) + 1).astype(int)]
    edges[-1] = rows
    return list(pairwise(edges))


def equal_parts(rows: int, count: int) -> list[tuple[int, int]]:
    """Return first row and end of at most so many parts, none empty, whose sizes differ by at most one row."""
    count = min(count, rows)
    return [(rows * r // count, rows * (r + 1) // count) for r in range(count)]


class Supply:
    """Gives blocks of views to tasks: rows in memory go into the object store, a block at a time, once."""

    def __init__(self, ray: Any, views: Sequence[Matrix]) -> None:  # noqa: ANN401 - a module without types
        self._ray, self._views = ray, views
        # References are kept until the end: a block whose result was lost with a node is computed again from them.
        self._references: list[Any] = []
        self._metas: list[Any] = [ray.put(view.meta) if isinstance(view, MetaRows) else None for view in views]

    def block(self, start: int, stop: int) -> list[Any]:
        """Return some rows of the views, or where they are; `opened` makes views of them in a task."""
        block: list[Any] = []
        for view, meta in zip(self._views, self._metas, strict=True):
            if isinstance(view, MetaRows):
                parts = [None if part is None else self._part(part, start, stop) for part in view.views]
                block.append(replace(view, meta=meta, views=parts))
            else:
                block.append(self._part(view, start, stop))
        return block

    def _part(self, view: Matrix, start: int, stop: int) -> Any:  # noqa: ANN401 - rows, or where they are
        if isinstance(view, Portable):
            return view.stretch(start, stop)
        self._references.append(self._ray.put(np.ascontiguousarray(view[start:stop])))
        return self._references[-1]


def opened(part: Any) -> Any:  # noqa: ANN401 - what `Supply.block` gives
    """In a task: return a view of a block, fetched from the object store if it is there."""
    import ray

    if isinstance(part, MetaRows):
        return MetaRows(ray.get(part.meta), [None if view is None else opened(view) for view in part.views])
    return ray.get(part) if isinstance(part, ray.ObjectRef) else part
