"""The one way to open a model. What names out of a file may do is decided by `allow`, under the caller's `trust`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from ensembed.encoders import EncoderLike, ObjectEncoder, open_encoder
from ensembed.encoders.base import (
    Encoder,
    EncoderSpec,
    FloatArray,
    SavedSpec,
    SupportsEncode,
    UntrustedName,
    difference,
)
from ensembed.encoders.names import AllowedName, Trust, allow
from ensembed.errors import EncoderError, EnsembedError, InputError, MissingError, ModelError, UnknownEncoderError
from ensembed.models.ensemble import Ensemble, MetaEncoder, Missing
from ensembed.models.saved_model import CONFIG, read_model
from ensembed.support.progress import Progress, silent

ModelLike: TypeAlias = EncoderLike | Path

HUB = "hub:"
"""The prefix of a saved model on the Hugging Face hub: `hub:org/name@revision`."""


def open_model(
    source: ModelLike | UntrustedName,
    *,
    threads: int | None = None,
    trust: Trust = False,
    progress: Progress = silent,
) -> Encoder:
    """Open a model by the folder it was saved in, its name on the hub, or an encoder's name; wrap an object.

    Args:
        source: the folder of a saved model, `hub:org/name@revision`, an encoder's name, or an object with `encode`. A
            string names a folder only if a model was saved in it. A name that was read from a file is an
            `UntrustedName`, which needs `trust` as the members of a saved model do.
        threads: cores per encoder; None leaves it to each encoder.
        trust: what names out of files may do: True for everything, or some of "code,network,files"; see SECURITY.md.
        progress: receives long work, such as a download.

    Raises:
        ModelError: the folder is not a model or is damaged; a ConsentError says that it needs `trust`.
        UnknownEncoderError: the name is neither a folder with a model nor an encoder.
    """
    name = source.text if isinstance(source, UntrustedName) else source
    if isinstance(name, Path) or (isinstance(name, str) and name and (Path(name) / CONFIG).is_file()):
        return load(name, threads=threads, trust=trust, progress=progress)
    if not isinstance(name, str):
        return open_encoder(name, threads=threads, progress=progress)
    try:
        allowed = allow(source, trust) if isinstance(source, UntrustedName) else name
        if not name.startswith(HUB):
            return open_encoder(allowed, threads=threads, progress=progress)
    except UnknownEncoderError as error:
        if name and Path(name).exists():
            raise ModelError(
                f"{name} is not a saved model: there is no {CONFIG} in it. If it is an encoder, say of which kind, "
                f"as in st:{name}, onnx:{name} or words:{name}"
            ) from None
        raise UnknownEncoderError(f"{name!r} is neither a folder with a saved model nor an encoder: {error}") from None
    from ensembed.models.hub_models import from_pretrained, parse_hub_name

    repo, revision = parse_hub_name(name)
    offline = isinstance(allowed, AllowedName) and allowed.offline
    return from_pretrained(repo, revision=revision, threads=threads, trust=trust, offline=offline, progress=progress)


def load(
    folder: str | Path,
    *,
    encoders: Mapping[str, EncoderLike] | None = None,
    threads: int | None = None,
    missing: Missing = "error",
    trust: Trust = False,
    progress: Progress = silent,
) -> MetaEncoder:
    """Load a saved meta-encoder.

    Args:
        folder: the folder it was saved in.
        encoders: members that cannot be opened by name (your own objects), by the name they had.
        threads: cores per encoder; None leaves it to each encoder.
        missing: "error" stops when a member fails; "drop" warns and goes on. A changed member is always an error.
        trust: what the members may do, since anybody may have written the folder: run "code", use the "network" (except
            for servers on this machine or whose key is set), read "files" that are no plain ones. True allows all,
            "code,network" some. See SECURITY.md.
        progress: receives long work that opening a member takes.

    Raises:
        ModelError: the folder is not a model, is damaged, or a member no longer gives the vectors it gave.
    """
    saved = read_model(Path(folder))
    members: list[Encoder] = []
    for spec, probes in zip(saved.members, saved.fingerprints, strict=True):
        name, settings = spec.name.text, spec.settings
        replacement = (encoders or {}).get(name)
        try:
            if replacement is None:
                encoder = _open_by_name(spec, threads=threads, trust=trust, progress=progress)
            elif isinstance(replacement, SupportsEncode) and not isinstance(replacement, (str, Encoder)):
                # Not named after its class, which two members may share. (A string has `encode`, too.)
                encoder = ObjectEncoder(replacement, name=name, revision=settings.revision)
            else:
                encoder = open_encoder(replacement, threads=threads, progress=progress)
            change = difference(encoder, settings, probes, settings=replacement is None)
        except EnsembedError as error:
            if missing == "error":
                raise
            warnings.warn(f"going on without encoder {name!r}: {error}", RuntimeWarning, stacklevel=2)
            encoder, change = _Absent(replace(settings, name=name), str(error)), None
        if change:
            raise ModelError(
                f"member {name!r} is not the encoder this model was fitted on: it {change}; fit again, or get "
                "back what was used"
            )
        members.append(encoder)
    return MetaEncoder(Ensemble(members), saved.meta, name=Path(folder).name, missing=missing, corpus=saved.corpus)


def _open_by_name(spec: SavedSpec, *, threads: int | None, trust: Trust, progress: Progress) -> Encoder:
    """Open a member by its name; an error says how to pass it as an object instead."""
    name = spec.name.text
    way_out = f"load(..., encoders={{{name!r}: "
    if spec.settings.kind in ("object", "meta"):
        raise ModelError(f"member {name!r} is an object: pass it as {way_out}it}})")
    try:
        allowed = allow(spec.name, trust)
        return open_encoder(allowed, threads=threads, progress=progress, pinned=spec.settings.revision)
    except UnknownEncoderError as error:
        raise ModelError(
            f"member {name!r} is of no kind that is installed here: {error}; or pass it as {way_out}it}})"
        ) from error
    except (InputError, MissingError) as error:  # these name an encoder that the user may never have seen
        raise type(error)(
            f"member {name!r} cannot be opened: {error}. If it was moved, pass {way_out}NEW NAME}})"
        ) from error


class _Absent(Encoder):
    """Stands for a member that could not be opened; encoding raises the reason."""

    def __init__(self, spec: EncoderSpec, reason: str) -> None:
        self._spec = spec
        self._reason = reason

    def embed(self, sentences: list[str]) -> FloatArray:  # noqa: ARG002 - there are no vectors
        raise EncoderError(self._reason)
