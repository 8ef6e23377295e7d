"""How much of the teacher a student keeps, without labels: neighbours and the order of near pairs of held-out texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.numerics.row_matrices import unit_rows

NEIGHBOURS = 10
"""The neighbours whose overlap is counted."""
NEAR = 20
"""The neighbours, under the teacher, that make near pairs."""
_BLOCK = 512  # sentences whose cosines with all others are in memory


@dataclass(frozen=True)
class Fidelity:
    """What a student keeps of its teacher on sentences that it was not trained on.

    Attributes:
        overlap: the part of each sentence's ten nearest under the teacher that are also its ten nearest under the
            student.
        spearman: Spearman's correlation of both models' cosines over the pairs that are near under the teacher.
        cosine: the mean cosine of the student's vectors with the teacher's; None where their dimensions differ.
    """

    overlap: float
    spearman: float
    cosine: float | None

    @property
    def score(self) -> float:
        """The mean of overlap and correlation, by which checkpoints are chosen."""
        return (self.overlap + self.spearman) / 2

    def to_json(self) -> dict[str, float | None]:
        """Return the figures, rounded."""
        return {name: None if value is None else round(value, 4) for name, value in asdict(self).items()}


class HeldOut:
    """Held-out sentences under the teacher.

    Args:
        targets: [h, d] the teacher's vectors of them.
    """

    def __init__(self, targets: NDArray[Any]) -> None:
        self._targets = unit_rows(targets)
        h = len(targets)
        self._near = min(NEAR, h - 1)
        self._neighbours = min(NEIGHBOURS, h - 1)
        self._nearest = np.empty((h, self._near), np.int64)
        for rows, S in _cosines(self._targets):
            some = np.argpartition(-S, self._near - 1, axis=1)[:, : self._near]
            order = np.argsort(-np.take_along_axis(S, some, axis=1), axis=1, kind="stable")
            self._nearest[rows] = np.take_along_axis(some, order, axis=1)
        # Each pair once, whichever of the two has the other among its nearest.
        pairs = np.stack([np.repeat(np.arange(h), self._near), self._nearest.ravel()], axis=1)
        self._pairs = np.unique(np.sort(pairs, axis=1), axis=0)
        self._ranks = _ranks(_pair_cosines(self._targets, self._pairs))

    def __len__(self) -> int:
        return len(self._targets)

    def fidelity(self, vectors: NDArray[Any]) -> Fidelity:
        """Compare the student's vectors [h, k] of the same sentences."""
        V = unit_rows(np.asarray(vectors, np.float32))
        shared = 0
        for rows, S in _cosines(V):
            mine = np.argpartition(-S, self._neighbours - 1, axis=1)[:, : self._neighbours]
            theirs = self._nearest[rows, : self._neighbours]
            shared += int((mine[:, :, None] == theirs[:, None, :]).sum())
        ranks = _ranks(_pair_cosines(V, self._pairs))
        same = V.shape == self._targets.shape
        return Fidelity(
            overlap=shared / (len(V) * self._neighbours),
            spearman=_correlation(self._ranks, ranks),
            cosine=float(np.einsum("ij,ij->i", V, self._targets).mean()) if same else None,
        )


def _cosines(V: NDArray[Any]) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield some rows, and their cosines with all rows; that of a row with itself is -2."""
    for start in range(0, len(V), _BLOCK):
        rows = slice(start, min(start + _BLOCK, len(V)))
        S = V[rows] @ V.T
        S[np.arange(len(S)), np.arange(rows.start, rows.stop)] = -2
        yield rows, S


def _pair_cosines(V: NDArray[Any], pairs: NDArray[np.int64]) -> NDArray[Any]:
    return np.concatenate([np.einsum("ij,ij->i", V[a], V[b]) for a, b in _chunks(pairs)])


def _chunks(pairs: NDArray[np.int64], size: int = 8192) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    for start in range(0, len(pairs), size):
        yield pairs[start : start + size, 0], pairs[start : start + size, 1]


def _ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the ranks of values; equal ones share their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[place]


def _correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return Pearson's correlation; 0 if one side does not vary."""
    x, y = x - x.mean(), y - y.mean()
    length = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / length if length else 0.0
