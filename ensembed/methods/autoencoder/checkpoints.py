"""Training kept on disk: after `kill -9` it goes on to the same weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ensembed.errors import ModelError
from ensembed.numerics.row_matrices import Matrix
from ensembed.support.atomic_files import write_atomically

_NAME = "training.safetensors"
_TEMPORARIES = f".{_NAME}.*.tmp"
# Rows read at a time.
_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class State:
    """Where training is.

    Attributes:
        arrays: weights and Adam's moments.
        facts: the numbers that go with them: epochs done, the best loss so far.
    """

    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]


class Checkpoint:
    """A folder for the state of one training.

    Args:
        folder: where.
        identity: of method and data; the state of another training is not taken for this one's.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self._folder, self._identity = folder, identity

    def write(self, state: State) -> None:
        """Replace what is there."""
        facts = json.dumps(dict(state.facts))
        metadata = {"identity": self._identity, "facts": facts, "sha256": _seal(state.arrays, facts)}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._folder / _NAME, save(dict(state.arrays), metadata))
        except OSError as error:
            raise ModelError(f"cannot keep the training in {self._folder}: {error}; make room there") from error

    def read(self) -> State | None:
        """The state that was written last, or None where there is none of this training."""
        path = self._folder / _NAME
        if not path.is_file():
            return None
        try:
            with safe_open(path, "numpy") as file:
                metadata = file.metadata() or {}
                if metadata.get("identity") != self._identity:
                    return None
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
                whole = metadata["sha256"] == _seal(arrays, metadata["facts"])
                return State(arrays, json.loads(metadata["facts"])) if whole else None
        except (OSError, SafetensorError, ValueError, KeyError):
            return None  # damaged: training begins anew

    def remove(self) -> None:
        """Training is over: nothing is left of it, and what else is in the folder stays."""
        for path in [self._folder / _NAME, *self._folder.glob(_TEMPORARIES)]:  # a killed writer leaves a temporary
            path.unlink(missing_ok=True)
        if self._folder.is_dir() and not any(self._folder.iterdir()):
            self._folder.rmdir()


def _seal(arrays: Mapping[str, NDArray[Any]], facts: str) -> str:
    digest = hashlib.sha256(facts.encode())
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()


def identity_of(facts: Sequence[Any], views: Sequence[Matrix]) -> str:
    """A hash over facts and over every row of every view."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for view in views:
        digest.update(repr(view.shape).encode())
        for start in range(0, view.shape[0], _BLOCK):
            digest.update(np.ascontiguousarray(view[start : start + _BLOCK], np.float32).tobytes())
    return digest.hexdigest()[:32]
