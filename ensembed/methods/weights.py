"""How much each member counts.

A weight is that of a member's cosine: with weights w_j the cosine of two concatenations of vectors of length one is
`sum_j w_j cos_j / sum_j w_j`. The vectors themselves are therefore scaled by sqrt(w_j).

A member of weight 0 is treated as if it were not there, during the fit and in the result. Only its place among the
views stays.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError

Word: TypeAlias = Literal["equal", "reliability"]
Weights: TypeAlias = Word | tuple[float, ...]

_WORDS: tuple[Word, ...] = get_args(Word)


def checked_weights(weights: object) -> Weights:
    """The weights as a method keeps them: a word, or a tuple of numbers of which none is negative and one is positive.

    Raises:
        InputError: they are neither.
    """
    if isinstance(weights, str):
        for word in _WORDS:
            if weights == word:
                return word
    elif isinstance(weights, (Sequence, np.ndarray)) and np.ndim(weights) == 1:
        numbers = tuple(weights)
        if all(isinstance(one, (int, float, np.integer, np.floating)) for one in numbers):
            with suppress(OverflowError):  # a whole number beyond floating point
                found = tuple(float(one) for one in numbers)
                if all(0 <= one < math.inf for one in found) and any(found):
                    return found
    raise InputError(
        "weights are 'equal', 'reliability', or a number of at least 0 per member, one of them above 0, not "
        f"{reprlib.repr(weights)}"
    )


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
