"""`make demo`: the paper's main table on encoders that the package registries give, beside the paper's own.

Pulls three encoders and STS-B, fits every method on the unlabelled sentences of STS-B train, and scores members and
meta-embeddings on STS-B and, where the data is there, on STS12-16. GCCA's tau, and the autoencoder's depth and loss,
are chosen on STS-B dev, as in the paper; nothing is chosen on a test set. Other encoders can be named:
`make demo ENCODERS="use-lite wordllama"`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ensembed.corpus import ListCorpus
from ensembed.encoders.pull import pull
from ensembed.errors import EnsembedError
from ensembed.files import write_atomically
from ensembed.model import Ensemble
from ensembed.progress import bars
from ensembed.sts.experiments import Laboratory
from ensembed.sts.find import find_available, find_sts
from ensembed.sts.main_table import MainTable
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
            Ensemble(encoders), corpus, find_available(), store=ViewStore(wait=600), progress=progress
        )
        table = MainTable(laboratory, CORPUS)
        text = table.text()  # where the bars are, since it trains
    print(text)
    out.mkdir(exist_ok=True)
    command = f'make demo ENCODERS="{" ".join(encoders)}"' if name != "demo" else "make demo"
    head = f"# The demo's table\n\nPrinted and written by `{command}`.\n\n"
    page, data = out / f"{name}.md", out / f"{name}.json"
    write_atomically(page, (head + table.markdown()).encode())
    write_atomically(data, (json.dumps(table.to_json(), indent=1, allow_nan=False) + "\n").encode())
    print(f"\nwritten: {page}, {data}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:] or ENCODERS)
    except KeyboardInterrupt:
        sys.exit("interrupted: what was encoded is kept, run `make demo` again to go on")
    except EnsembedError as error:
        sys.exit(f"error: {error}")
