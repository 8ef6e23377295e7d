"""Fit a map between two views: choose the kind with the highest recall on sentences that it was not fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError
from ensembed.methods.encoder_maps import KINDS, MapKind
from ensembed.methods.meta import Projection
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.regions import find_regions, nearest_region
from ensembed.numerics.row_matrices import unit_rows
from ensembed.reliability.search_agreement import LEAST_ROWS, Figure, Trial

Array = NDArray[Any]
_Summed: TypeAlias = tuple[list[Moments], Moments]
Translated: TypeAlias = Literal["texts", "queries"]
"""What is translated in the search that a map is judged by: an index's texts, or the queries."""

_FOLDS = 5
_UNLIKE = 4  # regions, each of which is translated by a map that was fitted without it
_NOISE = 0.002  # differences of recall below this: the simpler kind is taken
# The most columns of both views for which regions have maps of their own: with more their moments need gigabytes.
_WIDE = 2048


@dataclass(frozen=True, eq=False)
class FittedMap:
    """A map from a source's rows to a target's, and how good it is.

    Attributes:
        projection: the map.
        kind: how it was solved.
        translated: the figures of searching what it translates.
        kept: the figures of the source alone: its own texts and queries.
        unlike: the figures of `translated` on text unlike what the map was fitted on: of every region of the
            sentences, by a map that was fitted on the others.
        rows: the number of sentences it was fitted on.
    """

    projection: Projection
    kind: MapKind
    translated: Figure
    kept: Figure
    unlike: Figure
    rows: int

    def apply(self, X: Array) -> Array:
        """Return the translated rows [n, d'] of rows X [n, d] of length one."""
        return apply_projection(self.projection, X)


def apply_projection(projection: Projection, X: Array) -> Array:
    """Return what a projection alone makes of rows X [n, d]."""
    out = np.zeros((len(X), projection.start + projection.output_columns), np.float32)
    projection.add_to(out, X.astype(np.float32, copy=False))
    return out


def fit_map(
    X: Array,
    Y: Array,
    *,
    kinds: Sequence[MapKind] = KINDS,
    translated: Translated = "texts",
    how: Pass = Pass(),
) -> FittedMap:
    """Fit the map from rows X [n, d] to rows Y [n, d'] of the same, distinct sentences that has the highest recall.

    Every sentence is translated by a map that was fitted without it (cross-fitting in five parts). The kind is chosen
    on one half of the queries, and the figures are those of the other half.

    Args:
        X: the source's rows; of length one, unless they are what the map will be given later.
        Y: the target's rows, which are scaled to length one.
        kinds: the kinds to choose among, the simplest first.
        translated: what will be translated: an index's texts, or the queries to one.
        how: how the passes run.

    Raises:
        InputError: there are too few sentences.
    """
    if len(X) < LEAST_ROWS:
        raise InputError(
            f"{len(X)} distinct sentences are too few to fit a map on: it takes {LEAST_ROWS}, better 5,000"
        )
    if not kinds:
        raise InputError("there is no kind of map to choose")
    X, Y = X.astype(np.float32, copy=False), unit_rows(Y).astype(np.float32, copy=False)
    wide = X.shape[1] + Y.shape[1] > _WIDE
    kinds = [kind for kind in kinds if kind.regions == 1 or not wide] or kinds
    trial = Trial.of(Y)
    chosen_on, shown_on = trial.half(0), trial.half(1)
    folds = np.random.default_rng(0).permutation(len(X)) % _FOLDS
    crossed = _Crossed(X, Y, folds, max(kind.regions for kind in kinds), how)
    best: tuple[float, MapKind, Array] | None = None
    for done, kind in enumerate(kinds):
        Z = crossed.translate(kind)
        recall = chosen_on.recall(Z) if translated == "texts" else chosen_on.recall(Y, Z)
        if best is None or recall > best[0] + _NOISE:
            best = (recall, kind, Z)
        how.progress("map", done + 1, len(kinds) + 1)
    assert best is not None  # noqa: S101 - there is a kind
    _, kind, Z = best
    regions = nearest_region(X, find_regions(X, _UNLIKE))
    if (regions == regions[0]).all():  # all rows point one way: none of them are unlike the others
        regions = folds
    apart = _Crossed(X, Y, regions, kind.regions, how).translate(kind)
    how.progress("map", len(kinds) + 1, len(kinds) + 1)

    def figure(rows: Array) -> Figure:
        return shown_on.figure(rows) if translated == "texts" else shown_on.figure(Y, rows)

    return FittedMap(crossed.whole(kind), kind, figure(Z), shown_on.figure(X, X), figure(apart), len(X))


class _Crossed:
    """The moments of every fold and region, from which a map for each fold is fitted without its own rows."""

    def __init__(self, X: Array, Y: Array, folds: NDArray[np.int64], regions: int, how: Pass) -> None:
        self._X, self._Y, self._folds = X, Y, folds
        self._centres = find_regions(X, regions)
        own = nearest_region(X, self._centres)
        quiet = Pass(precision=how.precision, threads=how.threads, device=how.device)
        moments = [
            [
                Moments.of_views([X[rows], Y[rows]], quiet)
                for rows in ((folds == fold) & (own == k) for k in range(regions))
            ]
            for fold in np.unique(folds)
        ]
        # Of all rows, and without each fold: by region, and together. Every kind is solved from these.
        self._whole = _summed(moments)
        self._others = [_summed([*moments[:i], *moments[i + 1 :]]) for i in range(len(moments))]

    def translate(self, kind: MapKind) -> Array:
        """Return all rows [n, d'], each translated by a map that was fitted on the other folds."""
        Z = np.empty((len(self._X), self._Y.shape[1]), np.float32)
        for others, fold in zip(self._others, np.unique(self._folds), strict=True):
            rows = self._folds == fold
            Z[rows] = apply_projection(self._solve(kind, others), self._X[rows])
        return Z

    def whole(self, kind: MapKind) -> Projection:
        """Return the map that is fitted on all rows."""
        return self._solve(kind, self._whole)

    def _solve(self, kind: MapKind, summed: _Summed) -> Projection:
        return kind.solve([summed[1]] if kind.regions == 1 else summed[0], self._X.shape[1], self._centres)


def _summed(folds: Sequence[Sequence[Moments]]) -> _Summed:
    """Return the moments of every region, and of all, over some folds."""
    regions = [sum(same[1:], start=same[0]) for same in zip(*folds, strict=True)]
    return regions, sum(regions[1:], start=regions[0])
