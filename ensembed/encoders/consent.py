"""Consent: what a name out of a file may do. It is decided here alone; a name that the user wrote may do everything."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from ensembed.encoders.base import AllowedName, UntrustedName
from ensembed.encoders.names import KINDS, Request, parse_name, plugins
from ensembed.errors import EFFECTS, ConsentError, InputError
from ensembed.support.extras import package_of

Trust: TypeAlias = bool | str
"""Consent to what names out of files do: True for everything, or some of `EFFECTS` with commas between."""


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
