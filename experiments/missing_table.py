"""`python -m experiments.missing_table CORPUS`: minilm, use-lite and wordllama, each dropped and predicted.

Fitted on the first 8,000 sentences of CORPUS. Scores are those on STS-B dev, and the part of the whole model's ten
nearest neighbours that is kept on other sentences of CORPUS. Writes `missing.md` and `missing.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from ensembed.corpora import as_corpus
from ensembed.methods import Auto
from ensembed.methods.prediction import fit_predictor
from ensembed.models.opening import open_model
from ensembed.numerics.row_matrices import unit_rows
from ensembed.reliability.search_agreement import Trial
from ensembed.sts.find import find_sts
from ensembed.sts.protocol import distinct_sentences, pearson, spearman
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table
from ensembed.views import ViewStore
from experiments import run, write_results
from experiments.translate_table import DEFAULT, WEIGHTS, WHITENED

FITTED, HELD_OUT = 8000, 4000


def main() -> None:
    """Measure each member's absence."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results"))
    chosen = parser.parse_args()
    store, members = ViewStore(), [open_model(name) for name in DEFAULT]
    views = store.embed_all(as_corpus(chosen.corpus), members)
    known = [np.asarray(view[:FITTED]) for view in views]
    other = [np.asarray(view[FITTED : FITTED + HELD_OUT]) for view in views]
    meta = Auto(weights=WEIGHTS, whitened=WHITENED).fit(known)
    predictor = fit_predictor(meta, known)
    assert predictor is not None  # noqa: S101 - there are enough sentences
    trial = Trial.of(meta.transform(other))
    dev = find_sts("stsb-dev").parts[0]
    sentences = distinct_sentences([find_sts("stsb-dev")])
    row = {sentence: i for i, sentence in enumerate(sentences)}
    first, second = ([row[sentence] for sentence in side] for side in (dev.sentences1, dev.sentences2))
    vectors = [store.embed(as_corpus(sentences), member)[:] for member in members]
    rows = []

    def score(way: str, sts: np.ndarray, neighbours: np.ndarray) -> None:
        Z = unit_rows(np.asarray(sts, np.float64))
        cosines = (Z[first] * Z[second]).sum(axis=1)
        r, rho = pearson(cosines, dev.scores), spearman(cosines, dev.scores)
        rows.append([way, f"{100 * r:.2f}", f"{100 * rho:.2f}", f"{trial.recall(neighbours, neighbours):.3f}"])
        print(*rows[-1], flush=True)

    score("whole model", meta.transform(vectors), meta.transform(other))
    for j, name in enumerate(DEFAULT):
        some, same = ([None if i == j else view for i, view in enumerate(each)] for each in (vectors, other))
        completed = predictor.complete(meta, {j})
        score(f"without {name}, dropped", meta.transform(some), meta.transform(same))
        score(f"without {name}, predicted", completed.transform(some), completed.transform(same))
    for j, name in enumerate(DEFAULT):
        some, same = ([view if i == j else None for i, view in enumerate(each)] for each in (vectors, other))
        cheap = predictor.complete(meta, {i for i in range(len(DEFAULT)) if i != j})
        score(f"{name} alone", vectors[j], other[j])
        score(f"{name}, the others predicted (--cheap {name})", cheap.transform(some), cheap.transform(same))
    title = f"# The ensemble of {', '.join(DEFAULT[:-1])} and {DEFAULT[-1]} without a member"
    headers = ["way", "STS-B dev, r", "STS-B dev, rho", "neighbours kept"]
    intro = (
        f"Fitted on {FITTED:,} sentences of the mixed corpus; the weights are those of `auto` in version 0.1. "
        "Correlations x 100; the last column is the part of the whole model's ten nearest among "
        f"{HELD_OUT:,} other sentences."
    )
    written = f"Written by `python -m experiments.missing_table {chosen.corpus.name}`."
    page = [title, "", intro, "", markdown_table(headers, rows), "", written, ""]
    data = {"provenance": provenance(), "gains": predictor.gains, "strength": predictor.strength, "rows": rows}
    write_results(chosen.out, "missing", "\n".join(page), json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    run(main)
