"""The largest eigenvalues of symmetric matrices: `top_eigh` against LAPACK's drivers and ARPACK over a grid.

    python -m benchmarks.eigh OUTDIR [D ...]        measures the grid, or these sizes of it
    python -m benchmarks.eigh D WHAT d              measures one point and prints its seconds

Writes `OUTDIR/bench-eigh.json` after every point. `python -m benchmarks eigh` shows what was measured last: the grid
takes a quarter of an hour on sixteen quiet cores.

`top_eigh` tries block Lanczos for few eigenvalues of a large matrix, and gives up after a tenth of LAPACK's time: the
seconds of an attempt that was given up are in its figures. Otherwise it is LAPACK: `evr`, and divide and conquer from
d = D / 4 on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.sparse.linalg import eigsh

from benchmarks.timing import Section, Table
from ensembed.numerics.eigen import top_eigh
from ensembed.support.machine import available_cores
from ensembed.support.provenance import provenance

Driver: TypeAlias = Literal["evr", "evx", "evd"]
Array: TypeAlias = NDArray[np.float64]
Point: TypeAlias = tuple[int, str, int]
"""D, a driver or a spectrum, and d."""

LAPACK = ("evr", "evx", "evd")
DRIVERS = (*LAPACK, "eigsh")
SPECTRA = ("i^-0.5", "i^-1", "i^-2", "i^-1 + noise", "32 + noise", "linear", "gcca i^-0.5", "gcca i^-1", "gcca i^-2")
DIMS = (64, 128, 256, 512, 1024)
FILE = "bench-eigh.json"
# ARPACK, which multiplies one vector at a time, is measured for these d.
ARPACK_DIMS = (64, 256)
# A reduction of the largest matrix takes minutes: it is measured with several threads, and at few points.
LARGEST, THREADS = 16384, 8
SIZES = (2048, 3072, 4096, 8192, LARGEST)
LARGEST_DIMS = (64,)
LARGEST_SPECTRA = ("i^-1", "linear", "gcca i^-1")
# A point that takes longer is stopped, in seconds of the clock.
LIMIT = 550


def points(sizes: Sequence[int]) -> list[Point]:
    """Return the points of the grid, the longest first."""
    grid: list[Point] = []
    for D in sorted(sizes, reverse=True):
        dims, spectra = (LARGEST_DIMS, LARGEST_SPECTRA) if D == LARGEST else (DIMS, SPECTRA)
        grid += [(D, "evd", 64)] if D < LARGEST else []  # it finds all pairs, whatever d is
        grid += [(D, driver, d) for driver in ("evr", "evx") for d in dims if driver == "evr" or D < LARGEST]
        grid += [(D, "eigsh", d) for d in ARPACK_DIMS if SIZES[3] > D]
        # Where block Lanczos is not tried, `top_eigh` is LAPACK, whatever the spectrum is.
        grid += [(D, spectrum, d) for spectrum in spectra for d in dims if spectrum == "i^-1" or 20 * d <= D >= 4000]
    return grid


def measure(point: Point) -> float | None:
    """Return the seconds of a point, in a process of its own: BLAS reads its number of threads once. None: stopped."""
    threads = str(THREADS if point[0] == LARGEST else 1)
    environment = os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    command = [sys.executable, "-m", "benchmarks.eigh", *map(str, point)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return None
    return float(done.stdout)


def main(out: Path, sizes: Sequence[int]) -> None:
    """Measure points side by side, on half of the cores; the largest one by one."""
    path = out / FILE
    data = json.loads(path.read_text()) if path.exists() else {"points": [], "provenance": {}}
    data["provenance"] |= {str(D): provenance() for D in sizes}
    measured = [tuple(point[:3]) for point in data["points"]]
    grid = [point for point in points(sizes) if point not in measured]
    for largest in (False, True):
        part = [point for point in grid if (point[0] == LARGEST) == largest]
        with ThreadPoolExecutor(1 if largest else max(1, available_cores() // 2)) as pool:
            futures = {pool.submit(measure, point): point for point in part}
            for future in as_completed(futures):
                data["points"].append([*futures[future], future.result()])
                path.write_text(json.dumps(data, indent=1))


def run(path: Path = Path("results") / FILE) -> Section:
    """Return the tables of what was measured last."""
    if not path.exists():
        return Section("Eigensolvers", notes=["Not measured: run `python -m benchmarks.eigh results`."])
    data = json.loads(path.read_text())
    seconds: dict[Point, float | None] = {}
    for D, what, d, taken in data["points"]:  # a point that was measured again counts with its faster time
        before = seconds.get((D, what, d))
        seconds[D, what, d] = taken if before is None else min(before, taken)
    seconds |= {(D, "evd", d): seconds[D, "evd", 64] for D in SIZES for d in DIMS if (D, "evd", 64) in seconds}
    peers: list[list[str]] = []
    ratios: list[list[str]] = []
    worst = 0.0
    for D in SIZES:
        for what in (*DRIVERS, *SPECTRA):
            cells = []
            for d in DIMS:
                taken = seconds.get((D, what, d), "")
                if what in SPECTRA and taken:
                    taken = taken / min(seconds.get((D, driver, d)) or np.inf for driver in LAPACK)
                    worst = max(worst, taken)
                cells.append(f"> {LIMIT}" if taken is None else f"{taken:.2f}" if taken else "")
            if any(cells):
                (peers if what in DRIVERS else ratios).append([f"{D:,}", what, *cells])
    machines: dict[str, list[str]] = {}
    for D, facts in data["provenance"].items():
        machines.setdefault(", ".join(f"{key} {value}" for key, value in facts.items()), []).append(f"{int(D):,}")
    headers = [f"d = {d:,}" for d in DIMS]
    return Section(
        "Eigensolvers",
        tables=[
            Table("Seconds of the peers, power law 1/i", ["D", "driver", *headers], peers),
            Table("Seconds of `top_eigh` over the fastest of LAPACK's drivers", ["D", "spectrum", *headers], ratios),
        ],
        notes=[
            f"The largest ratio is {worst:.2f}; it should be at most 1.10.",
            " ".join(__doc__.split("\n\n")[3].split()),
            f"Each matrix has one thread, and several run side by side; D = {LARGEST:,} has {THREADS} threads, alone.",
            *(f"On, for D = {', '.join(sizes)}: {on}." for on, sizes in machines.items()),
        ],
        data={"worst": worst},
    )


def seconds_of(D: int, what: str, d: int) -> float:
    """Return the seconds of a driver on the spectrum 1/i, or of `top_eigh` on a spectrum; of two runs the faster."""
    S = matrix("i^-1" if what in DRIVERS else what, D)
    # On one thread the processor's seconds count, which other programs on the machine change less.
    clock = time.process_time if D < LARGEST else time.perf_counter
    times = []
    for _ in range(2 if SIZES[-1] > D else 1):
        start = clock()
        if what == "eigsh":
            eigsh(S, d)
        elif what in DRIVERS:
            # `evd` finds all pairs, of which the rest are cut off.
            eigh(
                S,
                subset_by_index=None if what == "evd" else (D - d, D - 1),
                driver=cast("Driver", what),
                check_finite=False,
            )
        else:
            top_eigh(S, d)
        times.append(clock() - start)
    return min(times)


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


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    if first.isdigit():
        print(seconds_of(int(first), others[0], int(others[1])))
    else:
        main(Path(first), [int(size) for size in others] or SIZES)
