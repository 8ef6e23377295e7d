"""The recommended method: a concatenation in which members count as much as they can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ensembed.errors import DimensionError, ViewError
from ensembed.linalg import effective_rank, fix_signs, top_eigh
from ensembed.methods.base import MomentMethod, check_whole
from ensembed.methods.concat import concatenation
from ensembed.methods.meta import Meta
from ensembed.methods.parts import Parts
from ensembed.methods.projections import Dense
from ensembed.methods.weights import Weights
from ensembed.moments import Moments, Precision
from ensembed.progress import Progress, silent
from ensembed.rows import check_views


@dataclass(frozen=True)
class Auto(MomentMethod):
    r"""`[sqrt(w_1) ^F_1; ...; sqrt(w_J) ^F_J]`: a concatenation whose weights are found without labels.

    The cosine of two vectors is the weighted mean of the members' cosines, `sum_j w_j cos_j / sum_j w_j`. The weights
    say how far each member can be trusted (`ensembed.reliability`), so that a weak member does not pull a good one
    down. There is nothing to choose.

    With `dim`, the concatenation x is projected on the d leading eigenvectors of its second moment, the mean of x x'.
    Unlike svd it is not centred first: of all projections on d dimensions this one keeps the dot products of the
    sentences best (Eckart and Young 1936), and these are the cosines that the weights are for.

    Args:
        dim: d; None keeps the whole concatenation, the sum of the members' dimensions.
        weights: what each member's cosine counts: "reliability", found without labels; "equal"; or a number per member.
            Members of weight 0 are left out and take no room.

    The spectrum holds the mean square along each dimension; there is none without `dim`.

    Reference: for concatenation Yin and Schütze 2016; the weights are this library's own.

    Example:
        >>> X = np.random.default_rng(0).standard_normal((100, 4))
        >>> meta = Auto(weights=(1.0, 0.25)).fit([X, X[:, :1]])
        >>> meta.transform([[[0, 0, 0, 2]], [[3]]])
        array([[0. , 0. , 0. , 1. , 0.5]], dtype=float32)
        >>> Auto(dim=2, weights=(1.0, 0.25)).fit([X, X[:, :1]]).dim
        2
    """

    dim: int | None = None
    weights: Weights = "reliability"

    name: ClassVar[str] = "auto"
    normalize: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.dim is not None:
            check_whole("dim", self.dim, 1)
        self._check_weights()

    @property
    def needs_rows(self) -> bool:
        """To find weights or directions; a concatenation with given weights needs none."""
        return self.dim is not None or self.wants_reliability

    def build(self, dims: Sequence[int]) -> Meta:
        """The whole concatenation of views of these dimensions, where the weights are given."""
        if self.needs_rows:
            return super().build(dims)
        return Meta(self.to_json(), *concatenation(self.weights, dims), self.normalize)

    def fit(
        self,
        views: Sequence[Any],
        *,
        precision: Precision = "float64",
        threads: int | None = None,
        device: str | None = None,
        progress: Progress = silent,
    ) -> Meta:
        """Find the weights, if they are not given, and then the directions, if there are to be fewer.

        Args:
            views: arrays [n, d_j], memory maps or stored views, rows aligned.
            precision: of the products in the pass, see `Moments.of_views`.
            threads: for the pass; None takes as many as BLAS would.
            device: compute with torch on that device, "cuda" for instance: the pass, and what is solved after it.
            progress: told of rows.
        """
        if not self.needs_rows:
            return self.build([view.shape[1] for view in check_views(views)])
        return super().fit(views, precision=precision, threads=threads, device=device, progress=progress)

    def solve(self, moments: Moments, dims: Sequence[int]) -> Meta:
        """The meta-embedding of views of these dimensions whose concatenation has these moments."""
        if self.dim is None:
            return self.build(dims)
        parts, d = Parts.of(self.weights, dims), int(self.dim)
        moments = parts.moments(moments)
        second = parts.scaled(moments.covariance + np.outer(moments.mean, moments.mean))
        if not second.any():
            raise ViewError("every row of the views is zero: there is nothing to learn from")
        largest = min(len(second), moments.n)
        if d <= largest:
            values, V = top_eigh(second, d, device=moments.device)
        if d > largest or values[-1] <= moments.resolution * values[0]:
            rank = effective_rank(second, moments.resolution)
            raise DimensionError(
                f"auto with dim={d}: {moments.n} sentences with {len(second)} columns support at most dim={rank}", rank
            )
        # What is projected later is not scaled yet.
        theta = fix_signs(V * parts.column_scales[:, None])
        matrices = np.split(theta, np.cumsum(parts.dims)[:-1])
        projections = [Dense.centred(matrix, np.zeros(len(matrix))) for matrix in matrices]
        return Meta(self.to_json(), d, parts.projections(projections), self.normalize, values, moments.n)
