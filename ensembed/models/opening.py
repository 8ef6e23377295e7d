"""The one way to open a model. What names out of a file may do is decided in `encoders/names_and_consent`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from ensembed.corpora.corpus import shorten
from ensembed.encoders import EncoderLike, ObjectEncoder, open_encoder
from ensembed.encoders.base import (
    PROBES,
    AllowedName,
    Encoder,
    EncoderSpec,
    FloatArray,
    SavedSpec,
    SupportsEncode,
    UntrustedName,
    difference,
)
from ensembed.encoders.names_and_consent import Trust, allow, is_plain
from ensembed.errors import (
    ConsentError,
    EncoderError,
    EnsembedError,
    InputError,
    MissingError,
    ModelError,
    UnknownEncoderError,
)
from ensembed.models.ensemble import MISSING, NO_PREDICTOR, WITHOUT, Ensemble, MetaEncoder, Missing
from ensembed.models.saved_model import CONFIG, is_model, read_model, split_model_name
from ensembed.support.checks import did_you_mean
from ensembed.support.progress import Progress, silent

ModelLike: TypeAlias = EncoderLike | Path

Replacements: TypeAlias = Mapping[str, EncoderLike] | Sequence[str]
"""Members of a saved model that are opened by another name than the saved one: a mapping, or strings OLD=NEW."""

HUB = "hub:"
"""The prefix of a saved model on the Hugging Face hub: `hub:org/name@revision`."""


class Opening(TypedDict):
    """How a model is opened: the arguments that `open_model`, `load` and `from_pretrained` share and pass on.

    They are written out in the three signatures, which editors show.
    """

    encoders: Replacements | None
    threads: int | None
    missing: Missing
    time_limit: float | None
    trust: Trust
    progress: Progress


def open_model(
    source: ModelLike | UntrustedName,
    *,
    encoders: Replacements | None = None,
    threads: int | None = None,
    missing: Missing = "error",
    time_limit: float | None = None,
    trust: Trust = False,
    progress: Progress = silent,
) -> Encoder:
    """Open a model by the folder it was saved in, its name on the hub, or an encoder's name; wrap an object.

    Args:
        source: the folder of a saved model, `hub:org/name@revision`, an encoder's name, or an object with `encode`. A
            string names a folder only if a model was saved in it; `my-model?truncate_dim=256`, or the same of the hub,
            keeps the 256 leading dimensions of its vectors. A name that was read from a file is an
            `UntrustedName`, which needs `trust` as the members of a saved model do.
        encoders: members of a saved model that have moved, as in `load`.
        threads: cores per encoder; None leaves it to each encoder.
        missing: what a saved model does when a member fails, as in `load`.
        time_limit: seconds that a member of a saved model may take, as in `load`.
        trust: what names out of files may do: True for everything, or some of "code,network,files"; see SECURITY.md.
        progress: receives long work, such as a download.

    Raises:
        ModelError: the folder is not a model or is damaged; a ConsentError says that it needs `trust`.
        UnknownEncoderError: the name is neither a folder with a model nor an encoder.
    """
    opening = Opening(
        encoders=encoders, threads=threads, missing=missing, time_limit=time_limit, trust=trust, progress=progress
    )
    name = source.text if isinstance(source, UntrustedName) else source
    if isinstance(source, UntrustedName):
        for place in {source.text, split_model_name(source.text)[0]}:
            if not is_plain(place):
                allow(UntrustedName(place), trust, folder=True)
    if isinstance(name, Path) or (
        isinstance(name, str) and name and os.path.isfile(Path(split_model_name(name)[0]) / CONFIG)  # noqa: PTH113 - see `is_model`
    ):
        return load(name, **opening)
    may_lack = missing != "error" or time_limit is not None
    if (encoders or may_lack) and not (isinstance(name, str) and name.startswith(HUB)):
        how = "be missing" if may_lack else "have moved"
        folder = split_model_name(name)[0] if isinstance(name, str) else ""
        hint = did_you_mean(folder, CONFIG) if folder and not os.path.exists(folder) else ""  # noqa: PTH110 - as below
        raise InputError(f"{shorten(name)} is no saved model: it has no members that could {how}{hint}")
    if not isinstance(name, str):
        return open_encoder(name, threads=threads, progress=progress)
    try:
        allowed = allow(source, trust) if isinstance(source, UntrustedName) else name
        if not name.startswith(HUB):
            return open_encoder(allowed, threads=threads, progress=progress)
    except UnknownEncoderError as error:
        raise _no_model(name, error) from None
    from ensembed.models.hub_models import from_pretrained, parse_hub_name

    name, k = split_model_name(name)
    repo, revision = parse_hub_name(name)
    offline = isinstance(allowed, AllowedName) and allowed.offline
    model = from_pretrained(repo, revision=revision, offline=offline, **opening)
    return model if k is None else model.truncate(k)


def is_gone(name: UntrustedName) -> bool:
    """Return whether a name out of a file is the folder of a model that is no longer there.

    A share of another machine is not even looked at, which would talk to that machine: it needs consent.
    """
    return is_plain(name.text) and Path(name.text).is_absolute() and not is_model(name.text)


def _no_model(name: str, error: UnknownEncoderError) -> EnsembedError:
    """Return the error for a name that is neither a saved model's nor an encoder's, with what may have been meant."""
    folder = name.partition("?")[0]
    if folder != name and is_model(folder):
        return InputError(
            f"{name!r}: a saved model has one option, as in {folder}?truncate_dim=256, which keeps the 256 leading "
            "dimensions"
        )
    if name and os.path.exists(name):  # noqa: PTH110 - False if no file can have the name
        what = f"{name} is not a saved model: there is no {CONFIG} in it. "
        if os.path.isfile(Path(name) / "index.json"):  # noqa: PTH113 - False if the folder cannot be read
            return ModelError(
                f"{what}It is an index: `ensembed search {name}`, or `ensembed serve MODEL --index {name}`"
            )
        return ModelError(f"{what}If it is an encoder, say of which kind, as in st:{name}, onnx:{name} or words:{name}")
    hint = did_you_mean(split_model_name(name)[0], CONFIG)
    fitted = "" if hint else "; to make a model: ensembed fit corpus.txt --out my-model (in Python: Ensemble.fit)"
    return UnknownEncoderError(f"{name!r} is neither a folder with a saved model nor an encoder{hint}: {error}{fitted}")


def load(
    folder: str | Path,
    *,
    truncate_dim: int | None = None,
    encoders: Replacements | None = None,
    threads: int | None = None,
    missing: Missing = "error",
    time_limit: float | None = None,
    trust: Trust = False,
    progress: Progress = silent,
) -> MetaEncoder | Any:  # noqa: ANN401 - an Encoder, for the name of one
    """Load a saved meta-encoder, or open the encoder of that name.

    Args:
        folder: the folder it was saved in; "my-model?truncate_dim=256" keeps the 256 leading dimensions. A string that
            names no file or folder is the name of an encoder (`load("minilm")`) or of a model on the hub; it needs
            `trust` as a member of a saved model does.
        truncate_dim: the same as in the name: how many of the leading dimensions to keep; None keeps all.
        encoders: members that have moved or cannot be opened by name (your own objects), by the name they had: a
            mapping, or strings OLD=NEW.
        threads: cores per encoder; None leaves it to each encoder.
        missing: "error" stops when a member fails; "drop" warns and goes on; "predict" warns and predicts from the
            others what it would add. A changed member, and one that needs more `trust`, are always an error.
        time_limit: seconds that a member may take for a batch of sentences; a slower one counts as failed.
        trust: what the members may do, since anybody may have written the folder: run "code", use the "network" (except
            for servers on this machine or whose key is set), read "files" that are no plain ones. True allows all,
            "code,network" some. See SECURITY.md.
        progress: receives long work that opening a member takes.

    Raises:
        ModelError: the folder is not a model, is damaged, or a member no longer gives the vectors it gave.
    """
    opening = Opening(
        encoders=encoders, threads=threads, missing=missing, time_limit=time_limit, trust=trust, progress=progress
    )
    k = truncate_dim
    if isinstance(folder, str):
        if not folder:
            raise InputError("the name of a model is empty: give its folder, or an encoder's name such as 'minilm'")
        if truncate_dim is not None and ("?" in folder or not is_model(folder)):
            folder += f"{'&' if '?' in folder else '?'}truncate_dim={truncate_dim}"
        given, (folder, named) = folder, split_model_name(folder)
        k = truncate_dim if named is None else named
        has_members = encoders or missing != "error" or time_limit is not None
        is_there = os.path.exists(folder)  # noqa: PTH110 - False if no file can have the name
        if not is_there and (folder.startswith(HUB) or not has_members):
            return open_model(UntrustedName(given), **opening)
    if missing not in MISSING:  # before a member fails, for which there would be no word
        raise InputError(f"missing is 'error', 'drop' or 'predict', not {missing!r}")
    saved = read_model(Path(folder))
    if missing == "predict" and saved.predictor is None:
        raise ModelError(
            f"{folder} cannot predict a missing member: {NO_PREDICTOR}; fit it again on more sentences with auto, "
            "or take missing='drop' (--missing drop)"
        )
    moved = _replacements(folder, [spec.name.text for spec in saved.members], encoders) if encoders else {}
    members: list[Encoder] = []
    for spec, probes in zip(saved.members, saved.fingerprints, strict=True):
        name = spec.name.text
        try:
            encoder = _open_member(spec, probes, moved.get(name), threads=threads, trust=trust, progress=progress)
        except EnsembedError as error:
            # a changed member and a refused one are not down: going on would hide a mistake
            if missing == "error" or isinstance(error, (_ChangedMemberError, ConsentError)):
                raise
            warnings.warn(f"{WITHOUT[missing]} encoder {name!r}: {error}", RuntimeWarning, stacklevel=2)
            encoder = _Absent(replace(spec.settings, name=name), str(error))
        members.append(encoder)
    model = MetaEncoder(
        Ensemble(members),
        saved.meta,
        name=Path(folder).name,
        missing=missing,
        corpus=saved.corpus,
        predictor=saved.predictor,
        translation=saved.translation,
        time_limit=time_limit,
    )
    return model if k is None else model.truncate(k)


def _replacements(folder: str | Path, names: list[str], given: Replacements) -> Mapping[str, EncoderLike]:
    """Return the replacement of each member that has one. Raise an InputError for one that fits no member."""
    if isinstance(given, Mapping):
        encoders, unused = given, [name for name in given if name not in names]
    else:  # a name may hold a = itself
        fits = {text: [name for name in names if text.startswith(f"{name}=")] for text in given}
        encoders = {name: text[len(name) + 1 :] for text in given for name in fits[text]}
        unused = [text for text in given if not fits[text]]
    if unused:
        members = ", ".join(map(shorten, names))
        raise InputError(f"{unused[0]!r} names no member of {folder}; say OLD=NEW, where OLD is one of: {members}")
    return encoders


class _ChangedMemberError(ModelError):
    """A member no longer gives the vectors that it gave, which cannot be ignored."""


def _open_member(
    spec: SavedSpec,
    probes: FloatArray,
    replacement: EncoderLike | None,
    *,
    threads: int | None,
    trust: Trust,
    progress: Progress,
) -> Encoder:
    """Open a member by its name, or what replaces it, and compare it with the one that was saved."""
    name, settings = spec.name.text, spec.settings
    if replacement is None:
        if settings.kind in ("object", "meta"):
            raise ModelError(
                f"member {name!r} is an object: pass it as load(..., encoders={{{name!r}: it}}), or name an encoder "
                f"that gives the same vectors: --encoder {name}=NAME"
            )
        try:
            allowed = allow(spec.name, trust)
            encoder = open_encoder(allowed, threads=threads, progress=progress, pinned=settings.revision)
        except (ConsentError, InputError, MissingError) as error:
            raise _naming_member(error, name) from error
    elif isinstance(replacement, SupportsEncode) and not isinstance(replacement, (str, Encoder)):
        # Not named after its class, which two members may share. (A string has `encode`, too.)
        encoder = ObjectEncoder(replacement, name=name, revision=settings.revision)
    else:
        encoder = open_encoder(replacement, threads=threads, progress=progress)
    if change := difference(encoder, settings, probes, settings=replacement is None):
        raise _ChangedMemberError(
            f"member {name!r} is not the encoder this model was fitted on: it {change}; fit again, or get back what "
            "was used"
        )
    if isinstance(replacement, str) and encoder.spec.revision != settings.revision:
        warnings.warn(
            f"{replacement!r} has other files than {name!r} had when the model was fitted: only {len(PROBES)} "
            "sentences were compared, which have the same vectors",
            RuntimeWarning,
            stacklevel=3,
        )
    return encoder


def _naming_member(error: ConsentError | InputError | MissingError, name: str) -> EnsembedError:
    """Return an error of opening a member with the member's name, which the user may never have seen, and a way out."""
    way_out = f"load(..., encoders={{{name!r}: "
    if isinstance(error, ConsentError):
        return ConsentError(f"member {name!r}: {error}")
    if isinstance(error, UnknownEncoderError):
        return ModelError(
            f"member {name!r} is of no kind that is installed here: {error}; or pass it as {way_out}it}})"
        )
    return type(error)(
        f"member {name!r} cannot be opened: {error}. If it was moved, pass --encoder {name}=NEW (the whole name that "
        f"it has now), in Python {way_out}NEW}})"
    )


class _Absent(Encoder):
    """Stands for a member that could not be opened; encoding raises the reason."""

    def __init__(self, spec: EncoderSpec, reason: str) -> None:
        self._spec = spec
        self._reason = reason

    def embed(self, sentences: list[str]) -> FloatArray:  # noqa: ARG002 - there are no vectors
        raise EncoderError(self._reason)
