"""GCCA and SVD solved from moments: against scipy, against cca_zoo, and as the dimensions grow."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, eigh

from benchmarks import solve_child
from benchmarks.timing import Comparison, Section, Table, compare, growth
from ensembed.methods import GCCA
from ensembed.numerics.moments import Moments

TAU = 10.0
PAPER = (1024, 600, 512)
SIZES = (2048, 4096, 8192, 16384)
FEW = 256
# scipy decomposes all of A and B: at the largest size it would take some ten minutes and five matrices.
SCIPY_UP_TO = 8192
MEMBERS = 4
ROWS = (2_000, 20_000, 302_000)
# What a peer is given before it is stopped.
PEER_SECONDS, PEER_GIB = 90, 16


def run() -> Section:
    """About eight minutes on two cores; what needs much memory runs in a process of its own."""
    rows, lines = _growth()
    return Section(
        "GCCA and SVD from moments",
        [_paper(), _few()],
        [
            Table(f"d = {FEW}, {MEMBERS} members of equal size", ["method", "D", "seconds", "peak memory, MB"], rows),
            Table(
                f"Fit of {' + '.join(map(str, PAPER))} dimensions, d = {FEW}, float32 rows in memory",
                ["rows", "ensembed gcca", *(f"cca_zoo {_zoo_version()} {name}" for name in ("MCCA", "GCCA"))],
                [[f"{n:,}", *(_fit(name, n) for name in ("ensembed", "MCCA", "GCCA"))] for n in ROWS],
            ),
        ],
        [
            f"The matrices of the growth table have {MEMBERS} members, factors whose variance falls as 1/i, and noise.",
            f"scipy was run up to D = {SCIPY_UP_TO:,}. A peer is stopped after {PEER_SECONDS} s or at {PEER_GIB} GiB.",
        ],
        {"growth": lines},
    )


def blocks(moments: Moments, dims: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A and B of the generalised problem, as one would hand them to scipy."""
    S, cuts = moments.covariance, np.cumsum(dims)[:-1]
    diagonal = [np.split(rows, cuts, axis=1)[j] for j, rows in enumerate(np.split(S, cuts))]
    B = block_diag(*(block + TAU * np.trace(block) / len(block) * np.eye(len(block)) for block in diagonal))
    return S - block_diag(*diagonal), B


def _paper() -> Comparison:
    """The paper's dimensions, random vectors: half of the spectrum is asked for."""
    D = sum(PAPER)
    generator = np.random.default_rng(0)
    moments = Moments.of(generator.standard_normal((2 * D, D)) @ generator.standard_normal((D, D)) / np.sqrt(D))
    A, B = blocks(moments, PAPER)
    return compare(
        f"gcca solved from moments, D = {D:,}, d = 1,024",
        lambda: GCCA(1024, TAU).solve(moments, PAPER),
        "scipy.linalg.eigh(A, B), whole",
        lambda: eigh(A, B),
        "< 1",
        repeats=3,
    )


def _few() -> Comparison:
    """Few of many dimensions; scipy once, for it takes minutes."""
    D = SCIPY_UP_TO
    dims = (D // MEMBERS,) * MEMBERS
    moments = solve_child.falling(D)
    A, B = blocks(moments, dims)
    return compare(
        f"gcca solved from moments, D = {D:,}, d = {FEW}",
        lambda: GCCA(FEW, TAU).solve(moments, dims),
        "scipy.linalg.eigh(A, B), whole",
        lambda: eigh(A, B),
        "<= 0.2",
        repeats=1,
    )


def _growth() -> tuple[list[list[str]], list[dict[str, object]]]:
    rows, lines = [], []
    for method in ("svd", "gcca", "scipy"):
        points: list[tuple[float, float, float | None]] = []
        for D in SIZES:
            if method == "scipy" and D >= SCIPY_UP_TO:  # that size is among the comparisons
                continue
            found = solve_child.call(["solve", method, str(D)], 300, None)
            if isinstance(found, str):
                rows.append([method, f"{D:,}", found, ""])
                continue
            points.append((D, found["seconds"], found["megabytes"]))
            rows.append([method, f"{D:,}", f"{found['seconds']:.1f}", f"{found['megabytes']:,.0f}"])
        lines.append(growth("D", "scipy.linalg.eigh(A, B)" if method == "scipy" else method, points))
    return rows, lines


def _fit(name: str, rows: int) -> str:
    """Seconds and memory of one fit, or how it failed."""
    found = solve_child.call(["fit", name, str(rows)], PEER_SECONDS, PEER_GIB)
    return found if isinstance(found, str) else f"{found['seconds']:.1f} s, {found['megabytes']:,.0f} MB"


def _zoo_version() -> str:
    return version("cca-zoo")
