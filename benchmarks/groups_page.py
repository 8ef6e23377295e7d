"""`results/groups.md`, from the figures of `results/groups.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ensembed.support.text_tables import markdown_table

MEASURED = ("sts12", "sts13", "sts14", "sts15", "sts16")
DUPLICATE = 4.8
"""Pairs of at least this gold score, out of 5, are duplicates."""
BANDS = (0.0, 1.0, 2.0, 3.0, 4.0, 4.8, 5.01)
SEEDS = range(3)
RESAMPLES = 500

_KEYS = {"precision": "precision", "recall": "recall", "f1": "F1", "best_f1": "best F1", "ap": "AP"}


def page(facts: Mapping[str, Any]) -> str:
    """The whole of `results/groups.md`."""
    parts = (
        "# Duplicates and clusters",
        "Written by `python -m benchmarks.groups`.",
        "## Duplicates",
        scores_table(facts),
        "The same on pairs neither sentence of which is in STS-B train or dev, where the constants were chosen:",
        unseen_table(facts),
        "How many of the pairs of a gold score are called duplicates, in percent:",
        bands_table(facts),
        (
            "Neighbours per sentence that there are above the cosine (in brackets) above which the fitted tail has so "
            "many unrelated ones:"
        ),
        levels_table(facts),
        _list(_notes_on_duplicates(facts)),
        "## Clusters",
        clusters_table(facts),
        _list(_notes_on_clusters(facts)),
        "## Made with",
        _list(_made_with(facts)),
    )
    return "\n\n".join(parts) + "\n"


def scores_table(facts: Mapping[str, Any]) -> str:
    """Precision, recall, F1 and average precision of every model."""
    rows = []
    for name, one in facts["duplicates"].items():
        over = [f"{100 * one['over_best_member'][key]:+.1f}" for key in ("difference", "low", "high")]
        cells = [_percent(one["pairs"][key]) for key in _KEYS]
        found = [f"{over[0]} ({over[1]} to {over[2]})", _percent(one["ap_all_pairs"])]
        rows.append([name, f"{one['threshold']:.3f}", *cells, *found])
    return markdown_table(["model", "threshold", *_KEYS.values(), "AP over best member", "AP, all pairs"], rows)


def unseen_table(facts: Mapping[str, Any]) -> str:
    """The same on pairs that nothing was chosen on."""
    rows = [[name, *(_percent(one["unseen"][key]) for key in _KEYS)] for name, one in facts["duplicates"].items()]
    return markdown_table(["model", *_KEYS.values()], rows)


def bands_table(facts: Mapping[str, Any]) -> str:
    """Which gold scores are called duplicates."""
    bands = [f"{low:g} to {min(high, 5):g}" for low, high in pairwise(BANDS)]
    rows = [[name, *map(_percent, one["told_by_gold"])] for name, one in facts["duplicates"].items()]
    return markdown_table(["model", *bands], rows)


def levels_table(facts: Mapping[str, Any]) -> str:
    """The tail of unrelated pairs beside what there is."""
    found = facts["duplicates"]
    rows = [
        [name, *(f"{there:.3g} ({cosine:.3f})" for cosine, _, there in one["levels"])] for name, one in found.items()
    ]
    return markdown_table(["model", *(f"{count:g}" for _, count, _ in next(iter(found.values()))["levels"])], rows)


def clusters_table(facts: Mapping[str, Any]) -> str:
    """Agreement with the sources, of every model."""
    rows = []
    for name in facts["duplicates"]:  # in the order of the other tables, whenever they were measured
        one = facts["clusters"].get(name)
        if one is None:
            continue
        cells = [_spread([100 * run[key] for run in one[how]]) for how in ("given", "chosen") for key in ("v", "ami")]
        rows.append([name, *cells, ", ".join(str(run["clusters"]) for run in one["chosen"])])
    return markdown_table(["model", "V", "AMI", "V, number chosen", "AMI, number chosen", "numbers chosen"], rows)


def _notes_on_duplicates(facts: Mapping[str, Any]) -> list[str]:
    corpus, pairs, unseen = facts["corpus"], facts["pairs"], facts["unseen"]
    absent = ", ".join(facts["missing"]) or "nothing"
    return [
        (
            f"Corpus: the {corpus['sentences']} distinct sentences of {', '.join(MEASURED)} "
            f"({', '.join(facts['layout'])}; key {corpus['key']}; missing: {absent})."
        ),
        (
            f"Labels: {pairs['all']} scored pairs of different sentences, of which {pairs['duplicates']} with a gold "
            f"score of {DUPLICATE} or more are duplicates ({unseen['all']} and {unseen['duplicates']} without a "
            "sentence of STS-B train or dev). Pairs that were scored twice have the mean."
        ),
        (
            "The threshold is found without labels (0.001 unrelated neighbours per sentence). Where its tail is "
            "fitted, and the 0.001, were chosen on STS-B train, the same for every model."
        ),
        (
            "precision, recall, F1: of the scored pairs at that threshold. best F1: at the threshold that the labels "
            "themselves would choose. AP: average precision over the scored pairs. All x 100."
        ),
        (
            f"AP over best member: less that of {facts['best_member']}, with the 95% interval of {RESAMPLES} bootstrap "
            "resamples of the pairs."
        ),
        (
            "AP, all pairs: over all pairs of sentences, unscored ones taken for different, though some are "
            "duplicates: a lower bound."
        ),
    ]


def _notes_on_clusters(facts: Mapping[str, Any]) -> list[str]:
    classes = facts["classes"]
    return [
        (
            f"The {classes['sentences']} sentences that come from one source alone, of {classes['number']} sources "
            "(parts of the sets; the years of one are one)."
        ),
        (
            f"k-means with {classes['number']} clusters, and with the number that the silhouette chooses; V-measure "
            f"and adjusted mutual information, x 100, mean and standard deviation over seeds {SEEDS[0]} to "
            f"{SEEDS[-1]}. Nothing was chosen on these labels."
        ),
    ]


def _made_with(facts: Mapping[str, Any]) -> list[str]:
    encoders = ", ".join(f"{name} ({one['dim']}, {one['revision']})" for name, one in facts["encoders"].items())
    return [
        f"Encoders (dimension, revision): {encoders}.",
        f"auto and gcca (512 dimensions): fitted on the {facts['fitted_on']}, without labels.",
        ", ".join(f"{key} {value}" for key, value in facts["provenance"].items()) + ".",
    ]


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _percent(part: float) -> str:
    return f"{100 * part:.1f}"


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.1f} ± {np.std(values):.1f}"
