"""The model of an index: remembered by where it was opened from, and known again by its key and its vectors."""

from __future__ import annotations

from pathlib import Path

from ensembed.encoders import open_encoder
from ensembed.encoders.base import Encoder, EncoderSpec
from ensembed.encoders.identity import PROBES, difference, same_settings
from ensembed.errors import SearchIndexError
from ensembed.models.opening import load
from ensembed.models.saved_model import CONFIG
from ensembed.search.manifest import Manifest
from ensembed.search.storage import check_bytes, map_npy
from ensembed.support.progress import Progress, silent


def source_of(model: Encoder, given: str | None) -> str | None:
    """What the model can be opened from again: a folder whole, so that it is found from anywhere."""
    if given is not None:
        return str(Path(given).absolute()) if (Path(given) / CONFIG).is_file() else given
    return None if model.spec.kind in ("object", "meta") else model.spec.name


def open_source(
    manifest: Manifest, folder: Path, *, threads: int | None = None, trust: bool = False, progress: Progress = silent
) -> Encoder:
    """The model that the index remembers.

    Raises:
        SearchIndexError: it was an object, which has to be given again.
    """
    source = manifest.source
    if source is None:
        raise SearchIndexError(
            f"{folder} was made with the object {manifest.spec.name!r}: pass it, as in Index.open(folder, model), or "
            "name a saved model with --model"
        )
    if (Path(source) / CONFIG).is_file():
        return load(source, threads=threads, trust=trust, progress=progress)
    if Path(source).is_absolute():
        raise SearchIndexError(
            f"the model of {folder} is no longer in {source}; if it is elsewhere now, say so: --model FOLDER, or "
            "Index.open(folder, model)"
        )
    return open_encoder(source, threads=threads, progress=progress)


def check_model(model: Encoder, manifest: Manifest, folder: Path) -> None:
    """Refuse a model that is not the index's: cosines between vectors of two models mean nothing."""
    saved = manifest.spec
    if not same_settings(model.spec, saved):
        raise SearchIndexError(
            f"{folder} was made with {_called(saved)}, not with {_called(model.spec)}: their vectors cannot be "
            "compared; give the model it was made with, or make another index"
        )
    check_bytes(folder, manifest.fingerprint)
    probes = map_npy(folder, manifest.fingerprint, (len(PROBES), saved.dim), "<f4")
    if change := difference(model, saved, probes):
        raise SearchIndexError(
            f"{folder} was made with another {_called(saved)}: this one {change}; give the model it was made with, or "
            "make another index"
        )


def _called(spec: EncoderSpec) -> str:
    return f"{spec.name!r} ({spec.dim} dimensions, key {spec.key[:8]})"
