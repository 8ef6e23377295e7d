"""Maps from one view to another, solved from second moments: what an encoder would say, told from another's vectors.

A map takes rows of length one, as an index keeps them, and is fitted on pairs of rows (x, y) of the same sentences. All
kinds are centred: `y = mean_y + (x - mean_x) W`. They differ in W. A result is the expected row, which is shorter where
it is less sure; only its direction is meant.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh, svd

from ensembed.errors import InputError, ViewError
from ensembed.methods.meta import Dense, Local, Projection
from ensembed.numerics.eigen import top_eigh
from ensembed.numerics.moments import Moments
from ensembed.numerics.row_matrices import Array64

_LEAST = 1e-9  # of the mean variance: the strength below which a singular covariance cannot be inverted


@dataclass(frozen=True)
class MapKind(ABC):
    """How a map is solved: hyper-parameters only."""

    name: ClassVar[str]

    def solve(self, moments: Sequence[Moments], columns: int, centres: Array64) -> Projection:  # noqa: ARG002 - see `LocalRidge`
        """Return the map from the first `columns` columns of the moments to the others.

        Args:
            moments: of the pairs of rows, source and target side by side; one for each region.
            columns: the dimension of the source.
            centres: [regions, columns] the centres of the regions.
        """
        pair = _Pair.of(moments, columns)
        return pair.linear(self.coefficients(pair))

    @abstractmethod
    def coefficients(self, pair: _Pair) -> Array64:
        """Return W [d, d'] from the moments of all rows."""

    @property
    def regions(self) -> int:
        """The number of regions of the source's space that have a map of their own."""
        return 1

    def to_json(self) -> dict[str, Any]:
        """Return the name and the hyper-parameters."""
        facts = {key: value.item() if isinstance(value, np.generic) else value for key, value in asdict(self).items()}
        return {"kind": self.name} | facts

    def __str__(self) -> str:
        settings = ", ".join(f"{key} {value:g}" for key, value in asdict(self).items())
        return f"{self.name} ({settings})" if settings else self.name


@dataclass(frozen=True)
class Ridge(MapKind):
    """`W = (C_xx + s I)^-1 C_xy`: least squares with a penalty on the size of W (Hoerl and Kennard 1970).

    Args:
        strength: s, as a part of the mean variance of the source's columns.

    Example:
        >>> X = np.random.default_rng(0).standard_normal((50, 3))
        >>> ridge = Ridge(1e-6).solve([Moments.of(np.hstack([X, X @ np.diag([1.0, 2.0, 3.0])]))], 3, np.zeros((1, 3)))
        >>> ridge.matrix.diagonal().round(3)
        array([1., 2., 3.], dtype=float32)
    """

    strength: float = 0.01

    name: ClassVar[str] = "ridge"

    def coefficients(self, pair: _Pair) -> Array64:
        """Return W."""
        return pair.ridge(self.strength)


@dataclass(frozen=True)
class Procrustes(MapKind):
    """`W = s U V'` with `C_xy = U S V'`: the best rotation and one factor (Schönemann 1966).

    Where the dimensions differ, U V' keeps as many directions as the smaller view has: those in which both views agree
    most, not the first columns.
    """

    name: ClassVar[str] = "procrustes"

    def coefficients(self, pair: _Pair) -> Array64:
        """Return W."""
        return pair.rotation()


@dataclass(frozen=True)
class Blend(MapKind):
    """A weighted mean of `Procrustes`, which keeps the source's own distances, and `Ridge`, which predicts the target.

    Args:
        strength: that of `Ridge`.
        part: the weight of the ridge map, from 0 to 1.
    """

    strength: float = 0.03
    part: float = 0.5

    name: ClassVar[str] = "blend"

    def coefficients(self, pair: _Pair) -> Array64:
        """Return W."""
        return self.part * pair.ridge(self.strength) + (1 - self.part) * pair.rotation()


@dataclass(frozen=True)
class Canonical(MapKind):
    """A rotation between both views whitened (CCA): `W = C_xx^(-1/2) U R^p V' C_yy^(1/2)`, R the correlations.

    The inverse roots are those of C + s I. With p = 1 and s near 0 it is least squares; with p < 1 directions in which
    the views agree less are shortened less.

    Args:
        strength: s, as a part of the mean variance of each view.
        power: p.

    Reference: Hotelling 1936.
    """

    strength: float = 0.1
    power: float = 0.25

    name: ClassVar[str] = "cca"

    def coefficients(self, pair: _Pair) -> Array64:
        """Return W."""
        back, forth = _power(pair.source, -0.5, self.strength), _power(pair.target, -0.5, self.strength)
        U, R, Vt = svd(back @ pair.cross @ forth, full_matrices=False)
        return np.asarray(back @ (U * R**self.power) @ Vt @ _power(pair.target, 0.5, 0.0))


@dataclass(frozen=True)
class ReducedRank(MapKind):
    """`W = W_ridge V V'`, V being the leading directions of what ridge predicts (Izenman 1975; Mukherjee, Zhu 2011).

    Args:
        strength: that of `Ridge`.
        rank: the number of directions that are kept.
    """

    strength: float = 0.01
    rank: int = 128

    name: ClassVar[str] = "reduced-rank"

    def coefficients(self, pair: _Pair) -> Array64:
        """Return W."""
        W = pair.ridge(self.strength)
        rank = min(self.rank, *W.shape)
        _, V = top_eigh(W.T @ pair.cross, rank)  # the variance of the predictions, penalty included
        return np.asarray(W @ V @ V.T)


@dataclass(frozen=True)
class LocalRidge(Ridge):
    """A ridge map for each region of the source's space, shrunk towards the common map; between regions they are mixed.

    Args:
        strength: that of `Ridge`, for the common map.
        own: the penalty on the difference from the common map, in rows: a region with fewer rows differs less from it.
        count: the number of regions.
    """

    own: float = 1000.0
    count: int = 4

    name: ClassVar[str] = "local"
    sharpness: ClassVar[float] = 10.0
    """The factor of the cosines with the centres in the softmax by which the regions' maps are mixed."""

    @property
    def regions(self) -> int:
        """The number of regions."""
        return self.count

    def solve(self, moments: Sequence[Moments], columns: int, centres: Array64) -> Local:
        """Return the maps of all regions."""
        whole = _Pair.of(moments, columns)
        common = self.coefficients(whole)
        matrices, biases = [], []
        for part in moments:
            own = _Pair.blocks(part, columns)
            # The region's own covariance, in rows, against a penalty in the units of the whole.
            penalty = self.own * np.trace(whole.source) / columns
            difference = own.source * part.n + penalty * np.eye(columns)
            W = common + cho_solve(cho_factor(difference), (own.cross - own.source @ common) * part.n)
            # The mean of a region with few rows is shrunk towards the common map's as well.
            sure = part.n / (part.n + self.own / 10)
            target = sure * own.target_mean + (1 - sure) * (
                whole.target_mean + (own.source_mean - whole.source_mean) @ common
            )
            layer = Dense.centred(W, own.source_mean)
            matrices.append(layer.matrix)
            biases.append(target - layer.offset)
        return Local(
            centres.astype(np.float32),
            np.ascontiguousarray(matrices, np.float32),
            np.array(biases, np.float32),
            self.sharpness,
        )


@dataclass(frozen=True, eq=False)
class _Pair:
    """The blocks of the moments of a source and a target side by side."""

    source_mean: Array64
    target_mean: Array64
    source: Array64
    cross: Array64
    target: Array64

    @classmethod
    def of(cls, moments: Sequence[Moments], columns: int) -> _Pair:
        whole = sum(moments[1:], start=moments[0])
        if not whole.varies(slice(0, columns)) or not whole.varies(slice(columns, None)):
            raise ViewError("every row of a view is the same: there is nothing to learn a map from")
        return cls.blocks(whole, columns)

    @classmethod
    def blocks(cls, whole: Moments, columns: int) -> _Pair:
        covariance = whole.covariance
        return cls(
            whole.mean[:columns],
            whole.mean[columns:],
            covariance[:columns, :columns],
            covariance[:columns, columns:],
            covariance[columns:, columns:],
        )

    def ridge(self, strength: float) -> Array64:
        """Return the coefficients [d, d'] of ridge regression."""
        columns = len(self.source)
        penalty = max(strength, _LEAST) * np.trace(self.source) / columns
        return np.asarray(cho_solve(cho_factor(self.source + penalty * np.eye(columns)), self.cross))

    def rotation(self) -> Array64:
        """Return the coefficients [d, d'] of the best rotation, times the best factor."""
        U, S, Vt = svd(self.cross, full_matrices=False)
        kept = float(np.trace(U.T @ self.source @ U))  # the variance of what is rotated
        return np.asarray((U @ Vt) * (S.sum() / kept if kept > 0 else 0.0))

    def linear(self, W: Array64) -> Dense:
        """Return the map x -> mean_y + (x - mean_x) W."""
        layer = Dense.centred(W, self.source_mean)
        return Dense(layer.matrix, (layer.offset - self.target_mean).astype(np.float32))


def _power(S: Array64, power: float, strength: float) -> Array64:
    """Return a power of a covariance, to whose eigenvalues a part of their mean is added."""
    values, V = eigh(S)
    values = np.maximum(values, 0) + max(strength, _LEAST) * max(values.mean(), np.finfo(float).tiny)
    return np.asarray((V * values**power) @ V.T)


KINDS: tuple[MapKind, ...] = (
    Procrustes(),
    *(Ridge(strength) for strength in (0.003, 0.03, 0.3)),
    *(Blend(0.03, part) for part in (0.25, 0.5, 0.75)),
    *(Canonical(strength, 0.25) for strength in (0.03, 0.3)),
    ReducedRank(0.03, 128),
    *(LocalRidge(0.03, own, 8) for own in (300.0, 1000.0)),
)
"""The candidates, the simplest first."""


def named_kinds(name: str) -> tuple[MapKind, ...]:
    """Return the candidates of that kind; an InputError names those there are.

    Example:
        >>> [str(kind) for kind in named_kinds("procrustes")]
        ['procrustes']
    """
    kinds = tuple(kind for kind in KINDS if kind.name == name)
    if not kinds:
        raise InputError(f"there is no kind of map {name!r}; there are: {', '.join(NAMES)}")
    return kinds


NAMES = tuple(dict.fromkeys(kind.name for kind in KINDS))
"""The kinds of map, the simplest first."""
