"""The largest eigenvalues of symmetric matrices: `top_eigh` against LAPACK's drivers and ARPACK over a grid.

    python -m benchmarks.eigh D [D ...]     prints the rows of these sizes only

A ratio is given where `top_eigh` tries block Lanczos: its time, plus that of `evr` if it is given up, over that of the
fastest driver. Elsewhere `top_eigh` is LAPACK: `evr`, and divide and conquer from d = D / 4 on. Times are processor
seconds on one thread, so that other programs on the machine count less. More threads should help block Lanczos more
than LAPACK: products of matrices scale, the reduction to tridiagonal form is limited by memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.linalg import cholesky, eigh, solve_triangular

from benchmarks.timing import Section, Table
from ensembed.numerics.krylov import block_lanczos

Array: TypeAlias = NDArray[np.float64]
Driver: TypeAlias = Literal["evr", "evx", "evd"]

SIZES = (2048, 3072, 4096, 8192)
DIMS = (64, 128, 256, 512, 1024)
# The reduction of a larger matrix takes minutes: LAPACK is measured on one spectrum and for one d only.
FEW_POINTS = 8192
POWERS = ("i^-0.5", "i^-1", "i^-2")
SPECTRA = (*POWERS, "i^-1 + noise", "32 + noise", "linear", "gcca i^-0.5", "gcca i^-1", "gcca i^-2")
# ARPACK, which multiplies one vector at a time, is measured for these d, and stopped at this many times LAPACK's time.
ARPACK_DIMS = (64, 256)
PATIENCE = 3
HEADERS = ["D", "spectrum", *(f"d = {d:,}" for d in DIMS)]


def run() -> Section:
    """About 20 minutes of one core. Every size has a process of its own: BLAS reads its number of threads once."""
    peers, ratios, worst = [], [], 0.0
    for D in SIZES:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "benchmarks.eigh", str(D)]
        lines = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.splitlines()
        rows = [json.loads(line) for line in lines]
        peers += [row["cells"] for row in rows if row["kind"] == "seconds"]
        ratios += [row["cells"] for row in rows if row["kind"] == "ratio"]
        worst = max([worst, *(row["worst"] for row in rows if row["kind"] == "ratio")])
    return Section(
        "Eigensolvers",
        tables=[
            Table("Processor seconds of the peers, power law 1/i", HEADERS, peers),
            Table("Processor seconds of ours over the fastest of LAPACK's drivers", HEADERS, ratios),
        ],
        notes=[
            f"The largest ratio is {worst:.2f}; it should be at most 1.10.",
            " ".join(__doc__.split("\n\n")[2].split()),
        ],
        data={"worst": worst},
    )


def measure(D: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of one size: first the seconds of the peers, then our ratio for every spectrum."""
    repeats = 1 if D >= FEW_POINTS else 2
    dims = [256] if D >= FEW_POINTS else list(DIMS)
    S = matrix("i^-1", D)
    took: dict[str, dict[int, float]] = {}
    for driver in get_args(Driver):
        took[driver] = {d: min(_seconds(_lapack, S, d, driver) for _ in range(repeats)) for d in dims}
        cells = [f"{took[driver][d]:.2f}" if d in dims else "" for d in DIMS]
        yield {"kind": "seconds", "cells": [f"{D:,}", driver, *cells]}
    best = {d: min(seconds[d if d in dims else 256] for seconds in took.values()) for d in DIMS}
    cells = [_arpack(D, d, PATIENCE * best[d]) if d in ARPACK_DIMS else "" for d in DIMS]
    yield {"kind": "seconds", "cells": [f"{D:,}", "eigsh", *cells]}
    for name in SPECTRA:
        S = matrix(name, D)
        ratios = {
            d: _attempt(S, d, took["evr"].get(d, took["evr"][256])) / best[d] for d in DIMS if D >= 4000 and 20 * d <= D
        }
        cells = [f"{ratios[d]:.2f}" if d in ratios else "" for d in DIMS]
        yield {"kind": "ratio", "cells": [f"{D:,}", name, *cells], "worst": max(ratios.values(), default=0.0)}


def _attempt(S: Array, d: int, evr: float) -> float:
    """Return the seconds of block Lanczos, plus those of `evr` if it is given up: what `top_eigh` does."""
    start = time.process_time()
    pairs = block_lanczos(S, d, len(S) * 3 // 8)
    seconds = time.process_time() - start
    return seconds if pairs is not None else seconds + evr


def matrix(name: str, D: int) -> Array:
    """Return a symmetric matrix with a spectrum of that name."""
    kind, _, power = name.partition("i^")
    i = np.arange(1, D + 1.0)
    noise = 1e-3 * np.random.default_rng(1).uniform(0.5, 1.5, D)
    if kind.startswith("gcca"):
        return _gcca(D, float(power))
    if name == "linear":
        return _rotated(1 - i / (2 * D))
    if name == "32 + noise":
        return _rotated(np.where(i <= 32, 1 / i, noise))
    return _rotated(i ** float(power.split()[0]) + noise * name.endswith("noise"))


def _rotated(values: Array) -> Array:
    """Return Q diag(values) Q' for a random orthogonal Q: signs and cosine transforms, twice."""
    S, generator = np.diag(values), np.random.default_rng(0)
    for _ in range(2):
        signs = generator.choice([-1.0, 1.0], len(values))
        for _ in range(2):  # from the right, then, transposed, from the left
            S = dct(S * signs, axis=1, norm="ortho").T
    return np.asarray((S + S.T) / 2)


def _gcca(D: int, power: float, members: int = 4, tau: float = 10.0) -> Array:
    """Return GCCA's whitened matrix of members that share D / 4 factors of falling variance, and have noise."""
    generator = np.random.default_rng(0)
    F = generator.standard_normal((D, D // 4)) / np.sqrt(D) * np.arange(1, D // 4 + 1) ** (power / 2)
    S = F @ F.copy().T  # a copy: the product of a matrix with itself (syrk) crashes OpenBLAS at D = 16,384
    S[np.diag_indices(D)] += 1e-3 * generator.uniform(0.5, 1.5, D)
    size = D // members
    for k in range(members):
        place = slice(k * size, (k + 1) * size)
        block = S[place, place]
        L = cholesky(block + tau * np.trace(block) / size * np.eye(size), lower=True)
        S[place, place] = 0
        S[place] = solve_triangular(L, S[place], lower=True)
        S[:, place] = solve_triangular(L, S[:, place].T, lower=True).T
    return np.asarray((S + S.T) / 2)


def _lapack(S: Array, d: int, driver: Driver) -> tuple[Array, Array]:
    """Return what `top_eigh` returns; `evd` finds all pairs, of which the rest are cut off."""
    D = len(S)
    subset = None if driver == "evd" else (D - d, D - 1)
    values, vectors = eigh(S, subset_by_index=subset, driver=driver, check_finite=False)
    return values[::-1][:d], vectors[:, ::-1][:, :d]


def _arpack(D: int, d: int, limit: float) -> str:
    """Return the seconds of `eigsh` in a process of its own, or that it was stopped."""
    code = f"from benchmarks import eigh; print(eigh._seconds(eigh.eigsh, eigh.matrix('i^-1', {D}), {d}))"
    try:
        shell = f'ulimit -t {int(limit) + 10}; exec {sys.executable} -c "{code}"'
        done = subprocess.run(shell, shell=True, capture_output=True, text=True, check=True)  # noqa: S602 - our own text
    except subprocess.CalledProcessError:
        return f"> {limit:.0f}"
    return f"{float(done.stdout):.2f}"


def _seconds(function: Callable[..., object], *arguments: object) -> float:
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


if __name__ == "__main__":
    for size in sys.argv[1:]:
        for row in measure(int(size)):
            print(json.dumps(row), flush=True)
