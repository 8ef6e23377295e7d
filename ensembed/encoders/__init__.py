"""Encoders: what turns sentences into vectors, and how they are named.

A name is a short name of the catalogue (`minilm`) or `demo`, with options behind a question mark:
`minilm?max_length=64`, `demo?dim=16&seed=1`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from ensembed.encoders.base import Encoder, EncoderSpec, SupportsEncode
from ensembed.encoders.catalog import CatalogEntry, entry, require
from ensembed.encoders.demo import DemoEncoder
from ensembed.encoders.objects import ObjectEncoder
from ensembed.errors import InputError

EncoderLike: TypeAlias = str | Encoder | SupportsEncode
Options: TypeAlias = dict[str, Any]

__all__ = ["DemoEncoder", "Encoder", "EncoderLike", "EncoderSpec", "ObjectEncoder", "open_encoder"]


def open_encoder(source: EncoderLike, *, threads: int | None = None) -> Encoder:
    """The encoder of that name, or the given object as an encoder.

    Args:
        source: a name, an encoder, or any object that has `encode`.
        threads: cores to use; None leaves it to the encoder.

    Raises:
        UnknownEncoderError: there is no encoder of that name.
        MissingError: its files have to be pulled first.
    """
    if isinstance(source, Encoder):
        return source
    if isinstance(source, str):
        name, _, query = source.partition("?")
        if name == "demo":
            return DemoEncoder(**_options(source, query, {"dim": int, "seed": int}), name=source)
        found = entry(name)
        if found.kind not in _OPENERS:
            raise InputError(f"{name!r} is a {found.kind}, not an encoder")
        return _OPENERS[found.kind](found, source, query, threads)
    if isinstance(source, SupportsEncode):
        return ObjectEncoder(source)
    raise InputError(f"an encoder is a name or an object with `encode`, not {type(source).__name__}")


def _open_onnx(found: CatalogEntry, source: str, query: str, threads: int | None) -> Encoder:
    from ensembed.encoders.onnx import OnnxEncoder

    options = {**found.settings, **_options(source, query, {"max_length": int, "normalize": _flag})}
    options.pop("pooling")  # the class knows one pooling, the mean
    return OnnxEncoder(require(found.name), name=source, revision=found.revision, threads=threads, **options)


def _open_static(found: CatalogEntry, source: str, query: str, _threads: int | None) -> Encoder:
    from ensembed.encoders.static import StaticEncoder

    _options(source, query, {})
    return StaticEncoder(require(found.name), name=source, revision=found.revision)


def _open_use_lite(found: CatalogEntry, source: str, query: str, threads: int | None) -> Encoder:
    from ensembed.encoders.use_lite import UseLiteEncoder

    options = _options(source, query, {"max_length": int})
    return UseLiteEncoder(require(found.name), name=source, revision=found.revision, threads=threads, **options)


_OPENERS: dict[str, Callable[[CatalogEntry, str, str, int | None], Encoder]] = {
    "onnx": _open_onnx,
    "static": _open_static,
    "use-lite": _open_use_lite,
}


def _options(source: str, query: str, types: Mapping[str, Callable[[str], Any]]) -> Options:
    """The options behind the question mark, converted; an InputError names one that is unknown or malformed."""
    result = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in types:
            known = ", ".join(types) or "none"
            raise InputError(f"encoder {source!r} has no option {key!r}; it has: {known}")
        if key in result:
            raise InputError(f"encoder {source!r} has option {key!r} twice")
        try:
            result[key] = types[key](value)
        except (ValueError, KeyError):
            raise InputError(f"encoder {source!r}: {value!r} is not a value for {key}") from None
    return result


def _flag(value: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[value.lower()]
