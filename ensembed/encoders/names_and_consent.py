"""Names of encoders, `SCHEME:LOCATION?option=value&…` or a short name of the catalogue, and the kinds that they open.

A kind of ensembed's own is a module `SCHEME_encoder.py` in this folder or one below (a hyphen of the scheme is an
underscore there), with `open_SCHEME(request: Request) -> Encoder`; `OPENS`, a few words on what follows the colon; and
`effects`, a function like `place_effects`, or None. Without it the kind needs consent to run code.
A package that has, in its pyproject.toml::

    [project.entry-points."ensembed.encoders"]
    shout = "ensembed_shout:open_shout"

makes `shout:…` a name like any other.

Consent: what a name out of a file may do is decided here alone, by `allow`. A name that the user wrote may do all.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from ensembed.encoders.base import (
    AllowedName,
    Encoder,
    SupportsEncode,
    UntrustedName,
    naming_failures,
    without_password,
)
from ensembed.encoders.wrappers import LONG, AdjustedEncoder, ObjectEncoder
from ensembed.errors import EFFECTS, ConsentError, EncoderError, EnsembedError, InputError, UnknownEncoderError
from ensembed.fetch.catalog import CatalogEntry, entry, hub_names, require
from ensembed.support.checks import check_whole
from ensembed.support.extras import package_of
from ensembed.support.progress import Progress, silent

Trust: TypeAlias = bool | str
"""Consent to what names out of files do: True for everything, or some of `EFFECTS` with commas between."""
EncoderLike: TypeAlias = str | Encoder | SupportsEncode
Options: TypeAlias = dict[str, Any]
Convert: TypeAlias = Callable[[str], Any]

_GROUP = "ensembed.encoders"
_FOLDER = Path(__file__).parent
_FILES = {
    path.stem.removesuffix("_encoder"): path.relative_to(_FOLDER).with_suffix("")
    for path in _FOLDER.rglob("*_encoder.py")
}

# The opener of every kind of ensembed's own, by its scheme. A module is imported when its opener is loaded.
KINDS = {
    (scheme := kind.replace("_", "-")): EntryPoint(scheme, f"{__package__}.{'.'.join(path.parts)}:open_{kind}", _GROUP)
    for kind, path in sorted(_FILES.items())
}

_SCHEME = re.compile(r"([a-z][a-z0-9+_.-]+):(.*)", re.DOTALL)  # a single letter is a drive of Windows


@dataclass(frozen=True)
class Request:
    """A parsed name, and how to open it: the argument of a kind's opener.

    Attributes:
        name: the whole name, as the user wrote it and as the encoder has to call itself.
        scheme: what is in front of the colon; for a short name, the kind of its catalogue entry.
        location: what is between the colon and the question mark; for a short name, that name.
        query: the options behind the question mark, as text.
        common: the options that every encoder takes, for the message on an unknown one.
        entry: the catalogue's entry, for a short name.
        threads: cores to use; None leaves it to the encoder.
        progress: receives long work, such as a conversion.
        pinned: the revision that a saved model was fitted on, at which files are fetched; None for the latest.
        offline: use no network: the name came out of a file, and there was no consent to it.
    """

    name: str
    scheme: str
    location: str
    query: Mapping[str, str]
    common: tuple[str, ...] = ()
    entry: CatalogEntry | None = None
    threads: int | None = None
    progress: Progress = silent
    pinned: str | None = None
    offline: bool = False

    def options(self, **types: Convert) -> Options:
        """Return the options, converted, on top of the catalogue's settings; an InputError names an unknown one.

        Example:
            >>> parse_name("demo?dim=3").options(dim=int, seed=int)
            {'dim': 3}
        """
        taken, rest = self.take(**types)
        for key in rest.query:
            known = ", ".join([*types, *self.common]) or "none"
            raise InputError(f"encoder {self.shown!r} has no option {key!r}; it has: {known}")
        return (dict(self.entry.settings) if self.entry else {}) | taken

    def take(self, **types: Convert) -> tuple[Options, Request]:
        """Return some of the options, converted, and the request without them."""
        taken: Options = {}
        for key, value in self.query.items():
            try:
                taken |= {key: types[key](value)} if key in types else {}
            except (ValueError, KeyError):
                wanted = getattr(types[key], "expects", _EXPECTED.get(types[key], ""))
                problem = f"{value!r} is not a value for {key}{wanted and f', which is {wanted}'}"
                raise InputError(f"encoder {self.shown!r}: {problem}") from None
        rest = {key: value for key, value in self.query.items() if key not in types}
        return taken, replace(self, query=rest, common=(*self.common, *types))

    @property
    def path(self) -> Path:
        """The file or folder of the location; for a short name the pulled one, every byte of it checked."""
        if self.entry:
            return require(self.entry.name)
        if not self.location:
            raise InputError(f"encoder {self.shown!r} has no path: write {self.scheme}:PATH")
        try:
            return user_path(self.location)
        except ValueError as error:
            raise InputError(f"encoder {self.shown!r}: {error}") from None

    @property
    def shown(self) -> str:
        """The name for messages: without the password of a URL."""
        return without_password(self.name)

    @property
    def revision(self) -> str | None:
        """What pins the weights of a short name; None where it depends on the files."""
        return self.entry.revision if self.entry else None


def parse_name(name: str) -> Request:
    """Parse a name.

    Options stand behind the first question mark; if there is a `#`, behind the first one after it, since URLs have
    question marks of their own. A name that is neither SCHEME:LOCATION nor in the catalogue is an UnknownEncoderError.

    Example:
        >>> parse_name("onnx:models/bge?pooling=cls").location
        'models/bge'
    """
    if not name.strip():
        raise UnknownEncoderError("an encoder's name is empty: write a short name, minilm, or kind and place, onnx:DIR")
    head, hash_sign, tail = name.partition("#")
    last, _, query = (tail if hash_sign else head).partition("?")
    place = f"{head}#{last}" if hash_sign else last
    options: dict[str, str] = {}
    match = _SCHEME.fullmatch(place)
    scheme, location = match.groups() if match else (place, "")
    request = Request(name, scheme, location, options)
    for part in filter(None, query.split("&")):
        key, _, value = part.partition("=")
        if key in options:
            raise InputError(f"encoder {request.shown!r} has option {key!r} twice")
        options[key] = unquote(value)  # a value cannot hold & itself: it is written %26
    if match or place == "demo":
        return request
    if "/" in place or "\\" in place:
        if same := hub_names(place):
            names = " or ".join(map(repr, same))
            raise UnknownEncoderError(f"{name!r} is called {names} in the catalogue; from the hub it is 'st:{place}'")
        examples = f"st:{place}, onnx:{place} or words:{place}"
        raise UnknownEncoderError(f"{name!r} is a path without a kind: say how to read it, as in {examples}")
    listed = entry(place)
    if listed.kind == "dataset":
        raise InputError(f"{place!r} is a dataset, not an encoder")
    return replace(request, scheme=listed.kind, location=place, entry=listed)


def user_path(text: str) -> Path:
    """Return the path, `~` replaced by the home folder; a ValueError if there can be none of that name."""
    try:
        path = Path(text).expanduser()
        path.exists()
    except (RuntimeError, OSError, ValueError) as error:  # no such user; a name too long; a null character
        raise ValueError(f"{text[:80]!r} cannot be a path: {error}") from None
    return path


def flag(value: str) -> bool:
    """Convert the text of an option to true or false."""
    return {"true": True, "1": True, "false": False, "0": False}[value.lower()]


@dataclass(frozen=True)
class Checked:
    """A converter that accepts only some values; `expects` says in messages which."""

    convert: Convert
    accepts: Callable[[Any], object]
    expects: str = ""

    def __call__(self, text: str) -> Any:  # noqa: ANN401 - what `convert` returns
        """Return the value, or raise a ValueError."""
        value = self.convert(text)
        if not self.accepts(value):
            raise ValueError(text)
        return value


def one_of(*choices: str) -> Convert:
    """Return a converter that accepts only these values."""
    return Checked(str, choices.__contains__, " or ".join(choices))


def at_least(least: float) -> Convert:
    """Return a converter to numbers of the type of `least`, and not below it; NaN is refused, too."""
    expects = f"a {'whole ' if isinstance(least, int) else ''}number from {least} on"
    return Checked(type(least), lambda number: number >= least, expects)


_COMMON: dict[str, Convert] = {
    "prefix": str,
    "query_prefix": str,
    "document_prefix": str,
    "truncate_dim": int,
    "normalize": flag,
    "long": Checked(str, LONG.__contains__, " or ".join(LONG)),
    "chunk": Checked(int, (1).__le__, "a whole number from 1 on"),
}
"""The options of every encoder."""

_EXPECTED: dict[Convert, str] = {int: "a whole number", float: "a number", flag: "true or false"}


def open_encoder(
    source: EncoderLike | AllowedName,
    *,
    threads: int | None = None,
    progress: Progress = silent,
    pinned: str | None = None,
) -> Encoder:
    """Return the encoder of that name, or the object as an encoder.

    Args:
        source: a name that the user wrote, a name out of a file that `allow` has allowed, an encoder, or any
            object that has `encode`.
        threads: cores to use; None leaves it to the encoder.
        progress: receives long work, such as the conversion of a file of word vectors.
        pinned: the revision at which to fetch what is fetched by name; None for the latest.

    Raises:
        UnknownEncoderError: there is no encoder of that name.
        MissingError: its files have to be pulled, or its package installed, first.
    """
    if threads is not None:
        check_whole("threads", threads, 1)
    if isinstance(source, Encoder):
        return source
    if isinstance(source, str | AllowedName):
        name, offline = (source, False) if isinstance(source, str) else (source.text, source.offline)
        request = replace(parse_name(name), threads=threads, progress=progress, pinned=pinned, offline=offline)
        changes, request = request.take(**_COMMON)
        opener = KINDS.get(request.scheme)
        try:
            encoder: Encoder = opener.load()(request) if opener else _open_plugin(request)
        except OSError as error:  # a folder of which this user may not even see the files
            if isinstance(error, EnsembedError):
                raise
            raise EncoderError(f"encoder {request.shown!r} cannot be opened: {error}") from error
        encoder = AdjustedEncoder(encoder, **changes) if changes else encoder
        encoder.offline = offline
        return encoder
    if isinstance(source, SupportsEncode):
        return ObjectEncoder(source)
    raise InputError(f"an encoder is a name or an object with `encode`, not {type(source).__name__}")


def allow(name: UntrustedName, trust: Trust, *, folder: bool = False) -> AllowedName:
    """Return a name out of a file as one that `open_encoder` accepts; a ConsentError says what it would do.

    Three effects need consent, each of its own: running code, talking to a network, and reading what is no plain file
    or folder. `trust` is True for all of them, or names some of them with commas between. Without consent to the
    network a model of the hub opens from the cache only. See SECURITY.md. A malformed name is an InputError. With
    `folder` the name is the path of a saved model.

    Example:
        >>> allow(UntrustedName("st:org/model?trust_remote_code=true"), trust="code").offline
        True
    """
    request = Request(name.text, "", name.text, {}) if folder else parse_name(name.text)
    granted = EFFECTS if trust is True else (trust or "").replace(",", " ").split()
    if unknown := [effect for effect in granted if effect not in EFFECTS]:
        raise InputError(f"trust is True, False or some of {','.join(EFFECTS)}, not {unknown[0]!r}")
    kind = KINDS.get(request.scheme)
    effects_of = getattr(import_module(kind.module), "effects", _unknown_effects) if kind else _unknown_effects
    effects = effects_of(request) if effects_of else {}
    if refused := {effect: what for effect, what in effects.items() if effect not in granted}:
        raise ConsentError.of(f"{'model' if folder else 'encoder'} {request.shown!r}", refused)
    return AllowedName(name.text, offline="network" not in granted)


def place_effects(request: Request, options: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the effects of reading the place of a name, and those in `options`, each with what it does: often none."""
    effects: dict[str, str] = {}
    url = request.location.partition("#")[0]
    if "://" in url:
        effects["network"] = f"downloads {request.shown.partition(':')[2].partition('#')[0]}"
    for place in (url, request.location, *(request.query.get(option, "") for option in options)):
        if not is_plain(place):
            effects["files"] = f"reads {place!r}, which is no plain file or folder"
    return effects


def _unknown_effects(request: Request) -> dict[str, str]:
    """Return the effects of a kind that does not say them: it runs code, which may be that of another package."""
    packages = plugins().get(request.scheme)
    if packages is None and request.scheme not in KINDS:  # there is no such kind, or it is a model of the hub
        return place_effects(request)
    code = f"package {' and '.join(map(package_of, packages))}" if packages else f"code of the kind {request.scheme!r}"
    return {"code": f"runs the {code}"} | place_effects(request)


def is_plain(place: str) -> bool:
    """Return whether a place is, or would be, a file or folder: no device, no pipe, no share of another machine."""
    if place.startswith(("//", "\\\\")):  # before it is looked at, which talks to that machine
        return False
    try:
        written = Path(place).expanduser()
        path = written.resolve()
        special = path.exists() and not (path.is_file() or path.is_dir())
    except (RuntimeError, OSError, ValueError):  # no place at all: its kind says so
        return True
    # As it is written, too: /proc/PID/root leads into what another process sees.
    places = (path, Path(os.path.abspath(written)))  # noqa: PTH100 - which removes `..` without looking
    beside = any(place.parts[1:2] in (("dev",), ("proc",), ("sys",)) for place in places)
    in_memory = all(place.parts[1:3] == ("dev", "shm") for place in places)  # ordinary files
    return not special and (in_memory or not beside)


def plugins() -> dict[str, list[EntryPoint]]:
    """Return the schemes that installed packages add, each with every package's opener for it."""
    openers: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=_GROUP):
        if point.name not in KINDS:  # a package cannot take over a scheme of ours
            openers.setdefault(point.name, []).append(point)
    return openers


def describe_kinds() -> list[dict[str, str]]:
    """Return the scheme of every kind, what it opens in words, and where it comes from; ours first."""
    kinds = [(scheme, import_module(point.module).OPENS, "ensembed") for scheme, point in KINDS.items()]
    kinds += [(scheme, "a plugin", " and ".join(map(package_of, points))) for scheme, points in plugins().items()]
    return [dict(zip(("scheme", "opens", "from"), kind, strict=True)) for kind in kinds]


def _open_plugin(request: Request) -> Encoder:
    openers = plugins()
    if request.scheme not in openers:
        schemes = [*KINDS, *openers]
        close = difflib.get_close_matches(request.scheme, schemes)
        hint = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
        known = f"there is no kind of encoder {request.scheme!r}{hint}; there are: {', '.join(schemes)}"
        raise UnknownEncoderError(f"{request.name!r}: {known}")
    point, *others = openers[request.scheme]
    if others:
        packages = " and ".join(map(package_of, openers[request.scheme]))
        raise InputError(f"{request.name!r}: the packages {packages} both open {request.scheme!r}; uninstall one")
    with naming_failures(f"{request.name} (package {package_of(point)})"):
        encoder = point.load()(request)
    if not isinstance(encoder, Encoder):
        returned = f"returned a {type(encoder).__name__}, not an ensembed.encoders.Encoder"
        raise EncoderError(f"encoder {request.name!r}: package {package_of(point)} {returned}")
    return encoder
