"""From labelled pairs to a fitted meta-embedding that says how it was chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ensembed.corpus import Corpus
from ensembed.methods import Meta, Method
from ensembed.methods.found import found_weights
from ensembed.progress import Progress, silent
from ensembed.tuning.candidates import Offer, offer
from ensembed.tuning.choose import Verdict, decide
from ensembed.tuning.labels import LabelledPairs


def tune_method(
    method: Method,
    views: Sequence[Any],
    pairs: LabelledPairs,
    pair_views: Sequence[Any],
    *,
    fit: Callable[[Method], Meta] | None = None,
    sentences: Corpus | Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress = silent,
) -> Meta:
    """Choose on labelled pairs what is fitted on the views.

    Offered are the method itself, the label-free `Auto`, concatenations with weights that suit the pairs (held more or
    less strongly to the label-free ones), svd and gcca with several weights, dims and, for gcca, taus. The method
    itself stays unless choosing gains more than one standard error on pairs it was not done on (`choose.decide`).

    Args:
        method: what would be fitted without labels. If it has a `dim`, that is not chosen but kept.
        views: the members' views [n, d_j] of the corpus.
        pairs: at least ten labelled pairs.
        pair_views: the members' views of `pairs.texts`.
        fit: fits a method on the views; None calls its `fit`.
        sentences: what the views are of; the label-free weights are surer with them.
        names: the members'.
        seed: of how the pairs are dealt into folds.
        threads: for passes over the views.
        progress: told of methods.

    Returns:
        What was fitted. Its method facts have numbers, and under `tuned` how they were chosen.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> good, noise = rng.standard_normal((300, 8)), rng.standard_normal((300, 8))
        >>> texts = [f"text {i}" for i in range(300)]
        >>> cosine = lambda i: float(good[i] @ good[i + 1] / np.linalg.norm(good[i]) / np.linalg.norm(good[i + 1]))
        >>> pairs = LabelledPairs.of([(cosine(i), texts[i], texts[i + 1]) for i in range(0, 200, 2)])
        >>> from ensembed.methods import Concat
        >>> views = [good, noise]
        >>> meta = tune_method(Concat(), views, pairs, [view[:200] for view in views], sentences=texts)
        >>> meta.method["weights"][0] > 10 * meta.method["weights"][1]
        True
    """
    fit = fit or (lambda one: one.fit(views, threads=threads, progress=progress))
    weights = found_weights(views, sentences=sentences, names=names, progress=progress)
    vectors = [np.asarray(view[: len(pairs.texts)]) for view in pair_views]
    offered = offer(method, views, vectors, pairs, weights, fit=fit, threads=threads, progress=progress)
    verdict = decide(offered.candidates, pairs.scores, seed=seed)
    kept = verdict.choice.fixed == 0
    meta = offered.first if kept else fit(offered.method(verdict.choice))
    facts = {**meta.method, "tuned": _note(offered, verdict, pairs, seed)}
    if kept and method.wants_reliability:
        facts["weights_from"] = "reliability"
    # The sentences were looked at, even where the chosen method itself needs none.
    return replace(meta, method=facts, rows=views[0].shape[0])


def describe(note: Mapping[str, Any]) -> str:
    """A note of how a method was chosen, for a person.

    Example:
        >>> describe({"pairs": 40, "kept": False, "gain": 0.031, "error": 0.012})
        "on 40 labelled pairs: gains 3.1% (standard error 1.2%) of the scores' variance on pairs it was not chosen on"
    """
    gain = f"{100 * note['gain']:.1f}% (standard error {100 * note['error']:.1f}%)"
    said = f"on {note['pairs']} labelled pairs: "
    if note["kept"]:
        return f"{said}the method stays, as another would gain {gain} of the scores' variance, no more than noise"
    return f"{said}gains {gain} of the scores' variance on pairs it was not chosen on"


def _note(offered: Offer, verdict: Verdict, pairs: LabelledPairs, seed: int) -> dict[str, Any]:
    """How the method was chosen, in what JSON knows."""
    cosines = offered.candidates.predict(verdict.choice)
    return {
        "pairs": len(pairs),
        "kept": verdict.choice.fixed == 0,
        "gain": round(verdict.gain, 6),
        "error": round(verdict.error, 6),
        "pearson_before": round(_pearson(offered.candidates.fixed[:, 0], pairs.scores), 6),
        "pearson": round(_pearson(cosines, pairs.scores), 6),
        "shrinkage": verdict.choice.shrinkage,
        "seed": seed,
    }


def _pearson(x: Any, y: Any) -> float:  # noqa: ANN401 - vectors
    x, y = x - x.mean(), y - y.mean()
    lengths = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / lengths if lengths > 0 else 0.0
