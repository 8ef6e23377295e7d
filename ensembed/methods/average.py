"""Averaging (Coates and Bollegala 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ensembed.methods.meta import Meta, Placement
from ensembed.methods.method import NaiveMethod
from ensembed.methods.weights import CountedMembers, Weights


@dataclass(frozen=True)
class Average(NaiveMethod):
    """`sum_j ^F_j / J`: the mean of the members' vectors, each scaled to length one.

    Shorter vectors are padded with zeros at the end, so the dimension is that of the longest member.

    Args:
        weights: what each member counts: equal, reliability (found without labels), or a number per member, as in
            1,0.5,0.2. Vectors of length one are scaled by their roots. Members of weight 0 are left out.

    Example:
        >>> import numpy as np
        >>> Average().fit([np.ones((1, 1)), np.ones((1, 2))]).transform([[[2.0]], [[0.0, 5.0]]])
        array([[0.5, 0.5]], dtype=float32)
    """

    weights: Weights = "equal"

    name: ClassVar[str] = "avg"
    order: ClassVar[int] = 2

    def build(self, dims: Sequence[int]) -> Meta:
        """Return the meta-embedding for views of these dimensions."""
        counted = CountedMembers.of(self.weights, dims)
        scales = counted.scales / len(counted.dims)
        placements = [Placement(0, dim, float(scale)) for dim, scale in zip(counted.dims, scales, strict=True)]
        return Meta(self.to_json(), max(counted.dims), counted.projections(placements), normalize=True)
