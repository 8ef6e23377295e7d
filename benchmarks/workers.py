"""Embedding with 1, 2, 4, … Ray workers on one machine, the index pass, one GPU: the basis of docs/guides/scaling.md.

    python -m benchmarks.workers OUTDIR [SENTENCES]

Writes `OUTDIR/bench-workers.json`. The encoders' files must be in the cache: such a machine may have no network.
`python -m benchmarks workers` shows what was measured last.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.parts import measure
from benchmarks.st_peer import open_peer
from benchmarks.texts import news
from benchmarks.timing import Section, Table, seconds
from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders import open_encoder
from ensembed.engines import Ray, Resources
from ensembed.support.machine import available_cores
from ensembed.views import ViewStore

FILE = "bench-workers.json"
ENCODER = "minilm"
SHARD = 256


def main(out: Path, sentences: int = 20_000) -> None:
    """Measure everything."""
    measure(out / FILE, {"index": index, "workers": partial(workers, sentences), "gpu": gpu})


def run(path: Path = Path("results") / FILE) -> Section:
    """What was measured last, on whatever machine has many cores."""
    title = "Ray workers"
    if not path.exists():
        return Section(title, notes=["Not measured: run `python -m benchmarks.workers results` on many cores."])
    found = json.loads(path.read_text())
    runs = found["workers"]["runs"]
    first = rate(runs[0])
    rows = [
        [
            str(one["workers"]),
            f"{one['rows']:,}",
            f"{one['seconds']:.1f}",
            f"{rate(one):,.0f}",
            f"{rate(one) / first:.2f}",
            f"{rate(one) / first / one['workers']:.0%}",
        ]
        for one in runs
    ]
    headers = ["workers", "sentences", "s", "sentences/s", "times one worker", "of a whole worker each"]
    return Section(
        title,
        tables=[Table(f"{ENCODER}, workers of one core", headers, rows)],
        notes=[
            "Seconds from the end of the first shard to that of the last: the actors' start takes some at any size.",
            f"The index pass: {found['index']['sentences/s']:,.0f} sentences a second.",
            f"One {found['gpu']['device']}: {found['gpu']['sentences/s']:,.0f} sentences/s (sentence-transformers).",
            f"On: {', '.join(f'{key} {value}' for key, value in found['provenance'].items())}.",
        ],
        data=found,
    )


def rate(one: dict[str, Any]) -> float:
    """Sentences per second of a run: when the first shard ends, every worker is about to end its first."""
    return float((one["rows"] - SHARD * one["workers"]) / one["seconds"])


def efficiency(runs: list[dict[str, Any]]) -> float:
    """What is left of one worker's rate when as many work as there are cores."""
    return float(rate(runs[-1]) / runs[-1]["workers"] / rate(runs[0]))


def index(count: int = 1_000_000) -> dict[str, float]:
    """The pass that finds a corpus's key and its repetitions."""
    texts = [f"{i} {text}" for i, text in zip(range(count), _endless(news(10_000)), strict=False)]
    corpus = ListCorpus(texts)
    return {"sentences": count, "sentences/s": count / seconds(lambda: corpus.index)}


def workers(count: int) -> dict[str, Any]:
    """Embedding with more and more actors of one core each."""
    texts = [f"{text} {i}" for i, text in zip(range(count), _endless(news(10_000)), strict=False)]
    corpus, encoder = ListCorpus(texts), open_encoder(ENCODER)
    cores = available_cores()
    runs = []
    with Ray("local") as engine:
        for actors in [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= cores]:
            engine.resources = Resources(actors=(actors, actors))
            part = ListCorpus(texts[: max(count * actors // cores, 8_192)])
            runs.append(_run(engine, part, encoder, actors))
            print(json.dumps(runs[-1]), flush=True)
    return {"sentences": len(corpus), "runs": runs}


def _run(engine: Ray, corpus: ListCorpus, encoder: Any, actors: int) -> dict[str, Any]:  # noqa: ANN401 - an encoder
    """What a run takes, whole and from the first finished shard to the last."""
    times: list[float] = []

    def note(label: str, _done: int, _total: int | None, /) -> None:
        if label == ENCODER:
            times.append(time.perf_counter())

    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        engine.embed_all(ViewStore(folder, shard_rows=SHARD), corpus, [encoder], progress=note)
    whole = time.perf_counter() - began
    return {"workers": actors, "rows": len(corpus), "whole_s": whole, "seconds": times[-1] - times[0]}


def gpu(count: int = 50_000, batch: int = 512) -> dict[str, Any]:
    """The same weights with sentence-transformers on a GPU, where there is one."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    texts = [f"{text} {i}" for i, text in zip(range(count), _endless(news(10_000)), strict=False)]
    with tempfile.TemporaryDirectory() as folder:
        encode = open_peer(Path(folder), device="cuda" if torch.cuda.is_available() else "cpu")
        encode(texts[:batch], batch)
        took = seconds(lambda: encode(texts, batch))
    return {"device": device, "batch": batch, "sentences": count, "sentences/s": count / took}


def _endless(texts: list[str]) -> Any:  # noqa: ANN401 - an iterator that never ends
    while True:
        yield from texts


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
