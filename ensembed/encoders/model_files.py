"""Files of a model on this machine: their JSON, their hashes, and results that are kept while a file is unchanged."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ensembed.errors import EncoderError, InputError
from ensembed.support import file_limits as limits
from ensembed.support.atomic_files import make_folder, write_atomically
from ensembed.support.machine import cache_dir
from ensembed.support.progress import Progress, silent

_BLOCK = 1 << 20
_TICK_NS = 2_000_000_000  # the coarsest time stamp of a file system: within it a file may be written twice


def read_bytes(path: Path, hint: str) -> bytes:
    """Read a file of a model; an EncoderError that ends in the hint if that fails."""
    try:
        with limits.open_regular(path) as file:
            return file.read()
    except OSError as error:
        raise EncoderError(f"{path} cannot be read: {error.strerror or error}; {hint}") from error


def read_json(path: Path, hint: str, *, most_values: int | None = None) -> Any:  # noqa: ANN401 - any JSON
    """Read a JSON file of a model; an EncoderError that ends in the hint if that fails."""
    try:
        return limits.read_json(path, most_values=most_values)
    except OSError as error:
        raise EncoderError(f"{path} cannot be read: {error.strerror or error}; {hint}") from error
    except ValueError as error:
        raise EncoderError(f"{path} is not JSON ({error}); {hint}") from error


def read_object(path: Path, hint: str) -> dict[str, Any]:
    """Read a JSON object of a model, {} if there is no file; an EncoderError that ends in the hint if it is damaged."""
    data = read_json(path, hint) if path.is_file() else {}
    if not isinstance(data, dict):
        raise EncoderError(f"{path} holds a JSON {type(data).__name__}, not an object; {hint}")
    return data


def revision_of(files: Mapping[str, Path], *, label: str = "hash", progress: Progress = silent) -> str:
    """Return a short hash over the names that files have in a model and over their content, wherever they are."""
    total = hashlib.sha256()
    try:
        size = sum(path.stat().st_size for path in files.values())
        done = 0
        for name, path in sorted(files.items()):
            digest = hashlib.sha256()
            with limits.open_regular(path) as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
                    done += len(block)
                    progress(label, done, size)
            total.update(f"{name} {digest.hexdigest()}\n".encode())
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a null character, or a surrogate
        raise InputError(f"{', '.join(map(repr, files))} cannot all be read: {error}") from error
    return total.hexdigest()[:16]


def remembered(path: Path, what: str, compute: Callable[[], str]) -> str:
    """Return what `compute` reads from a file, kept under the kind `what` until the file's size or times change."""
    before = state_of(path)
    facts = {"path": str(path.resolve()), "what": what, "state": before}
    name = hashlib.sha256(json.dumps([facts["path"], what]).encode()).hexdigest()[:32]
    memory = cache_dir() / "remembered" / f"{name}.json"
    # An absent or damaged entry is computed again.
    with suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
        entry = limits.read_json(memory)
        if isinstance(value := entry.pop("value"), str) and entry == facts:
            return value
    start = time.time_ns()
    value = compute()
    if state_of(path) != before:
        raise InputError(f"{path} changed while it was being read; run again")
    if start - max(before[1:]) > _TICK_NS:
        with suppress(OSError):  # a cache that cannot be written costs only time
            make_folder(memory.parent)
            write_atomically(memory, json.dumps(facts | {"value": value}).encode())
    return value


def state_of(path: Path) -> list[int]:
    """Return the size and the times of a file, which change when it is written; an InputError if there is none."""
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
