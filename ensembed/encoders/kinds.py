"""Kinds of encoders: which function opens `SCHEME:…`, and what an installed package adds.

A kind of ensembed's own is a module `SCHEME_encoder.py` in this folder, or in a folder of its own below (a hyphen of
the scheme is an underscore there). It has `open_SCHEME(request: Request) -> Encoder`, and `OPENS`, a few words on what
stands behind the colon. The file name is all the registration: a module is imported when its kind is opened or listed.

A package that has, in its pyproject.toml::

    [project.entry-points."ensembed.encoders"]
    shout = "ensembed_shout:open_shout"

makes `shout:…` a name like any other; `open_shout(request: Request) -> Encoder` is all it has to write.
"""

from __future__ import annotations

import difflib
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from ensembed.encoders.base import Encoder, naming_failures
from ensembed.encoders.names import Request
from ensembed.errors import EncoderError, InputError, UnknownEncoderError

GROUP = "ensembed.encoders"
_SUFFIX = "_encoder"


@cache
def built_in() -> dict[str, EntryPoint]:
    """Return the opener of every kind of ensembed's own by its scheme; nothing is imported."""
    folder = Path(__file__).parent
    openers = {}
    for path in sorted(folder.rglob(f"*{_SUFFIX}.py"), key=lambda path: path.name):
        kind = path.stem.removesuffix(_SUFFIX)
        module = ".".join([__package__, *path.relative_to(folder).with_suffix("").parts])
        scheme = kind.replace("_", "-")
        openers[scheme] = EntryPoint(scheme, f"{module}:open_{kind}", GROUP)
    return openers


def plugins() -> dict[str, list[EntryPoint]]:
    """Return the schemes that installed packages add, each with every package's opener for it."""
    openers: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        if point.name not in built_in():  # a package cannot take over a scheme of ours
            openers.setdefault(point.name, []).append(point)
    return openers


def describe_kinds() -> list[dict[str, str]]:
    """Return the scheme of every kind, what it opens in words, and where it comes from; ours first."""
    ours = [
        {"scheme": scheme, "opens": import_module(point.module).OPENS, "from": "ensembed"}
        for scheme, point in built_in().items()
    ]
    others = [
        {"scheme": scheme, "opens": "a plugin", "from": " and ".join(map(_package_of, points))}
        for scheme, points in plugins().items()
    ]
    return ours + others


def open_request(request: Request) -> Encoder:
    """Return the encoder that the request names.

    Raises:
        UnknownEncoderError: no built-in kind and no installed package opens it.
        EncoderError: a package's opener failed, or returned something else than an encoder.
    """
    if request.scheme in built_in():
        encoder: Encoder = built_in()[request.scheme].load()(request)
        return encoder
    return _open_plugin(request)


def _open_plugin(request: Request) -> Encoder:
    openers = plugins()
    if request.scheme not in openers:
        schemes = [*built_in(), *openers]
        close = difflib.get_close_matches(request.scheme, schemes)
        hint = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
        raise UnknownEncoderError(
            f"{request.name!r}: there is no kind of encoder {request.scheme!r}{hint}; there are: {', '.join(schemes)}"
        )
    point, *others = openers[request.scheme]
    if others:
        packages = " and ".join(map(_package_of, openers[request.scheme]))
        raise InputError(f"{request.name!r}: the packages {packages} both open {request.scheme!r}; uninstall one")
    with naming_failures(f"{request.name} (package {_package_of(point)})"):
        encoder = point.load()(request)
    if not isinstance(encoder, Encoder):
        raise EncoderError(
            f"encoder {request.name!r}: package {_package_of(point)} returned a {type(encoder).__name__}, "
            "not an ensembed.encoders.Encoder"
        )
    return encoder


def _package_of(point: EntryPoint) -> str:
    """Return the package, with its version, that an entry point comes from."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value
