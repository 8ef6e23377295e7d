"""`make demo`: the paper's main table on encoders that the package registries give, beside the paper's own.

Pulls three encoders and STS-B, fits the paper's methods and `Auto`, which is this library's own, on the unlabelled
sentences of STS-B train, and scores members and meta-embeddings on STS-B and, where the data is there, on STS12-16.
GCCA's tau is chosen on STS-B dev, as in the paper, and so were the autoencoder's depth and loss, by `ensembed
reproduce`, which does all the rest; nothing is chosen on a test set, and Auto's weights are found without a score.
Other encoders can be named: `make demo ENCODERS="use-lite wordllama"`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ensembed.fetch.fetcher import pull
from ensembed.models.ensemble import Ensemble
from ensembed.models.named_ensembles import named_ensemble
from ensembed.paper.experiments.run_experiments import Plan, run_experiments
from ensembed.paper.laboratory import Laboratory
from ensembed.paper.named_corpora import STSB_TRAIN, open_corpora
from ensembed.paper.notebook import Notebook
from ensembed.paper.tables.paper_tables import main_table
from ensembed.paper.tables.table_formats import main_text, to_json, to_markdown
from ensembed.sts.find import find_available
from ensembed.support.machine import cache_dir
from ensembed.support.progress import bars
from ensembed.views import ViewStore
from experiments import run, write_results

ENCODERS = named_ensemble("default")


def main(encoders: Sequence[str] = ENCODERS, out: Path = Path("results")) -> None:
    """Run the demo and write `demo.md` and `demo.json`, or `demo-A-B.md` and `demo-A-B.json` for other encoders."""
    name = "-".join(["demo", *(encoders if tuple(encoders) != ENCODERS else ())])
    command = f'make demo ENCODERS="{" ".join(encoders)}"' if name != "demo" else "make demo"
    with bars() as progress:
        pull([*encoders, "stsb"], progress=progress)
        [corpus] = open_corpora([STSB_TRAIN])
        laboratory = Laboratory.prepare(
            Ensemble(encoders),
            {corpus.name: corpus.corpus},
            find_available(),
            store=ViewStore(wait=600),
            notebook=Notebook(cache_dir() / "reproduce"),
            progress=progress,
        )
        findings = run_experiments(laboratory, Plan(command, main_only=True), [corpus.what])
    print(main_text(findings))
    table = main_table(findings)
    write_results(out, name, to_markdown(table, findings), to_json(table, findings))


if __name__ == "__main__":
    run(partial(main, sys.argv[1:] or ENCODERS))
