"""Peak memory of a fit from stored views, for few and for many rows, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ensembed.corpus import Corpus
from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.methods import GCCA, SVD
from ensembed.views import View, ViewStore

DIMS = (256, 192, 64)


@dataclass(frozen=True)
class Peak:
    """One fit: rows, seconds, and the peak of the process's memory in megabytes."""

    method: str
    rows: int
    seconds: float
    megabytes: float


class Numbered(Corpus):
    """The sentences "0", "1", ..."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[str]:
        return map(str, range(self._rows))

    def check_unchanged(self) -> None:
        """They never change."""


class Noise(Encoder):
    """Random vectors, the quickest there are."""

    def __init__(self, dim: int) -> None:
        self._spec = EncoderSpec(f"noise-{dim}", "noise", dim, "1")
        self._generator = np.random.default_rng(dim)

    @property
    def spec(self) -> EncoderSpec:
        """Its dimension."""
        return self._spec

    def embed(self, sentences: list[str]) -> FloatArray:
        """Anything."""
        return self._generator.standard_normal((len(sentences), self._spec.dim), np.float32)


def run(sizes: tuple[int, ...] = (20_000, 2_000_000)) -> list[Peak]:
    """Write synthetic views to a temporary store and fit them, each fit in a fresh process."""
    peaks = []
    for rows in sizes:
        with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as root:
            store = ViewStore(root)
            corpus = Numbered(rows)
            folders = [str(store.embed(corpus, Noise(dim)).folder) for dim in DIMS]
            for method in ("svd", "gcca"):
                command = [sys.executable, "-m", "benchmarks.memory", method, *folders]
                found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                peaks.append(Peak(method, rows, **json.loads(found)))
    return peaks


def fit(method: str, folders: list[str]) -> dict[str, float]:
    """What the child process does: fit, and say how high its memory rose."""
    views = [View(Path(folder)) for folder in folders]
    start = time.perf_counter()
    {"svd": SVD(dim=128), "gcca": GCCA(dim=128)}[method].fit(views)
    return {"seconds": time.perf_counter() - start, "megabytes": _peak()}


def _peak() -> float:
    """The high-water mark of this program's own memory; getrusage would count the parent's at the fork too."""
    status = Path("/proc/self/status").read_text()
    return float(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


if __name__ == "__main__":
    print(json.dumps(fit(sys.argv[1], sys.argv[2:])))
