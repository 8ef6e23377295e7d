"""Which members to trust, estimated without labels: the steps from views to weights."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus, check_sentences
from ensembed.errors import InputError, ViewError
from ensembed.numerics.row_matrices import Matrix, check_views, non_finite, unit_rows
from ensembed.reliability.agreement import (
    Near,
    Roles,
    correlations,
    cosines,
    near_pairs,
    near_sentences,
    roles_of,
    weights,
)
from ensembed.reliability.lexical import DIM, Lexical, lexical_features
from ensembed.reliability.sufficiency import SoftWhitening, lead, predictions
from ensembed.support.checks import check_whole
from ensembed.support.progress import Progress, silent

Matrix64 = NDArray[np.float64]

Decided: TypeAlias = Literal["lead", "words", "nothing"]

LEAST_ROWS = 50
"""Fewer distinct sentences do not show which of several members is the best."""
# Sentences for each dimension of words and of letters: with fewer, a regression on them overfits.
_ROWS_A_DIM = 20
_INTERVAL = (2.5, 97.5)
LEVEL = 0.01
"""Differences of leads below this are noise: they change sign between corpora."""
# Sampled rows that lie closer together than this are read in one go.
_BLOCK = 4096
# Random pairs, for the cosine of unrelated sentences under the best member.
_RANDOM = 5000


_zero, _one = partial(np.zeros, 1), partial(np.ones, 1)


@dataclass(frozen=True, eq=False)
class Reliability:
    """How far each of J members can be trusted, estimated without labels.

    Attributes:
        names: the members.
        sufficiency: [J, J] the part of what member j says, beyond the words of a sentence, that a linear map of what
            member i says predicts of sentences it was not fitted on; the diagonal is 1.
        lead: [J] a member's R^2 for its strongest rival minus the rival's R^2 for it; 0 for mute members.
        lead_low: [J] the lower end of its 95% bootstrap interval.
        lead_high: [J] the upper end.
        agreement: [J] how a member's cosines correlate with the best one's, over pairs that are near under the best.
        weights: [J] the weights of the members' cosines: 1 for the best, 0 for members that say next to nothing, one
            shared by copies. Above 1 where a member's cosines have less spread: it counts for less all the same.
        weights_low: [J] the lower end of their 95% bootstrap interval.
        weights_high: [J] the upper end.
        whitened_weights: [J] the same for vectors of which those of `whitened` are softly whitened: what `Auto` takes.
        whitened: the places of the members that gain by it: all but the best, its copies, and those that say nothing.
        mute: names of members that say nothing: constant, random, or of other sentences.
        copies: for each member the place of the first member that says the same; its own where there is none.
        sentences: the number of sentences in the sample.
        pairs: the number of pairs of sentences that are near under the best.
        lexical: whether the sentences' words were known, so that what they explain could be left out.
        seed: seed of the random samples.
        sure: the part of the bootstrap samples in which the best member is the best one.
        best: the place of the member, not mute, with the largest lead; of equal leads the one that follows words least.
        decided: what made it the best: "lead", "words" (among equal leads), or "nothing", where all count the same.
    """

    names: tuple[str, ...]
    sentences: int
    lexical: bool
    seed: int
    # The other defaults are those of a single member.
    sufficiency: Matrix64 = field(default_factory=partial(np.eye, 1))
    lead: Matrix64 = field(default_factory=_zero)
    lead_low: Matrix64 = field(default_factory=_zero)
    lead_high: Matrix64 = field(default_factory=_zero)
    agreement: Matrix64 = field(default_factory=_one)
    weights: Matrix64 = field(default_factory=_one)
    weights_low: Matrix64 = field(default_factory=_one)
    weights_high: Matrix64 = field(default_factory=_one)
    whitened_weights: Matrix64 = field(default_factory=_one)
    whitened: tuple[int, ...] = ()
    mute: tuple[str, ...] = ()
    copies: tuple[int, ...] = (0,)
    pairs: int = 0
    sure: float = 1.0
    best: int = 0
    decided: Decided = "lead"

    @property
    def origin(self) -> dict[str, Any]:
        """The facts that a fitted method keeps about weights by reliability."""
        facts = {"trusted": self.best, "decided": self.decided, "sure": round(self.sure, 3)}
        return {"weights_from": "reliability", **facts}


def reliability(
    views: Sequence[Any],
    *,
    sentences: Corpus | Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    rows: int = 6000,
    queries: int = 1500,
    neighbours: int = 5,
    resamples: int = 200,
    seed: int = 0,
    progress: Progress = silent,
) -> Reliability:
    """Estimate how far each member of an ensemble can be trusted, without labels.

    The best member predicts its strongest rival better than the rival predicts it, beyond what the words of the
    sentences predict (`ensembed.reliability.sufficiency`; after Darrin et al. 2024, "When is an Embedding Model More
    Promising than Another?"). Among equal leads it is the one whose cosines depend least on shared words. The weight of
    another member depends on how its cosines of near sentences agree with the best one's, on how well it predicts the
    best, and on how much of that no other member has (`ensembed.reliability.agreement`).

    A member that agrees neither with another member nor with the words is mute: its weight is 0. Copies of a member
    share one weight. If no two members agree, all members whose vectors differ between sentences have the same weight.

    The estimate cannot distinguish information from noise, as the others predict neither: a good member with much noise
    added can seem to lead. It does not judge cosines either: a member with many dimensions has more information than
    one that was cut to few, even if the cosines of the latter are better. The intervals are those of a bootstrap over
    sentences and queries, given the regressions; they do not hold for sentences of another kind.

    Args:
        views: row-aligned arrays [n, d_j], memory maps or stored views. Only sampled rows are kept in memory.
        sentences: those of the rows; without them the estimate is less sure, and repeated sentences are not found.
        names: what to call the members; by default `view 0`, `view 1` and so on.
        rows: how many distinct sentences to sample; all if there are no more.
        queries: how many of them to look for near sentences of.
        neighbours: how many near sentences of each, under every member in turn.
        resamples: number of bootstrap samples.
        seed: seed of the random samples.
        progress: receives the steps that are done.

    Raises:
        InputError: there are several members and fewer than 50 distinct sentences, or an argument is out of range.
        ViewError: the views do not fit together, hold NaN or Inf, or none of them tells sentences apart.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> truth = rng.standard_normal((400, 12))
        >>> good, fair = (truth[:, :known] + 0.1 * rng.standard_normal((400, known)) for known in (12, 9))
        >>> estimate = reliability([fair, good, np.ones((400, 3))], names=["fair", "good", "constant"])
        >>> estimate.names[estimate.best], estimate.mute
        ('good', ('constant',))
        >>> estimate.weights[1:]
        array([1., 0.])
    """
    checked = check_views(views)
    J = len(checked)
    names = tuple(f"view {j}" for j in range(J)) if names is None else tuple(names)
    if len(names) != J or len(set(names)) != J:
        raise InputError(f"{J} views need {J} different names, got {list(names)}")
    for name, value in (("queries", queries), ("neighbours", neighbours), ("resamples", resamples)):
        check_whole(name, value, 1)
    check_whole("rows", rows, LEAST_ROWS)
    check_whole("seed", seed, 0)
    sample = sample_rows(checked[0].shape[0], sentences, rows, seed)
    if J > 1 and len(sample) < LEAST_ROWS:
        raise InputError(
            f"which of {J} members to trust takes at least {LEAST_ROWS} distinct sentences to find out, got "
            f"{len(sample)}: take a larger corpus, or let all members count the same (weights='equal')"
        )
    vectors = []
    for j, view in enumerate(checked):
        vectors.append(sample_vectors(view, sample, j))
        progress("sampled vectors", j + 1, J)
    if J == 1:
        return Reliability(names, len(sample), sentences is not None, seed)
    lexical = None if sentences is None else lexical_features(tuple(sample_sentences(sentences, sample)))
    chosen = np.random.default_rng([seed, 1]).choice(len(sample), min(queries, len(sample)), replace=False)
    near = near_sentences(vectors, np.sort(chosen), min(neighbours, len(sample) - 1), progress)
    roles = roles_of(near, vectors, lexical, np.random.default_rng([seed, 3]))
    return _Estimate(vectors, near, roles, lexical, seed).reliability(names, resamples, progress)


@dataclass(frozen=True, eq=False)
class _Weighted:
    """Agreement and weights if one member is the best, in every bootstrap sample [resamples, ...]."""

    agreement: Matrix64
    plain: Matrix64
    whitened: Matrix64
    pairs: int


@dataclass(frozen=True, eq=False)
class _Estimate:
    """The data of one estimate.

    Attributes:
        vectors: the members' [n, d_j], of length one.
        near: which sentences are near under which member.
        roles: which members are used.
        lexical: the words of the sentences, where they are known.
        seed: seed of the random samples.
    """

    vectors: Sequence[Matrix64]
    near: Near
    roles: Roles
    lexical: Lexical | None
    seed: int

    def reliability(self, names: tuple[str, ...], resamples: int, progress: Progress) -> Reliability:
        """Return the order and the weights of the members, with intervals."""
        J, live, copies = len(self.vectors), self.roles.live, self.roles.copies
        own = [j for j in live if copies[j] == j]
        place = np.array([own.index(copies[j]) for j in live])
        rng = np.random.default_rng([self.seed, 2])
        R, whitened_vectors = self._sufficiency(own, resamples, rng, progress)
        queries = len(self.near.queries)
        counts = np.vstack([np.ones(queries), rng.poisson(1.0, (resamples, queries))])
        leads = lead(R)
        wordiness, spreads = self._wordiness_and_spreads(own, place)
        best = _best(leads, wordiness)
        by_best = {b: self._beside(own, int(b), whitened_vectors, R, counts) for b in np.unique(best)}
        weighted, plain, whitened = by_best[best[0]], *np.ones((2, len(best), len(own)))
        if self.roles.known:
            plain = np.stack([by_best[b].plain[i] for i, b in enumerate(best)])
            whitened = np.stack([by_best[b].whitened[i] for i, b in enumerate(best)])
        # Values of the distinct members [..., own] become those of all [..., J]; mute ones have a column of zeros.
        column = [own.index(copies[j]) if j in live else len(own) for j in range(J)]
        leads, agreement, plain, whitened, share = (
            np.concatenate([values, np.zeros((*values.shape[:-1], 1))], axis=-1)[..., column]
            for values in (leads, weighted.agreement[0], plain, whitened, 1 / np.bincount(place, minlength=len(own)))
        )
        # Members that say the same share one weight, each for its own spread.
        plain, whitened = plain * (share * spreads), whitened * (share * spreads)
        sufficiency = np.eye(J)
        sufficiency[np.ix_(live, live)] = R[0][np.ix_(place, place)]
        first = own[int(best[0])]
        (lead_low, lead_high), (low, high) = (np.percentile(of[1:], _INTERVAL, axis=0) for of in (leads, plain))
        others = [j for j in range(J) if copies[j] != first and self.roles.known]
        equal = [j for j in others if j in live and leads[0][j] >= leads[0][first] - LEVEL]
        decided: Decided = "words" if equal and self.lexical is not None else "lead"
        return Reliability(
            names=names,
            sufficiency=sufficiency,
            lead=leads[0],
            lead_low=lead_low,
            lead_high=lead_high,
            agreement=agreement,
            weights=plain[0],
            weights_low=low,
            weights_high=high,
            whitened_weights=whitened[0],
            whitened=tuple(j for j in others if whitened[0][j]),
            mute=tuple(name for j, name in enumerate(names) if j not in live),
            copies=tuple(copies),
            sentences=len(self.vectors[0]),
            pairs=weighted.pairs,
            lexical=self.lexical is not None,
            seed=self.seed,
            sure=float(np.mean(best[1:] == best[0])),
            best=first,
            decided=decided if self.roles.known else "nothing",
        )

    def _sufficiency(
        self, own: Sequence[int], resamples: int, rng: np.random.Generator, progress: Progress
    ) -> tuple[Matrix64, list[Matrix64]]:
        """Return what each distinct member predicts of each [1 + resamples, own, own], and their whitened vectors."""
        n, X = len(self.vectors[0]), [self.vectors[j] for j in own]
        whitenings = [SoftWhitening.of(member) for member in X]
        leading = [whitening.apply(member, leading_only=True) for whitening, member in zip(whitenings, X, strict=True)]
        features = None if self.lexical is None else self.lexical.features(self.seed, min(DIM, n // _ROWS_A_DIM))
        explained = predictions(leading, features, rng, progress).explained
        # The first "resample" is the sample itself.
        R = explained(np.vstack([np.ones(n), rng.poisson(1.0, (resamples, n))]))
        return R, [whitening.apply(member) for whitening, member in zip(whitenings, X, strict=True)]

    def _beside(
        self, own: Sequence[int], b: int, whole: Sequence[Matrix64], R: Matrix64, counts: Matrix64
    ) -> _Weighted:
        """Return the weights of the members if the one at place b is the best, in every bootstrap sample."""
        X = [self.vectors[j] for j in own]
        pairs = near_pairs([self.near.neighbours[own[b]]], self.near.queries, len(X[0]))
        plain = cosines(X, pairs.pairs)
        whitened = cosines(whole, pairs.pairs)
        whitened[b] = plain[b]
        random = np.random.default_rng([self.seed, 4]).integers(0, len(X[0]), (_RANDOM, 2))
        level = float(cosines([X[b]], random[random[:, 0] != random[:, 1]]).mean())
        weighed = []
        for C in (plain, whitened):
            r, spread = correlations(C, pairs.owner, counts)
            samples = zip(r, spread, R, strict=True)
            weighed.append((r[:, b], np.array([weights(b, q, sd, level, S) for q, sd, S in samples])))
        (agreement, by_plain), (_, by_whitened) = weighed
        return _Weighted(agreement, by_plain, by_whitened, len(pairs.pairs))

    def _wordiness_and_spreads(self, own: Sequence[int], place: NDArray[Any]) -> tuple[Matrix64 | None, Matrix64]:
        """Return two facts about the cosines of pairs that are near under any member.

        The first is their correlation [own] with the words', None without any; the second is [J] the spread of a
        member's first copy in parts of the member's own spread.
        """
        live = self.roles.live
        pairs = near_pairs([self.near.neighbours[j] for j in own], self.near.queries, len(self.vectors[0]))
        C = cosines([self.vectors[j] for j in live], pairs.pairs)
        firsts = [live.index(j) for j in own]
        spread, ratios, wordiness = C.std(axis=1), np.ones(len(self.vectors)), None
        ratios[live] = np.divide(spread[firsts][place], spread, out=np.ones_like(spread), where=spread > 0)
        if self.lexical is not None:
            with_words = np.vstack([C[firsts], self.lexical.cosines(pairs.pairs)])
            [r], [deviation] = correlations(with_words, pairs.owner, np.ones((1, len(self.near.queries))))
            wordiness = r[-1, :-1] if deviation[-1] > 0 else None
        return wordiness, ratios


def _best(leads: Matrix64, wordiness: Matrix64 | None) -> NDArray[np.int64]:
    """Return the place [resamples] of the best: among equal leads, the one that depends least on shared words."""
    if wordiness is None:
        return np.asarray(leads.argmax(axis=1))
    level = leads >= leads.max(axis=1, keepdims=True) - LEVEL
    return np.asarray(np.where(level, wordiness, np.inf).argmin(axis=1))


def sample_rows(n: int, sentences: Corpus | Sequence[str] | None, rows: int, seed: int) -> NDArray[np.int64]:
    """Return the numbers, rising, of at most `rows` of n rows, chosen at random; repeated sentences count once.

    Raises:
        InputError: there are not n sentences.
    """
    distinct = np.arange(n)
    if sentences is not None:
        if not isinstance(sentences, (Corpus, Sequence)) or isinstance(sentences, str):
            raise InputError(f"sentences are a list or a corpus, not a {type(sentences).__name__}")
        if len(sentences) != n:
            raise InputError(f"there are {len(sentences)} sentences for views of {n} rows: row i is of sentence i")
        if isinstance(sentences, Corpus):
            distinct = np.flatnonzero(sentences.index.first_rows == distinct)
        else:
            first: dict[str, int] = {}
            for row, sentence in enumerate(check_sentences(sentences)):
                first.setdefault(sentence, row)
            distinct = np.array(list(first.values()), np.int64)
    if rows < len(distinct):
        distinct = np.sort(np.random.default_rng(seed).choice(distinct, rows, replace=False))
    return distinct


def sample_sentences(sentences: Corpus | Sequence[str], rows: NDArray[np.int64]) -> list[str]:
    """Return the sentences of these rows, which rise; a corpus is read as a stream."""
    if not isinstance(sentences, Corpus):
        return check_sentences([sentences[int(row)] for row in rows])
    wanted = set(rows.tolist())
    first_rows = itertools.islice(sentences, max(wanted, default=-1) + 1)
    return [sentence for row, sentence in enumerate(first_rows) if row in wanted]


def sample_vectors(view: Matrix, rows: NDArray[np.int64], number: int) -> Matrix64:
    """Return rows [m, d] of a view, scaled to length one; shards without such rows are not read.

    Raises:
        ViewError: one of them holds NaN or Inf.
    """
    result = np.empty((len(rows), view.shape[1]))
    done = 0
    while done < len(rows):
        first = int(rows[done])
        end = int(np.searchsorted(rows, first + _BLOCK))
        stretch = np.asarray(view[first : int(rows[end - 1]) + 1])
        X = stretch[rows[done:end] - first].astype(np.float64)
        if not np.isfinite(X).all():
            raise ViewError(non_finite([stretch], first, [number]))
        result[done:end] = unit_rows(X)
        done = end
    return result
