"""Which weights a server has: told by the vectors it gives to probe sentences, since its files cannot be hashed.

Real servers round differently from one reply to the next, so that a plain hash of the vectors would never be the same
twice. The vectors that were seen are therefore remembered, each with the revision it was given then: vectors that are
almost those get that revision, all others one of their own. A server may move to another host and keep its revision;
when its numbers change, so does the revision.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from filelock import FileLock

from ensembed.encoders.base import FloatArray
from ensembed.encoders.identity import PROBED
from ensembed.support.atomic_files import write_atomically
from ensembed.support.paths import cache_dir

# A change of these changes every revision.
PROBES = (
    "A man is playing a guitar on the stage.",
    "Stock prices fell sharply after the report, analysts said on Tuesday.",
    "Zwei Hunde laufen durch den Schnee.",
)

# How far a row may be from the remembered one, as a part of its length: half precision and other batches move vectors
# by some thousandths, other weights by much more.
_SAME = 0.01
# Revisions remembered of a model; the oldest go first.
_MOST = 16
# Whoever holds the file writes some kilobytes: after so many seconds something is wrong with it.
_LOCK_SECONDS = 10


def probed_revision(model: str, dimensions: int | None, vectors: FloatArray) -> str:
    """The revision of the model that gives these vectors to `PROBES`.

    It is kept in `servers` in the cache. A damaged memory is begun anew; without a writable one, the revision is the
    hash of the vectors.

    Args:
        model: what the server calls it.
        dimensions: how many it was asked for; None for as many as it has.
        vectors: [probes, d] what it gave.
    """
    exact = np.ascontiguousarray(vectors, "<f4")
    revision = PROBED + hashlib.sha256(exact.tobytes()).hexdigest()[:16]
    name = hashlib.sha256(json.dumps([model, dimensions]).encode()).hexdigest()[:32]
    memory = cache_dir() / "servers" / f"{name}.json"
    # Two processes that see the model for the first time must agree on its revision.
    with contextlib.suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(memory.with_suffix(".lock"), timeout=_LOCK_SECONDS):
            seen = dict(_read(memory, exact.shape[0]))
            if known := _nearest(seen, exact):
                return known
            seen[revision] = exact
            _write(memory, model, dict(list(seen.items())[-_MOST:]))
    return revision


def _nearest(seen: dict[str, FloatArray], vectors: FloatArray) -> str | None:
    """The remembered revision whose vectors are almost these, if there is one."""
    distances = {
        revision: _distance(vectors, known) for revision, known in seen.items() if known.shape == vectors.shape
    }
    best = min(distances, key=distances.__getitem__, default=None)
    return best if best is not None and distances[best] <= _SAME else None


def _distance(vectors: FloatArray, known: FloatArray) -> float:
    """How far the row that moved most is from where it was, as a part of its length."""
    lengths = np.linalg.norm(known.astype(float), axis=1) + np.finfo(np.float32).tiny  # a row may be zero
    return float((np.linalg.norm(vectors.astype(float) - known, axis=1) / lengths).max())


def _read(memory: Path, rows: int) -> Iterator[tuple[str, FloatArray]]:
    """What is remembered, oldest first; damage ends it."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        for entry in json.loads(memory.read_bytes())["seen"]:
            flat = np.frombuffer(base64.b64decode(entry["vectors"], validate=True), "<f4")
            if entry["revision"].startswith(PROBED) and np.isfinite(flat).all():
                yield entry["revision"], flat.reshape(rows, -1)


def _write(memory: Path, model: str, seen: dict[str, FloatArray]) -> None:
    entries = [
        {"revision": revision, "vectors": base64.b64encode(vectors.tobytes()).decode()}
        for revision, vectors in seen.items()
    ]
    write_atomically(memory, json.dumps({"model": model, "seen": entries}).encode())
