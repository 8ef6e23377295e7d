"""The one way to open a model. Names read from a file may not run code or send sentences away without `trust`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from ensembed.encoders import EncoderLike, ObjectEncoder, open_encoder
from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray, SupportsEncode, difference
from ensembed.encoders.names import effect_needing_consent
from ensembed.errors import EncoderError, EnsembedError, InputError, MissingError, ModelError, UnknownEncoderError
from ensembed.models.ensemble import Ensemble, MetaEncoder, Missing
from ensembed.models.saved_model import CONFIG, read_model
from ensembed.support.progress import Progress, silent

ModelLike: TypeAlias = EncoderLike | Path

HUB = "hub:"
"""The prefix of a saved model on the Hugging Face hub: `hub:org/name@revision`."""

_CONSENT = "To allow that, pass trust=True (--trust)"


def open_model(
    source: ModelLike,
    *,
    threads: int | None = None,
    trust: bool = False,
    from_file: bool = False,
    progress: Progress = silent,
) -> Encoder:
    """Open a model by the folder it was saved in, its name on the hub, or an encoder's name; wrap an object.

    Args:
        source: the folder of a saved model, `hub:org/name@revision`, an encoder's name, or an object with `encode`. A
            string names a folder only if a model was saved in it.
        threads: cores per encoder; None leaves it to each encoder.
        trust: also open encoders that run code which comes with their weights, or that send sentences to servers which
            are neither on this machine nor have their key set.
        from_file: `source` was read from a file and not typed by the user, so that it needs `trust` for these, too.
        progress: receives long work, such as a download.

    Raises:
        ModelError: the folder is not a model, is damaged, or needs `trust`.
        UnknownEncoderError: the name is neither a folder with a model nor an encoder.
    """
    if isinstance(source, Path) or (isinstance(source, str) and source and (Path(source) / CONFIG).is_file()):
        return load(source, threads=threads, trust=trust, progress=progress)
    if not isinstance(source, str):
        return open_encoder(source, threads=threads, progress=progress)
    if source.startswith(HUB):
        from ensembed.models.hub_models import from_pretrained, parse_hub_name

        repo, revision = parse_hub_name(source)
        return from_pretrained(repo, revision=revision, threads=threads, trust=trust, progress=progress)
    try:
        if from_file and not trust and (effect := effect_needing_consent(source)):
            raise ModelError(f"encoder {source!r} {effect}. {_CONSENT}")
        return open_encoder(source, threads=threads, progress=progress)
    except UnknownEncoderError as error:
        if source and Path(source).exists():
            raise ModelError(
                f"{source} is not a saved model: there is no {CONFIG} in it. If it is an encoder, say of which kind, "
                f"as in st:{source}, onnx:{source} or words:{source}"
            ) from None
        raise UnknownEncoderError(
            f"{source!r} is neither a folder with a saved model nor an encoder: {error}"
        ) from None


def load(
    folder: str | Path,
    *,
    encoders: Mapping[str, EncoderLike] | None = None,
    threads: int | None = None,
    missing: Missing = "error",
    trust: bool = False,
    progress: Progress = silent,
) -> MetaEncoder:
    """Load a saved meta-encoder.

    Args:
        folder: the folder it was saved in.
        encoders: members that cannot be opened by name (your own objects), by the name they had.
        threads: cores per encoder; None leaves it to each encoder.
        missing: "error" stops when a member fails; "drop" warns and goes on. A changed member is always an error.
        trust: also open members that run code which comes with their weights, or that send sentences to servers which
            are neither on this machine nor have their key set. A model that you did not save can name any.
        progress: receives long work that opening a member takes.

    Raises:
        ModelError: the folder is not a model, is damaged, or a member no longer gives the vectors it gave.
    """
    saved = read_model(Path(folder))
    members: list[Encoder] = []
    for spec, probes in zip(saved.members, saved.fingerprints, strict=True):
        replacement = (encoders or {}).get(spec.name)
        try:
            if replacement is None:
                encoder = _open_by_name(spec, threads=threads, trust=trust, progress=progress)
            elif isinstance(replacement, SupportsEncode) and not isinstance(replacement, (str, Encoder)):
                # Not named after its class, which two members may share. (A string has `encode`, too.)
                encoder = ObjectEncoder(replacement, name=spec.name, revision=spec.revision)
            else:
                encoder = open_encoder(replacement, threads=threads, progress=progress)
            change = difference(encoder, spec, probes, settings=replacement is None)
        except EnsembedError as error:
            if missing == "error":
                raise
            warnings.warn(f"going on without encoder {spec.name!r}: {error}", RuntimeWarning, stacklevel=2)
            encoder, change = _Absent(spec, str(error)), None
        if change:
            raise ModelError(
                f"member {spec.name!r} is not the encoder this model was fitted on: it {change}; fit again, or get "
                "back what was used"
            )
        members.append(encoder)
    return MetaEncoder(Ensemble(members), saved.meta, name=Path(folder).name, missing=missing, corpus=saved.corpus)


def _open_by_name(spec: EncoderSpec, *, threads: int | None, trust: bool, progress: Progress) -> Encoder:
    """Open a member by its name; an error says how to pass it as an object instead."""
    way_out = f"load(..., encoders={{{spec.name!r}: "
    if spec.kind in ("object", "meta"):
        raise ModelError(f"member {spec.name!r} is an object: pass it as {way_out}it}})")
    try:
        if not trust and (effect := effect_needing_consent(spec.name)):
            raise ModelError(f"member {spec.name!r} {effect}. {_CONSENT}")
        return open_encoder(spec.name, threads=threads, progress=progress, pinned=spec.revision)
    except UnknownEncoderError as error:
        raise ModelError(
            f"member {spec.name!r} is of no kind that is installed here: {error}; or pass it as {way_out}it}})"
        ) from error
    except (InputError, MissingError) as error:  # these name an encoder that the user may never have seen
        raise type(error)(
            f"member {spec.name!r} cannot be opened: {error}. If it was moved, pass {way_out}NEW NAME}})"
        ) from error


class _Absent(Encoder):
    """Stands for a member that could not be opened; encoding raises the reason."""

    def __init__(self, spec: EncoderSpec, reason: str) -> None:
        self._spec = spec
        self._reason = reason

    def embed(self, sentences: list[str]) -> FloatArray:  # noqa: ARG002 - there are no vectors
        raise EncoderError(self._reason)
