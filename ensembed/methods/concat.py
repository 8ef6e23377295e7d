"""Concatenation (Yin and Schütze 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ensembed.methods.meta import Meta
from ensembed.methods.method import NaiveMethod
from ensembed.methods.weights import Weights, concatenation


@dataclass(frozen=True)
class Concat(NaiveMethod):
    """`[^F_1; ...; ^F_J]`: the members' vectors one after the other, each scaled to length one.

    The cosine of two concatenations is the mean of the members' cosines. The dimension is the sum of the members'.

    Args:
        weights: what each member counts: equal, reliability (found without labels), or a number per member, as in
            1,0.5,0.2. A weight is that of the member's cosine: vectors of length one are scaled by its root. Members of
            weight 0 take no room.

    Example:
        >>> import numpy as np
        >>> Concat().fit([np.ones((1, 1)), np.ones((1, 1))]).transform([[[2.0]], [[-3.0]]])
        array([[ 1., -1.]], dtype=float32)
    """

    weights: Weights = "equal"

    name: ClassVar[str] = "conc"
    order: ClassVar[int] = 1

    def build(self, dims: Sequence[int]) -> Meta:
        """Return the meta-embedding for views of these dimensions."""
        return Meta(self.to_json(), *concatenation(self.weights, dims), normalize=True)
