"""The moment pass against a bare BLAS product of the same shape."""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import dsyrk, ssyrk

from benchmarks.timing import Comparison, compare
from ensembed.moments import Moments


def run(rows: int = 40_000, dims: tuple[int, ...] = (1024, 600, 512)) -> list[Comparison]:
    """The paper's dimensions; the bare product is given its matrix ready in memory and in its own precision."""
    generator = np.random.default_rng(0)
    views = [generator.standard_normal((rows, dim), np.float32) for dim in dims]
    X = np.concatenate(views, axis=1)
    X64 = X.astype(np.float64)
    shape = f"{rows:,} x {sum(dims):,}"
    return [
        compare(
            f"moments of {shape} float32, exact (float64 products)",
            lambda: Moments.of_views(views),
            "bare dsyrk",
            lambda: dsyrk(1.0, X64.T),
            "<= 1.5",
        ),
        compare(
            f"moments of {shape} float32, fast (float32 products)",
            lambda: Moments.of_views(views, precision="float32"),
            "bare ssyrk",
            lambda: ssyrk(1.0, X.T),
            "<= 1.5",
        ),
    ]
