"""What depends on the number of cores, on a machine that has more of them: encoding, an ensemble, one long sentence.

    python -m benchmarks.many_cores OUTDIR

Writes `OUTDIR/bench-cores.json`. The encoders' files must be in the cache already: such a machine may have no network.
`python -m benchmarks cores` shows what was measured last.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import encode, ensemble, results
from benchmarks.parts import measure
from benchmarks.timing import Comparison, Section, Table, best_in_turn
from ensembed.fetch.catalog import require
from ensembed.support.machine import available_cores

FILE = "bench-cores.json"
TOKENS = (16, 32, 64, 128, 256)


def main(out: Path) -> None:
    """Measure everything."""
    parts: dict[str, Callable[[], Any]] = {
        "lone": lone_runs,
        "ensemble": lambda: results.record(ensemble.run(), {}),
        "encode": lambda: results.record(encode.run(), {}),
    }
    measure(out / FILE, parts)


def run(path: Path = Path("results") / FILE) -> Section:
    """What was measured last, on whatever machine has many cores."""
    title = "On many cores"
    if not path.exists():
        return Section(title, notes=["Not measured: run `python -m benchmarks.many_cores results` on such a machine."])
    found = json.loads(path.read_text())
    made = found["provenance"]
    tables = [Table("MiniLM, one sentence", ["tokens", "one thread, ms", "all threads, ms"], found["lone"])]
    comparisons = []
    for name in ("ensemble", "encode"):
        for one in found[name]["comparisons"]:
            facts = {key: value for key, value in one.items() if key != "ratio"}
            comparisons.append(Comparison(**facts))
        tables += [Table(**table) for table in found[name]["tables"]]
    on = f"On: {', '.join(f'{key} {value}' for key, value in made.items())}."
    return Section(title, comparisons, tables, [*found["ensemble"]["notes"], *found["encode"]["notes"], on])


def lone_runs(repeats: int = 20) -> list[list[str]]:
    """Milliseconds of a run of one sentence, by its tokens: on one thread, and on all."""
    import onnxruntime

    sessions = []
    for threads in (1, available_cores()):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        providers = ["CPUExecutionProvider"]
        sessions.append(onnxruntime.InferenceSession(require("minilm") / "model.onnx", options, providers=providers))
    rows = []
    for tokens in TOKENS:
        ids = np.full((1, tokens), 2003, np.int64)
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        ways: list[Callable[[], object]] = [partial(session.run, None, feeds) for session in sessions]
        rows.append([str(tokens), *(f"{1e3 * s:.2f}" for s in best_in_turn(ways, repeats))])
    return rows


if __name__ == "__main__":
    main(Path(sys.argv[1]))
