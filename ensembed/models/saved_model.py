"""Saved models: a folder with `config.json` (facts, hashes) and `model.safetensors` (numbers). No code, no pickle.

A save is complete or absent, also when it replaces a model and the process is killed. The new tensors are written as
`model-HASH.safetensors`, where HASH begins the hash in the new configuration. Renaming the configuration is the switch:
a reader takes the tensors of that name if they are there, else `model.safetensors`. Then the tensors get that plain
name, which the hub and version 0.1 look for. The next save finishes one that was killed in between.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ensembed.encoders.base import PROBES, EncoderSpec, FloatArray, SavedSpec
from ensembed.errors import ModelError
from ensembed.methods.meta import PROJECTIONS, Meta
from ensembed.support.atomic_files import make_folder, sync, write_all_atomically
from ensembed.support.file_limits import CONFIG_BYTES
from ensembed.support.version import __version__

FORMAT_VERSION = 1
CONFIG = "config.json"
TENSORS = "model.safetensors"
_NEW_TENSORS = f"model-{'[0-9a-f]' * 16}.safetensors"
_FACTS = {
    "method": dict,
    "dim": int,
    "normalize": bool,
    "rows": int,
    "corpus": str,
    "members": list,
    "projections": list,
    "has_spectrum": bool,
}

# A model in memory has specs of open encoders; one that was read has specs whose names are untrusted.
Spec = TypeVar("Spec", EncoderSpec, SavedSpec)


@dataclass(frozen=True, eq=False)
class SavedModel(Generic[Spec]):
    """What is kept of a meta-encoder.

    Attributes:
        meta: the fitted meta-embedding.
        members: the encoders' specs, in the ensemble's order.
        fingerprints: per encoder its vectors of the probe sentences, by which a changed encoder shows.
        corpus: the key of the corpus it was fitted on; empty where none was needed.
    """

    meta: Meta
    members: tuple[Spec, ...]
    fingerprints: tuple[FloatArray, ...]
    corpus: str = ""


def write_model(folder: Path, model: SavedModel[Spec]) -> None:
    """Save the model in a folder, which is made; a model that is there already is replaced."""
    meta = model.meta
    projections = [projection.saved() for projection in meta.projections]
    facts: dict[str, Any] = {
        "format": FORMAT_VERSION,
        "ensembed": __version__,
        "method": dict(meta.method),
        "dim": meta.dim,
        "normalize": meta.normalize,
        "rows": meta.rows,
        "corpus": model.corpus,
        "members": [spec.to_json() for spec in model.members],
        "projections": [described for described, _ in projections],
        "has_spectrum": meta.spectrum is not None,
    }
    tensors: dict[str, NDArray[Any]] = {f"fingerprint.{j}": probes for j, probes in enumerate(model.fingerprints)}
    for j, (_, arrays) in enumerate(projections):
        tensors |= {f"projection.{j}.{name}": array for name, array in arrays.items()}
    if meta.spectrum is not None:
        tensors["spectrum"] = meta.spectrum
    # safetensors writes the buffer as it lies in memory: a transposed array would come back scrambled.
    data = save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})
    facts["sha256"] = _seal(facts, data)
    tensors_file = folder / f"model-{facts['sha256'][:16]}.safetensors"
    try:
        make_folder(folder)
        if any(folder.glob(_NEW_TENSORS)):
            _finish_save(folder)
        write_all_atomically({tensors_file: data, folder / CONFIG: json.dumps(facts, indent=1).encode() + b"\n"})
        with suppress(FileNotFoundError):  # another process that saves the same model may be faster
            tensors_file.replace(folder / TENSORS)
        sync(folder)
    except OSError as error:
        with suppress(OSError):
            _finish_save(folder)
        raise ModelError(f"cannot save the model in {folder}: {error}") from error


def _finish_save(folder: Path) -> None:
    """Give the tensors of the present configuration their plain name; remove those of saves that were interrupted."""
    try:
        current = str(json.loads((folder / CONFIG).read_bytes())["sha256"])
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):  # no model that could be kept
        current = ""
    for path in folder.glob(_NEW_TENSORS):
        with suppress(FileNotFoundError):  # as in `write_model`
            if path.name == f"model-{current[:16]}.safetensors":
                path.replace(folder / TENSORS)
                sync(folder)
            else:
                path.unlink()


def is_model(folder: str | Path) -> bool:
    """Return whether a model was saved in a folder."""
    return bool(str(folder)) and (Path(folder) / CONFIG).is_file()


def read_model(folder: Path) -> SavedModel[SavedSpec]:
    """Read a saved model, or raise a ModelError that says what is wrong with it."""
    try:
        with (folder / CONFIG).open("rb") as file:
            config = json.loads(file.read(CONFIG_BYTES))
        seal = config.pop("sha256", None) if isinstance(config, dict) else None
        try:
            data = (folder / f"model-{re.sub('[^0-9a-f]', '', str(seal))[:16]}.safetensors").read_bytes()
        except FileNotFoundError:  # the save is finished
            data = (folder / TENSORS).read_bytes()
        intact = seal is not None and seal == _seal(config, data)
    except FileNotFoundError as error:
        raise ModelError(f"{folder} is not a saved model: {Path(error.filename).name} is missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{folder} cannot be read: {error}") from error
    version = config.get("format") if isinstance(config, dict) else None
    if version is None:
        raise ModelError(f"{folder} is not a saved model: its {CONFIG} is of another kind")
    if version != FORMAT_VERSION:
        raise ModelError(
            f"{folder} has model format {version!r}; ensembed {__version__} reads {FORMAT_VERSION}: upgrade ensembed"
        )
    if not intact:
        problem = "do not belong together: the save was interrupted, or a file was changed"
        raise ModelError(f"{folder}: {CONFIG} and {TENSORS} {problem}")
    try:
        return _model(config, load(data))
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, SafetensorError) as error:
        raise ModelError(f"{folder} is damaged: {error!r}") from error


def _seal(facts: Mapping[str, Any], data: bytes) -> str:
    """The hash of the facts, however they are laid out, and of the tensors' file."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode() + b"\0" + data).hexdigest()


def _model(config: Mapping[str, Any], tensors: dict[str, NDArray[Any]]) -> SavedModel[SavedSpec]:
    for name, kind in _FACTS.items():
        if type(config[name]) is not kind:
            raise TypeError(f"{name} is {config[name]!r}")

    def take(name: str, *shape: int) -> NDArray[Any]:
        tensor = tensors.pop(name)
        if tensor.shape != shape:
            raise ValueError(f"{name} has shape {tensor.shape} instead of {shape}")
        return tensor

    dim = config["dim"]
    # Some projections have no tensors. Every member has, so a model's vectors are shorter than all of them together.
    if not 0 < dim <= sum(map(np.size, tensors.values())):
        raise ValueError(f"dim is {dim}, which does not fit the tensors")
    members = tuple(SavedSpec.from_json(spec) for spec in config["members"])
    projections = []
    for j, (facts, spec) in enumerate(zip(config["projections"], members, strict=True)):
        if facts["kind"] not in PROJECTIONS:
            raise ValueError(f"unknown projection {facts['kind']!r}")
        taken = lambda name, *shape, j=j: take(f"projection.{j}.{name}", *shape)  # noqa: E731 - one line of it
        projections.append(PROJECTIONS[facts["kind"]].restored(facts, spec.settings.dim, dim, taken))
    spectrum = take("spectrum", dim) if config["has_spectrum"] else None
    fingerprints = tuple(take(f"fingerprint.{j}", len(PROBES), spec.settings.dim) for j, spec in enumerate(members))
    if tensors:
        raise ValueError(f"unexpected tensors {sorted(tensors)}")
    if "name" not in config["method"]:
        raise KeyError("name")
    meta = Meta(config["method"], dim, tuple(projections), config["normalize"], spectrum, config["rows"])
    dims = tuple(spec.settings.dim for spec in members)
    if meta.view_dims != dims:
        raise ValueError(f"projections take {meta.view_dims}, members give {list(dims)}")
    return SavedModel(meta, members, fingerprints, config["corpus"])
