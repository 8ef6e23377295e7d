"""`python -m experiments.missing_table CORPUS`: the default ensemble with each member dropped and predicted.

Fitted on the first 8,000 sentences of CORPUS. Scores are those on STS-B dev, and the part of the whole model's ten
nearest neighbours that is kept on other sentences of CORPUS. A second table says what a prediction would have to
explain of a member to lose half of what dropping loses, and what linear maps and kernel machines explain. Writes
`missing.md` and `missing.json`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora import as_corpus
from ensembed.methods import Auto
from ensembed.methods.meta import Meta
from ensembed.methods.prediction import Predictor, added_columns, fit_predictor
from ensembed.models.named_ensembles import named_ensemble
from ensembed.models.opening import open_model
from ensembed.numerics.row_matrices import unit_rows
from ensembed.reliability.search_agreement import Trial
from ensembed.sts.find import find_sts
from ensembed.sts.protocol import distinct_sentences, pearson, spearman
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table
from ensembed.views import ViewStore
from experiments import run, write_results
from experiments.translate_table import embedded, kernel_ridge

FITTED, HELD_OUT, READ = 8000, 4000, 20_000
KERNELS = ((0.5, 0.1), (1.0, 0.1), (4.0, 0.1), (4.0, 1.0))
"""Widths and penalties of the kernel machines."""
_KERNEL_ROWS = 5000

Array = NDArray[Any]


@dataclass(frozen=True)
class Needed:
    """What predicting a member takes: parts of its variance on held-out sentences, and of the neighbours.

    Attributes:
        member: its name.
        half: what would have to be explained to lose half of what dropping loses.
        linear: what the linear prediction explains.
        kernel: what the best of the kernel machines explains, over the linear prediction.
        kept: the neighbours kept with that machine, at most.
    """

    member: str
    half: float
    linear: float
    kernel: float
    kept: float


def needed(
    meta: Meta, predictor: Predictor, known: list[Array], other: list[Array], j: int, trial: Trial, name: str
) -> Needed:
    """Measure one member; `trial` is that of the whole model on the other sentences."""
    place = added_columns(meta)[j].result

    def without(views: list[Array]) -> tuple[Array, Array, Array]:
        """Return what the others add, what the member adds, and its linear prediction."""
        rest = meta.transform([None if i == j else view for i, view in enumerate(views)])
        own = meta.transform(views) - rest
        absent: Any = [None if i == j else view for i, view in enumerate(views)]
        return rest, own[:, place], (predictor.complete(meta, {j}).transform(absent) - rest)[:, place]

    (x, y, linear), (rest, own, guess) = without(known), without(other)
    variance = np.square(own - own.mean(axis=0)).sum()

    def explained(prediction: Array) -> float:
        return float(1 - np.square(own - prediction).sum() / variance)

    def kept(prediction: Array) -> float:
        rows = rest.copy()
        rows[:, place] += prediction
        return trial.recall(rows, rows)

    wanted = (1 + trial.recall(rest, rest)) / 2
    half = next(part for part in np.linspace(0, 1, 41) if kept(guess + np.float32(part) * (own - guess)) >= wanted)
    kernels = []
    for width, penalty in KERNELS:
        machine = kernel_ridge(unit_rows(x[:_KERNEL_ROWS]), (y - linear)[:_KERNEL_ROWS], width, penalty)
        prediction = guess + machine(unit_rows(rest))
        kernels.append((kept(prediction), explained(prediction)))
    return Needed(
        name,
        explained(guess + np.float32(half) * (own - guess)),
        explained(guess),
        max(part for _, part in kernels),
        max(part for part, _ in kernels),
    )


def main() -> None:
    """Measure each member's absence."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results"))
    chosen = parser.parse_args()
    names = named_ensemble("default")
    store, members = ViewStore(), [open_model(name) for name in names]
    views = embedded(list(as_corpus(chosen.corpus))[:READ], members, store)
    known, other = [view[:FITTED] for view in views], [view[FITTED : FITTED + HELD_OUT] for view in views]
    meta = Auto().fit(known)
    predictor = fit_predictor(meta, known)
    assert predictor is not None  # noqa: S101 - there are enough sentences
    trial = Trial.of(meta.transform(other))
    dev = find_sts("stsb-dev").parts[0]
    sentences = distinct_sentences([find_sts("stsb-dev")])
    row = {sentence: i for i, sentence in enumerate(sentences)}
    first, second = ([row[sentence] for sentence in side] for side in (dev.sentences1, dev.sentences2))
    vectors = [np.asarray(store.embed(as_corpus(sentences), member)[:]) for member in members]
    rows = []

    def score(way: str, sts: Array, neighbours: Array) -> None:
        Z = unit_rows(np.asarray(sts, np.float64))
        cosines = (Z[first] * Z[second]).sum(axis=1)
        r, rho = pearson(cosines, dev.scores), spearman(cosines, dev.scores)
        rows.append([way, f"{100 * r:.2f}", f"{100 * rho:.2f}", f"{trial.recall(neighbours, neighbours):.3f}"])
        print(*rows[-1], flush=True)

    score("whole model", meta.transform(vectors), meta.transform(other))
    for j, name in enumerate(names):
        some, same = ([None if i == j else view for i, view in enumerate(each)] for each in (vectors, other))
        completed = predictor.complete(meta, {j})
        score(f"without {name}, dropped", meta.transform(some), meta.transform(same))
        score(f"without {name}, predicted", completed.transform(some), completed.transform(same))
        score(f"{name} alone", vectors[j], other[j])
    proofs = [needed(meta, predictor, known, other, j, trial, name) for j, name in enumerate(names)]
    weights = {name: round(weight, 3) for name, weight in zip(names, meta.method["weights"], strict=True)}
    write(chosen, rows, proofs, weights, {"gains": predictor.gains, "strength": predictor.strength})


def write(
    chosen: argparse.Namespace,
    rows: list[list[str]],
    proofs: list[Needed],
    weights: dict[str, float],
    facts: dict[str, Any],
) -> None:
    """Write the page and the data."""
    names = list(weights)
    shown = ", ".join(f"{name} {weight:g}" for name, weight in weights.items())
    intro = (
        f"Fitted on {FITTED:,} sentences of the mixed corpus; the weights of `auto` are {shown}. Correlations x 100; "
        f"the last column is the part of the whole model's ten nearest among {HELD_OUT:,} other sentences."
    )
    takes = (
        "Parts of the variance of what the member adds, on the other sentences: what a prediction would have to "
        "explain to lose half of the neighbours that dropping loses (measured with the truth mixed into the "
        "prediction), what the linear prediction, shrunk as it is used, explains, and what the best of "
        f"{len(KERNELS)} kernel machines over it explains and keeps, chosen by these very figures."
    )
    cells = [[p.member, *(f"{part:.2f}" for part in (p.half, p.linear, p.kernel)), f"{p.kept:.3f}"] for p in proofs]
    headers = ["missing", "needed for half", "linear", "best kernel machine", "neighbours kept with it"]
    page = [f"# The ensemble of {', '.join(names[:-1])} and {names[-1]} without a member", "", intro, ""]
    page += [markdown_table(["way", "STS-B dev, r", "STS-B dev, rho", "neighbours kept"], rows), ""]
    page += ["## What a prediction would take", "", takes, "", markdown_table(headers, cells), ""]
    page += [*map(verdict, proofs), ""]
    page += [f"Written by `python -m experiments.missing_table {chosen.corpus.name}`.", ""]
    proof_facts = [vars(proof) for proof in proofs]
    data = {"provenance": provenance(), "weights": weights, **facts, "rows": rows, "needed": proof_facts}
    write_results(chosen.out, "missing", "\n".join(page), json.dumps(data, indent=1) + "\n")


def verdict(proof: Needed) -> str:
    """Say whether the other members know enough."""
    if proof.kernel >= proof.half:
        return f"- {proof.member}: the others know enough to lose half of what dropping loses."
    return (
        f"- {proof.member}: the others explain {proof.kernel:.2f} of what it adds, and it takes {proof.half:.2f}: no "
        "map that was tried can lose half of what dropping loses."
    )


if __name__ == "__main__":
    run(main)
