"""One solve or one fit in a process of its own: its time, its peak of memory, or how it failed."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from scipy.linalg import eigh

from ensembed.methods import GCCA, SVD
from ensembed.numerics.moments import Moments


def call(arguments: list[str], seconds: int, gib: int | None) -> dict[str, float] | str:
    """Run this module with the arguments; seconds and megabytes, or what became of it in words."""
    command = [sys.executable, "-m", "benchmarks.solve_child", str(gib or 0), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"not done after {seconds} s"
    if done.returncode == 0:
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    if "MemoryError" in last or "allocate" in last:
        return f"out of memory at {gib} GiB"
    return f"failed: {last[:80]}"


def falling(D: int, n: int = 100_000) -> Moments:
    """Moments of D columns with D / 4 factors whose variance falls as 1/i, and noise of a thousandth of the first."""
    generator = np.random.default_rng(0)
    F = generator.standard_normal((D, D // 4)) / np.sqrt(D * np.arange(1, D // 4 + 1))
    S = F @ F.copy().T  # a copy: the product of a matrix with itself (syrk) crashes OpenBLAS at D = 16,384
    S[np.diag_indices(D)] += 1e-3 * generator.uniform(0.5, 1.5, D)
    S *= n
    return Moments(n, np.zeros(D), S)


def solve(method: str, D: int) -> float:
    """Seconds of a solve, the moments being there."""
    from benchmarks.solve import FEW, MEMBERS, TAU, blocks

    moments, dims = falling(D), (D // MEMBERS,) * MEMBERS
    if method == "scipy":
        A, B = blocks(moments, dims)
        start = time.perf_counter()
        eigh(A, B)
    else:
        start = time.perf_counter()
        (SVD(FEW) if method == "svd" else GCCA(FEW, TAU)).solve(moments, dims)
    return time.perf_counter() - start


def fit(name: str, rows: int) -> float:
    """Seconds of a fit of float32 rows in memory."""
    from benchmarks.solve import FEW, PAPER

    generator = np.random.default_rng(0)
    latent = generator.standard_normal((rows, FEW), np.float32)
    views = []
    for dim in PAPER:
        X = latent @ generator.standard_normal((FEW, dim), np.float32)
        X += generator.standard_normal((rows, dim), np.float32)
        views.append(X)
    start = time.perf_counter()
    if name == "ensembed":
        GCCA(FEW).fit(views, precision="float32")
    else:
        import cca_zoo.linear

        getattr(cca_zoo.linear, name)(n_components=FEW).fit(views)
    return time.perf_counter() - start


def main(limit: str, what: str, name: str, size: str) -> None:
    """Under a limit of memory in GiB, 0 for none."""
    if int(limit):
        resource.setrlimit(resource.RLIMIT_AS, (int(limit) << 30, int(limit) << 30))
    seconds = (solve if what == "solve" else fit)(name, int(size))
    status = Path("/proc/self/status").read_text()
    peak = float(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024
    print(json.dumps({"seconds": seconds, "megabytes": peak}))


if __name__ == "__main__":
    main(*sys.argv[1:])
