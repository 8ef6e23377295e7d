"""Training a transformer student on a GPU: the time of a step beside that of its bare matrix products.

    python -m benchmarks.student_training

The student has minilm's shape, or some of its layers; sentences are random tokens of the lengths of general English.
The bare products are those of the layers, forward and backward, in bfloat16 and in the shapes that they have in the
step, on matrices that are ready, in one graph; attention's own products are left out of them. The floor is their
arithmetic at the rate of one large product. A step is timed with everything around it: rows read, padded and copied.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.autoencoder import measured_rate
from ensembed.distil.distil_job import Job, bert_shapes, finish_job, job_writer

HIDDEN, INNER, HEADS, VOCABULARY = 384, 1536, 12, 30_522
CASES = ((6, 256), (6, 512), (6, 1024), (3, 512), (12, 512))
_STEPS = 128


def random_job(folder: Path, layers: int, batch_size: int) -> Job:
    """Return a job of random sentences: as many as the steps need, lengths as in general English."""
    generator = np.random.default_rng(0)
    count = _STEPS * batch_size + 4000
    lengths = np.clip(np.exp(generator.normal(2.9, 0.45, count)), 5, 60).astype(int)
    sizes = {"hidden_size": HIDDEN, "num_hidden_layers": layers, "num_attention_heads": HEADS}
    sizes |= {"intermediate_size": INNER, "vocab_size": VOCABULARY, "max_position_embeddings": 512}
    config: dict[str, Any] = {**sizes, "type_vocab_size": 2, "layer_norm_eps": 1e-12}
    with job_writer(folder, VOCABULARY, HIDDEN) as writer:
        for start in range(0, count, 4096):
            some = lengths[start : start + 4096]
            ids = [generator.integers(1000, VOCABULARY, length).tolist() for length in some]
            writer.append(ids, generator.standard_normal((len(some), HIDDEN)))
    weights = {name: generator.normal(0, 0.02, shape).astype(np.float32) for name, shape in bert_shapes(config).items()}
    weights |= {name: np.ones_like(array) for name, array in weights.items() if name.endswith("LayerNorm.weight")}
    training = {"epochs": 1, "batch_size": batch_size, "learning_rate": 1e-4, "whiten": 0.0, "near": 0.0, "leading": []}
    source = {"corpus": "", "corpus_key": "", "start": [], "teacher": {"name": "", "members": []}}
    facts = {
        "student": "bert",
        "dim": HIDDEN,
        "vocabulary": VOCABULARY,
        "max_length": 128,
        "variants": 0,
        "bert": config,
    }
    facts |= {"training": {**training, "patience": None, "seed": 0}, "source": source}
    return finish_job(folder, weights, b"{}", facts)


def products(layers: int, tokens: int) -> list[tuple[int, int, int]]:
    """Return the shapes m, k, n of the products of the layers in a step: forward, and both backward."""
    linear = [(HIDDEN, 3 * HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, INNER), (INNER, HIDDEN)]
    shapes = [s for k, n in linear for s in ((tokens, k, n), (tokens, n, k), (n, tokens, k))]
    return shapes * layers


def bare_seconds(layers: int, tokens: int) -> float:
    """Return the time of the bare products of a step."""
    import torch

    pairs = [
        (torch.randn(m, k, device="cuda").bfloat16(), torch.randn(k, n, device="cuda").bfloat16())
        for m, k, n in products(1, tokens)
    ]
    for A, B in pairs:
        A @ B
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for A, B in pairs * layers:
            A @ B
    return _seconds(graph.replay, 20)


def _seconds(work: Any, repeats: int) -> float:  # noqa: ANN401 - anything that is called
    import torch

    work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def measure(layers: int, batch_size: int, rate: float) -> dict[str, float]:
    """Return the times of a step in milliseconds, and the shares of the bare products and of the floor in it."""
    import torch

    from ensembed.distil.bert_student import BertStudent
    from ensembed.distil.student_training import Loss

    with tempfile.TemporaryDirectory(prefix="ensembed-bench-") as folder:
        job = random_job(Path(folder) / "job", layers, batch_size)
        student = BertStudent(job, torch.device("cuda"))
        batches = list(_batches(job, batch_size))
        lengths = [-(-int(job.lengths[rows].max()) // 8) * 8 for rows in batches]
        for length in sorted(set(lengths)):
            student.step(job.rows(batches[lengths.index(length)]), 1e-4, Loss())
        torch.cuda.synchronize()
        start = time.perf_counter()
        for rows in batches:
            student.step(job.rows(rows), 1e-4, Loss())
        torch.cuda.synchronize()
        step = (time.perf_counter() - start) / len(batches)
        start = time.perf_counter()
        for rows in batches:
            student._batch(job.rows(rows))
        host = (time.perf_counter() - start) / len(batches)
    known = {length: bare_seconds(layers, batch_size * length) for length in sorted(set(lengths))}
    bare = float(np.mean([known[length] for length in lengths]))
    flops = np.mean([sum(2.0 * m * k * n for m, k, n in products(layers, batch_size * length)) for length in lengths])
    floor = float(flops) / rate
    times = {"step": step, "host": host, "bare products": bare, "floor": floor}
    found = {f"{name}, ms": round(1000 * seconds, 3) for name, seconds in times.items()}
    return found | {"share": round(bare / step, 3), "share of the floor": round(floor / step, 3)}


def _batches(job: Job, size: int) -> Iterator[NDArray[np.int64]]:
    """Yield rows of similar lengths, in no order."""
    order = np.argsort(job.lengths, kind="stable")
    for k in np.random.default_rng(1).permutation(len(job) // size):
        yield order[k * size : (k + 1) * size]


def main(out: Path) -> None:
    """Measure all cases and write `bench-students-gpu.json`."""
    import torch

    rate = measured_rate()
    device = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {rate / 1e12:.0f} TFLOP/s in bfloat16"
    print(device, flush=True)
    results: dict[str, Any] = {"device": device, "cases": {}}
    for layers, batch_size in CASES:
        found = measure(layers, batch_size, rate)
        results["cases"][f"{layers} layers, batches of {batch_size}"] = found
        print(layers, batch_size, found, flush=True)
    out.mkdir(exist_ok=True, parents=True)
    (out / "bench-students-gpu.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results"))
