"""`python -m experiments.groups_labels`: what `cluster` and `dedupe` find without labels, and what labels would choose.

Clusters: the V-measure with the number of clusters that the silhouette chooses, and with the best of the numbers that
are tried. Duplicates: the F1 over paraphrase pairs at the cosine from which `dedupe` names candidates and at the one
from which it drops, and the best F1 of any threshold; on texts with labels, how many of the dropped ones have the label
of the one that stays. Writes `groups-labels.md` and `groups-labels.json`. Sets are made smaller as in `tasks_table`.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve

from ensembed.encoders import open_encoder
from ensembed.encoders.base import Encoder
from ensembed.models.ensemble import Ensemble
from ensembed.paper.named_corpora import STSB_TRAIN, open_corpora
from ensembed.search.groups import choose_number, find_duplicates, kmeans_partition
from ensembed.search.groups.clusters import CANDIDATES
from ensembed.support.text_tables import markdown_table
from ensembed.tasks import Clustering
from ensembed.tasks.class_and_cluster_tasks import v_measure
from ensembed.tasks.pair_tasks import PairClassification
from ensembed.tasks.task_evaluation import text_vectors
from ensembed.views import ViewStore
from experiments import run
from experiments.tasks_sets import load_sets, write_tables

LABELLED = ("banking77", "stackoverflow20")
PAIRS = "pawsx_en_dev"
NEAR = 3.0
"""Points that what is found without labels may be below what labels choose."""


def cluster_row(model: Encoder, task: Clustering, store: ViewStore) -> tuple[list[str], float]:
    """Return the numbers of clusters and their V-measure x 100, and what the choice without labels loses."""
    U = text_vectors(model, task.texts()["texts"], store=store)
    classes = np.unique(task.labels, return_inverse=True)[1]
    number = choose_number(U)[0]
    tried = sorted({*CANDIDATES, len(np.unique(classes))})
    ones = np.ones((1, len(U)))
    values = {k: 100 * float(v_measure(classes, kmeans_partition(U, k).labels)(ones)[0]) for k in tried}
    best = max(values, key=values.__getitem__)
    loss = values[best] - values[number]
    return [str(number), f"{values[number]:.1f}", str(best), f"{values[best]:.1f}", f"{-loss:+.1f}"], loss


def pair_row(model: Encoder, task: PairClassification, store: ViewStore) -> tuple[list[str], float]:
    """Return the F1 x 100 at the thresholds of `dedupe` and at the best one, and what the better of the two loses."""
    texts = task.texts()["texts"]
    threshold = find_duplicates(list(texts.texts), model, store=store).threshold
    cosine, true = task.cosines({"texts": text_vectors(model, texts, store=store)}), task.pairs.scores > 0
    P, R, _ = precision_recall_curve(true, cosine)
    best = 100 * float((2 * P * R / np.maximum(P + R, 1e-12)).max())
    least = threshold.candidates_from or threshold.value
    candidates, dropped = (100 * f1(cosine >= level, true) for level in (least, threshold.value))
    loss = best - max(candidates, dropped)
    cells = [f"{least:.3f}", f"{candidates:.1f}", f"{threshold.value:.3f}", f"{dropped:.1f}", f"{best:.1f}"]
    return [*cells, f"{-loss:+.1f}"], loss


def f1(said: NDArray[np.bool_], true: NDArray[np.bool_]) -> float:
    """Return the harmonic mean of precision and recall; 0 if nothing is found."""
    return float(2 * (said & true).sum() / max(1, said.sum() + true.sum()))


def dropped_row(model: Encoder, task: Clustering, store: ViewStore) -> list[str]:
    """Return how many texts `dedupe` drops and names, and how many of them have the label of the text that stays."""
    result = find_duplicates(list(task.labelled), model, store=store)
    labels = np.array(task.labels)
    rows = np.flatnonzero(~result.is_kept)
    named = np.array([pair[:2] for pair in result.candidates], np.int64).reshape(-1, 2)
    same = int((labels[rows] == labels[result.kept[rows]]).sum())
    same_named = int((labels[named[:, 0]] == labels[named[:, 1]]).sum())
    return [f"{result.threshold.value:.3f}", str(len(rows)), str(same), str(len(named)), str(same_named)]


def main(names: list[str], out: Path) -> None:
    """Measure, print the page and write it."""
    store = ViewStore(wait=600)
    encoders = {name: open_encoder(name) for name in names}
    [named] = open_corpora([STSB_TRAIN])
    models: dict[str, Encoder] = {**encoders}
    models["auto"] = Ensemble(list(encoders.values())).fit(named.corpus, "auto", store=store)
    clusterings = [task for task in load_sets(LABELLED) if isinstance(task, Clustering)]
    [pairs] = [task for task in load_sets((PAIRS,)) if isinstance(task, PairClassification)]
    clusters, duplicates, dropped, losses = [], [], [], []
    for name, model in models.items():
        for task in clusterings:
            cells, loss = cluster_row(model, task, store)
            clusters.append([name, task.name, *cells])
            losses.append(("clusters", loss))
            dropped.append([name, task.name, *dropped_row(model, task, store)])
        cells, loss = pair_row(model, pairs, store)
        duplicates.append([name, *cells])
        losses.append(("duplicates", loss))
    rows = {"clusters": clusters, "duplicates": duplicates, "dropped": dropped}
    write_tables(out, "groups-labels", _page(names, **rows, losses=losses), rows, [*clusterings, pairs])


def _page(
    names: list[str],
    clusters: list[list[str]],
    duplicates: list[list[str]],
    dropped: list[list[str]],
    losses: list[tuple[str, float]],
) -> str:
    lines = []
    for what in ("clusters", "duplicates"):
        own = [loss for kind, loss in losses if kind == what]
        near = sum(loss <= NEAR for loss in own)
        lines.append(
            f"- {what.capitalize()}: within {NEAR:.0f} points of what labels choose in {near} of {len(own)} cases; "
            f"{np.mean(own):.1f} below in the mean, {max(own):.1f} at worst."
        )
    return "\n\n".join(
        [
            "# Clusters and duplicates against labels",
            f"Written by `python -m experiments.groups_labels {' '.join(names)}`; auto is the ensemble of all of them.",
            "\n".join(lines),
            "## Number of clusters\n\n"
            + markdown_table(["", "set", "chosen", "V", "best by labels", "V", "difference"], clusters, left=2),
            f"## Threshold on pairs ({PAIRS})\n\n"
            + markdown_table(
                ["", "candidates from", "F1", "dropped from", "F1", "best F1 by labels", "difference"], duplicates
            ),
            "## What `dedupe` drops and names in texts with labels\n\n"
            + markdown_table(
                ["", "set", "threshold", "dropped", "of the same label", "named", "of the same label"], dropped, left=2
            ),
        ]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Clusters and duplicates against labels.")
    parser.add_argument("members", nargs="*", default=["minilm", "use-lite", "wordllama"])
    parser.add_argument("--out", type=Path, default=Path("results"))
    given = parser.parse_args()
    run(partial(main, given.members, given.out))
