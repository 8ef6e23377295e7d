"""`make demo`: what `ensembed demo` does, with the table written to results/.

Other encoders can be named: `make demo ENCODERS="use-lite wordllama"`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ensembed.models.named_ensembles import named_ensemble
from ensembed.paper.main_table_demo import run_demo
from ensembed.paper.tables.paper_tables import main_table
from ensembed.paper.tables.table_formats import main_text, to_json, to_markdown
from ensembed.support.progress import bars
from experiments import run, write_results

ENCODERS = named_ensemble("default")


def main(encoders: Sequence[str] = ENCODERS, out: Path = Path("results")) -> None:
    """Run the demo and write `demo.md` and `demo.json`, or `demo-A-B.md` and `demo-A-B.json` for other encoders."""
    name = "-".join(["demo", *(encoders if tuple(encoders) != ENCODERS else ())])
    command = f'make demo ENCODERS="{" ".join(encoders)}"' if name != "demo" else "make demo"
    with bars() as progress:
        findings = run_demo(encoders, command, progress)
    print(main_text(findings))
    table = main_table(findings)
    write_results(out, name, to_markdown(table, findings), to_json(table, findings))


if __name__ == "__main__":
    run(partial(main, sys.argv[1:] or ENCODERS))
