"""`make demo`: the paper's main table on encoders that the package registries give, beside the paper's own.

Pulls three encoders and STS-B, fits every method on the unlabelled sentences of STS-B train, and scores members and
meta-embeddings on STS-B and, where the data is there, on STS12-16. GCCA's tau is chosen on STS-B dev, as in the paper;
nothing is chosen on a test set. Other encoders can be named: `make demo ENCODERS="use-lite wordllama"`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ensembed.corpus import ListCorpus
from ensembed.encoders.pull import pull
from ensembed.errors import DatasetError, EnsembedError
from ensembed.files import write_atomically
from ensembed.model import Ensemble
from ensembed.paths import data_dir
from ensembed.progress import bars
from ensembed.sts.datasets import Dataset
from ensembed.sts.experiments import Laboratory
from ensembed.sts.find import YEARS, find_sts
from ensembed.sts.main_table import DEV, TEST, MainTable
from ensembed.sts.protocol import distinct_sentences
from ensembed.views import ViewStore

ENCODERS = ("minilm", "use-lite", "wordllama")
CORPUS = (
    "the distinct ones of STS-B train, whose texts overlap with STS12-16, since STS-B is drawn from STS12-17 "
    "(no score was used)"
)


def main(encoders: Sequence[str] = ENCODERS, out: Path = Path("results")) -> None:
    """Run the demo and write `demo.md` and `demo.json`, or `demo-A-B.md` and `demo-A-B.json` for other encoders."""
    name = "-".join(["demo", *(encoders if tuple(encoders) != ENCODERS else ())])
    with bars() as progress:
        pull([*encoders, "stsb"], progress=progress)
        corpus = ListCorpus(distinct_sentences([find_sts("stsb-train")]))
        laboratory = Laboratory.prepare(
            Ensemble(encoders), corpus, _datasets(), store=ViewStore(wait=600), progress=progress
        )
    table = MainTable(laboratory, CORPUS)
    print(table.text())
    out.mkdir(exist_ok=True)
    command = f'make demo ENCODERS="{" ".join(encoders)}"' if name != "demo" else "make demo"
    head = f"# The demo's table\n\nPrinted and written by `{command}`.\n\n"
    page, data = out / f"{name}.md", out / f"{name}.json"
    write_atomically(page, (head + table.markdown()).encode())
    write_atomically(data, (json.dumps(table.to_json(), indent=1, allow_nan=False) + "\n").encode())
    print(f"\nwritten: {page}, {data}")


def _datasets() -> list[Dataset]:
    """STS-B dev and test, and the years where the data is there."""
    years = []
    if data_dir() is None:
        print("without sts12 to sts16: set ENSEMBED_DATA to a folder that has them, see the README", file=sys.stderr)
    for name in YEARS if data_dir() is not None else ():
        try:
            years.append(find_sts(name))
        except DatasetError as error:
            print(f"without {name}: {error}", file=sys.stderr)
    return [*years, find_sts(TEST), find_sts(DEV)]


if __name__ == "__main__":
    try:
        main(sys.argv[1:] or ENCODERS)
    except KeyboardInterrupt:
        sys.exit("interrupted: what was encoded is kept, run `make demo` again to go on")
    except EnsembedError as error:
        sys.exit(f"error: {error}")
