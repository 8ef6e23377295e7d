"""Checks of arguments that several rooms make."""

from __future__ import annotations

import numpy as np

from ensembed.errors import InputError


def check_whole(name: str, value: object, least: int) -> None:
    """Refuse a hyper-parameter that is not a whole number of at least `least`."""
    if not (isinstance(value, (int, np.integer)) and value >= least):
        raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")
