"""Hashes of large files, remembered for as long as the file is the same by its size and times."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ensembed.errors import InputError
from ensembed.support.atomic_files import write_atomically
from ensembed.support.machine import cache_dir

# Clocks of file systems tick as slowly as this: a file that was just written may be written again within the same tick.
_TICK_NS = 2_000_000_000


def remembered(path: Path, what: str, compute: Callable[[], str]) -> str:
    """What `compute` says about the file, or said when the file had the size and the times that it has now.

    Args:
        path: the file.
        what: the kind of thing that is computed.
        compute: reads the file.

    Raises:
        InputError: the file cannot be read, or changed while it was.
    """
    before = state_of(path)
    facts = {"path": str(path.resolve()), "what": what, "state": before}
    name = hashlib.sha256(json.dumps([facts["path"], what]).encode()).hexdigest()[:32]
    memory = cache_dir() / "remembered" / f"{name}.json"
    # What is not there or damaged is computed again.
    with suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
        known = json.loads(memory.read_text(encoding="utf-8"))
        if isinstance(value := known.pop("value"), str) and known == facts:
            return value
    began = time.time_ns()
    value = compute()
    if state_of(path) != before:
        raise InputError(f"{path} changed while it was being read; run again")
    if began - max(before[1:]) > _TICK_NS:
        with suppress(OSError):  # a cache that cannot be written costs time only
            memory.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(memory, json.dumps(facts | {"value": value}).encode())
    return value


def state_of(path: Path) -> list[int]:
    """The size and the times of a file: what changes when it is written to.

    Raises:
        InputError: there is no such file.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns]
