"""`python -m benchmarks.groups`: duplicates and clusters against labels, for ensembles and for every member alone.

Writes `results/groups.md` and `results/groups.json`. Needs the sentences of STS12 to STS16 and STS-B (`ensembed data`).
docs/guides/groups.md says what was made of the figures.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from benchmarks.groups_page import BANDS, DUPLICATE, MEASURED, RESAMPLES, SEEDS, page
from ensembed.corpora.corpus import ListCorpus
from ensembed.encoders.base import FloatArray
from ensembed.methods import GCCA, Auto
from ensembed.models.ensemble import Ensemble
from ensembed.numerics.row_matrices import unit_rows
from ensembed.search.groups import choose_number, find_threshold, kmeans_partition, star_groups
from ensembed.sts import Dataset, distinct_sentences
from ensembed.sts.find import find_sts
from ensembed.support.atomic_files import write_atomically
from ensembed.support.extras import import_extra
from ensembed.support.provenance import provenance
from ensembed.views import ViewStore

CHOSEN_ON = ("stsb-train", "stsb-dev")
RESULTS = Path("results")
PARTS = ("duplicates", "clusters")

Record: TypeAlias = dict[str, Any]
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Labelled:
    """Scored pairs of different sentences, as rows of the corpus [p], and whether neither is in what was chosen on."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    gold: Floats
    unseen: NDArray[np.bool_]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write both files; what is not measured this time stays as it was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--models", nargs="+", help="for clusters only; by default all")
    asked = parser.parse_args(arguments)
    datasets = [find_sts(name) for name in MEASURED]
    sentences = distinct_sentences(datasets)
    print(f"{len(sentences)} sentences: vectors, some minutes unless they are kept already", flush=True)
    models, about = vectors(sentences)
    about |= {
        "corpus": {"key": ListCorpus(sentences).key, "sentences": len(sentences), "sets": list(MEASURED)},
        "layout": sorted({dataset.layout for dataset in datasets}),
        "missing": [f"{one.name}/{part}" for one in datasets for part in one.missing],
        "provenance": provenance(),
    }
    if "duplicates" in asked.parts:
        seen = set(distinct_sentences([find_sts(name) for name in CHOSEN_ON]))
        keep(about | all_duplicates(models, list(about["encoders"]), labelled(datasets, sentences, seen)))
    if "clusters" in asked.parts:
        rows, classes = sources(datasets, sentences)
        about["classes"] = {"number": int(classes.max()) + 1, "sentences": len(rows)}
        for name, U in models.items():
            if asked.models is None or name in asked.models:
                print(f"clusters of {name}", flush=True)
                keep(about | {"clusters": {name: clusters(U[rows], classes)}})


def keep(new: Record) -> None:
    """Put figures beside those that are there, and write the page once all are there; runs may go side by side."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "groups.json"
    with FileLock(Path(tempfile.gettempdir()) / "ensembed-groups.lock"):
        facts: Record = json.loads(path.read_bytes()) if path.exists() else {"duplicates": {}, "clusters": {}}
        merged = facts | new | {"clusters": facts["clusters"] | new.get("clusters", {})}
        write_atomically(path, (json.dumps(merged, indent=1) + "\n").encode())
        if merged["duplicates"] and list(merged["clusters"]):
            write_atomically(RESULTS / "groups.md", page(merged).encode())


def all_duplicates(models: Mapping[str, FloatArray], members: Sequence[str], pairs: Labelled) -> Record:
    """How well each model finds the duplicates, and how much better than the best member."""
    found: Record = {}
    precisions: dict[str, Floats] = {}
    for name, U in models.items():
        found[name], cosine = duplicates(U, pairs)
        precisions[name] = resampled(cosine, pairs)
        print(name, found[name]["pairs"], flush=True)
    best = max(members, key=lambda name: float(found[name]["pairs"]["ap"]))
    for name in models:
        found[name]["over_best_member"] = difference(precisions[name], precisions[best])
    true = pairs.gold >= DUPLICATE
    return {
        "duplicates": found,
        "best_member": best,
        "pairs": {"all": len(true), "duplicates": int(true.sum())},
        "unseen": {"all": int(pairs.unseen.sum()), "duplicates": int(true[pairs.unseen].sum())},
    }


def vectors(sentences: Sequence[str]) -> tuple[dict[str, FloatArray], Record]:
    """The sentences under each model, at length one; and what the models are."""
    ensemble = Ensemble(("minilm", "use-lite", "wordllama"))
    store = ViewStore(wait=60)
    train = distinct_sentences([find_sts("stsb-train")])
    views = [np.asarray(view) for view in store.embed_all(ListCorpus(sentences), ensemble.encoders)]
    found = {}
    for name, method in (("auto", Auto()), ("gcca", GCCA(dim=512))):
        found[name] = ensemble.fit(train, method, store=store).meta.transform(views)
    members = {encoder.spec.name: encoder.spec for encoder in ensemble.encoders}
    found |= dict(zip(members, views, strict=True))
    specs = {name: {"dim": spec.dim, "revision": spec.revision} for name, spec in members.items()}
    about = {"encoders": specs, "fitted_on": f"{len(train)} distinct sentences of STS-B train"}
    return {name: unit_rows(X) for name, X in found.items()}, about


def labelled(datasets: Sequence[Dataset], sentences: Sequence[str], seen: set[str]) -> Labelled:
    """Every scored pair once, but for those of equal sentences: nobody needs vectors for them."""
    row = {text: i for i, text in enumerate(sentences)}
    scores: dict[tuple[int, int], list[float]] = {}
    for part in (part for dataset in datasets for part in dataset.parts):
        for one, other, score in zip(part.sentences1, part.sentences2, part.scores.tolist(), strict=True):
            if one != other:
                scores.setdefault((min(row[one], row[other]), max(row[one], row[other])), []).append(score)
    pairs = np.array(list(scores))
    old = np.array([text in seen for text in sentences])
    gold = np.array([float(np.mean(found)) for found in scores.values()])
    return Labelled(pairs[:, 0], pairs[:, 1], gold, ~(old[pairs[:, 0]] | old[pairs[:, 1]]))


def sources(datasets: Sequence[Dataset], sentences: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of sentences that come from one source alone, and the number of it; years of one source are one."""
    names = sorted({part.name for dataset in datasets for part in dataset.parts})
    found: dict[str, set[int]] = {}
    for part in (part for dataset in datasets for part in dataset.parts):
        for text in (*part.sentences1, *part.sentences2):
            found.setdefault(text, set()).add(names.index(part.name))
    rows = np.array([i for i, text in enumerate(sentences) if len(found[text]) == 1])
    return rows, np.array([next(iter(found[sentences[i]])) for i in rows])


def duplicates(U: FloatArray, pairs: Labelled) -> tuple[Record, Floats]:
    """How well a model finds the duplicates, and its cosines of the scored pairs."""
    threshold = find_threshold(U)
    of, _ = star_groups(U, threshold.value)
    cosine = np.einsum("ij,ij->i", U[pairs.first], U[pairs.second]).astype(np.float64)
    told = cosine >= threshold.value
    bands = [(pairs.gold >= low) & (pairs.gold < high) for low, high in pairwise(BANDS)]
    return {
        "threshold": threshold.value,
        "levels": threshold.levels,
        "groups": int((np.bincount(of) > 1).sum()),
        "kept": int((of == np.arange(len(of))).sum()),
        "pairs": scores(cosine, pairs.gold, threshold.value),
        "unseen": scores(cosine[pairs.unseen], pairs.gold[pairs.unseen], threshold.value),
        "ap_all_pairs": average_precision_of_all(U, cosine[pairs.gold >= DUPLICATE]),
        "told_by_gold": [float(told[band].mean()) for band in bands],
    }, cosine


def scores(cosine: Floats, gold: Floats, threshold: float) -> dict[str, float]:
    """Precision, recall and F1 at a threshold, average precision, and the best F1 that any threshold has."""
    metrics = _metrics()

    true = gold >= DUPLICATE
    told = cosine >= threshold
    precision, recall = (true & told).sum() / max(told.sum(), 1), (true & told).sum() / true.sum()
    P, R, _ = metrics.precision_recall_curve(true, cosine)
    return {
        "precision": float(precision),
        "recall": float(recall),
        "f1": float(2 * precision * recall / max(precision + recall, 1e-12)),
        "ap": float(metrics.average_precision_score(true, cosine)),
        "best_f1": float((2 * P * R / np.maximum(P + R, 1e-12)).max()),
    }


def average_precision_of_all(U: FloatArray, positives: Floats) -> float:
    """Average precision over all pairs of sentences, unscored ones taken for different: a lower bound."""
    bins, least = 200_000, float(positives.min()) - 1e-3
    counts = np.zeros(bins + 1, np.int64)
    for start in range(0, len(U), 2048):
        C = U[start : start + 2048] @ U[start:].T
        later = np.arange(C.shape[1]) > np.arange(len(C))[:, None]
        near = C[later & (least <= C)]
        counts += np.bincount(np.clip(((near + 1) * (bins / 2)).astype(np.int64), 0, bins), minlength=bins + 1)
    true = np.bincount(np.clip(((positives + 1) * (bins / 2)).astype(np.int64), 0, bins), minlength=bins + 1)
    found, right = np.cumsum(counts[::-1]), np.cumsum(true[::-1])
    return float((true[::-1] * right / np.maximum(np.maximum(found, right), 1)).sum() / len(positives))


def resampled(cosine: Floats, pairs: Labelled) -> Floats:
    """Average precision over the scored pairs, and over resamples of them [1 + r], the same for every model."""
    ap = _metrics().average_precision_score
    true = pairs.gold >= DUPLICATE
    random = np.random.default_rng(0)
    drawn = (random.integers(len(true), size=len(true)) for _ in range(RESAMPLES))
    return np.array([ap(true, cosine), *(ap(true[rows], cosine[rows]) for rows in drawn)])


def difference(own: Floats, other: Floats) -> dict[str, float]:
    """Average precision less that of another model, with the 95% interval of the bootstrap."""
    low, high = np.percentile(own[1:] - other[1:], [2.5, 97.5])
    return {"difference": float(own[0] - other[0]), "low": float(low), "high": float(high)}


def clusters(U: FloatArray, classes: NDArray[np.int64]) -> Record:
    """V-measure and adjusted mutual information with the sources: with their number, and with one that is chosen."""
    metrics = _metrics()

    number = int(classes.max()) + 1
    found: Record = {"given": [], "chosen": []}
    for seed in SEEDS:
        chosen, _ = choose_number(U, directions=None, seed=seed)
        for how, k in (("given", number), ("chosen", chosen)):
            labels = kmeans_partition(U, k, seed=seed).labels
            v = metrics.v_measure_score(classes, labels)
            ami = metrics.adjusted_mutual_info_score(classes, labels)
            found[how].append({"seed": seed, "clusters": k, "v": float(v), "ami": float(ami)})
            print(f"  seed {seed}, {k} clusters ({how}): V {v:.3f}", flush=True)
    return found


def _metrics() -> Any:  # noqa: ANN401 - a module without types
    return import_extra("sklearn.metrics", "cluster", "the measurement")


if __name__ == "__main__":
    main()
