"""Choosing weights, method, tau and dim on a few labelled pairs; the label-free path never reads a score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus, ListCorpus, check_sentences, shorten
from ensembed.errors import DimensionError, InputError, ViewError
from ensembed.methods import GCCA, SVD, Auto, Concat, Meta, Method
from ensembed.methods.method import MomentMethod
from ensembed.methods.passes import LOCAL, Passes
from ensembed.methods.weights import scales
from ensembed.models.cross_validation import Candidates, Choice, check_direction, decide
from ensembed.numerics.moments import Moments
from ensembed.numerics.pass_options import Pass
from ensembed.numerics.row_matrices import unit_rows
from ensembed.support.progress import Progress

LEAST = 10
"""The smallest number of pairs: the five folds of fewer have one pair each, or none."""
POWERS = (0.0, 0.5, 1.0, 2.0)
"""Powers of the label-free weights: 0 trusts all members alike, 1 is the label-free choice, 2 favours the best more."""
LEADS = 0.25
"""The weight of the others where one member in turn has the weight 1."""
TAUS = (1.0, 10.0, 100.0)
PARTS_OF_DIM = (1, 2, 4)
"""svd and gcca keep the dimensions of the largest member, half of them, or a quarter."""

Vector = NDArray[np.float64]
Weighting = tuple[float, ...]


class PairsLike(Protocol):
    """Labelled pairs by column, as `ensembed.sts.read_pairs` returns them."""

    @property
    def sentences1(self) -> Sequence[str]:
        """The first text of every pair."""

    @property
    def sentences2(self) -> Sequence[str]:
        """The second text of every pair."""

    @property
    def scores(self) -> Vector:
        """The similarity of every pair, on any scale; larger is more similar."""


Labels: TypeAlias = PairsLike | Sequence[tuple[float, str, str]]


@dataclass(frozen=True, eq=False)
class LabelledPairs:
    """Pairs that were checked.

    Attributes:
        texts: every distinct text once.
        first: [n] for every pair the place of its first text in `texts`.
        second: [n] the same of its second text.
        scores: [n] float64.
    """

    texts: tuple[str, ...]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    scores: Vector

    @classmethod
    def of(cls, labels: Labels) -> LabelledPairs:
        """Check the pairs of a user and return them.

        Raises:
            InputError: these are not pairs with scores, fewer than ten are different, or all have the same score.

        Example:
            >>> LabelledPairs.of([(i, f"text {i}", "the same") for i in range(10)]).texts[:3]
            ('text 0', 'the same', 'text 1')
        """
        values, texts1, texts2 = _columns(labels)
        for i, value in enumerate(values):
            if not isinstance(value, (int, float, np.integer, np.floating)):  # numpy would read text as numbers
                raise InputError(f"the score of labelled pair {i} is not a number: {shorten(value)}")
        try:
            scores = np.array(values, np.float64)
        except OverflowError as error:  # a whole number beyond floating point
            raise InputError(f"a score of the labelled pairs is too large: {error}") from error
        if not len(scores) == len(texts1) == len(texts2):
            raise InputError(
                f"there are {len(scores)} scores, {len(texts1)} first and {len(texts2)} second texts: every labelled "
                "pair has one of each"
            )
        _check_number(len(scores), "")
        if not np.isfinite(scores).all():
            bad = int(np.argmin(np.isfinite(scores)))
            raise InputError(f"the score of pair {bad} is {scores[bad]}; remove the pair or score it")
        if np.ptp(scores) <= 1e-13 * np.abs(scores).max():
            raise InputError(f"all {len(scores)} labelled pairs have the score {scores[0]}: nothing can be told apart")
        for i, text in enumerate(check_sentences([*texts1, *texts2])):
            if not text.strip():
                raise InputError(f"a text of labelled pair {i % len(texts1)} is empty; remove the pair")
        distinct = dict.fromkeys(text for pair in zip(texts1, texts2, strict=True) for text in pair)
        place = {text: i for i, text in enumerate(distinct)}
        first, second = (np.array([place[text] for text in texts]) for texts in (texts1, texts2))
        pairs = cls(tuple(place), first, second, scores)
        _check_number(len(np.unique(pairs.groups)), "different ")
        return pairs

    @property
    def corpus(self) -> ListCorpus:
        """The distinct texts, whose views a store keeps."""
        return ListCorpus(self.texts)

    @property
    def groups(self) -> NDArray[np.int64]:
        """[n] the same number for pairs of the same two texts, in either order."""
        low, high = np.minimum(self.first, self.second), np.maximum(self.first, self.second)
        return np.asarray(low * len(self.texts) + high, np.int64)

    def __len__(self) -> int:
        return len(self.scores)

    def cosines(self, vectors: NDArray[Any]) -> Vector:
        """Return the cosine of every pair [n] from the vectors [len(texts), d]; 0 where a vector is zero."""
        X = unit_rows(np.asarray(vectors, np.float64))
        cosines: Vector = np.einsum("nd,nd->n", X[self.first], X[self.second])
        return cosines


def _columns(labels: Any) -> tuple[list[Any], list[str], list[str]]:  # noqa: ANN401 - the input of a user
    if all(hasattr(labels, name) for name in ("scores", "sentences1", "sentences2")):
        return list(labels.scores), list(labels.sentences1), list(labels.sentences2)
    if isinstance(labels, str | bytes) or not isinstance(labels, Sequence):
        raise InputError(
            f"labelled pairs are a list of (score, text, text), not {shorten(labels)}; "
            "a file of them is read by ensembed.sts.read_pairs"
        )
    for i, row in enumerate(labels):
        if isinstance(row, str) or not isinstance(row, Sequence) or len(row) != 3:
            raise InputError(f"labelled pair {i} is not (score, text, text): {shorten(row)}")
    return [row[0] for row in labels], [row[1] for row in labels], [row[2] for row in labels]


def _check_number(pairs: int, which: str) -> None:
    if pairs < LEAST:
        raise InputError(
            f"tuning needs at least {LEAST} {which}labelled pairs, got {pairs}: label more, or leave `tune` out"
        )


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
    """Choose a method on labelled pairs and fit it on the views.

    Candidates are the method itself, `Auto`, concatenations with fitted weights, svd and gcca with several weights,
    dims and taus. The method stays unless choosing gains more than one standard error on other pairs (`decide`).

    Args:
        method: what would be fitted without labels. If it has a `dim`, that is kept.
        views: the members' views [n, d_j] of the corpus.
        pairs: at least ten labelled pairs.
        pair_views: the members' views of `pairs.texts`.
        fit: fits a method on the views; None calls its `fit`.
        sentences: the sentences of the views; the label-free weights are surer with them.
        names: the names of the members.
        seed: seed of the folds.
        how: how passes over the views run; its progress receives the methods that are tried.
        passes: what makes the passes.

    Returns:
        The fitted method; its facts say under `tuned` how it was chosen: `pairs`, `kept`, `gain` and its `error` in
        parts of the scores' variance (`Verdict`), `shrinkage` and `seed`.

    Raises:
        InputError: the scores contradict every candidate.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> good, noise = rng.standard_normal((300, 8)), rng.standard_normal((300, 8))
        >>> texts = [f"text {i}" for i in range(300)]
        >>> cosine = lambda i: float(good[i] @ good[i + 1] / np.linalg.norm(good[i]) / np.linalg.norm(good[i + 1]))
        >>> pairs = LabelledPairs.of([(cosine(i), texts[i], texts[i + 1]) for i in range(0, 200, 2)])
        >>> views = [good, noise]
        >>> meta = tune_method(Concat(), views, pairs, [view[:200] for view in views], sentences=texts)
        >>> meta.method["weights"][0] > 10 * meta.method["weights"][1]
        True
    """
    fit = fit or (lambda method: method.fit(views, passes=passes, threads=how.threads, progress=how.progress))
    first, weights = _without_labels(method, views, sentences, names, how.progress)
    vectors = [np.asarray(view[: len(pairs.texts)]) for view in pair_views]
    offered = offer(first, views, vectors, pairs, weights, fit=fit, how=how, passes=passes)
    check_direction(offered.candidates, pairs.scores)
    verdict = decide(offered.candidates, pairs.scores, seed=seed)
    kept = verdict.choice.fixed == 0
    meta = offered.first if kept else fit(offered.method(verdict.choice))
    gain = {"gain": round(verdict.gain, 6), "error": round(verdict.error, 6)}
    note = {"pairs": len(pairs), "kept": kept, **gain, "shrinkage": verdict.choice.shrinkage, "seed": seed}
    # The sentences were used, even where the chosen method itself needs none.
    return replace(meta, method={**meta.method, "tuned": note}, rows=views[0].shape[0])


def _without_labels(
    method: Method,
    views: Sequence[Any],
    sentences: Corpus | Sequence[str] | None,
    names: Sequence[str] | None,
    progress: Progress,
) -> tuple[Method, Weighting]:
    """Return the method that would be fitted without labels, and the members' weights by reliability.

    They are equal, or those of the method, where nothing can be estimated, for example from a few sentences: labels can
    still choose.
    """
    from ensembed.reliability.trust_estimate import reliability  # only here: it loads scipy.sparse

    try:
        estimate = reliability(views, sentences=sentences, names=names, progress=progress)
    except InputError:
        if method.weighting == "reliability":
            raise
        return method, (1.0,) * len(views) if isinstance(method.weighting, str) else method.weighting
    if method.weighting == "reliability":
        method = replace(method.trusting(estimate), origin=estimate.origin)
    return method, tuple(float(weight) for weight in estimate.weights)


def describe(note: Mapping[str, Any]) -> str:
    """Return in words how a method was chosen; `note` is what `tune_method` puts under `tuned`.

    Example:
        >>> describe({"pairs": 40, "kept": False, "gain": 0.031, "error": 0.012})
        "on 40 labelled pairs: gains 3.1% (standard error 1.2%) of the scores' variance on pairs it was not chosen on"
    """
    gain = f"{100 * abs(note['gain']):.1f}% (standard error {100 * note['error']:.1f}%) of the scores' variance"
    if not note["kept"]:
        outcome = f"gains {gain} on pairs it was not chosen on"
    elif note["gain"] == 0 or note["gain"] > note["error"]:  # choosing is worth it, but on all pairs chooses the same
        outcome = "the method stays, as nothing else is better on all of them"
    elif note["gain"] < 0:
        outcome = f"the method stays, as another would lose {gain} on pairs it was not chosen on"
    else:
        outcome = f"the method stays, as another would gain {gain}, no more than noise"
    return f"on {note['pairs']} labelled pairs: {outcome}"


@dataclass(frozen=True, eq=False)
class Offer:
    """Methods, and the cosines of the pairs under each.

    Attributes:
        methods: methods with fixed weights; the first is what the user would have without labels.
        candidates: their cosines, and those of the members.
        first: the first method, fitted.
    """

    methods: tuple[Method, ...]
    candidates: Candidates
    first: Meta

    def method(self, choice: Choice) -> Method:
        """Return the method that was chosen, with its numbers."""
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
    """Fit every method that can be chosen and return the pairs' cosines under each.

    A concatenation's weights can be fitted to any pairs; svd and gcca are solved for a few given weights.

    Args:
        method: what would be fitted without labels, with numbers for weights; if it has a dim, every candidate has it.
        views: the members' views of the corpus.
        vectors: the members' vectors of `pairs.texts`.
        pairs: the labelled pairs; their scores are not read.
        weights: the members' label-free weights, or equal ones where they cannot be estimated.
        fit: fits the method on the views.
        how: how passes over the views run; its progress receives the methods that are tried.
        passes: what makes the passes.
    """
    dim: int | None = getattr(method, "dim", None)
    weightings = _weightings(weights)
    total = 2 + len(weightings) + len(TAUS)

    def report(what: str, done: int) -> None:
        how.progress(f"tuning · {what}", done, total)

    report(method.name, 0)
    first = fit(method)
    cosines: dict[Method, Vector] = {method: pairs.cosines(first.transform(vectors))}
    report("second moments", 1)
    quiet = Pass(threads=how.threads)
    raw, unit = (passes.moments(views, quiet, normalize=normalize) for normalize in (GCCA.normalize, SVD.normalize))
    for done, weighting in enumerate(weightings, 2):
        report(f"svd, weights {' '.join(f'{weight:.2g}' for weight in weighting)}", done)
        automatic = Auto(dim=dim, weights=weighting)
        if automatic not in cosines and (dim is not None or weighting == weights):
            cosines.update(_cosines(automatic, unit, vectors, pairs))
        cosines.update(_cosines(SVD(dim=dim, weights=weighting), unit, vectors, pairs))
    groups: dict[Weighting, list[Weighting]] = {}  # the weightings that leave out the same members, together
    for weighting in weightings:
        groups.setdefault(tuple(float(weight > 0) for weight in weighting), []).append(weighting)
    for done, tau in enumerate(TAUS, 2 + len(weightings)):
        report(f"gcca, tau {tau:g}", done)
        for counted, group in groups.items():
            cosines.update(_cosines(GCCA(dim=dim, tau=tau, weights=counted), raw, vectors, pairs, group))
    report("conc", total)
    fixed = np.stack(list(cosines.values()), axis=1)
    # A concatenation has no dim to choose.
    members = np.stack([pairs.cosines(X) for X in vectors], axis=1) if dim is None else np.zeros((len(pairs), 0))
    return Offer(tuple(cosines), Candidates(fixed, members, np.array(weights) / max(weights), pairs.groups), first)


def _weightings(weights: Weighting) -> list[Weighting]:
    """Return the label-free weights, less and more sharp, equal ones, and each member, even of 0, in the lead."""
    w = np.array(weights) / max(weights)
    arrays = [w**power for power in POWERS]  # 0 ** 0 is 1
    arrays += [np.where(np.arange(len(w)) == j, 1.0, LEADS) for j in range(len(w))]
    return list(dict.fromkeys(weights if (array == w).all() else tuple(array.tolist()) for array in arrays))


def _cosines(
    method: MomentMethod,
    moments: Moments,
    vectors: Sequence[NDArray[Any]],
    pairs: LabelledPairs,
    weightings: Sequence[Weighting] = (),
) -> Iterator[tuple[Method, Vector]]:
    """Yield the method with the cosines of the pairs, at several lengths where no dim was asked for.

    Yields nothing if there is no solution. With `weightings`, yield the method with each of them.
    """
    dims = [X.shape[1] for X in vectors]
    fitted: Any = method
    asked = fitted.dim
    try:
        meta = method.solve(moments, dims)
    except DimensionError as error:
        if asked is not None or not error.supported:
            return  # a dim that was asked for is not replaced by another
        fitted = replace(fitted, dim=error.supported)
        meta = fitted.solve(moments, dims)
    except ViewError:
        return
    # The first dimensions of a longer solution are the shorter solution; a concatenation has no such order.
    cut = asked is None and meta.spectrum is not None
    weighted = _weighted(fitted, meta, vectors, weightings) if weightings else [(fitted, meta.transform(vectors))]
    for solution, X in weighted:
        if not cut:
            yield solution, pairs.cosines(X)
            continue
        for dim in dict.fromkeys(max(meta.dim // part, 1) for part in PARTS_OF_DIM):
            yield replace(solution, dim=dim), pairs.cosines(X[:, :dim])


def _weighted(
    method: GCCA, meta: Meta, vectors: Sequence[NDArray[Any]], weightings: Sequence[Weighting]
) -> Iterator[tuple[GCCA, Vector]]:
    """Yield gcca with weightings of the same members, solved once: weights only scale the members' parts."""
    parts = []
    for j, X in enumerate(vectors):
        alone = [X if i == j else None for i in range(len(vectors))]
        counts = weightings[0][j] > 0
        parts.append(meta.transform(alone).astype(np.float64) if counts else np.zeros((len(X), meta.dim)))
    for weighting in weightings:
        factors = scales(weighting, len(vectors))
        yield method.with_weights(weighting), np.einsum("j,jnd->nd", factors, np.stack(parts))
