"""What experiments have found out already, so that an interrupted run goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ensembed.errors import InputError
from ensembed.paper.records import from_json, to_json
from ensembed.support.atomic_files import alone, write_atomically
from ensembed.support.progress import Progress, silent
from ensembed.support.version import __version__

T = TypeVar("T")

# To be raised when an experiment changes what it does: what was written down before no longer counts.
_EDITION = 1


@dataclass(frozen=True)
class Notebook:
    """Records on disk, each under the hash of everything that it depends on.

    Attributes:
        folder: a file per record.
        fresh: whether what was written down before is found out again.
        progress: told of waiting for another process.
    """

    folder: Path
    fresh: bool = False
    progress: Progress = silent

    def key(self, what: str, facts: Any) -> str:  # noqa: ANN401 - anything JSON can hold
        """The hash under which something that depends on these facts is kept."""
        text = json.dumps([__version__, _EDITION, what, facts], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def record(self, kind: type[T], facts: Any, find: Callable[[], T]) -> T:  # noqa: ANN401 - anything JSON can hold
        """The record of these facts, found out now if it is not there; a damaged one counts as not there.

        A second process that writes in the same notebook waits, and then finds what the first has found.
        """
        path = self.folder / f"{self.key(kind.__name__, facts)}.json"
        if not self.fresh and (known := _read(kind, path)) is not None:
            return known
        self.folder.mkdir(parents=True, exist_ok=True)
        with alone(self.folder / ".lock", "process's experiment", self.progress):
            if not self.fresh and (known := _read(kind, path)) is not None:
                return known
            found = find()
            write_atomically(path, to_json(kind, found))
        return found


def _read(kind: type[T], path: Path) -> T | None:
    try:
        return from_json(kind, path.read_bytes())
    except (OSError, InputError):
        return None
