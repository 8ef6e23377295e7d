"""Training an autoencoder on a GPU: 500 epochs of the paper's setting on synthetic views.

    python -m benchmarks.autoencoder

Rows, dimensions, batch size and epochs are those of the paper (302,000 sentences; ParaNMT, USE, SBERT). The floor is
the arithmetic of all products at the rate of one large product of the same precision, measured in the same run.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from ensembed.methods.autoencoder import Autoencoder

ROWS, DIMS, DIM = 302_000, (600, 512, 1024), 1024
CASES = {
    "kld, one hidden layer": Autoencoder(DIM, hidden_layers=1, loss="kld", device="cuda"),
    "mse, no hidden layer": Autoencoder(DIM, hidden_layers=0, loss="mse", device="cuda", solver="batches"),
    "mse, no hidden layer, from moments": Autoencoder(DIM, hidden_layers=0, loss="mse"),
}


def flops(method: Autoencoder) -> float:
    """Of all matrix products of one epoch: forward, and twice that backward, less the gradient of the inputs."""
    L, h, J, D = method.hidden_layers, DIM, len(DIMS), sum(DIMS)
    first = D * (h if L else DIM)
    encoder = first + (J * h * h * (L - 1) + J * h * DIM if L else 0)
    decoder = J * h * DIM + J * h * h * (L - 1) + D * h if L else D * DIM
    return 2.0 * ROWS * (3 * (encoder + J * decoder) - first)


def measured_rate() -> float:
    """FLOP/s of a bfloat16 product of 8192 x 8192 matrices on random data."""
    import torch

    A, B = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    for _ in range(3):
        A @ B
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        A @ B
    torch.cuda.synchronize()
    return 20 * 2 * 8192**3 / (time.perf_counter() - start)


def run(method: Autoencoder, views: list[np.ndarray[Any, Any]]) -> dict[str, float]:
    """Seconds until the first epoch is done, and for all epochs at the pace of the others."""
    times: list[float] = []
    start = time.perf_counter()

    def note(label: str, _done: int, _total: int | None, /) -> None:
        if label.startswith("train ·"):
            times.append(time.perf_counter())

    method.fit(views, progress=note)
    whole = time.perf_counter() - start
    if not times:
        return {"all": whole}
    pace = (times[-1] - times[0]) / (len(times) - 1)
    return {"all": whole, "start": times[0] - start - pace, "epochs": pace * method.epochs}


def main(out: Path) -> None:
    """Measure all cases and write `bench-autoencoder.json`."""
    import torch

    generator = np.random.default_rng(0)
    shared = generator.standard_normal((ROWS, 256), dtype=np.float32)
    views = []
    for size in DIMS:
        X = shared @ generator.standard_normal((256, size), dtype=np.float32) / 16
        X += 0.5 * generator.standard_normal((ROWS, size), dtype=np.float32)
        views.append(X / np.linalg.norm(X, axis=1, keepdims=True))
    rate = measured_rate()
    device = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {rate / 1e12:.0f} TFLOP/s in bfloat16"
    results: dict[str, Any] = {"device": device, "cases": {}}
    print(device, flush=True)
    for name, method in CASES.items():
        found = run(method, views)
        if "epochs" in found:
            found["floor"] = flops(method) * method.epochs / rate
        results["cases"][name] = {"method": method.to_json(), "seconds": found}
        print(name, {key: round(value, 2) for key, value in found.items()}, flush=True)
    out.mkdir(exist_ok=True, parents=True)
    (out / "bench-autoencoder.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results"))
