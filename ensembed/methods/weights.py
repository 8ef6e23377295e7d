"""How much each member counts.

A weight is that of a member's cosine: with weights w_j the cosine of two concatenations of vectors of length one is
`sum_j w_j cos_j / sum_j w_j`. The vectors themselves are therefore scaled by sqrt(w_j).

A member of weight 0 is treated as if it were not there, during the fit and in the result. Only its place among the
views stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError

Weights: TypeAlias = Literal["equal", "reliability"] | tuple[float, ...]


def checked_weights(weights: object) -> Weights:
    """The weights as a method keeps them: a word, or a tuple of numbers of which none is negative and one is positive.

    Raises:
        InputError: they are neither.
    """
    if weights == "equal" or weights == "reliability":
        return weights
    if isinstance(weights, Sequence) and not isinstance(weights, str):
        numbers = tuple(weights)
        real = all(isinstance(one, (int, float, np.integer, np.floating)) and math.isfinite(one) for one in numbers)
        if numbers and real and min(numbers) >= 0 and max(numbers) > 0:
            return tuple(float(one) for one in numbers)
    raise InputError(f"weights are 'equal', 'reliability', or a number of at least 0 per member, not {weights!r}")


def scales(weights: Weights, members: int) -> NDArray[np.float64]:
    """What the members' vectors [members] are multiplied by; the largest is 1.

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
