"""The moment pass over stored views against a bare BLAS product of the same shape."""

from __future__ import annotations

import tempfile

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk, ssyrk

from benchmarks.memory import Noise, Numbered
from benchmarks.timing import Section, compare
from ensembed.encoders.base import FloatArray
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass
from ensembed.views import ViewStore


class OffCentre(Noise):
    """Random vectors around a mean that is longer than their spread, as encoders' are."""

    def embed(self, sentences: list[str]) -> FloatArray:
        """Anything."""
        X = super().embed(sentences)
        X += np.linspace(-3, 3, self.spec.dim, dtype=np.float32)
        return X


def run(rows: int = 302_000, dims: tuple[int, ...] = (1024, 600, 512), repeats: int = 3) -> Section:
    """The paper's shape; the bare product is given its matrix ready in memory and in its own precision."""
    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as root:
        store, corpus = ViewStore(root), Numbered(rows)
        views = [store.embed(corpus, OffCentre(dim)) for dim in dims]
        X = np.empty((rows, sum(dims)), np.float32)
        for view, columns in zip(views, np.split(np.arange(X.shape[1]), np.cumsum(dims)[:-1]), strict=True):
            for start in range(0, rows, 4096):
                X[start : start + 4096, columns[0] : columns[-1] + 1] = view[start : start + 4096]
        few = [view[: min(rows, 40_000)] for view in views]
        exact, quick = Moments.of_views(views), Moments.of_views(views, Pass(precision="float32"))
        whole, entry = errors(quick.scatter, exact.scatter)
        fast = compare(
            f"moments of {rows:,} x {sum(dims):,} stored float32, fast (float32 products)",
            lambda: Moments.of_views(views, Pass(precision="float32")),
            "bare ssyrk of the matrix in memory",
            lambda: ssyrk(1.0, X.T),
            "<= 1.2",
            repeats,
            f"error against float64 {whole:.1e} (Frobenius), {entry:.1e} (largest, of the diagonal); to reach: 1e-6",
        )
        X64 = X[: len(few[0])].astype(np.float64)
        slow = compare(
            f"moments of {len(few[0]):,} x {sum(dims):,} float32, exact (float64 products)",
            lambda: Moments.of_views(few),
            "bare dsyrk",
            lambda: dsyrk(1.0, X64.T),
            "<= 1.5",
            repeats,
        )
    note = "The time includes reading stored views and hashing every byte; the files are in the system's cache."
    return Section("Moments", [fast, slow], notes=[note], data={"frobenius": whole, "entry": entry})


def errors(scatter: NDArray[np.float64], exact: NDArray[np.float64]) -> tuple[float, float]:
    """Of the whole matrix, and the largest of an entry, relative to the diagonal."""
    spread = np.sqrt(np.diagonal(exact))
    return (
        float(np.linalg.norm(scatter - exact) / np.linalg.norm(exact)),
        float(np.abs((scatter - exact) / np.outer(spread, spread)).max()),
    )
