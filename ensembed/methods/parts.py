"""Which members take part in a fit: those whose weight is not 0."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ensembed.methods.projections import Placement, Projection
from ensembed.methods.weights import Weights, scales
from ensembed.numerics.moments import Moments


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
    """Which members take part, and how much each counts.

    Attributes:
        members: the places of those whose weight is not 0.
        dims: their dimensions.
        scales: what their vectors are multiplied by.
        everyone: the dimensions of all members.
    """

    members: list[int]
    dims: list[int]
    scales: NDArray[np.float64]
    everyone: tuple[int, ...]

    @classmethod
    def of(cls, weights: Weights, dims: Sequence[int]) -> Parts:
        """Of members of these dimensions.

        Raises:
            InputError: there are more or fewer weights than members, or the weights still have to be found.
        """
        factors = scales(weights, len(dims))
        members = np.flatnonzero(factors).tolist()
        return cls(members, [dims[j] for j in members], factors[members], tuple(dims))

    @property
    def column_scales(self) -> NDArray[np.float64]:
        """The scales [D] of the columns of those that take part."""
        return np.repeat(self.scales, self.dims)

    def moments(self, moments: Moments) -> Moments:
        """The moments of the columns of those that take part, out of those of all; the same where all do."""
        if len(self.members) == len(self.everyone):
            return moments
        places = np.split(np.arange(sum(self.everyone)), np.cumsum(self.everyone)[:-1])
        return moments.of_columns(np.concatenate([places[j] for j in self.members]))

    def scaled(self, S: NDArray[np.float64]) -> NDArray[np.float64]:
        """Second moments S [D, D] of those that take part, as if their columns had been scaled; S where none is."""
        if (self.scales == 1).all():  # to the bit, and without another matrix of that size
            return S
        return S * np.outer(self.column_scales, self.column_scales)

    def projections(self, found: Sequence[Projection]) -> tuple[Projection, ...]:
        """One projection per member, given those of the members that take part; the others' add nothing."""
        places = dict(zip(self.members, found, strict=True))
        return tuple(places.get(j, Placement(0, dim, 0.0)) for j, dim in enumerate(self.everyone))
