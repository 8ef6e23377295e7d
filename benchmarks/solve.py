"""GCCA from moments against scipy's generalised eigenproblem on the whole block matrices."""

from __future__ import annotations

import numpy as np
from scipy.linalg import block_diag, eigh

from benchmarks.timing import Comparison, compare
from ensembed.methods import GCCA
from ensembed.moments import Moments


def run(dims: tuple[int, ...] = (1024, 600, 512), dim: int = 1024, tau: float = 10.0) -> list[Comparison]:
    """The paper's dimensions."""
    D = sum(dims)
    generator = np.random.default_rng(0)
    X = generator.standard_normal((2 * D, D)) @ generator.standard_normal((D, D)) / np.sqrt(D)
    moments = Moments.of(X)
    cuts = np.cumsum(dims)[:-1]
    S = moments.covariance
    blocks = [np.split(rows, cuts, axis=1)[j] for j, rows in enumerate(np.split(S, cuts))]
    A = S - block_diag(*blocks)
    B = block_diag(*(block + tau * np.trace(block) / len(block) * np.eye(len(block)) for block in blocks))
    return [
        compare(
            f"gcca solved from moments, D = {D:,}, d = {dim:,}",
            lambda: GCCA(dim, tau).solve(moments, dims),
            "scipy.linalg.eigh(A, B), whole",
            lambda: eigh(A, B),
            "< 1",
            repeats=2,
        )
    ]
