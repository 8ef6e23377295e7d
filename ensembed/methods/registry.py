"""Every method by its short name: those of this folder, and those of packages with the entry point `ensembed.methods`.

[project.entry-points."ensembed.methods"]
median = "my_package.median:Median"

The entry point is called as the method is: here `Median.name` is "median".
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import warnings
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from ensembed.errors import InputError
from ensembed.methods.method import Method
from ensembed.support.extras import package_of

GROUP = "ensembed.methods"

_MODULES = [import_module(f"{GROUP}.{module.name}") for module in iter_modules([str(Path(__file__).parent)])]
# Not `issubclass`: for Python 3.10, `list[str]` is an instance of `type`, but no class.
_CLASSES: set[type[Method]] = {
    value
    for module in _MODULES
    for value in vars(module).values()
    if Method in getattr(value, "__mro__", ()) and not inspect.isabstract(value)
}

METHODS: dict[str, type[Method]] = {
    kind.name: kind for kind in sorted(_CLASSES, key=lambda kind: (kind.order, kind.name))
}
"""Every method by its short name, in the order of lists; `all_methods` adds those of other packages."""
UNUSABLE: dict[str, str] = {}
"""Why the methods of these names cannot be used; `all_methods` adds those of other packages."""


@cache
def all_methods() -> Mapping[str, type[Method]]:
    """Return every method by its short name, those of installed packages among them.

    A package whose method cannot be imported is left out with a warning.
    """
    points: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        points.setdefault(point.name, []).append(point)
    for name, same in sorted(points.items()):
        owners = [*(["ensembed"] if name in METHODS else []), *sorted(map(package_of, same))]
        if len(owners) > 1:  # a package cannot take over a method of ours
            UNUSABLE[name] = f"{' and '.join(owners)} both have a method {name!r}; uninstall one package"
            continue
        try:
            kind = same[0].load()
        except Exception as error:  # noqa: BLE001 - whatever the code of a package raises
            problem = repr(error)
        else:
            valid = Method in getattr(kind, "__mro__", ()) and dataclasses.is_dataclass(kind)
            if valid and getattr(kind, "name", "") == name:
                METHODS[name] = kind
                continue
            problem = f"{same[0].value} is not a dataclass that is a Method and has the name {name!r}"
        UNUSABLE[name] = f"method {name!r} of package {owners[0]} cannot be used: {problem}"
        warnings.warn(UNUSABLE[name], RuntimeWarning, stacklevel=2)
    for name in sorted(METHODS, key=lambda name: (METHODS[name].order, name)):
        METHODS[name] = METHODS.pop(name)
    return METHODS


def make_method(name: str, **parameters: Any) -> Method:  # noqa: ANN401 - each method knows its own
    """Return the method of that short name with these hyper-parameters; an InputError names one that it does not have.

    The name of the class is accepted, too, and case does not matter.

    Example:
        >>> make_method("gcca", dim=3)
        GCCA(dim=3, tau=10.0, weights='equal')
    """
    methods = all_methods()
    if name not in methods:
        others = {kind.__name__.lower(): short for short, kind in methods.items()}
        others |= {short.lower(): short for short in methods}
        name = others.get(name.lower(), name)
    if name in UNUSABLE:
        raise InputError(UNUSABLE[name])
    if name not in methods:
        close = difflib.get_close_matches(name.lower(), methods)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise InputError(f"there is no method {name!r}{hint}; there are: {', '.join(methods)}")
    fields = methods[name].parameters()
    for key in parameters:
        if key not in [field.name for field in fields]:
            known = ", ".join(field.name for field in fields) or "none"
            raise InputError(f"method {name} has no parameter {key!r}; it has: {known}")
    for field in fields:
        if field.default is dataclasses.MISSING and field.name not in parameters:
            raise InputError(f"method {name} needs {field.name}")
    return methods[name](**parameters)
