"""How much each member counts: weights are those of the members' cosines, so vectors are scaled by their roots.

A member of weight 0 is treated as if it were not there, during the fit and in the result; only its place stays. Weights
by reliability are found before a fit, by `Method.resolved`, which asks `reliability/trust_estimate`.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError
from ensembed.methods.meta import Dense, Placement, Projection
from ensembed.numerics.eigen import fix_signs
from ensembed.numerics.moments import Moments
from ensembed.numerics.row_matrices import column_slices

Word: TypeAlias = Literal["equal", "reliability"]
Weights: TypeAlias = Word | tuple[float, ...]

_WORDS: tuple[Word, ...] = get_args(Word)


def checked_weights(weights: object) -> Weights:
    """Return weights as a method keeps them: a word, or a tuple of numbers, none negative and one above 0.

    Raises:
        InputError: they are neither.
    """
    if isinstance(weights, str):
        for word in _WORDS:
            if weights == word:
                return word
    elif (
        isinstance(weights, (Sequence, np.ndarray))
        and not isinstance(weights, bytes)
        and getattr(weights, "ndim", 1) == 1
        and all(isinstance(weight, (int, float, np.integer, np.floating)) for weight in weights)
    ):
        with suppress(OverflowError):  # a whole number beyond floating point
            numbers = tuple(float(weight) for weight in weights)
            if all(0 <= number < math.inf for number in numbers) and any(numbers):
                return numbers
    raise InputError(
        "weights are 'equal', 'reliability', or a number of at least 0 per member, one of them above 0, not "
        f"{reprlib.repr(weights)}"
    )


def scales(weights: Weights, members: int) -> NDArray[np.float64]:
    """Return the factors [members] of the members' vectors; the largest is 1.

    Raises:
        InputError: there are more or fewer weights than members, or the weights still have to be found.
    """
    if weights == "equal":
        return np.ones(members)
    if weights == "reliability":
        raise InputError("weights by reliability have to be found before a method is solved: call `fit`")
    if len(weights) != members:
        raise InputError(f"there are {len(weights)} weights for {members} members")
    return np.sqrt(np.array(weights) / max(weights))


def concatenation(weights: Weights, dims: Sequence[int]) -> tuple[int, tuple[Placement, ...]]:
    """Return the dimension of a weighted concatenation, and its projections; members of weight 0 take no room."""
    placements: list[Placement] = []
    start = 0
    for dim, scale in zip(dims, scales(weights, len(dims)), strict=True):
        placements.append(Placement(start if scale else 0, dim, float(scale)))
        start += dim if scale else 0
    return start, tuple(placements)


@dataclass(frozen=True, eq=False)
class CountedMembers:
    """The members whose weight is not 0, and how much each counts.

    Attributes:
        members: their places in the ensemble.
        dims: their dimensions.
        scales: the factors of their vectors.
        all_dims: the dimensions of all members.
    """

    members: list[int]
    dims: list[int]
    scales: NDArray[np.float64]
    all_dims: tuple[int, ...]

    @classmethod
    def of(cls, weights: Weights, dims: Sequence[int]) -> CountedMembers:
        """Return those among members of these dimensions.

        Raises:
            InputError: there are more or fewer weights than members, or the weights still have to be found.
        """
        factors = scales(weights, len(dims))
        members = np.flatnonzero(factors).tolist()
        return cls(members, [dims[j] for j in members], factors[members], tuple(dims))

    @property
    def column_scales(self) -> NDArray[np.float64]:
        """The factors [D] of the columns of these members."""
        return np.repeat(self.scales, self.dims)

    def moments(self, moments: Moments) -> Moments:
        """Return the moments of the columns of these members out of those of all."""
        if len(self.members) == len(self.all_dims):
            return moments
        places = column_slices(self.all_dims)
        return moments.of_columns(np.concatenate([np.arange(places[j].start, places[j].stop) for j in self.members]))

    def scaled(self, S: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return second moments S [D, D] of these members as if their columns had been scaled."""
        if (self.scales == 1).all():  # equal to the bit, and without another matrix of that size
            return S
        return S * np.outer(self.column_scales, self.column_scales)

    def centred(self, theta: NDArray[np.float64], mean: NDArray[np.float64]) -> tuple[Projection, ...]:
        """Return the projections by the rows of theta [D, d], scaled, less the mean [D]; the signs are fixed."""
        matrix = fix_signs(theta * self.column_scales[:, None])
        return self.projections([Dense.centred(matrix[place], mean[place]) for place in column_slices(self.dims)])

    def projections(self, counted: Sequence[Projection]) -> tuple[Projection, ...]:
        """Return one projection per member of the ensemble, given those of the counted ones; the others add nothing."""
        places = dict(zip(self.members, counted, strict=True))
        return tuple(places.get(j, Placement(0, dim, 0.0)) for j, dim in enumerate(self.all_dims))
