"""`python -m experiments.dimensions_table`: STS-B dev with vectors that are truncated to 32, 64, ... dimensions.

Fits every method on the unlabelled sentences of STS-B train with minilm, use-lite and wordllama, truncates each
model, and writes `dimensions.md` and `dimensions.json`. For comparison, it scores the first columns of vectors whose
dimensions have no order, and the members' own first columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders import open_encoder
from ensembed.methods import GCCA, SVD, Auto, Average, Concat, Method
from ensembed.sts.datasets import Dataset
from ensembed.sts.find import find_sts
from ensembed.sts.protocol import Score, distinct_sentences, evaluate
from ensembed.support.progress import Progress, bars
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table, text_table
from ensembed.views import ViewStore
from experiments import run, write_results

MEMBERS = ("minilm", "use-lite", "wordllama")
METHODS: dict[str, Method] = {
    "auto": Auto(), "conc": Concat(), "avg": Average(), "svd": SVD(dim=1024), "gcca": GCCA(dim=1024),
}  # fmt: skip
SIZES = (32, 64, 128, 256, 512, 768)
_COMMAND = "python -m experiments.dimensions_table"
_NOTES = [
    "Pearson's r / Spearman's rho on STS-B dev, x 100; `all` is the whole vector, whose dimension is in brackets.",
    f"Members: {', '.join(MEMBERS)}. Fitted without labels on the distinct sentences of STS-B train.",
    "`first columns` is a plain cut of the same vectors, here of minilm, which happens to be the first and the best.",
]

Vectors = NDArray[np.float32]


def score_sizes(
    methods: Mapping[str, Method], members: tuple[str, ...], train: list[str], dev: Dataset, progress: Progress
) -> dict[str, dict[int, Score]]:
    """Return the scores of every system at every size it has, the last being the whole."""
    encoders, store, texts = [open_encoder(name) for name in members], ViewStore(), distinct_sentences([dev])
    views = store.embed_all(ListCorpus(train), encoders, progress=progress)
    scored = [np.asarray(view) for view in store.embed_all(ListCorpus(texts), encoders, progress=progress)]
    place = {text: i for i, text in enumerate(texts)}

    def score(X: Vectors) -> Score:
        return evaluate(lambda sentences: X[[place[text] for text in sentences]], dev).score

    systems: dict[str, dict[int, Score]] = {}
    for label, method in methods.items():
        meta = method.resolved(views, train, names=list(members)).fit(views)
        whole = meta.transform(scored)
        sizes = [size for size in SIZES if size < meta.dim]
        cut = {size: score(meta.truncate(size).transform(scored)) for size in sizes}
        systems[label] = cut | {meta.dim: score(whole)}
        if meta.spectrum is None:
            systems[f"{label}, first columns"] = {size: score(whole[:, :size]) for size in sizes}
    for name, view in zip(members, scored, strict=True):
        sizes = [size for size in SIZES if size < view.shape[1]]
        systems[f"{name}, first columns"] = {size: score(view[:, :size]) for size in (*sizes, view.shape[1])}
    return systems


def table(systems: Mapping[str, Mapping[int, Score]]) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows."""
    rows = []
    for label, scores in systems.items():
        whole = max(scores)
        last = f"{scores[whole]} ({whole})" if whole not in SIZES or "columns" not in label else ""
        rows.append([label, *(str(scores[size]) if size in scores else "" for size in SIZES), last])
    return ["", *map(str, SIZES), "all"], rows


def main() -> None:
    """Fit, score and write the table."""
    train = distinct_sentences([find_sts("stsb-train")])
    with bars() as progress:
        systems = score_sizes(METHODS, MEMBERS, train, find_sts("stsb-dev"), progress)
    cells = table(systems)
    print(text_table(*cells))
    facts = ", ".join(f"{key} {value}" for key, value in provenance().items())
    notes = [f"- {note}" for note in (*_NOTES, f"Made with {facts}.")]
    page = ["# Truncated vectors", "", f"Written by `{_COMMAND}`.", "", markdown_table(*cells), "", *notes, ""]
    data = {label: {str(k): score.to_json() for k, score in scores.items()} for label, scores in systems.items()}
    out = json.dumps({"provenance": provenance(), "members": MEMBERS, "scores": data}, indent=1) + "\n"
    write_results(Path("results"), "dimensions", "\n".join(page), out)


if __name__ == "__main__":
    run(main)
