"""Housekeeping of an index: deleting, compacting, verifying, sweeping up."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ensembed.search.manifest import Manifest, SegmentFacts
from ensembed.search.segment import Part, Segment, write_segment
from ensembed.search.snapshot import Snapshot
from ensembed.search.storage import check_bytes
from ensembed.support.progress import Progress, silent

# A segment is written anew when this part of it is deleted.
_DELETED = 1 / 3
# So many small segments of about one size are made one, which is about so much larger: every row is copied a few times.
_FAN = 8
# Segments are not made larger than this by putting small ones together.
SEGMENT_ROWS = 1 << 18

# Names that only an index gives: a folder may hold a user's own files too.
_OURS = re.compile(
    r"\.?(\d{6,}\.(vectors|keys|ids|records|places|codes|scales|deleted-\d+)\.(npy|jsonl)|graph-\d+\.usearch"
    r"|fingerprint\.npy|index\.json)(\.[0-9a-f]{8}\.tmp)?"
)
_KEPT = ("index.json", "fingerprint.npy")


def without(snapshot: Snapshot, deleted: Iterable[int], number: int) -> tuple[SegmentFacts, ...]:
    """The segments' facts with the rows at these places deleted; the files are written, nothing is changed.

    Args:
        snapshot: what is deleted from.
        deleted: the places of the rows.
        number: no file has had it yet.
    """
    places = np.array(sorted(deleted), np.int64)
    facts = []
    for segment, start in zip(snapshot.segments, snapshot.starts, strict=False):
        lo, hi = np.searchsorted(places, [start, start + segment.rows])
        facts.append(segment.with_deleted(places[lo:hi] - start, number) if hi > lo else segment.facts)
    return tuple(facts)


def due(snapshot: Snapshot) -> list[tuple[int, int]]:
    """The stretches of segments that had better be written anew, as (first, behind the last)."""
    groups = []
    for i, segment in enumerate(snapshot.segments):
        if segment.rows - segment.facts.live >= _DELETED * segment.rows:
            groups.append((i, i + 1))
    return groups or _small_ones([segment.facts.live for segment in snapshot.segments])


def all_groups(snapshot: Snapshot) -> list[tuple[int, int]]:
    """Every stretch of segments that fits into one; one that is alone and whole is left as it is."""
    groups: list[tuple[int, int]] = []
    start = rows = 0
    segments = snapshot.segments
    for i, segment in enumerate(segments):
        if rows and rows + segment.facts.live > SEGMENT_ROWS:
            groups.append((start, i))
            start, rows = i, 0
        rows += segment.facts.live
    groups.append((start, len(segments)))
    return [(lo, hi) for lo, hi in groups if hi > lo + 1 or (hi > lo and segments[lo].facts.live < segments[lo].rows)]


def compacted(snapshot: Snapshot, groups: list[tuple[int, int]], progress: Progress = silent) -> Manifest:
    """The manifest with each of these stretches of segments as one without deleted rows; its files are written."""
    manifest = snapshot.manifest
    number, done = manifest.next_segment, 0
    total = sum(segment.facts.live for lo, hi in groups for segment in snapshot.segments[lo:hi])
    facts: list[SegmentFacts] = []
    position = 0
    for lo, hi in groups:
        facts += [segment.facts for segment in snapshot.segments[position:lo]]
        some = snapshot.segments[lo:hi]
        count = sum(segment.facts.live for segment in some)
        if count:
            for segment in some:
                segment.check()  # new checksums must not vouch for damaged rows
            facts.append(write_segment(snapshot.folder, number, manifest, count, lambda some=some: _parts(some)))  # type: ignore[misc] # mypy does not type a default of a lambda
            number += 1
        position = hi
        done += count
        progress("compact", done, total)
    facts += [segment.facts for segment in snapshot.segments[position:]]
    return manifest.changed(segments=tuple(facts), next_segment=number)


def verify(snapshot: Snapshot, progress: Progress = silent) -> None:
    """Read every byte; a DamagedIndexError names the file."""
    files = snapshot.manifest.files()
    for i, file in enumerate(files):
        check_bytes(snapshot.folder, file)
        progress("verify", i + 1, len(files))


def sweep(folder: Path, manifest: Manifest) -> None:
    """Remove what writers left behind when they died, and what the manifest no longer names."""
    named = {file.name for file in manifest.files()} | set(_KEPT)
    for path in folder.iterdir():
        if path.name not in named and _OURS.fullmatch(path.name):
            # Where a file that someone has open cannot be removed, the next writer does it.
            with contextlib.suppress(PermissionError, FileNotFoundError):
                path.unlink()


def _parts(segments: tuple[Segment, ...]) -> Iterator[Part]:
    return itertools.chain.from_iterable(segment.parts() for segment in segments)


def _small_ones(rows: list[int]) -> list[tuple[int, int]]:
    """The last segments, if so many of one size or less have gathered."""
    size = _FAN
    while size <= SEGMENT_ROWS:
        start = len(rows)
        while start and rows[start - 1] < size:
            start -= 1
        if len(rows) - start >= _FAN:
            return [(start, len(rows))]
        size *= _FAN
    return []
