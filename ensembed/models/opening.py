"""Opening saved meta-encoders: their members must be those that were fitted on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ensembed.encoders import EncoderLike, ObjectEncoder, open_encoder
from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray, SupportsEncode
from ensembed.encoders.consent import needs_consent
from ensembed.encoders.openai.revisions import PROBED
from ensembed.errors import EncoderError, EnsembedError, InputError, MissingError, ModelError, UnknownEncoderError
from ensembed.models.ensemble import Ensemble, MetaEncoder, Missing
from ensembed.models.saved_model import PROBES, read_model
from ensembed.support.progress import Progress, silent

# How far an encoder's probe vectors may be from the saved ones, as a part of their length: other machines and runtimes
# round differently, int8 ones in the second digit; another revision of a model is much further off.
_SAME_ENCODER = 0.2


def load(
    folder: str | Path,
    *,
    encoders: Mapping[str, EncoderLike] | None = None,
    threads: int | None = None,
    missing: Missing = "error",
    trust: bool = False,
    progress: Progress = silent,
) -> MetaEncoder:
    """A saved meta-encoder.

    Args:
        folder: where it was saved.
        encoders: members that cannot be opened by name (your own objects), by the name they had.
        threads: cores per encoder; None leaves it to each encoder.
        missing: "error" stops when a member cannot be opened or fails later; "drop" warns and goes on without it. A
            member that has changed is an error either way: its vectors would be wrong, not missing.
        trust: also open members that run code which comes with their weights, or that send sentences to servers which
            are neither on this machine nor have their key set. A model from a stranger can name any.
        progress: told of long work that opening a member takes.

    Raises:
        ModelError: the folder is not a model, is damaged, or a member no longer gives the vectors it gave.
    """
    saved = read_model(Path(folder))
    opening = _Opening(encoders or {}, threads, missing, trust, progress)
    members = []
    for spec, fingerprint in zip(saved.members, saved.fingerprints, strict=True):
        members.append(opening.member(spec, fingerprint))
    return MetaEncoder(Ensemble(members), saved.meta, name=Path(folder).name, missing=missing, corpus=saved.corpus)


@dataclass(frozen=True)
class _Opening:
    """How the members of a model are opened; the attributes are the arguments of `load`."""

    encoders: Mapping[str, EncoderLike]
    threads: int | None
    missing: Missing
    trust: bool
    progress: Progress

    def member(self, spec: EncoderSpec, fingerprint: FloatArray) -> Encoder:
        """The member, which must give the vectors it gave; a stand-in for one that may be missing."""
        try:
            encoder = self._open(spec)
            probes = encoder.encode(PROBES)
        except EnsembedError as error:
            if self.missing == "error":
                raise
            warnings.warn(f"going on without encoder {spec.name!r}: {error}", RuntimeWarning, stacklevel=3)
            return _Absent(spec, str(error))
        if encoder.spec.dim != spec.dim:
            raise ModelError(
                f"member {spec.name!r} gives {encoder.spec.dim} dimensions, the model was fitted on {spec.dim}"
            )
        if spec.name not in self.encoders and not _same_settings(encoder.spec, spec):
            raise ModelError(
                f"member {spec.name!r} has changed since the model was fitted: {_changes(spec, encoder.spec)}; fit "
                "again, or get back what was used"
            )
        lengths = np.linalg.norm(fingerprint, axis=1) + np.finfo(np.float32).tiny  # a probe of unknown words is zero
        distance = (np.linalg.norm(probes - fingerprint, axis=1) / lengths).max()
        if distance > _SAME_ENCODER:
            raise ModelError(
                f"member {spec.name!r} is not the encoder this model was fitted on: its probe vectors are "
                f"{distance:.0%} of their length away from the saved ones; fit again, or get the revision that was used"
            )
        return encoder

    def _open(self, spec: EncoderSpec) -> Encoder:
        source = self.encoders.get(spec.name)
        if source is None:
            try:
                return self._open_by_name(spec)
            except (InputError, MissingError) as error:  # which blame a name that the user may never have seen
                raise type(error)(
                    f"member {spec.name!r} cannot be opened: {error}. If it is elsewhere now, say so: "
                    f"load(..., encoders={{{spec.name!r}: ITS NAME}})"
                ) from error
        # A string has `encode` too.
        if isinstance(source, SupportsEncode) and not isinstance(source, (str, Encoder)):
            return ObjectEncoder(source, name=spec.name, revision=spec.revision)  # not its class: two may share that
        return open_encoder(source, threads=self.threads, progress=self.progress)

    def _open_by_name(self, spec: EncoderSpec) -> Encoder:
        how = f"pass it as load(..., encoders={{{spec.name!r}: it}})"
        if spec.kind in ("object", "meta"):
            raise ModelError(f"member {spec.name!r} is an object: {how}")
        try:
            if not self.trust and (deed := needs_consent(spec.name)):
                raise ModelError(
                    f"member {spec.name!r} {deed}. Whoever saved the model wanted that; if you do, too, say so: "
                    "load(..., trust=True), or --trust"
                )
            return open_encoder(spec.name, threads=self.threads, progress=self.progress, pinned=spec.revision)
        except UnknownEncoderError as error:
            raise ModelError(f"member {spec.name!r} is of no kind that is installed here: {error}; or {how}") from error


def _same_settings(found: EncoderSpec, saved: EncoderSpec) -> bool:
    """Whether all that pins the numbers is the same, but for what only one machine knows.

    The revision of a server is the hash of the vectors that one machine saw first, with their noise; whether it is
    still the same model, the fingerprint says.
    """
    if saved.revision.startswith(PROBED) and found.revision.startswith(PROBED):
        found = replace(found, revision=saved.revision)
    return found.key == saved.key


def _changes(saved: EncoderSpec, found: EncoderSpec) -> str:
    """The facts that differ, for a person."""
    before, now = saved.to_json(), found.to_json()
    before |= before.pop("extra")
    now |= now.pop("extra")
    keys = [key for key in dict.fromkeys([*before, *now]) if key != "name" and before.get(key) != now.get(key)]
    return ", ".join(f"{key} was {before.get(key)!r} and is {now.get(key)!r}" for key in keys)


class _Absent(Encoder):
    """Stands for a member that could not be opened; it fails whenever it is asked."""

    def __init__(self, spec: EncoderSpec, reason: str) -> None:
        self._spec = spec
        self._reason = reason

    @property
    def spec(self) -> EncoderSpec:
        return self._spec

    def embed(self, sentences: list[str]) -> FloatArray:  # noqa: ARG002 - it has none to give
        raise EncoderError(self._reason)
