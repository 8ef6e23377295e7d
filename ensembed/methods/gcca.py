"""Generalised canonical correlation analysis (Bach and Jordan 2002; Rastogi et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ensembed.errors import DimensionError, InputError, ViewError
from ensembed.methods.meta import Meta
from ensembed.methods.method import MomentMethod
from ensembed.methods.weights import CountedMembers, Weights
from ensembed.numerics.eigen import Whitening, top_eigh
from ensembed.numerics.moments import Moments
from ensembed.numerics.row_matrices import Array64, column_slices
from ensembed.numerics.torch_device import gcca_on
from ensembed.support.checks import is_number

# A rho below this part of the largest is rounding: two views of different dimensions have several that are zero.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class GCCA(MomentMethod):
    r"""`sum_j Theta_j (F_j(s) - mu_j)`: projections under which the members correlate as much as they can.

    The columns of Theta solve the generalised symmetric eigenproblem

        rho * blockdiag(Sigma_jj + tau/d_j trace(Sigma_jj) I) theta = offdiagonal(Sigma) theta

    for the d largest rho, scaled so that theta' B theta = 1, B being the left-hand matrix. The inputs are not
    length-normalised. The spectrum holds rho, at most J - 1. With a large d some rho are not positive: the members do
    not agree along these dimensions, and `truncate` to `positive` many leaves them out.

    Args:
        dim: the dimension d of the result. Default: the largest member's. The paper takes that, too.
        tau: the strength of the regularisation. The paper's best on STS-B dev is 10. Directions in which a view does
            not vary are left out whatever it is.
        weights: what each member counts: equal, reliability (found without labels), or a number per member, as in
            1,0.5,0.2. Each member's part of the sum is multiplied by their roots. Members of weight 0 are left out.

    Reference: Poerner, Waltinger and Schütze 2020, section 3.3.

    Example:
        >>> X = np.random.default_rng(0).standard_normal((100, 4))
        >>> meta = GCCA(dim=4, tau=0.0).fit([X, -2 * X])
        >>> meta.spectrum.round(6)  # identical views correlate at 1
        array([1., 1., 1., 1.])
    """

    dim: int | None = None
    tau: float = 10.0
    weights: Weights = "equal"

    name: ClassVar[str] = "gcca"
    order: ClassVar[int] = 4
    spectrum_of: ClassVar[str] = "rho"
    signed_spectrum: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.tau) and self.tau >= 0):
            raise InputError(f"tau must be a number that is not negative, not {self.tau!r}")

    def check(self, dims: Sequence[int]) -> None:
        """Refuse a single member, too."""
        super().check(dims)
        _check_members(CountedMembers.of("equal" if self.weights == "reliability" else self.weights, dims))

    def solve(self, moments: Moments, dims: Sequence[int]) -> Meta:
        """Return the meta-embedding of views of these dimensions whose concatenation has these moments."""
        counted = CountedMembers.of(self.weights, dims)
        _check_members(counted)
        moments, dims = counted.moments(moments), counted.dims
        d = int(self.dim or max(dims))
        columns = column_slices(dims)
        if moments.device is not None and all(moments.varies(place) for place in columns):
            S, resolution = moments.covariance, moments.resolution
            solution = gcca_on(moments.device, S, dims, tau=self.tau, dim=d, resolution=resolution)
            if solution is not None:
                return self._meta(moments, counted, *solution)
        whitenings = []
        for member, place, size in zip(counted.members, columns, dims, strict=True):
            if not moments.varies(place):
                raise ViewError(
                    f"view {member} is the same in every row: it cannot correlate with anything, leave it out"
                )
            block = moments.scatter[place, place] / moments.n
            whitenings.append(Whitening.of(block, self.tau / size * np.trace(block), moments.resolution))
        ranks = [whitening.rank for whitening in whitenings]
        if d > sum(ranks):
            raise DimensionError(
                f"gcca with dim={d}: {moments.n} sentences in views of rank {ranks} support at most dim={sum(ranks)}",
                sum(ranks),
            )
        M = np.zeros((sum(ranks), sum(ranks)), order="F")
        places = column_slices(ranks)
        for i, whitening in enumerate(whitenings):
            for j in range(i):
                # Of the symmetric scatter matrix the block whose transpose BLAS takes without a copy.
                cross = moments.scatter[columns[j], columns[i]].T / moments.n
                M[places[i], places[j]] = whitening.cross(cross, whitenings[j])
                M[places[j], places[i]] = M[places[i], places[j]].T
        rho, U = top_eigh(M, d)
        theta = np.vstack([whitening.back(U[place]) for whitening, place in zip(whitenings, places, strict=True)])
        return self._meta(moments, counted, rho, theta)

    def _meta(self, moments: Moments, counted: CountedMembers, rho: Array64, theta: Array64) -> Meta:
        """Return the meta-embedding of the eigenvectors theta [D, d]: weighted, signs fixed."""
        projections = counted.centred(theta, moments.mean)
        return Meta(self.to_json(), theta.shape[1], projections, self.normalize, rho, moments.n)


def _check_members(counted: CountedMembers) -> None:
    if len(counted.members) < 2:
        left = " whose weight is not 0" if len(counted.all_dims) > 1 else ""
        raise ViewError(f"gcca correlates views with each other and needs at least two{left}; use svd for one")


def positive(rho: Array64) -> int:
    """Return how many of the falling eigenvalues rho [d] are positive: the dimensions along which the members agree.

    Example:
        >>> positive(np.array([0.7, 0.2, 1e-17, -0.2]))
        2
    """
    return int(np.count_nonzero(rho > _ROUNDING * rho[0]))
