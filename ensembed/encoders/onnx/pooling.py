"""How the vectors of a sentence's tokens become one: the mean, the first, the last, the greatest of each dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import FloatArray


def mean(hidden: NDArray[Any], mask: NDArray[np.bool_]) -> FloatArray:
    """The mean over the sentence's tokens."""
    total = np.einsum("bld,bl->bd", hidden, mask.astype(np.float32))
    return np.asarray(total / mask.sum(axis=1, keepdims=True), np.float32)


def cls(hidden: NDArray[Any], mask: NDArray[np.bool_]) -> FloatArray:  # noqa: ARG001 - every pooling takes a mask
    """The first token, which BERT calls CLS."""
    return np.asarray(hidden[:, 0])


def last(hidden: NDArray[Any], mask: NDArray[np.bool_]) -> FloatArray:
    """The sentence's last token; padding is on the right."""
    return np.asarray(hidden[np.arange(len(hidden)), mask.sum(axis=1) - 1])


def maximum(hidden: NDArray[Any], mask: NDArray[np.bool_]) -> FloatArray:
    """The greatest value of each dimension over the sentence's tokens."""
    return np.asarray(np.where(mask[:, :, None], hidden, -np.inf).max(axis=1), np.float32)


# By the names that options have: functions of hidden states [b, l, d] and a mask [b, l] of the sentences' tokens.
POOLINGS: dict[str, Callable[[NDArray[Any], NDArray[np.bool_]], FloatArray]] = {
    "mean": mean,
    "cls": cls,
    "max": maximum,
    "last": last,
}
