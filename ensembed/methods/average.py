"""Averaging (Coates and Bollegala 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ensembed.methods.base import NaiveMethod
from ensembed.methods.meta import Meta
from ensembed.methods.projections import Placement


@dataclass(frozen=True)
class Average(NaiveMethod):
    """`sum_j ^F_j / J`: the mean of the members' vectors, each scaled to length one.

    Shorter vectors are padded with zeros at the end, so the dimension is that of the longest member.

    Example:
        >>> import numpy as np
        >>> Average().fit([np.ones((1, 1)), np.ones((1, 2))]).transform([[[2.0]], [[0.0, 5.0]]])
        array([[0.5, 0.5]], dtype=float32)
    """

    name: ClassVar[str] = "avg"

    def build(self, dims: Sequence[int]) -> Meta:
        """The meta-embedding for views of these dimensions."""
        parts = tuple(Placement(0, dim, 1 / len(dims)) for dim in dims)
        return Meta(self.to_json(), max(dims), parts, normalize=True)
