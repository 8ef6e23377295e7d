"""Every method by its short name: those of this folder, and those of packages with the entry point `ensembed.methods`.

[project.entry-points."ensembed.methods"]
median = "my_package.median:Median"
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Any

import ensembed.methods
from ensembed.errors import InputError
from ensembed.methods.base import Method

GROUP = "ensembed.methods"


class _Registry(Mapping[str, type[Method]]):
    """The methods by name. Packages are only asked when a name is not one of ours, or when all are listed."""

    @cached_property
    def _own(self) -> dict[str, type[Method]]:
        modules = [import_module(f"{GROUP}.{module.name}") for module in iter_modules(ensembed.methods.__path__)]
        classes = [value for module in modules for value in vars(module).values() if inspect.isclass(value)]
        concrete = {kind for kind in classes if issubclass(kind, Method) and not inspect.isabstract(kind)}
        return {kind.name: kind for kind in sorted(concrete, key=lambda kind: (kind.order, kind.name))}

    @cached_property
    def _all(self) -> dict[str, type[Method]]:
        methods = dict(self._own)
        for point in entry_points(group=GROUP):
            kind = point.load()
            if not (inspect.isclass(kind) and issubclass(kind, Method) and dataclasses.is_dataclass(kind)):
                raise InputError(f"the entry point {point.value!r} of {GROUP} is not a dataclass that is a Method")
            methods.setdefault(kind.name, kind)
        return methods

    def __getitem__(self, name: str) -> type[Method]:
        return self._own[name] if name in self._own else self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


METHODS: Mapping[str, type[Method]] = _Registry()
"""Every method by its short name."""


def make_method(name: str, **parameters: Any) -> Method:  # noqa: ANN401 - each method knows its own
    """Return the method of that short name with these hyper-parameters; an InputError names one that it does not have.

    Example:
        >>> make_method("gcca", dim=3)
        GCCA(dim=3, tau=10.0, weights='equal')
    """
    if name not in METHODS:
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
