"""From labelled pairs to a fitted meta-embedding that says how it was chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus
from ensembed.errors import DimensionError, InputError, ViewError
from ensembed.methods import GCCA, SVD, Auto, Concat, Meta, Method
from ensembed.methods.base import MomentMethod
from ensembed.methods.passes import LOCAL, Passes
from ensembed.methods.weights import scales
from ensembed.models.tuning.cross_validation import Candidates, Choice, Verdict, check_direction, decide
from ensembed.models.tuning.labelled_pairs import LabelledPairs
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass


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
    from ensembed.reliability import reliability  # only here: it loads scipy.sparse

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


POWERS = (0.0, 0.5, 1.0, 2.0)
"""Of the label-free weights: 0 trusts all members alike, 1 is the label-free choice, 2 trusts the best one more."""
LEADS = 0.25
"""What the others count where one member in turn is given the lead."""
TAUS = (1.0, 10.0, 100.0)
PARTS_OF_DIM = (1, 2, 4)
"""svd and gcca keep the dimensions of the largest member, half of them, or a quarter."""

Weighting = tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Offer:
    """Methods, and the cosines of the pairs under each.

    Attributes:
        methods: fixed ones; the first is what the user would have had without labels.
        candidates: their cosines, and those of the members.
        first: the first method, fitted.
    """

    methods: tuple[Method, ...]
    candidates: Candidates
    first: Meta

    def method(self, choice: Choice) -> Method:
        """The method that was chosen, with its numbers."""
        return Concat(weights=choice.weights or ()) if choice.fixed is None else self.methods[choice.fixed]


def offer(
    method: Method,
    views: Sequence[Any],
    vectors: Sequence[NDArray[Any]],
    pairs: LabelledPairs,
    weights: Weighting,
    *,
    fit: Callable[[Method], Meta],
    how: Pass = Pass(),
    passes: Passes = LOCAL,
) -> Offer:
    """Fit everything that can be chosen, and let it say its cosines.

    A concatenation's cosine is a sum of the members' cosines, so its weights can be fitted to any set of pairs. svd and
    gcca have to be solved for given weights; they are tried with a few.

    Args:
        method: what would be fitted without labels, its weights found; if it has a dim, everything that is offered has
            the same.
        views: the members' views of the corpus.
        vectors: the members' vectors of `pairs.texts`.
        pairs: the labelled pairs; their scores are not read.
        weights: of the members, found without labels, or equal where they cannot be.
        fit: fits the method on the views.
        how: how passes over the views run; its progress receives the methods that are tried.
        passes: who makes the passes.
    """
    dim: int | None = getattr(method, "dim", None)
    weightings = _weightings(weights)
    total = 2 + len(weightings) + len(TAUS)

    def report(what: str, done: int) -> None:
        how.progress(f"tuning · {what}", done, total)

    report(method.name, 0)
    first = fit(method)
    found = {method: pairs.cosines(first.transform(vectors))}
    report("second moments", 1)
    dims = [view.shape[1] for view in views]
    quiet = Pass(threads=how.threads)
    raw, unit = (passes.moments(views, quiet, normalize=normalize) for normalize in (GCCA.normalize, SVD.normalize))
    for done, weighting in enumerate(weightings, 2):
        report(f"svd, weights {' '.join(f'{weight:.2g}' for weight in weighting)}", done)
        automatic = Auto(dim=dim, weights=weighting)
        if automatic not in found and (dim is not None or weighting == weights):
            found.update(_solved(automatic, unit, dims, vectors, pairs))
        found.update(_solved(SVD(dim=dim, weights=weighting), unit, dims, vectors, pairs))
    for done, tau in enumerate(TAUS, 2 + len(weightings)):
        report(f"gcca, tau {tau:g}", done)
        for together in _by_members(weightings):
            found.update(_gcca(GCCA(dim=dim, tau=tau), raw, dims, vectors, pairs, together))
    report("conc", total)
    fixed = np.stack(list(found.values()), axis=1)
    members = np.zeros((len(pairs), 0))
    if dim is None:
        members = np.stack([pairs.cosines(X) for X in vectors], axis=1)
    return Offer(tuple(found), Candidates(fixed, members, np.array(weights) / max(weights), pairs.groups), first)


def _weightings(weights: Weighting) -> list[Weighting]:
    """The label-free weights, less and more sharp, all members alike, and each in the lead.

    The last two take in members that are thought to say nothing: labels may know better.
    """
    w = np.array(weights) / max(weights)
    sharper = [w**power for power in POWERS]  # 0 ** 0 is 1
    leads = [np.where(np.arange(len(w)) == j, 1.0, LEADS) for j in range(len(w))]
    tuples = [tuple(float(one) for one in found) for found in (*sharper, *leads)]
    return list(dict.fromkeys([weights if one == tuple(w.tolist()) else one for one in tuples]))


def _solved(
    method: MomentMethod, moments: Moments, dims: Sequence[int], vectors: Sequence[NDArray[Any]], pairs: LabelledPairs
) -> Iterator[tuple[Method, NDArray[np.float64]]]:
    """The method and, where it has the choice, its shorter forms, with their cosines; nothing if it has no solution."""
    solution = _solve(method, moments, dims)
    if solution is not None:
        fitted, meta = solution
        X = meta.transform(vectors)
        for shorter, d in _lengths(fitted, method, meta.dim):
            yield shorter, pairs.cosines(X[:, :d])


def _by_members(weightings: Sequence[Weighting]) -> list[list[Weighting]]:
    """The weightings that leave out the same members, together."""
    groups: dict[tuple[bool, ...], list[Weighting]] = {}
    for weighting in weightings:
        groups.setdefault(tuple(weight > 0 for weight in weighting), []).append(weighting)
    return list(groups.values())


def _gcca(
    method: GCCA,
    moments: Moments,
    dims: Sequence[int],
    vectors: Sequence[NDArray[Any]],
    pairs: LabelledPairs,
    weightings: Sequence[Weighting],
) -> Iterator[tuple[Method, NDArray[np.float64]]]:
    """The method with weightings of the same members: solved once, as weights are those of the members' parts."""
    counted = tuple(float(weight > 0) for weight in weightings[0])
    solution = _solve(method.with_weights(counted), moments, dims)
    if solution is None:
        return
    fitted, meta = solution
    alone = []
    for j, X in enumerate(vectors):
        others: list[Any] = [None] * len(vectors)
        others[j] = X
        alone.append(meta.transform(others).astype(np.float64) if counted[j] else np.zeros((len(X), meta.dim)))
    for weighting in weightings:
        factors = scales(weighting, len(dims))
        X = sum(factor * part for factor, part in zip(factors, alone, strict=True))
        for shorter, d in _lengths(fitted.with_weights(weighting), method, meta.dim):
            yield shorter, pairs.cosines(np.asarray(X)[:, :d])


def _solve(method: Any, moments: Moments, dims: Sequence[int]) -> tuple[Any, Meta] | None:  # noqa: ANN401 - of any kind
    """The method, with as many dimensions as the corpus supports, and its solution; None where there is none."""
    try:
        return method, method.solve(moments, dims)
    except DimensionError as error:
        if method.dim is not None or not error.supported:
            return None  # a dim that was asked for is not replaced by another
        shorter = replace(method, dim=error.supported)
        return shorter, shorter.solve(moments, dims)
    except ViewError:
        return None


def _lengths(fitted: Any, asked: Any, dim: int) -> Iterator[tuple[Method, int]]:  # noqa: ANN401 - of any kind
    """The method as it is, or at several lengths where no dim was asked for, as its first dimensions do not change."""
    if asked.dim is not None or isinstance(asked, Auto):
        yield fitted, dim
        return
    for d in dict.fromkeys(max(dim // part, 1) for part in PARTS_OF_DIM):
        yield replace(fitted, dim=d), d
