"""The state of a training in one file: after `kill -9` the training continues to the same weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ensembed.errors import ModelError
from ensembed.support.atomic_files import make_folder, write_atomically
from ensembed.support.file_limits import parse_json

_FILE = "training.safetensors"


@dataclass(frozen=True, eq=False)
class State:
    """The state of a training after an epoch."""

    arrays: Mapping[str, NDArray[Any]]  # weights and the optimiser's moments
    facts: Mapping[str, Any]  # epochs done, the best figure so far


@dataclass(frozen=True)
class Checkpoint:
    """A folder for the state of one training."""

    _folder: Path  # may be missing
    _identity: str  # of method and data; the state of another training is ignored

    def write(self, state: State) -> None:
        """Replace the state on disk."""
        facts = json.dumps(dict(state.facts))
        metadata = {"identity": self._identity, "facts": facts, "sha256": seal(state.arrays, facts)}
        try:
            make_folder(self._folder)
            write_atomically(self._folder / _FILE, save(dict(state.arrays), metadata))
        except OSError as error:
            raise ModelError(f"cannot keep the training in {self._folder}: {error}; make room there") from error

    def read(self, shapes: Mapping[str, tuple[int, ...]], kinds: Mapping[str, type]) -> State | None:
        """Return the state that was written last, or None if there is none of this training, or a damaged one.

        Args:
            shapes: the shape of every array of the state.
            kinds: the type of every fact; whole numbers must not be negative.
        """
        path = self._folder / _FILE
        if not path.is_file():
            return None
        try:
            with safe_open(path, "numpy") as file:
                metadata = file.metadata() or {}
                if metadata.get("identity") != self._identity:
                    return None
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
                facts = parse_json(metadata["facts"].encode())
                whole = metadata["sha256"] == seal(arrays, metadata["facts"])
        except (OSError, SafetensorError, ValueError, KeyError, OverflowError):
            return None  # damaged: training begins again
        fits = {name: array.shape for name, array in arrays.items()} == dict(shapes) and _are_facts(facts, kinds)
        return State(arrays, facts) if whole and fits else None

    def remove(self) -> None:
        """Remove the state, and the folder if nothing else is in it."""
        try:
            # A killed writer leaves a temporary file.
            for path in [self._folder / _FILE, *self._folder.glob(f".{_FILE}.*.tmp")]:
                path.unlink(missing_ok=True)
            if self._folder.is_dir() and not any(self._folder.iterdir()):
                self._folder.rmdir()
        except OSError as error:
            raise ModelError(f"cannot remove the training in {self._folder}: {error}") from error


def _are_facts(facts: object, kinds: Mapping[str, type]) -> bool:
    """Return whether these can be the facts of a training."""
    if not isinstance(facts, dict) or {name: type(value) for name, value in facts.items()} != dict(kinds):
        return False
    return all(value >= 0 for value in facts.values() if type(value) is int)


def seal(arrays: Mapping[str, NDArray[Any]], facts: str) -> str:
    """Return the hash of a state."""
    digest = hashlib.sha256(facts.encode())
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()
