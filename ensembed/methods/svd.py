"""Truncated singular value decomposition of the concatenation (Yin and Schütze 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ensembed.errors import ViewError
from ensembed.methods.meta import Meta
from ensembed.methods.method import MomentMethod
from ensembed.methods.weights import CountedMembers, Weights
from ensembed.numerics.eigen import supported_eigh
from ensembed.numerics.moments import Moments


@dataclass(frozen=True)
class SVD(MomentMethod):
    """`V' (conc(s) - mean conc)`, V being the d right singular vectors of the centred concatenation.

    The second moments of the length-normalised views are enough. The mean is that of the training corpus. The spectrum
    holds the variance along each dimension: the squared singular values over n.

    Args:
        dim: the dimension d of the result. Default: the largest member's. The paper takes that, too.
        weights: what each member counts: equal, reliability (found without labels), or a number per member, as in
            1,0.5,0.2. Vectors of length one are scaled by their roots first. Members of weight 0 are left out.

    Reference: Poerner, Waltinger and Schütze 2020, section 3.2.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).standard_normal((100, 4))
        >>> SVD(dim=2).fit([X, X[:, :3]]).transform([X, X[:, :3]]).shape
        (100, 2)
    """

    dim: int | None = None
    weights: Weights = "equal"

    name: ClassVar[str] = "svd"
    order: ClassVar[int] = 3
    normalize: ClassVar[bool] = True
    spectrum_of: ClassVar[str] = "variance"

    def solve(self, moments: Moments, dims: Sequence[int]) -> Meta:
        """Return the meta-embedding of views of these dimensions whose concatenation has these moments."""
        counted = CountedMembers.of(self.weights, dims)
        d = int(self.dim or max(counted.dims))
        moments = counted.moments(moments)
        covariance = counted.scaled(moments.covariance)
        if not moments.varies():
            raise ViewError("every row of the views is the same: there is nothing to learn from")
        values, V = supported_eigh(covariance, d, moments, self.name)
        # What is projected later is not scaled yet.
        return Meta(self.to_json(), d, counted.centred(V, moments.mean), self.normalize, values, moments.n)
