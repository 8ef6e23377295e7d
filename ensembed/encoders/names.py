"""Names of encoders, parsed: `SCHEME:LOCATION?option=value&…`, or a short name of the catalogue with options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from ensembed.errors import InputError, UnknownEncoderError
from ensembed.fetch.catalog import CatalogEntry, entry, require
from ensembed.support.progress import Progress, silent

Options: TypeAlias = dict[str, Any]
Convert: TypeAlias = Callable[[str], Any]

# At least two letters: a single one is a drive of Windows.
_SCHEME = re.compile(r"([a-z][a-z0-9+_.-]+):(.*)", re.DOTALL)


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
        pinned: the revision that a saved model was fitted on: what is fetched by name is fetched at this revision,
            even if the name stands for a later one now. None for the latest.
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

    def options(self, **types: Convert) -> Options:
        """Return the options, converted, on top of the catalogue's settings; an InputError names an unknown one.

        Example:
            >>> parse_name("demo?dim=3").options(dim=int, seed=int)
            {'dim': 3}
        """
        result = dict(self.entry.settings) if self.entry else {}
        for key, value in self.query.items():
            if key not in types:
                known = ", ".join([*types, *self.common]) or "none"
                raise InputError(f"encoder {self.shown!r} has no option {key!r}; it has: {known}")
            result[key] = self._converted(key, value, types[key])
        return result

    def take(self, **types: Convert) -> tuple[Options, Request]:
        """Return some of the options, converted, and the request without them."""
        taken = {k: self._converted(k, self.query[k], types[k]) for k in types if k in self.query}
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
        return re.sub("//.*@", "//***@", self.name)

    @property
    def revision(self) -> str | None:
        """What pins the weights of a short name; None where it depends on the files."""
        return self.entry.revision if self.entry else None

    def _converted(self, key: str, value: str, convert: Convert) -> Any:  # noqa: ANN401 - whatever the option is
        try:
            return convert(value)
        except (ValueError, KeyError):
            wanted = getattr(convert, "expects", _EXPECTED.get(convert, ""))
            raise InputError(
                f"encoder {self.shown!r}: {value!r} is not a value for {key}{wanted and f', which is {wanted}'}"
            ) from None


def parse_name(name: str) -> Request:
    """Parse a name.

    Options stand behind the first question mark; if there is a `#`, behind the first one after it, since URLs have
    question marks of their own. A name that is neither SCHEME:LOCATION nor in the catalogue is an UnknownEncoderError.

    Example:
        >>> parse_name("onnx:models/bge?pooling=cls").location
        'models/bge'
    """
    if not name.strip():
        raise UnknownEncoderError(
            "an encoder's name is empty: write a short name, minilm, or a kind and a place, onnx:DIR"
        )
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
        raise UnknownEncoderError(
            f"{name!r} is a path without a kind: say how to read it, as in st:{place}, onnx:{place} or words:{place}"
        )
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


def one_of(*choices: str) -> Convert:
    """Return a converter that accepts only these values."""

    def convert(value: str) -> str:
        if value not in choices:
            raise ValueError(value)
        return value

    convert.expects = " or ".join(choices)  # type: ignore[attr-defined]  # for messages; a function's type has none
    return convert


def at_least(least: float) -> Convert:
    """Return a converter to numbers of the type of `least`, and not below it."""

    def convert(value: str) -> float:
        number = type(least)(value)
        if not number >= least:  # NaN is refused, too
            raise ValueError(value)
        return number

    whole = "whole " if isinstance(least, int) else ""
    convert.expects = f"a {whole}number from {least} on"  # type: ignore[attr-defined]
    return convert


_EXPECTED: dict[Convert, str] = {int: "a whole number", float: "a number", flag: "true or false"}
