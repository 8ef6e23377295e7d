"""Generalised canonical correlation analysis (Bach and Jordan 2002; Rastogi et al. 2015)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ensembed.errors import DimensionError, InputError, ViewError
from ensembed.linalg import fix_signs, top_eigh, whitener
from ensembed.methods.base import MomentMethod, check_dim
from ensembed.methods.linear import Dense, LinearMeta
from ensembed.moments import Moments


@dataclass(frozen=True)
class GCCA(MomentMethod):
    r"""`sum_j Theta_j (F_j(s) - mu_j)`: projections under which the members correlate as much as they can.

    The columns of Theta solve the generalised symmetric eigenproblem

        rho * blockdiag(Sigma_jj + tau/d_j trace(Sigma_jj) I) theta = offdiagonal(Sigma) theta

    for the d largest rho. Each regularised block is whitened, which leaves an ordinary symmetric eigenproblem; the
    vectors are scaled so that theta' B theta = 1, B being the left-hand block-diagonal matrix. The inputs are not
    length-normalised. The spectrum holds rho, at most J - 1.

    Args:
        dim: d; None takes the dimension of the largest member, as the paper does.
        tau: the regularisation; the paper's best on STS-B dev is 10. Directions in which a view does not vary are
            left out whatever it is.

    Reference: Poerner, Waltinger and Schütze 2020, section 3.3.

    Example:
        >>> X = np.random.default_rng(0).standard_normal((100, 4))
        >>> meta = GCCA(dim=4, tau=0.0).fit([X, -2 * X])
        >>> meta.spectrum.round(6)  # identical views correlate at 1
        array([1., 1., 1., 1.])
    """

    dim: int | None = None
    tau: float = 10.0

    name: ClassVar[str] = "gcca"
    normalize: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_dim(self.dim)
        if not (math.isfinite(self.tau) and self.tau >= 0):
            raise InputError(f"tau must be a number that is not negative, not {self.tau}")

    def solve(self, moments: Moments, dims: Sequence[int]) -> LinearMeta:
        """The meta-embedding of views of these dimensions whose concatenation has these moments."""
        if len(dims) < 2:
            raise ViewError("gcca correlates views with each other and needs at least two; use svd for one")
        d = int(self.dim or max(dims))
        cuts = np.cumsum(dims)[:-1]
        blocks = [np.hsplit(row, cuts) for row in np.vsplit(moments.covariance, cuts)]
        whiteners = []
        for j, (end, size) in enumerate(zip(np.cumsum(dims), dims, strict=True)):
            if not moments.varies(slice(end - size, end)):
                raise ViewError(f"view {j} is the same in every row: it cannot correlate with anything, leave it out")
            ridge = self.tau / size * np.trace(blocks[j][j])
            whiteners.append(whitener(blocks[j][j], ridge, moments.resolution))
        ranks = [W.shape[1] for W in whiteners]
        if d > sum(ranks):
            raise DimensionError(
                f"gcca with dim={d}: {moments.n} sentences in views of rank {ranks} support at most dim={sum(ranks)}"
            )
        M = np.zeros((sum(ranks), sum(ranks)))
        ends = np.cumsum(ranks)
        places = [slice(end - rank, end) for end, rank in zip(ends, ranks, strict=True)]
        for i, W in enumerate(whiteners):
            for j in range(i):
                M[places[i], places[j]] = W.T @ blocks[i][j] @ whiteners[j]
                M[places[j], places[i]] = M[places[i], places[j]].T
        rho, U = top_eigh(M, d)
        theta = fix_signs(np.vstack([W @ U[place] for W, place in zip(whiteners, places, strict=True)]))
        means = np.split(moments.mean, cuts)
        parts = np.split(theta, cuts)
        projections = tuple(Dense.centred(part, mean) for part, mean in zip(parts, means, strict=True))
        return LinearMeta(self.to_json(), d, projections, self.normalize, rho, moments.n)
