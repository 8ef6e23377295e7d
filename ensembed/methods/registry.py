"""Every method by its short name: those of this folder, and those of packages with the entry point `ensembed.methods`.

[project.entry-points."ensembed.methods"]
median = "my_package.median:Median"
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from ensembed.errors import InputError
from ensembed.methods.base import Method

GROUP = "ensembed.methods"


_MODULES = [import_module(f"{GROUP}.{module.name}") for module in iter_modules([str(Path(__file__).parent)])]
_CLASSES: set[type[Method]] = {
    value
    for module in _MODULES
    for value in vars(module).values()
    if inspect.isclass(value) and issubclass(value, Method) and not inspect.isabstract(value)
}

METHODS: dict[str, type[Method]] = {kind.name: kind for kind in sorted(_CLASSES, key=lambda kind: kind.order)}
"""Every method by its short name; `all_methods` adds those of other packages."""


@cache
def all_methods() -> Mapping[str, type[Method]]:
    """Return every method by its short name, those of installed packages among them."""
    for point in entry_points(group=GROUP):
        kind = point.load()
        if not (inspect.isclass(kind) and issubclass(kind, Method) and dataclasses.is_dataclass(kind)):
            raise InputError(f"the entry point {point.value!r} of {GROUP} is not a dataclass that is a Method")
        METHODS.setdefault(kind.name, kind)
    return METHODS


def make_method(name: str, **parameters: Any) -> Method:  # noqa: ANN401 - each method knows its own
    """Return the method of that short name with these hyper-parameters; an InputError names one that it does not have.

    Example:
        >>> make_method("gcca", dim=3)
        GCCA(dim=3, tau=10.0, weights='equal')
    """
    if name not in METHODS and name not in all_methods():
        raise InputError(f"there is no method {name!r}; there are: {', '.join(METHODS)}")
    fields = METHODS[name].parameters()
    for key in parameters:
        if key not in [field.name for field in fields]:
            known = ", ".join(field.name for field in fields) or "none"
            raise InputError(f"method {name} has no parameter {key!r}; it has: {known}")
    for field in fields:
        if field.default is dataclasses.MISSING and field.name not in parameters:
            raise InputError(f"method {name} needs {field.name}")
    return METHODS[name](**parameters)
