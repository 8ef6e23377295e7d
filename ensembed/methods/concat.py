"""Concatenation (Yin and Schütze 2016)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ensembed.methods.base import NaiveMethod
from ensembed.methods.meta import Meta
from ensembed.methods.projections import Placement


@dataclass(frozen=True)
class Concat(NaiveMethod):
    """`[^F_1; ...; ^F_J]`: the members' vectors one after the other, each scaled to length one.

    The cosine of two concatenations is the mean of the members' cosines. The dimension is the sum of the members'.

    Example:
        >>> import numpy as np
        >>> Concat().fit([np.ones((1, 1)), np.ones((1, 1))]).transform([[[2.0]], [[-3.0]]])
        array([[ 1., -1.]], dtype=float32)
    """

    name: ClassVar[str] = "conc"

    def build(self, dims: Sequence[int]) -> Meta:
        """The meta-embedding for views of these dimensions."""
        starts = [0, *itertools.accumulate(dims)]
        parts = tuple(Placement(start, dim) for start, dim in zip(starts[:-1], dims, strict=True))
        return Meta(self.to_json(), sum(dims), parts, normalize=True)
