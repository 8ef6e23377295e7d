"""The recommended method: a concatenation in which members count as much as they can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ensembed.errors import InputError, ViewError
from ensembed.methods.meta import Layer, Meta, MetaRows, Network, Projection
from ensembed.methods.method import MomentMethod, no_place
from ensembed.methods.passes import Passes
from ensembed.methods.weights import CountedMembers, Weights, concatenation
from ensembed.numerics.eigen import fix_signs, supported_eigh
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import Views
from ensembed.support.checks import check_whole

if TYPE_CHECKING:
    from ensembed.reliability import Reliability

# Rows that a whitening is estimated on: more do not improve a covariance of a thousand columns.
_ROWS = 10_000


@dataclass(frozen=True)
class Auto(MomentMethod):
    r"""`[sqrt(w_1) ^F_1; ...; sqrt(w_J) ^F_J]`: a concatenation whose weights are found without labels.

    The cosine of two vectors is `sum_j w_j cos_j / sum_j w_j`, w_j saying how far member j can be trusted
    (`ensembed.reliability`). All members but the best are softly whitened: half of their mean is subtracted, uneven
    directions are made less uneven, and vectors scaled to length one again. With `dim`, the result is projected on the
    d leading eigenvectors of its second moment, not centred: of all projections this one keeps the dot products best
    (Eckart and Young 1936).

    Args:
        dim: the dimension d of the result. Default: the sum of the members' dimensions.
        weights: what each member counts: equal, reliability (found without labels), or a number per member, as in
            1,0.5,0.2. A weight is that of the member's cosine. Members of weight 0 are left out and take no room.
        whitened: the places of the members that are softly whitened. With weights by reliability they are found, too.

    The spectrum holds the mean square along each dimension; there is none without `dim`.

    Reference: for concatenation Yin and Schütze 2016; weights and whitening are this library's own.

    Example:
        >>> X = np.random.default_rng(0).standard_normal((100, 4))
        >>> meta = Auto(weights=(1.0, 0.25)).fit([X, X[:, :1]])
        >>> meta.transform([[[0, 0, 0, 2]], [[3]]])
        array([[0. , 0. , 0. , 1. , 0.5]], dtype=float32)
        >>> Auto(dim=2, weights=(1.0, 0.25), whitened=(1,)).fit([X, X[:, :2]]).dim
        2
    """

    dim: int | None = None
    weights: Weights = "reliability"
    whitened: tuple[int, ...] = ()

    name: ClassVar[str] = "auto"
    order: ClassVar[int] = 0
    normalize: ClassVar[bool] = True
    spectrum_of: ClassVar[str] = "mean square"
    later_fields: ClassVar[tuple[str, ...]] = ("whitened",)

    def __post_init__(self) -> None:
        super().__post_init__()
        for place in self.whitened:
            check_whole("a place of `whitened`", place, 0)
        object.__setattr__(self, "whitened", tuple(sorted({int(place) for place in self.whitened})))

    @property
    def needs_rows(self) -> bool:
        """Whether weights, directions or a whitening are estimated; a plain weighted concatenation needs no rows."""
        return self.dim is not None or self.weights == "reliability" or bool(self.whitened)

    @property
    def solvable(self) -> bool:
        """Whether no member is whitened: whitened vectors have moments of their own."""
        return super().solvable and not self.whitened

    def trusting(self, estimate: Reliability) -> Auto:
        """Return the same method with the weights, and the members to whiten, of a reliability estimate."""
        weights = tuple(float(weight) for weight in estimate.whitened_weights)
        return replace(self, weights=weights, whitened=estimate.whitened)

    def build(self, dims: Sequence[int]) -> Meta:
        """Return the whole concatenation of views of these dimensions, where the weights are numbers."""
        if self.needs_rows:
            return super().build(dims)
        return Meta(self.to_json(), *concatenation(self.weights, dims), self.normalize)

    def combine(self, views: Views, how: Pass, passes: Passes) -> Meta:
        """Estimate whitenings on a sample of the rows, and then the leading directions, if `dim` asks for them."""
        dims = [view.shape[1] for view in views]
        if not self.needs_rows:
            return self.build(dims)
        if not self.whitened:
            return super().combine(views, how, passes)
        from ensembed.reliability.sufficiency import SoftWhitening
        from ensembed.reliability.trust_estimate import sample_rows, sample_vectors  # most fits do without

        if self.whitened[-1] >= len(views):
            raise no_place(self.whitened[-1], len(views))
        dim, placements = concatenation(self.weights, dims)
        projections: list[Projection] = list(placements)
        rows = sample_rows(views[0].shape[0], None, _ROWS, 0)
        for j in self.whitened:
            if placements[j].scale:
                whitening = SoftWhitening.of(sample_vectors(views[j], rows, j))
                matrix = whitening.matrix.astype(np.float32)
                first = Layer(matrix, -(whitening.subtracted @ matrix.astype(np.float64)).astype(np.float32))
                scale = np.eye(dims[j], dtype=np.float32) * np.float32(placements[j].scale)
                last = Layer(scale, np.zeros(dims[j], np.float32))
                projections[j] = Network((first, last), "unit", placements[j].start)
        meta = Meta(self.to_json(), dim, tuple(projections), self.normalize, rows=views[0].shape[0])
        return meta if self.dim is None else self._shortened(meta, passes.moments([MetaRows(meta, views)], how))

    def solve(self, moments: Moments, dims: Sequence[int]) -> Meta:
        """Return the meta-embedding of views whose concatenation has these moments; without whitening."""
        if self.whitened:
            raise InputError("whitened vectors have moments of their own: call `fit`")
        meta = Meta(self.to_json(), *concatenation(self.weights, dims), self.normalize)
        if self.dim is None:
            return meta
        counted = CountedMembers.of(self.weights, dims)
        moments = counted.moments(moments)
        mean, scatter = moments.mean * counted.column_scales, counted.scaled(moments.scatter)
        return self._shortened(meta, replace(moments, mean=mean, scatter=scatter))

    def _shortened(self, meta: Meta, moments: Moments) -> Meta:
        """Return the concatenation with these moments, projected on the leading directions of its second moment."""
        second, d = moments.covariance + np.outer(moments.mean, moments.mean), int(self.dim or meta.dim)
        if not second.any():
            raise ViewError("every row of the views is zero: there is nothing to learn from")
        values, V = supported_eigh(second, d, moments, self.name, centred=False)
        V = fix_signs(V)
        projections = tuple(projection.onto(V) for projection in meta.projections)
        return Meta(self.to_json(), d, projections, self.normalize, values, moments.n)
