"""Whether texts look like the sentences that a map was fitted on: its figures may not hold for other texts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.numerics.regions import find_regions
from ensembed.numerics.row_matrices import unit_rows

Array = NDArray[Any]

_CENTRES = 64
_ROWS_A_CENTRE = 8
_HELD_OUT = 1 / 4
_LOW, _LOWEST = 0.05, 0.005  # parts of the sample's own sentences that are below `low` and `lowest`
_FEW = 20  # with fewer texts than this every one of them must be unlike the sample
_SHARE = 0.2  # if more than this part of the texts is below `low`, they are unlike the sample
_ERRORS = 4.0  # and the part is above the expected one by at least so many standard errors


@dataclass(frozen=True, eq=False)
class Familiarity:
    """Where a sample's vectors lie. The familiarity of a text is its cosine with the nearest of some centres.

    Attributes:
        mean: [d] the sample's mean vector of length one, which is subtracted first.
        centres: [K, d] of the regions in which the centred sample lies, of length one.
        low: the familiarity below which a twentieth of the sample's own sentences lies.
        lowest: the same for one in two hundred.
    """

    mean: NDArray[np.float32]
    centres: NDArray[np.float32]
    low: float
    lowest: float

    @classmethod
    def of(cls, X: Array, seed: int = 0) -> Familiarity:
        """Return that of a sample of vectors [n, d]; the limits come from rows that are no centres."""
        X = unit_rows(X).astype(np.float32, copy=False)
        order = np.random.default_rng(seed).permutation(len(X))
        held_out = max(int(len(X) * _HELD_OUT), 1)
        mean = X.mean(axis=0, dtype=np.float64).astype(np.float32)
        known = unit_rows(X[order[held_out:]] - mean)
        count = max(min(_CENTRES, len(known) // _ROWS_A_CENTRE), 1)
        own = cls(mean, find_regions(known, count, seed).astype(np.float32), 0.0, 0.0)
        low, lowest = np.quantile(own.scores(X[order[:held_out]]), (_LOW, _LOWEST))
        return cls(mean, own.centres, float(low), float(lowest))

    def scores(self, X: Array) -> Array:
        """Return how familiar every row [n] of vectors [n, d] is."""
        centred = unit_rows(unit_rows(X).astype(np.float32, copy=False) - self.mean)
        return np.asarray((centred @ self.centres.T).max(axis=1, initial=-1.0))

    def is_unlike(self, X: Array) -> bool:
        """Return whether texts with these vectors [n, d] look unlike the sample.

        Of few texts, all must be less familiar than nearly everything in the sample; of many, more of them than chance
        allows must be less familiar than most of it.
        """
        if not len(X):
            return False
        scores = self.scores(X)
        if len(scores) < _FEW:
            return bool((scores < self.lowest).all())
        share = float((scores < self.low).mean())
        return share > max(_SHARE, _LOW + _ERRORS * math.sqrt(_LOW * (1 - _LOW) / len(scores)))

    def warn_if_unlike(self, X: Array, what: str, recall: float) -> None:
        """Warn if texts with these vectors look unlike the sample; `recall` is what to expect of a map then."""
        if self.is_unlike(X):
            problem = f"these {what} look unlike the texts that the map was fitted on"
            way_out = "fit it on a sample of such texts, or embed them with the model itself"
            warnings.warn(f"{problem}: expect a recall@10 of {recall:.2f} or less; {way_out}", RuntimeWarning, 4)

    def saved(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
        """Return what a file keeps: facts, and tensors by name."""
        facts = {"centres": len(self.centres), "low": self.low, "lowest": self.lowest}
        return facts, {"mean": self.mean, "centres": self.centres}

    @classmethod
    def restored(cls, facts: Mapping[str, Any], columns: int, take: Callable[..., NDArray[Any]]) -> Familiarity:
        """Return what was saved; `take` returns the tensor of a name and checks its shape."""
        count, low, lowest = facts["centres"], facts["low"], facts["lowest"]
        if type(count) is not int or count < 1 or not all(type(limit) is float for limit in (low, lowest)):
            raise ValueError(f"{count!r} centres with the limits {low!r} and {lowest!r}")
        return cls(take("mean", columns), take("centres", count, columns), low, lowest)
