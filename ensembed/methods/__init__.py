"""The methods: how views are combined into one meta-embedding."""

from __future__ import annotations

import dataclasses
from typing import Any

from ensembed.errors import InputError
from ensembed.methods.auto import Auto
from ensembed.methods.autoencoder import Autoencoder
from ensembed.methods.average import Average
from ensembed.methods.base import Method
from ensembed.methods.concat import Concat
from ensembed.methods.gcca import GCCA
from ensembed.methods.meta import Meta
from ensembed.methods.svd import SVD
from ensembed.methods.up_projection import UpProjection

METHODS: dict[str, type[Method]] = {
    cls.name: cls for cls in (Auto, Concat, Average, SVD, GCCA, Autoencoder, UpProjection)
}
"""Every method by its short name."""

__all__ = [
    "GCCA",
    "METHODS",
    "SVD",
    "Auto",
    "Autoencoder",
    "Average",
    "Concat",
    "Meta",
    "Method",
    "UpProjection",
    "make_method",
]


def make_method(name: str, **parameters: Any) -> Method:  # noqa: ANN401 - each method knows its own
    """The method of that short name with these hyper-parameters; an InputError names one that it does not have.

    Example:
        >>> make_method("gcca", dim=3)
        GCCA(dim=3, tau=10.0, weights='equal')
    """
    if name not in METHODS:
        raise InputError(f"there is no method {name!r}; there are: {', '.join(METHODS)}")
    fields = dataclasses.fields(METHODS[name])
    for key in parameters:
        if key not in [field.name for field in fields]:
            known = ", ".join(field.name for field in fields) or "none"
            raise InputError(f"method {name} has no parameter {key!r}; it has: {known}")
    for field in fields:
        if field.default is dataclasses.MISSING and field.name not in parameters:
            raise InputError(f"method {name} needs {field.name}")
    return METHODS[name](**parameters)
