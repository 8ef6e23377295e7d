"""Saved models: a folder with `config.json` (facts, hashes) and `model.safetensors` (numbers). No code, no pickle.

A save is complete or absent, also when it replaces a model and the process is killed. The new tensors are written as
`model-HASH.safetensors`, where HASH begins the hash in the new configuration. Renaming the configuration is the switch:
a reader takes the tensors of that name if they are there, else `model.safetensors`. Then the tensors get that plain
name, which the hub and version 0.1 look for. The next save finishes one that was killed in between. Saves wait for each
other (`.lock`); a reader that meets one reads again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ensembed.encoders.base import PROBES, EncoderSpec, FloatArray, SavedSpec
from ensembed.errors import ModelError
from ensembed.methods.meta import PROJECTIONS, Leading, Local, Meta
from ensembed.methods.prediction import Predictor
from ensembed.models.saved_translation import Translation
from ensembed.support.atomic_files import finish_switch, make_folder, sync, write_all_atomically
from ensembed.support.file_limits import CONFIG_BYTES, TENSOR_HEADER_BYTES, parse_json, read_json
from ensembed.support.shown_objects import short_value
from ensembed.support.version import __version__

FORMAT_VERSION = 3
"""The newest format: 2 adds leading directions; 3 a predictor of missing members, and that a model stands for another.

A model is written in the oldest format that can hold it: format 1 is what version 0.1 reads.
"""
CONFIG = "config.json"
TENSORS = "model.safetensors"
_LOCK = ".lock"
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
        predictor: what predicts members that are missing; None if there were too few sentences to tell.
        translation: the model whose vectors this one gives, if it was fitted for that.
    """

    meta: Meta
    members: tuple[Spec, ...]
    fingerprints: tuple[FloatArray, ...]
    corpus: str = ""
    predictor: Predictor | None = None
    translation: Translation | None = None


def write_model(folder: Path, model: SavedModel[Spec]) -> None:
    """Save the model in a folder, which is made; a saved model is replaced, files of other libraries are an error."""
    meta = model.meta
    projections = [projection.saved() for projection in meta.projections]
    regions = any(isinstance(projection, Local) for projection in meta.projections)
    newest = regions or model.predictor is not None or model.translation is not None
    facts: dict[str, Any] = {
        "format": FORMAT_VERSION if newest else 1 if meta.leading is None else 2,
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
    if meta.leading is not None:
        facts["leading"] = len(meta.leading.values)
        tensors |= {"leading.values": meta.leading.values, "leading.directions": meta.leading.directions}
    if newest:
        facts["leading"] = None if meta.leading is None else len(meta.leading.values)
        for name, part in (("predictor", model.predictor), ("translation", model.translation)):
            facts[name], arrays = (None, {}) if part is None else part.saved()
            tensors |= {f"{name}.{key}": array for key, array in arrays.items()}
    # safetensors writes the buffer as it lies in memory: a transposed array would come back scrambled.
    data = save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})
    facts["sha256"] = _seal(facts, data)
    tensors_file = folder / f"model-{facts['sha256'][:16]}.safetensors"
    config = json.dumps(facts, indent=1).encode() + b"\n"
    if any((folder / name).exists() for name in (CONFIG, TENSORS)) and not is_own_folder(folder):
        raise ModelError(f"{folder} has files of another kind, {CONFIG} or {TENSORS}: name a new folder")
    try:
        make_folder(folder)
        # Two saves at once could leave the configuration of one and the tensors of the other.
        with FileLock(folder / _LOCK):
            try:
                write_all_atomically({tensors_file: data, folder / CONFIG: config})
                tensors_file.replace(folder / TENSORS)
                sync(folder)
            finally:
                # Either this save failed, or an earlier one was killed, or there are other files.
                if {path.name for path in folder.iterdir()} != {CONFIG, TENSORS, _LOCK}:
                    _finish_save(folder)
    except OSError as error:
        raise ModelError(f"cannot save the model in {folder}: {error}") from error


def _finish_save(folder: Path) -> None:
    """Give the tensors of the present configuration their plain name; remove what interrupted saves left."""
    try:
        current = str(read_json(folder / CONFIG)["sha256"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # no model that could be kept
        current = ""
    finish_switch(folder, rf"{re.escape(CONFIG)}|{re.escape(TENSORS)}", {TENSORS: current})


def is_own_folder(folder: Path) -> bool:
    """Return whether a folder holds a saved model, or what a killed save left, and not another library's files."""
    try:
        config = read_json(folder / CONFIG)
    except FileNotFoundError:  # a killed save leaves its tensors, under another name
        return not (folder / TENSORS).exists() and any(folder.glob(f"model-{'[0-9a-f]' * 16}.safetensors"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and {"format", "members"} <= set(config)


def split_model_name(name: str) -> tuple[str, int | None]:
    """Return the folder (or the name on the hub) of `my-model?truncate_dim=256`, and how many dimensions to keep.

    Example:
        >>> split_model_name("my-model?truncate_dim=256"), split_model_name("my-model")
        (('my-model', 256), ('my-model', None))
    """
    match = re.fullmatch(r"(.+)\?truncate_dim=(\d+)", name, re.DOTALL)
    return (match[1], int(match[2])) if match else (name, None)


def is_model(name: str | Path) -> bool:
    """Return whether a model was saved in a folder, or in that of `my-model?truncate_dim=256`."""
    folder = split_model_name(name)[0] if isinstance(name, str) else name
    return bool(str(folder)) and os.path.isfile(Path(folder) / CONFIG)  # noqa: PTH113 - False if no file can have the name


def read_model(folder: Path) -> SavedModel[SavedSpec]:
    """Read a saved model, or raise a ModelError that says what is wrong with it."""
    try:
        config, data, intact, version = _read_files(folder)
        before: object = None
        while not intact and version != before:  # another process may have saved over the model meanwhile
            before = version
            config, data, intact, version = _read_files(folder)
    except FileNotFoundError as error:
        raise ModelError(f"{folder} is not a saved model: {Path(error.filename).name} is missing") from None
    except NotADirectoryError:
        raise ModelError(f"{folder} is a file, and a saved model is a folder") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{folder} cannot be read: {error}") from error
    layout = config.get("format") if isinstance(config, dict) else None
    if layout is None:  # perhaps of another library, such as a student of `distil`
        is_static = isinstance(config, dict) and config.get("model_type") == "model2vec"
        kind = "model2vec" if is_static else "st" if (folder / "modules.json").is_file() else ""
        hint = f"; as an encoder it is called {kind}:{folder}" if kind else ""
        raise ModelError(f"{folder} is not a saved model: its {CONFIG} is of another kind{hint}")
    if layout not in range(1, FORMAT_VERSION + 1):
        reads = f"ensembed {__version__} reads 1 to {FORMAT_VERSION}: upgrade ensembed"
        raise ModelError(f"{folder} has model format {layout!r}; {reads}")
    if not intact:
        problem = "do not belong together: the save was interrupted, or a file was changed"
        raise ModelError(f"{folder}: {CONFIG} and {TENSORS} {problem}")
    try:
        return _model(config, data)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError, SafetensorError) as error:
        raise ModelError(f"{folder} is damaged: {error!r}") from error


def _read_files(folder: Path) -> tuple[Any, bytes, bool, object]:
    """Return the facts, the tensors' file, whether they belong together, and what changes when the model does."""
    status = (folder / CONFIG).stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > CONFIG_BYTES:
        raise ValueError(f"{CONFIG} is no file of at most {CONFIG_BYTES:,} bytes")
    config = parse_json((folder / CONFIG).read_bytes())
    seal = config.pop("sha256", None) if isinstance(config, dict) else None
    paths = [folder / f"model-{re.sub('[^0-9a-f]', '', str(seal))[:16]}.safetensors", folder / TENSORS]
    for path in paths:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(path.stat().st_mode):  # a pipe may have no end
                raise ValueError(f"{path.name} is no regular file")
    try:
        data = paths[0].read_bytes()
    except FileNotFoundError:  # the save is finished
        data = paths[1].read_bytes()
    intact = seal is not None and seal == _seal(config, data)
    return config, data, intact, (status.st_ino, status.st_mtime_ns)


def _seal(facts: Mapping[str, Any], data: bytes) -> str:
    """The hash of the facts, however they are laid out, and of the tensors' file."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode() + b"\0" + data).hexdigest()


_NUMBERS = (int, float)  # by `type`: True is none
_LARGEST = 1e300  # larger integers cannot be shown as decimals


def _are_numbers(facts: object, *keys: str) -> bool:
    """Return whether facts have these keys, each with a number."""
    return isinstance(facts, dict) and all(
        type(facts.get(key)) in _NUMBERS and abs(facts[key]) < _LARGEST for key in keys
    )


# What the facts of a method are, by their names, in a model of so many members. Methods of other packages may have more
# facts, which are only shown.
_METHOD_FACTS: dict[str, Callable[[Any, int], bool]] = {
    "name": lambda value, _: isinstance(value, str),
    "weights": lambda value, members: (
        value == "equal"
        or (
            isinstance(value, list)
            and len(value) == members
            and all(type(weight) in _NUMBERS and abs(weight) < _LARGEST for weight in value)
        )
    ),
    "whitened": lambda value, members: (
        isinstance(value, list) and all(type(place) is int and place in range(members) for place in value)
    ),
    "weights_from": lambda value, _: isinstance(value, str),
    "decided": lambda value, _: isinstance(value, str),
    "trusted": lambda value, members: type(value) is int and value in range(members),
    "sure": lambda value, _: type(value) in _NUMBERS and abs(value) < _LARGEST,
    "needed": lambda value, _: value is None or (type(value) in _NUMBERS and abs(value) < _LARGEST),
    "predicts": lambda value, _: isinstance(value, list) and all(isinstance(name, str) for name in value),
    "recall_10": lambda value, _: _are_numbers(value, "member", "cheap"),
    "tuned": lambda value, _: _are_numbers(value, "gain", "error", "pairs") and "kept" in value,
    "neighbours_kept": lambda value, _: (
        isinstance(value, dict)
        and all(re.fullmatch("[0-9]{1,9}", key) for key in value)
        and _are_numbers(value, *value)
    ),
}


@dataclass(frozen=True)
class NamedTensors:
    """The tensors of a file whose names have a prefix; each is taken once."""

    tensors: dict[str, NDArray[Any]]
    prefix: str = ""

    def take(self, name: str, *shape: int) -> NDArray[Any]:
        """Return the tensor of that name behind the prefix; a ValueError if it has another shape."""
        tensor = self.tensors.pop(self.prefix + name)
        if tensor.shape != shape:
            raise ValueError(f"{self.prefix}{name} has shape {tensor.shape} instead of {shape}")
        return tensor


def _model(config: Mapping[str, Any], data: bytes) -> SavedModel[SavedSpec]:
    if (size := int.from_bytes(data[:8], "little")) > TENSOR_HEADER_BYTES:
        raise ValueError(f"the header of {TENSORS} is said to have {size:,} bytes")
    tensors = load(data)
    for name, kind in _FACTS.items():
        if type(config[name]) is not kind:
            raise TypeError(f"{name} is {config[name]!r}")
    take, dim = NamedTensors(tensors).take, config["dim"]
    # Some projections have no tensors. Every member has, so a model's vectors are shorter than all of them together.
    if not 0 < dim <= sum(map(np.size, tensors.values())):
        raise ValueError(f"dim is {dim}, which does not fit the tensors")
    members = tuple(SavedSpec.from_json(spec) for spec in config["members"])
    projections = []
    for j, (facts, spec) in enumerate(zip(config["projections"], members, strict=True)):
        if facts["kind"] not in PROJECTIONS:
            raise ValueError(f"unknown projection {facts['kind']!r}")
        own = NamedTensors(tensors, f"projection.{j}.").take
        projections.append(PROJECTIONS[facts["kind"]].restored(facts, spec.settings.dim, dim, own))
    spectrum = take("spectrum", dim) if config["has_spectrum"] else None
    leading = None
    if config["format"] > 1:
        known = config["leading"]
        if known is not None or config["format"] == 2:
            leading = Leading(take("leading.values", known), take("leading.directions", dim, known))
    fingerprints = tuple(take(f"fingerprint.{j}", len(PROBES), spec.settings.dim) for j, spec in enumerate(members))
    method = config["method"]
    json.dumps(method, allow_nan=False, ensure_ascii=False).encode()  # as the server sends it
    for name, is_right in _METHOD_FACTS.items():
        if (name in method or name == "name") and not is_right(method.get(name), len(members)):
            raise ValueError(f"{name} of the method is {short_value(method.get(name))}")
    meta = Meta(method, dim, tuple(projections), config["normalize"], spectrum, config["rows"], leading)
    dims = tuple(spec.settings.dim for spec in members)
    if meta.view_dims != dims:
        raise ValueError(f"projections take {meta.view_dims}, members give {list(dims)}")
    predictor, translation = None, None
    if config["format"] > 2 and config["predictor"] is not None:
        predictor = Predictor.restored(config["predictor"], meta, NamedTensors(tensors, "predictor.").take)
    if config["format"] > 2 and config["translation"] is not None:
        part = NamedTensors(tensors, "translation.").take
        translation = Translation.restored(config["translation"], dim, dims[meta.counted[0]], part)
    if tensors:
        raise ValueError(f"unexpected tensors {sorted(tensors)}")
    return SavedModel(meta, members, fingerprints, config["corpus"], predictor, translation)
