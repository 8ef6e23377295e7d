"""Dataclasses as JSON and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ensembed.errors import InputError
from ensembed.support.extras import import_extra

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


def to_json(kind: type[T], record: T, *, indent: int | None = None) -> bytes:
    """A record as JSON text; the digits are all there."""
    return bytes(_adapter(kind).dump_json(record, indent=indent)) + b"\n"


def from_json(kind: type[T], text: bytes) -> T:
    """The reverse of `to_json`.

    Raises:
        InputError: the text is not a record of that kind.
    """
    try:
        found: T = _adapter(kind).validate_json(text)
    except ValueError as error:  # pydantic's ValidationError is one
        raise InputError(f"this is no {kind.__name__} of this version: {error}") from None
    return found


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    pydantic: Any = import_extra("pydantic", "report", "what experiments write down")
    adapter: TypeAdapter[T] = pydantic.TypeAdapter(kind)
    return adapter
