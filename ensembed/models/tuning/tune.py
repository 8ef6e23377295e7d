"""From labelled pairs to a fitted meta-embedding that says how it was chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ensembed.corpora.corpus import Corpus
from ensembed.errors import InputError
from ensembed.methods import Meta, Method
from ensembed.methods.passes import LOCAL, Passes
from ensembed.models.tuning.candidates import offer
from ensembed.models.tuning.choose import Verdict, check_direction, decide
from ensembed.models.tuning.labels import LabelledPairs
from ensembed.numerics.passes import Pass
from ensembed.reliability import reliability


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
    how: Pass = Pass(),
    passes: Passes = LOCAL,
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
        how: how passes over the views run; its progress receives the methods that are tried.
        passes: who makes the passes.

    Returns:
        What was fitted. Its method facts have numbers, and under `tuned` how they were chosen: `pairs`, how many;
        `kept`, whether the method stayed; `gain` and its standard `error`, parts of the scores' variance on pairs that
        were not chosen on (`choose.Verdict`); `shrinkage`, of fitted weights; `seed`.

    Raises:
        InputError: everything that can be chosen says the opposite of the scores.

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
    fit = fit or (lambda method: method.fit(views, passes=passes, threads=how.threads, progress=how.progress))
    first = method
    try:
        estimate = reliability(views, sentences=sentences, names=names, progress=how.progress)
        weights = tuple(float(weight) for weight in estimate.weights)
        if method.wants_reliability:
            first = replace(method.trusting(estimate), origin=estimate.origin)
    except InputError:
        if method.wants_reliability:
            raise
        # Nothing can be found out about the members, as from a few sentences; the method that was asked for does not
        # depend on it, and labels can still choose.
        given = getattr(method, "weights", "equal")
        weights = (1.0,) * len(views) if isinstance(given, str) else given
    vectors = [np.asarray(view[: len(pairs.texts)]) for view in pair_views]
    offered = offer(first, views, vectors, pairs, weights, fit=fit, how=how, passes=passes)
    check_direction(offered.candidates, pairs.scores)
    verdict = decide(offered.candidates, pairs.scores, seed=seed)
    kept = verdict.choice.fixed == 0
    meta = offered.first if kept else fit(offered.method(verdict.choice))
    facts = {**meta.method, "tuned": _note(verdict, pairs, seed)}
    # The sentences were looked at, even where the chosen method itself needs none.
    return replace(meta, method=facts, rows=views[0].shape[0])


def describe(note: Mapping[str, Any]) -> str:
    """A note of how a method was chosen, for a person.

    Example:
        >>> describe({"pairs": 40, "kept": False, "gain": 0.031, "error": 0.012})
        "on 40 labelled pairs: gains 3.1% (standard error 1.2%) of the scores' variance on pairs it was not chosen on"
    """
    gain = f"{100 * abs(note['gain']):.1f}% (standard error {100 * note['error']:.1f}%) of the scores' variance"
    said = f"on {note['pairs']} labelled pairs: "
    if not note["kept"]:
        return f"{said}gains {gain} on pairs it was not chosen on"
    if note["gain"] == 0 or note["gain"] > note["error"]:  # choosing is worth it, but on all pairs chooses the same
        return f"{said}the method stays, as nothing else is better on all of them"
    if note["gain"] < 0:
        return f"{said}the method stays, as another would lose {gain} on pairs it was not chosen on"
    return f"{said}the method stays, as another would gain {gain}, no more than noise"


def _note(verdict: Verdict, pairs: LabelledPairs, seed: int) -> dict[str, Any]:
    """How the method was chosen, in what JSON knows."""
    return {
        "pairs": len(pairs),
        "kept": verdict.choice.fixed == 0,
        "gain": round(verdict.gain, 6),
        "error": round(verdict.error, 6),
        "shrinkage": verdict.choice.shrinkage,
        "seed": seed,
    }
