"""`make bench`: run everything, print it, and write `results/bench.md` and `results/bench.json`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from benchmarks import ensemble, memory, moments, solve
from ensembed.provenance import provenance
from ensembed.tables import markdown_table, text_table

OUT = Path("results")


def main() -> None:
    """Run everything."""
    comparisons = [*moments.run(), *solve.run(), *ensemble.run()]
    peaks = memory.run()
    facts = provenance()
    speed = (
        ["what", "ours, s", "peer", "peer, s", "ours / peer", "to reach"],
        [[c.what, f"{c.ours_s:.3f}", c.peer, f"{c.peer_s:.3f}", f"{c.ratio:.2f}", c.target] for c in comparisons],
    )
    memory_table = (
        ["fit from stored views", "rows", "seconds", "peak memory of the process, MB"],
        [[p.method, f"{p.rows:,}", f"{p.seconds:.1f}", f"{p.megabytes:.0f}"] for p in peaks],
    )
    print(text_table(*speed), "\n\n", text_table(*memory_table), sep="")
    markdown = "\n".join(
        [
            "# Speed and memory",
            "",
            "Printed and written by `make bench`. The best of several runs, ours and the peer's in turn.",
            "",
            markdown_table(*speed),
            "",
            f"Views of {' + '.join(map(str, memory.DIMS))} dimensions, synthetic, on disk:",
            "",
            markdown_table(*memory_table),
            "",
            f"Made with: {', '.join(f'{key} {value}' for key, value in facts.items())}.",
            "",
        ]
    )
    data = {
        "provenance": facts,
        "speed": [dataclasses.asdict(c) | {"ratio": c.ratio} for c in comparisons],
        "memory": [dataclasses.asdict(p) for p in peaks],
    }
    OUT.mkdir(exist_ok=True)
    (OUT / "bench.md").write_text(markdown)
    (OUT / "bench.json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
