"""Packages that may be installed beside ensembed: libraries that only some parts need (extras), and plug-ins."""

from __future__ import annotations

import importlib
from importlib.metadata import EntryPoint
from typing import Any

from ensembed.errors import MissingError


def import_extra(module: str, extra: str, what: str) -> Any:  # noqa: ANN401 - a module without types of its own
    """Import a module, or raise a MissingError with the command that installs it.

    Args:
        module: what to import.
        extra: the extra of ensembed that brings it.
        what: what it is needed for, for the message.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise MissingError(
                f"{what} needs {module}, which is here but lacks {error.name}; "
                f"repair it with: pip install 'ensembed[{extra}]'"
            ) from error
        raise MissingError(
            f"{what} needs {module.partition('.')[0]}; install it with: pip install 'ensembed[{extra}]'"
        ) from None


def package_of(point: EntryPoint) -> str:
    """Return the name and version of the package that an entry point belongs to."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value
