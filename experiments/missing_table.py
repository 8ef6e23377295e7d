"""`python -m experiments.missing_table CORPUS`: the default ensemble with each member dropped and predicted.

Fitted on the first 8,000 sentences of CORPUS. Scores are those on STS-B dev, and the part of the whole model's ten
nearest neighbours that is kept on other sentences of CORPUS. A second table says what a prediction would have to
explain of a member to lose half of what dropping loses, and what linear maps and kernel machines explain, also with
many more examples, and with the sentence's words beside the vectors. Writes `missing.md` and `missing.json`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve

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
from experiments.translate_table import Map, embedded, kernel_ridge

FITTED, HELD_OUT = 8000, 4000
EXAMPLES = (20_000, 80_000)
"""Sentences behind the held-out ones on which more kernel machines are fitted."""
WORDS = "wordllama"
"""A static encoder, whose vectors say which words a sentence has."""
KERNELS = ((0.5, 0.1), (1.0, 0.1), (4.0, 0.1), (4.0, 1.0))
"""Widths and penalties of the kernel machines."""
_KERNEL_ROWS = 5000
_LANDMARKS = 2048

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
        many: the same for kernel machines on many examples: input, examples, part explained, neighbours kept.
    """

    member: str
    half: float
    linear: float
    kernel: float
    kept: float
    many: list[tuple[str, int, float, float]]

    @property
    def most(self) -> float:
        """The most that any machine explains."""
        return max(self.kernel, *(part for _, _, part, _ in self.many), 0.0)


@dataclass(frozen=True, eq=False)
class Texts:
    """The members' vectors of some sentences, and those of their words."""

    views: list[Array]
    words: Array

    @classmethod
    def between(cls, views: list[Array], start: int, stop: int) -> Texts:
        """Take rows of views, of which the last are of words."""
        return cls([view[start:stop] for view in views[:-1]], views[-1][start:stop])


def needed(
    meta: Meta, predictor: Predictor, texts: tuple[Texts, Texts, Texts], j: int, trial: Trial, name: str
) -> Needed:
    """Measure one member on texts fitted on, held out, and further ones; `trial` is of the whole model, held out."""
    place = added_columns(meta)[j].result
    few, held, further = texts

    def without(views: list[Array]) -> tuple[Array, Array, Array]:
        """Return what the others add, what the member adds, and its linear prediction."""
        rest = meta.transform([None if i == j else view for i, view in enumerate(views)])
        own = meta.transform(views) - rest
        absent: Any = [None if i == j else view for i, view in enumerate(views)]
        return rest, own[:, place], (predictor.complete(meta, {j}).transform(absent) - rest)[:, place]

    (x, y, linear), (rest, own, guess) = without(few.views), without(held.views)
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
    many = []
    for label, beside, beside_held in (("members", [], []), ("members and words", [further.words], [held.words])):
        X, Y, start = without(further.views)
        inputs, goal = (
            unit_rows(np.hstack([unit_rows(side), *more])) for side, more in ((X, beside), (rest, beside_held))
        )
        for count in EXAMPLES:
            tried = []
            for width, penalty in KERNELS:
                machine = landmark_ridge(inputs[:count], (Y - start)[:count], width, penalty)
                prediction = guess + machine(goal)
                tried.append((explained(prediction), kept(prediction)))
            many.append((label, count, max(part for part, _ in tried), max(part for _, part in tried)))
            print(name, *many[-1], flush=True)
    return Needed(
        name,
        explained(guess + np.float32(half) * (own - guess)),
        explained(guess),
        max(part for _, part in kernels),
        max(part for part, _ in kernels),
        many,
    )


def landmark_ridge(X: Array, Y: Array, width: float, penalty: float) -> Map:
    """Kernel ridge regression on all rows, in the span of the first of them (Nyström)."""
    some, mean = X[:_LANDMARKS], Y.mean(axis=0)
    own = np.exp(width * (some @ some.T - 1))
    A, B = penalty * own.astype(np.float64), np.zeros((len(some), Y.shape[1]))
    for start in range(0, len(X), _LANDMARKS):
        rows = slice(start, start + _LANDMARKS)
        K = np.exp(width * (X[rows] @ some.T - 1))
        A += K.T @ K
        B += K.T @ (Y[rows] - mean)
    A[np.diag_indices_from(A)] += 1e-5 * np.trace(A) / len(A)  # products in float32 are only so exact
    C = solve(A, B, assume_a="pos", check_finite=False).astype(np.float32)
    return lambda rows: np.asarray(mean + np.exp(width * (rows @ some.T - 1)) @ C, np.float32)


def main() -> None:
    """Measure each member's absence."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results"))
    chosen = parser.parse_args()
    names = named_ensemble("default")
    store, members = ViewStore(), [open_model(name) for name in names]
    ends = (0, FITTED, FITTED + HELD_OUT, FITTED + HELD_OUT + max(EXAMPLES))
    lines = list(as_corpus(chosen.corpus))[: ends[-1]]
    views = embedded(lines, [*members, open_model(WORDS)], store)
    few, held, further = (Texts.between(views, *span) for span in pairwise(ends))
    known, other = few.views, held.views
    meta = Auto().resolved(known, lines[:FITTED]).fit(known)
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
    proofs = [needed(meta, predictor, (few, held, further), j, trial, name) for j, name in enumerate(names)]
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
    wider = (
        f"The same of kernel machines in the span of {_LANDMARKS:,} of their examples, other sentences than those "
        f"above; with *words*, the vectors of {WORDS}, a static encoder, stand beside what the other members add."
    )
    columns = ["missing", "from", "examples", "explained", "neighbours kept"]
    found = [
        [p.member, label, f"{n:,}", f"{part:.2f}", f"{kept:.3f}"] for p in proofs for label, n, part, kept in p.many
    ]
    page += [wider, "", markdown_table(columns, found), "", *map(verdict, proofs), ""]
    page += [f"Written by `python -m experiments.missing_table {chosen.corpus.name}`.", ""]
    proof_facts = [vars(proof) for proof in proofs]
    data = {"provenance": provenance(), "weights": weights, **facts, "rows": rows, "needed": proof_facts}
    write_results(chosen.out, "missing", "\n".join(page), json.dumps(data, indent=1) + "\n")


def verdict(proof: Needed) -> str:
    """Say whether the other members know enough."""
    if proof.most >= proof.half:
        return f"- {proof.member}: the others know enough to lose half of what dropping loses."
    return (
        f"- {proof.member}: the others explain {proof.most:.2f} of what it adds, and it takes {proof.half:.2f}: no "
        "map that was tried can lose half of what dropping loses."
    )


if __name__ == "__main__":
    run(main)
