"""What experiments write down: dataclasses as JSON files, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ensembed.errors import InputError
from ensembed.support.atomic_files import alone, write_atomically
from ensembed.support.extras import import_extra
from ensembed.support.file_limits import JSON_BYTES, RECORD_VALUES, count_values, open_regular
from ensembed.support.progress import Progress, silent
from ensembed.support.version import __version__

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

# Raise this when an experiment changes what it does: older records then no longer count.
_EDITION = 1


@dataclass(frozen=True)
class Notebook:
    """Records on disk, each under the hash of everything that it depends on. Without a folder nothing is kept."""

    folder: Path | None
    fresh: bool = False  # compute every record again
    progress: Progress = silent

    def key(self, what: str, facts: Any) -> str:  # noqa: ANN401 - anything JSON can hold
        """Return the hash of these facts under which a record is kept."""
        text = json.dumps([__version__, _EDITION, what, facts], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def record(self, kind: type[T], facts: Any, compute: Callable[[], T]) -> T:  # noqa: ANN401 - anything JSON can hold
        """Return the record of these facts; compute and write it, in one process at a time, if it is missing."""
        if self.folder is None:
            return compute()
        path = self.folder / f"{self.key(kind.__name__, facts)}.json"
        if not self.fresh and (known := _read(kind, path)) is not None:
            return known
        with alone(self.folder / ".lock", "process's experiment", self.progress):
            if not self.fresh and (known := _read(kind, path)) is not None:
                return known
            record = compute()
            try:
                write_atomically(path, to_json(kind, record))
            except (IsADirectoryError, NotADirectoryError) as error:
                raise InputError(f"{path} cannot be written: {error.strerror}; remove what is there") from error
        return record


def to_json(kind: type[T], record: T, *, indent: int | None = None) -> bytes:
    """Write a dataclass as JSON text, with every digit."""
    return bytes(_adapter(kind).dump_json(record, indent=indent)) + b"\n"


def from_json(kind: type[T], text: bytes) -> T:
    """Read what `to_json` wrote; raise InputError for anything else."""
    wrong = f"this is no {kind.__name__} of this version"
    if count_values(text) > RECORD_VALUES:  # pydantic keeps 600 bytes for each thing that is wrong with each value
        raise InputError(f"{wrong}: it has more than {RECORD_VALUES:,} values")
    try:
        return _adapter(kind).validate_json(text)
    except ValueError as error:  # pydantic's ValidationError is one
        raise InputError(f"{wrong}: {error}") from None


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    pydantic: Any = import_extra("pydantic", "report", "what experiments write down")
    adapter: TypeAdapter[T] = pydantic.TypeAdapter(kind)
    return adapter


def _read(kind: type[T], path: Path) -> T | None:
    try:
        with open_regular(path) as file:
            return from_json(kind, file.read(JSON_BYTES))
    except (OSError, InputError):
        return None
