"""`use-lite` against the TF.js original in Node, one thread each."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.texts import stsb
from benchmarks.timing import Comparison, Section, best_in_turn
from ensembed.encoders import open_encoder
from ensembed.fetch.catalog import require
from ensembed.fetch.fetcher import pull

# The package asks for TF.js 3, whose wasm lacks an operation that it needs (SparseToDense); it runs with 4, too.
PACKAGES = (
    "@tensorflow-models/universal-sentence-encoder@1.3.3",
    "@tensorflow/tfjs@4.22.0",
    "@tensorflow/tfjs-backend-wasm@4.22.0",
)
BATCH_SIZE = 32
# Backend, what it is, and sentences: plain JavaScript takes 0.2 s for each.
PEERS = (("cpu", "what the package uses in Node", 64), ("wasm", "TF.js's WebAssembly, an option", 256))


def run(repeats: int = 3) -> Section:
    """Both backends of the original, in processes of their own; ours in turn with them."""
    title = "use-lite and its original"
    node, npm = shutil.which("node"), shutil.which("npm")
    if not (node and npm):
        return Section(title, notes=["Not measured: there is no Node with npm here."])
    pull(["use-lite"])
    encoder = open_encoder("use-lite", threads=1)
    comparisons: list[Comparison] = []
    notes = [f"One thread each, batches of {BATCH_SIZE} in Node. {', '.join(PACKAGES)}."]
    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as name:
        folder = Path(name)
        if problem := _install(npm, folder):
            return Section(title, notes=[f"Not measured: npm cannot install the original: {problem}"])
        for backend, what, count in PEERS:
            texts = stsb(count)
            encoder.encode(texts[:8])
            ours = theirs = float("inf")
            vectors = encoder.encode(texts)
            cosine = 1.0
            for _ in range(repeats if backend == "wasm" else 1):
                # Whole runs in turn: a process of its own cannot be stopped between two calls.
                ours = min(ours, best_in_turn([partial(encoder.encode, texts)], 3)[0])
                found, seconds = _original(node, folder, backend, texts)
                theirs = min(theirs, seconds)
                cosine = float(np.einsum("ij,ij->i", vectors, found).min())
            if cosine < 0.9999:
                raise AssertionError(f"the least cosine to the original's vectors is {cosine}: not the same model")
            comparisons.append(
                Comparison(
                    f"use-lite, {count} sentences",
                    f"TF.js in Node, {backend} ({what})",
                    ours,
                    theirs,
                    "<= 0.50",
                    f"{1e3 * ours / count:.2f} and {1e3 * theirs / count:.2f} ms a sentence, cosine >= {cosine:.6f}",
                )
            )
    return Section(title, comparisons, notes=notes)


def _install(npm: str, folder: Path) -> str:
    """Install the packages, without running their scripts; what went wrong, or nothing."""
    command = [
        npm,
        "install",
        "--ignore-scripts",
        "--legacy-peer-deps",
        "--no-audit",
        "--no-fund",
        "--prefix",
        str(folder),
        *PACKAGES,
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode and done.stderr.strip() else ""


def _original(node: str, folder: Path, backend: str, texts: list[str]) -> tuple[np.ndarray[tuple[int, int]], float]:
    """The original's vectors and its best time of three."""
    sentences, vectors = folder / "sentences.json", folder / "vectors.f32"
    sentences.write_text(json.dumps(texts))
    script = str(Path(__file__).with_name("use_lite.mjs").resolve())
    repeats = "3" if backend == "wasm" else "1"
    command = [node, script, str(require("use-lite")), str(sentences), backend, str(BATCH_SIZE), repeats, str(vectors)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True)
    seconds = json.loads(done.stdout.strip().splitlines()[-1])["seconds"]
    return np.fromfile(vectors, "<f4").reshape(len(texts), -1), float(seconds)
