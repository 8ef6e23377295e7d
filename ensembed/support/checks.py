"""Checks that several rooms make, of arguments and of files."""

from __future__ import annotations

import difflib
import hashlib
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from ensembed.errors import InputError
from ensembed.support.file_limits import open_regular


def check_whole(name: str, value: object, least: int) -> None:
    """Raise an InputError if a hyper-parameter is not a whole number of at least `least`."""
    if not (isinstance(value, (int, np.integer)) and value >= least):
        raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")


def is_number(value: object) -> bool:
    """Return whether a value is a finite number, of Python or of numpy, within the range of floating point."""
    try:
        return isinstance(value, (int, float, np.integer, np.floating)) and math.isfinite(value)
    except OverflowError:  # a whole number beyond it
        return False


def fits(value: object, layout: Any) -> bool:  # noqa: ANN401 - see below
    """Return whether a value of JSON has a layout.

    Args:
        value: the value.
        layout: a type, `float` for any finite number that is no huge integer; None; a list of the layout of all items;
            a dict of layouts by key, besides which there may be others; a tuple of layouts, of which one has to fit.

    Example:
        >>> fits({"rows": [1, 2], "best": None}, {"rows": [int], "best": (float, None)})
        True
        >>> fits({"rows": [1, "2"]}, {"rows": [int]})
        False
    """
    if isinstance(layout, tuple):
        return any(fits(value, choice) for choice in layout)
    if isinstance(layout, list):
        return isinstance(value, list) and all(fits(item, layout[0]) for item in value)
    if isinstance(layout, dict):
        return isinstance(value, dict) and all(key in value and fits(value[key], part) for key, part in layout.items())
    if layout is float and isinstance(value, float | int):
        return math.isfinite(value) if isinstance(value, float) else type(value) is int and abs(value) <= 1 << 53
    return value is None if layout is None else type(value) is layout


def sha256_of(path: Path, prefix: bytes = b"") -> str:
    """Return the SHA-256 of some bytes and the file's content after them, in hexadecimal."""
    digest = hashlib.sha256(prefix)
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def did_you_mean(name: str | Path, file: str) -> str:
    """Return " (did you mean …?)" of the folders beside a name that are called nearly the same and hold the file."""
    try:
        path = Path(name)
        beside = {other.name: other for other in path.parent.iterdir() if other.name != path.name}
    except (OSError, ValueError):  # there is no such place
        return ""
    close = [beside[match] for match in difflib.get_close_matches(path.name, beside, n=3, cutoff=0.7)]
    similar = " or ".join(repr(str(other)) for other in close if os.path.isfile(other / file))  # noqa: PTH113 - False if it may not be read
    return f" (did you mean {similar}?)" if similar else ""
