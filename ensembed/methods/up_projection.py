"""Random up-projection: the paper's control."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ensembed.errors import ViewError
from ensembed.methods.meta import Dense, Meta
from ensembed.methods.method import NaiveMethod
from ensembed.support.checks import check_whole


@dataclass(frozen=True)
class UpProjection(NaiveMethod):
    """One view times a random d x d_j matrix from U(-1/sqrt(d_j), 1/sqrt(d_j)).

    It shows how much size alone improves a score: a meta-embedding must beat it. The paper has the mean over ten seeds.

    Args:
        dim: the dimension d of the result.
        seed: seed of the random matrix.

    Reference: Poerner, Waltinger and Schütze 2020, section 4.5.

    Example:
        >>> UpProjection(dim=8, seed=1).fit([np.ones((2, 3))]).dim
        8
    """

    dim: int
    seed: int = 0

    name: ClassVar[str] = "up"
    order: ClassVar[int] = 6

    def __post_init__(self) -> None:
        check_whole("dim", self.dim, 1)
        check_whole("seed", self.seed, 0)

    def build(self, dims: Sequence[int]) -> Meta:
        """Return the meta-embedding for one view of this dimension."""
        if len(dims) != 1:
            raise ViewError(f"an up-projection takes one view, got {len(dims)}")
        bound = 1 / np.sqrt(dims[0])
        matrix = np.random.default_rng(self.seed).uniform(-bound, bound, (self.dim, dims[0])).T
        projection = Dense.centred(matrix, np.zeros(dims[0]))
        return Meta(self.to_json(), int(self.dim), (projection,), normalize=False)
