"""Moments and GCCA of the paper's shape on a GPU, views on the device, against numpy on the same machine's cores.

    python -m benchmarks.device OUTDIR [ROWS] [DEVICE]

Writes `OUTDIR/bench-device.json`. It needs numpy and torch; what scipy and threadpoolctl are for is left out, and said,
where they are missing. Times are the best of several after a warm-up, with the device waited for.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import Comparison, Section, Table
from ensembed.numerics import torch_device as backend
from ensembed.numerics.row_matrices import check_views
from ensembed.support.machine import available_cores

ROWS, DIMS, DIM, TAU = 302_000, (1024, 600, 512), 1024, 10.0
OPTIONAL = ("scipy", "threadpoolctl")


def main(out: Path, rows: int = ROWS, device: str = "cuda") -> None:
    """Measure, print and write; what was measured is written after every step, should a later one fail."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    missing = [name for name in OPTIONAL if importlib.util.find_spec(name) is None]
    name = torch.cuda.get_device_name() if device.startswith("cuda") else "the CPU"
    facts = {"device": name, "torch": torch.__version__, "numpy": np.__version__, "cores": available_cores()}
    results: dict[str, Any] = {"facts": facts | {"missing": missing}, "rows": rows, "dims": DIMS, "dim": DIM}
    out.mkdir(exist_ok=True, parents=True)

    def note(key: str, value: object) -> None:
        results[key] = value
        print(key, json.dumps(value), flush=True)
        (out / "bench-device.json").write_text(json.dumps(results, indent=1) + "\n")

    note("facts", results["facts"])
    views = _views(torch, rows, device)
    note("bare products, s", _bare(torch, views, device))
    note("moments by block and tile, s", _sweep(views, device))
    shift, total, products = backend.shifted_sums_on(device, _matrices(views))
    mean, scatter = shift + total / rows, products - np.outer(total / np.sqrt(rows), total / np.sqrt(rows))
    covariance = scatter / rows
    note("gcca, s", _gcca_steps(torch, covariance, device))
    note("moments and gcca, s", _best(torch, device, lambda: _whole(views, device, rows)))
    if "scipy" not in missing:
        from ensembed.methods import GCCA

        note("GCCA.fit(views, device), s", _best(torch, device, lambda: GCCA(DIM, TAU).fit(views, device=device)))
    # The peer: the same rows on the host.
    arrays = [view.cpu().numpy() for view in views]
    options: dict[str, Any] = {"tau": TAU, "dim": DIM, "resolution": 1e-11}
    solved = backend.gcca_on(device, covariance, DIMS, **options)
    note("numpy", _peer(arrays, mean, scatter, None if solved is None else solved[0], missing))
    peer = sum(results["numpy"].get(key, np.nan) for key in ("moments, float64, s", "gcca, s"))
    note("numpy / device", round(peer / results["moments and gcca, s"], 1))


def run(path: Path = Path("results/bench-device.json")) -> Section:
    """What was measured last, on whatever machine has a GPU."""
    if not path.exists():
        return Section("On a GPU", notes=["Not measured: run `python -m benchmarks.device results` on a GPU."])
    found = json.loads(path.read_text())
    numpy, facts = found["numpy"], found["facts"]
    ours, peer = found["moments and gcca, s"], numpy["moments, float64, s"] + numpy.get("gcca, s", 0.0)
    what = f"moments and gcca of {found['rows']:,} x {sum(found['dims']):,}, d = {found['dim']:,}, views on the device"
    bare = found["bare products, s"]["torch.float64"]
    note = f"to reach: 0.3 s; X'X alone, both triangles, {bare:.3f} s"
    speed = Comparison(what, f"numpy on its {facts['cores']} cores", ours, peer, "< 1", note)
    steps = [[key, f"{value:.4g}"] for key, value in found["gcca, s"].items()]
    errors = ", ".join(f"{key} {value:.1e}" for key, value in numpy["moments, float64"].items())
    made = f"On: {', '.join(f'{key} {value}' for key, value in facts.items())}."
    return Section(
        "On a GPU",
        [speed],
        [Table("GCCA from moments on the device", ["step", "s"], steps)],
        [f"Errors against numpy in float64: {errors}.", made],
        found,
    )


def _views(torch: Any, rows: int, device: str) -> list[Any]:  # noqa: ANN401 - torch is skipped by the type checker
    """Float32 views that share 256 directions, far from zero, made on the device."""
    generator = torch.Generator(device=device).manual_seed(0)

    def normal(*shape: int) -> Any:  # noqa: ANN401 - torch has types of its own
        return torch.randn(*shape, generator=generator, device=device)

    shared = normal(rows, 256)
    return [shared @ normal(256, d) / 16 + 0.5 * normal(rows, d) + normal(d) for d in DIMS]


def _best(torch: Any, device: str, function: Callable[[], object], repeats: int = 5) -> float:  # noqa: ANN401 - torch is imported when it is there
    """Seconds, the best of several after one that warms up."""
    times = []
    for _ in range(repeats + 1):
        _wait(torch, device)
        start = time.perf_counter()
        function()
        _wait(torch, device)
        times.append(time.perf_counter() - start)
    return round(min(times[1:]), 5)


def _wait(torch: Any, device: str) -> None:  # noqa: ANN401 - torch is imported when it is there
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def _matrices(views: list[Any]) -> list[Any]:
    return list(check_views(views))


def _bare(torch: Any, views: list[Any], device: str) -> dict[str, float]:  # noqa: ANN401 - torch is imported when it is there
    """X' X, both triangles, of rows that are ready: what the device can do. Half of it is the limit of a pass."""
    rows, found = min(len(views[0]), 65_536), {}
    for dtype in (torch.float64, torch.float32):
        X = torch.cat([view[:rows] for view in views], dim=1).to(dtype)
        seconds = _best(torch, device, lambda X=X: X.T @ X)  # type: ignore[misc] # bound at once
        found[str(dtype)] = round(seconds * len(views[0]) / rows, 5)
    return found


def _sweep(views: list[Any], device: str) -> dict[str, float]:
    """Where the block length and the width of the tiles should stand."""
    import torch

    before, found = (backend._BLOCK, backend._TILE), {}
    matrices = _matrices(views)
    for block, tile in (before, (16_384, 720), (65_536, 720), (32_768, 368), (32_768, 1088), (32_768, 2136)):
        backend._BLOCK, backend._TILE = block, tile
        seconds = _best(torch, device, lambda: backend.shifted_sums_on(device, matrices), repeats=3)
        found[f"{block} rows, {tile} columns"] = seconds
    backend._BLOCK, backend._TILE = before
    return found


def _gcca_steps(torch: Any, covariance: NDArray[np.float64], device: str) -> dict[str, Any]:  # noqa: ANN401 - torch is imported when it is there
    """GCCA on the device from moments on the host, and its parts."""
    S = torch.as_tensor(covariance, device=device)
    options: dict[str, Any] = {"tau": TAU, "dim": DIM, "resolution": 1e-11}
    single = S.float()
    values, vectors = torch.linalg.eigh(S)
    refined_values, refined = _refined(torch, S)
    turned = (vectors * refined).sum(dim=0).abs()
    return {
        "whole": _best(torch, device, lambda: backend.gcca_on(device, covariance, DIMS, **options)),
        "to the device": _best(torch, device, lambda: torch.as_tensor(covariance, device=device)),
        "to the host": _best(torch, device, S.cpu),
        "cholesky of the largest block": _best(
            torch, device, lambda: torch.linalg.cholesky_ex(S[: DIMS[0], : DIMS[0]])
        ),
        "eigh, float64": _best(torch, device, lambda: torch.linalg.eigh(S)),
        "eigh, float32": _best(torch, device, lambda: torch.linalg.eigh(single)),
        "eigh, float32 refined in float64": _best(torch, device, lambda: _refined(torch, S)),
        "refined: largest error of a value": float((refined_values - values).abs().max() / values.abs().max()),
        "refined: smallest cosine of a vector": float(turned.min()),
        "product of two D x D, float64": _best(torch, device, lambda: S @ S),
    }


def _refined(torch: Any, S: Any, steps: int = 2) -> tuple[Any, Any]:  # noqa: ANN401 - torch is imported when it is there
    """All eigenvectors in float32, made exact by products in float64 (Ogita and Aishima 2018)."""
    X = torch.linalg.eigh(S.float())[1].double()
    eye = torch.eye(len(S), dtype=S.dtype, device=S.device)
    for _ in range(steps):
        R, T = eye - X.T @ X, X.T @ S @ X
        values = T.diagonal() / (1 - R.diagonal())
        gaps = values[None, :] - values[:, None]
        near = 2 * (torch.linalg.matrix_norm(T - torch.diag(values)) + values.abs().max() * torch.linalg.matrix_norm(R))
        # Values nearer than the error are one cluster: within it only orthogonality is restored.
        apart = gaps.abs() > near
        E = torch.where(apart, (T + values[None, :] * R) / torch.where(apart, gaps, 1.0), R / 2)
        X = X + X @ E
    return values, X


def _whole(views: list[Any], device: str, rows: int) -> object:
    """Moments and GCCA, as `fit` does it."""
    _, total, products = backend.shifted_sums_on(device, _matrices(views))
    products -= np.outer(total / np.sqrt(rows), total / np.sqrt(rows))
    products /= rows
    return backend.gcca_on(device, products, DIMS, tau=TAU, dim=DIM, resolution=1e-11)


def _peer(
    arrays: list[NDArray[np.float32]],
    mean: NDArray[np.float64],
    scatter: NDArray[np.float64],
    rho: NDArray[np.float64] | None,
    missing: list[str],
) -> dict[str, Any]:
    """The same with numpy on all cores, and how far the device's results are from it."""
    from ensembed.numerics.moments import Moments
    from ensembed.numerics.pass_options import Pass, Precision

    found: dict[str, Any] = {}
    if "threadpoolctl" not in missing:
        precisions: tuple[Precision, ...] = ("float32", "float64")
        for precision in precisions:
            times = []
            for _ in range(2):
                start = time.perf_counter()
                exact = Moments.of_views(arrays, Pass(precision=precision))
                times.append(time.perf_counter() - start)
            found[f"moments, {precision}, s"] = round(min(times), 3)
            found[f"moments, {precision}"] = _errors(exact.mean, exact.scatter, mean, scatter)
    else:  # without it BLAS cannot be told to leave the cores to the pass
        start = time.perf_counter()
        X = np.concatenate(arrays, axis=1).astype(np.float64)
        X -= (centre := X.mean(axis=0))
        exact = Moments(len(X), centre, X.T @ X)
        found["moments, float64, s"] = round(time.perf_counter() - start, 3)
        found["moments, float64"] = _errors(exact.mean, exact.scatter, mean, scatter)
    if "scipy" in missing:
        return found
    from ensembed.methods import GCCA

    times = []
    for _ in range(2):
        start = time.perf_counter()
        solved = GCCA(DIM, TAU).solve(exact, DIMS)
        times.append(time.perf_counter() - start)
    found["gcca, s"] = round(min(times), 3)
    if rho is not None and solved.spectrum is not None:
        found["gcca: largest error of rho"] = float(np.abs(rho - solved.spectrum).max())
    return found


def _errors(*pairs: NDArray[np.float64]) -> dict[str, float]:
    """How far the device's mean and scatter, the last two, are from these: relative to spread, whole and by entry."""
    mean, scatter, found_mean, found_scatter = pairs
    spread = np.sqrt(np.diagonal(found_scatter))
    return {
        "scatter, Frobenius": float(np.linalg.norm(scatter - found_scatter) / np.linalg.norm(found_scatter)),
        "scatter, by entry": float(np.abs((scatter - found_scatter) / np.outer(spread, spread)).max()),
        "mean": float(np.abs((mean - found_mean) / spread).max()),
    }


if __name__ == "__main__":
    out, rows, where = [*sys.argv[1:], *["results", str(ROWS), "cuda"][len(sys.argv) - 1 :]]
    main(Path(out), int(rows), where)
