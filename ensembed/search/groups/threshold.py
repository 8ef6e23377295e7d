"""From which cosine on two sentences are duplicates, found without labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ensembed.encoders.base import FloatArray
from ensembed.errors import InputError
from ensembed.support.checks import check_whole
from ensembed.support.progress import Progress, silent

FALSE_PAIRS = 1e-3
"""False neighbours per row that a threshold is chosen for by default: one row in a thousand has one."""

LEAST_ROWS = 100
"""Fewer distinct rows have too few pairs for a tail."""

# The neighbours per row, at the most, that the tail is fitted at, and how many times fewer at the least. Of so many
# neighbours few are duplicates; of fewer, many may be.
_MOST, _SPAN, _POINTS = 100.0, 10.0, 20
# Bins of a cosine: 1e-4 wide.
_BINS = 20_000
_TILE = 2048
# Where the threshold is shown beside what there is.
_SHOWN = (100.0, 10.0, 1.0, 0.1, 0.01, 0.001)
# A cosine of equal vectors can be this much less than one by rounding.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class Threshold:
    """A threshold, and what it was found from.

    Attributes:
        value: two sentences are duplicates if their cosine is at least this.
        false_pairs: the false neighbours per row it was chosen for; None where the threshold was given.
        rows: how many rows were held against all others; 0 where it was given.
        levels: for some cosines, (cosine, neighbours per row that the tail of unrelated pairs has from there on,
            neighbours per row that there are).
    """

    value: float
    false_pairs: float | None = None
    rows: int = 0
    levels: tuple[tuple[float, float, float], ...] = ()

    @classmethod
    def given(cls, value: float) -> Threshold:
        """A threshold that somebody chose."""
        if not 0 < value <= 1:  # NaN is refused, too
            raise InputError(f"a threshold is a cosine above 0 and at most 1, not {value}")
        return cls(float(value))


def find_threshold(
    U: FloatArray, *, false_pairs: float = FALSE_PAIRS, rows: int = 2000, seed: int = 0, progress: Progress = silent
) -> Threshold:
    """The cosine from which on unrelated rows would make only so many pairs.

    A sample of rows is held against all others. Nearly all those pairs are of unrelated sentences. Their cosines c have
    a tail that is close to a normal one after Fisher's transformation atanh(c), which sends 1 to infinity: the normal
    quantile of the part of pairs above c is a straight line in atanh(c). The line is fitted where a row has from 100
    down to 10 neighbours (few of which are duplicates), and followed to where it has `false_pairs`. What lies above
    that cosine in greater number is there for another reason: duplicates.

    Args:
        U: [m, d], distinct sentences, rows of length one.
        false_pairs: the unrelated neighbours per row to allow.
        rows: how many rows to sample.
        seed: of the sample.
        progress: told of rows.

    Raises:
        InputError: there are fewer than 100 rows, or their cosines have no tail: give a threshold.
    """
    if not 0 < false_pairs < 1:
        raise InputError(f"false_pairs is a number of neighbours per row above 0 and below 1, not {false_pairs}")
    check_whole("rows", rows, 1)
    check_whole("seed", seed, 0)
    m = len(U)
    if m < LEAST_ROWS:
        raise InputError(
            f"{m} distinct sentences are too few to find a threshold on: it takes {LEAST_ROWS}; give one (--threshold)"
        )
    sample = np.sort(np.random.default_rng(seed).choice(m, min(rows, m), replace=False))
    edges, neighbours = _neighbours(U, sample, progress)
    most = min(_MOST, (m - 1) / 4)
    counts = np.geomspace(most, most / _SPAN, _POINTS)
    # The first edge with no more neighbours than that above it: they fall along the edges.
    cosines = edges[np.minimum(np.searchsorted(-neighbours, -counts), _BINS)]
    if cosines[-1] > 1 - 10 / _BINS or cosines[-1] - cosines[0] < 10 / _BINS:
        raise InputError(
            f"the cosines tell too little apart to find a threshold: {most:.0f} neighbours of a row are above "
            f"{cosines[0]:.4f}, {most / _SPAN:.0f} above {cosines[-1]:.4f}; give one (--threshold)"
        )
    slope, base = np.polyfit(np.arctanh(cosines), _quantile(counts / (m - 1)), 1)

    def cosine_at(count: float) -> float:
        return float(np.tanh((_quantile(np.array(count / (m - 1))) - base) / slope))

    shown = [(cosine_at(count), count) for count in _SHOWN if count <= most]
    levels = tuple((c, count, float(neighbours[np.searchsorted(edges, c)])) for c, count in shown)
    return Threshold(min(cosine_at(false_pairs), 1 - _ROUNDING), false_pairs, len(sample), levels)


def _neighbours(
    U: FloatArray, sample: NDArray[np.int64], progress: Progress
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cosines [b + 1], rising, and the mean number of other rows [b + 1] that a sampled row has at or above each."""
    own = np.asarray(U[sample])
    counts = np.zeros(_BINS + 1, np.int64)
    for start in range(0, len(U), _TILE):
        C = own @ np.asarray(U[start : start + _TILE]).T
        here = np.flatnonzero((sample >= start) & (sample < start + _TILE))
        C[here, sample[here] - start] = -1  # a row is no neighbour of its own; at -1 it does no harm
        bins = ((C + 1) * (_BINS / 2)).astype(np.int32)
        counts += np.bincount(np.clip(bins, 0, _BINS).ravel(), minlength=_BINS + 1)
        progress("threshold", min(start + _TILE, len(U)), len(U))
    return np.linspace(-1, 1, _BINS + 1), np.cumsum(counts[::-1])[::-1] / len(sample)


def _quantile(part: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far out on the normal distribution this part of it begins."""
    from scipy.special import ndtri

    return np.asarray(-ndtri(part))
