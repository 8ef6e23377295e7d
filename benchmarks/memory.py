"""Time and peak memory of a fit from stored views as their rows grow, each fit in a process of its own."""

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

from benchmarks.timing import Section, Table, growth
from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder, EncoderSpec, FloatArray
from ensembed.methods import GCCA, SVD
from ensembed.views import View, ViewStore

DIMS = (64, 48, 16)
SIZES = (20_000, 200_000, 2_000_000, 20_000_000)
# Rows that are really stored: 20 million would fill the disk. A multiple of the rows of a shard.
STORED = 16 * 4096


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


class Repeated:
    """The rows of a stored view, repeated. They are read and their bytes are checked again in every repetition."""

    def __init__(self, view: View, rows: int) -> None:
        self._view = view
        self.shape = (rows, view.shape[1])
        self.dtype = view.dtype

    def __getitem__(self, rows: slice) -> FloatArray:
        """A stretch of rows."""
        start, stop, _ = rows.indices(self.shape[0])
        parts = []
        while start < stop:
            place = start % len(self._view)
            parts.append(self._view[place : place + stop - start])
            start += len(parts[-1])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def run(sizes: tuple[int, ...] = SIZES) -> Section:
    """Write synthetic views to a temporary store and fit them, each fit in a fresh process."""
    peaks = []
    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as root:
        store, corpus = ViewStore(root), Numbered(STORED)
        folders = [str(store.embed(corpus, Noise(dim)).folder) for dim in DIMS]
        for method in ("svd", "gcca"):
            for rows in sizes:
                command = [sys.executable, "-m", "benchmarks.memory", method, str(rows), *folders]
                found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                peaks.append(Peak(method, rows, **json.loads(found)))
    table = Table(
        f"Views of {' + '.join(map(str, DIMS))} dimensions, synthetic, on disk",
        ["fit from stored views", "rows", "seconds", "microseconds a row", "peak memory of the process, MB"],
        [
            [p.method, f"{p.rows:,}", f"{p.seconds:.2f}", f"{1e6 * p.seconds / p.rows:.2f}", f"{p.megabytes:.0f}"]
            for p in peaks
        ],
    )
    lines = [
        growth("rows", method, [(p.rows, p.seconds, p.megabytes) for p in peaks if p.method == method])
        for method in ("svd", "gcca")
    ]
    note = f"{STORED:,} rows are stored; larger numbers repeat them, read and hashed again each time."
    return Section("Growth with the number of rows", tables=[table], notes=[note], data={"growth": lines})


def fit(method: str, rows: int, folders: list[str]) -> dict[str, float]:
    """What the child process does: fit, and say how high its memory rose."""
    views = [Repeated(View(Path(folder)), rows) for folder in folders]
    start = time.perf_counter()
    {"svd": SVD(dim=64), "gcca": GCCA(dim=64)}[method].fit(views)
    return {"seconds": time.perf_counter() - start, "megabytes": _peak()}


def _peak() -> float:
    """The high-water mark of this program's own memory; getrusage would count the parent's at the fork too."""
    status = Path("/proc/self/status").read_text()
    return float(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


if __name__ == "__main__":
    print(json.dumps(fit(sys.argv[1], int(sys.argv[2]), sys.argv[3:])))
