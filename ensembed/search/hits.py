"""What a search gives back, and how it is found without a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ensembed.encoders.base import FloatArray
from ensembed.search.snapshot import Snapshot


@dataclass(frozen=True)
class Hit:
    """A row that was found.

    Attributes:
        id: its own.
        score: its cosine with the query.
        text: what was indexed.
        metadata: what was kept with it.
    """

    id: str
    score: float
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


def compared(snapshot: Snapshot, vectors: FloatArray, k: int) -> Iterator[tuple[Any, Any]]:
    """For every query the places and cosines of its k nearest rows, by comparing it with all rows or their codes."""
    settings = snapshot.manifest.settings
    if settings.dtype == "float32":
        yield from snapshot.exact(vectors, k)
        return
    for query, places in zip(vectors, snapshot.candidates(vectors, k * settings.rescore), strict=True):
        yield snapshot.rescored(query, places, k)


def hit_of(record: Mapping[str, Any], score: float) -> Hit:
    """The hit of a row."""
    return Hit(record["id"], score, record["text"], record.get("metadata", {}))
