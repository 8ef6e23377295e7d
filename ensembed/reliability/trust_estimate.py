"""Which members to trust, estimated without labels: the steps from views to weights."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
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
    dependence,
    near_pairs,
    near_sentences,
    roles_of,
    weight_factors,
)
from ensembed.reliability.lexical import DIM, Lexical, lexical_features
from ensembed.reliability.sufficiency import SoftWhitening, Surface, explained, lead, standing_parts
from ensembed.support.checks import check_whole
from ensembed.support.progress import Progress, silent
from ensembed.support.shown_objects import Facts, Shown, short_value

Matrix64 = NDArray[np.float64]

Decided: TypeAlias = Literal["lead", "words", "level", "nothing", "too few"]

LEAST_ROWS = 50
"""With fewer distinct sentences members cannot be compared."""
# Sentences for each dimension of words and of letters: with fewer, a regression on them overfits.
_ROWS_A_DIM = 20
_INTERVAL = (2.5, 97.5)
CONFIDENCE = 1.1
"""The log-odds, per unit of standing, that the higher member has the better cosines. Fitted on STS-B dev to pairs of
whole and of made encoders (cut, with noise, with fewer layers): results/field.md."""
LEVEL_BELOW = 0.6
"""If the best member is the best with less probability than this, the members are called level."""
# Sampled rows that lie closer together than this are read in one go.
_BLOCK = 4096


_ORIGIN = {"weights_from": "reliability"}
_zero, _one = partial(np.zeros, 1), partial(np.ones, 1)


@dataclass(frozen=True, eq=False, repr=False)
class Reliability(Shown):
    """How far each of J members can be trusted, estimated without labels.

    Attributes:
        names: the members.
        sufficiency: [J, J] the part of the leading directions of member j, beyond the words of a sentence, that a
            linear map of those of member i predicts of sentences it was not fitted on; the diagonal is 1.
        lead: [J] a member's R^2 for its strongest rival minus the rival's R^2 for it; 0 for mute members.
        lead_low: [J] the lower end of its 95% bootstrap interval.
        lead_high: [J] the upper end.
        standing: [J] how far a member stands above its strongest rival: 1 is some, 3 is much; 0 for mute members.
        standing_parts: [J, 4] what it adds up from: lead, effective dimensions, and how much less the cosines depend on
            lengths and on shared words.
        standings: [J, J] how far each member stands above each other one; its least off the diagonal is `standing`.
        agreement: [J] how a member's cosines correlate with the best one's, over pairs that are near under the best.
        correlations: [J, J] how those of every two members correlate, over near and random pairs.
        weights: [J] the weights of the members' cosines: 1 for the best, 0 for members that say next to nothing, one
            shared by copies. It can be above 1 for a member whose cosines have less spread, which still counts for
            less than the best. With too few sentences all members count the same, each for the spread of its cosines.
        factors: [J, 3] the factors whose products are the weights that `Auto` takes: trust, what no other member says,
            and spread.
        whitened_weights: [J] the same for vectors of which those of `whitened` are softly whitened: what `Auto` takes.
        weights_low: [J] the lower end of the 95% bootstrap interval of `whitened_weights`.
        weights_high: [J] the upper end.
        whitened: the places of the members that gain by it: all but the best, its copies, and those that say nothing.
        mute: names of members that say nothing: constant, random, or of other sentences.
        copies: for each member the place of the first member that says the same; its own where there is none.
        sentences: the number of sentences in the sample.
        needed: the number of sentences that it takes to prefer one member; with fewer all count the same.
        pairs: the number of pairs of sentences: those that are near under some member, and random ones.
        lexical: whether the sentences' words were known, so that what they explain could be left out.
        seed: seed of the random samples.
        sure: the probability that the best member's cosines are better than its strongest rival's, by how often that
            was so for encoders of this standing, in the mean over the bootstrap samples; 0 with too few sentences.
        best: the place of the member, not mute, with the highest standing.
        decided: what made it the best: "lead", "words" (another one has the larger lead, but this one more dimensions,
            or cosines that depend less on words and lengths), "level" (it is hardly better than its rivals, if at all,
            and the strongest counts nearly as much), or "nothing" and "too few" (sentences), where all count the same.
        origin: the facts that a fitted method keeps about weights by reliability.
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
    standing: Matrix64 = field(default_factory=_zero)
    standing_parts: Matrix64 = field(default_factory=partial(np.zeros, (1, 4)))
    standings: Matrix64 = field(default_factory=partial(np.zeros, (1, 1)))
    agreement: Matrix64 = field(default_factory=_one)
    correlations: Matrix64 = field(default_factory=partial(np.ones, (1, 1)))
    weights: Matrix64 = field(default_factory=_one)
    factors: Matrix64 = field(default_factory=partial(np.ones, (1, 3)))
    weights_low: Matrix64 = field(default_factory=_one)
    weights_high: Matrix64 = field(default_factory=_one)
    whitened_weights: Matrix64 = field(default_factory=_one)
    whitened: tuple[int, ...] = ()
    mute: tuple[str, ...] = ()
    copies: tuple[int, ...] = (0,)
    pairs: int = 0
    needed: int = 0
    sure: float = 1.0
    best: int = 0
    decided: Decided = "lead"
    origin: Mapping[str, Any] = field(default_factory=partial(dict, _ORIGIN, trusted=0, decided="lead", sure=1.0))

    def _facts(self) -> Facts:
        figures = zip(self.names, self.weights, self.lead, self.agreement, strict=True)
        members = [(name, f"weight {w:.3g}, lead {lead:+.3f}, agrees {r:.2f}") for name, w, lead, r in figures]
        names = ("decided", "sure", "mute", "sentences", "pairs", "lexical", "seed")
        return [
            ("best", self.names[self.best]),
            *members,
            *((name, short_value(getattr(self, name))) for name in names),
        ]

    def __repr__(self) -> str:
        weights = ", ".join(f"{name}: {w:.3g}" for name, w in zip(self.names, self.weights, strict=True))
        return f"Reliability(best={self.names[self.best]!r}, weights={{{weights}}}, sentences={self.sentences})"


def reliability(
    views: Sequence[Any],
    *,
    sentences: Corpus | Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    rows: int = 6000,
    queries: int = 1500,
    neighbours: int = 5,
    resamples: int = 200,
    needed: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Reliability:
    """Estimate how far each member of an ensemble can be trusted, without labels.

    The best member predicts its strongest rival better than the rival predicts it, beyond what the words of the
    sentences predict (`ensembed.reliability.sufficiency`; after Darrin et al. 2024, "When is an Embedding Model More
    Promising than Another?"). Its vectors use more dimensions, and its cosines depend less on the words and lengths of
    sentences. The weight of another member depends on how far below the best it stands, on how its cosines of near
    sentences agree with the best one's, and on how much of what it says no other member says
    (`ensembed.reliability.agreement`).

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
        queries: for how many of them near sentences are searched.
        neighbours: how many near sentences each of these has, under every member.
        resamples: number of bootstrap samples.
        needed: how many distinct sentences it takes to prefer one member. None takes the dimension of the largest one:
            with fewer the wrong one can be trusted most, in up to 85% of the bootstrap samples, because these share the
            errors of the regressions (results/reliability-sizes.md).
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
    if needed is not None:
        check_whole("needed", needed, 0)
    sample = sample_rows(checked[0].shape[0], sentences, rows, seed)
    if J > 1 and len(sample) < LEAST_ROWS:
        raise InputError(
            f"at least {LEAST_ROWS} distinct sentences are needed to find out which of {J} members to trust, got "
            f"{len(sample)}: take a larger corpus, or let all members count the same (weights='equal')"
        )
    vectors = []
    for j, view in enumerate(checked):
        vectors.append(sample_vectors(view, sample, j))
        progress("sampled vectors", j + 1, J)
    if J == 1:
        return Reliability(names, len(sample), sentences is not None, seed)
    lexical = None if sentences is None else lexical_features(sample_sentences(sentences, sample))
    chosen = np.random.default_rng([seed, 1]).choice(len(sample), min(queries, len(sample)), replace=False)
    near = near_sentences(vectors, np.sort(chosen), min(neighbours, len(sample) - 1), progress)
    roles = roles_of(near, vectors, lexical, np.random.default_rng([seed, 3]))
    needed = max(LEAST_ROWS, *(X.shape[1] for X in vectors)) if needed is None else needed
    return _Estimate(vectors, near, roles, lexical, seed).reliability(names, resamples, needed, progress)


@dataclass(frozen=True, eq=False)
class _Weighted:
    """Agreement and weights if one member is the best, in every bootstrap sample [resamples, ...]."""

    agreement: Matrix64
    plain: Matrix64
    whitened: Matrix64
    factors: Matrix64


@dataclass(frozen=True, eq=False)
class _Weights:
    """Agreement [J] and weights [1 + resamples, J] of all members, and the pairs of sentences that they come from."""

    agreement: Matrix64
    plain: Matrix64
    whitened: Matrix64
    factors: Matrix64
    correlations: Matrix64
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

    def reliability(self, names: tuple[str, ...], resamples: int, needed: int, progress: Progress) -> Reliability:
        """Return the order and the weights of the members, with intervals."""
        roles, queries, rng = self.roles, len(self.near.queries), np.random.default_rng([self.seed, 2])
        whitenings = [SoftWhitening.of(self.vectors[j]) for j in roles.distinct]
        R, parts = self._standing_parts(whitenings, resamples, rng, progress)
        counts = np.vstack([np.ones(queries), rng.poisson(1.0, (resamples, queries))])
        standing, leads = parts.sum(axis=1), roles.for_all(lead(R))
        heights = lead(standing, antisymmetric=True)
        best, first = heights.argmax(axis=1), roles.distinct[int(heights[0].argmax())]
        known = roles.known and len(self.vectors[0]) >= needed
        weights = self._weights(whitenings, standing, best, counts, known)
        # The strongest rival of each member; its own place if it is the only one.
        itself = np.eye(len(roles.distinct), dtype=bool)
        rivals = np.where(itself, np.inf, standing[0]).argmin(axis=1)
        (lead_low, lead_high), (low, high) = (
            np.percentile(of[1:], _INTERVAL, axis=0) for of in (leads, weights.whitened)
        )
        sure = float(np.mean(1 / (1 + np.exp(-CONFIDENCE * heights[1:, best[0]])))) if len(roles.distinct) > 1 else 1.0
        decided: Decided = "lead" if leads[0][first] >= leads[0][roles.live].max() else "words"
        if sure < LEVEL_BELOW:
            decided = "level"
        if not known:
            decided = "too few" if roles.known else "nothing"
        sure = 0.0 if decided == "too few" else sure
        facts = {"needed": needed} if decided == "too few" else {"trusted": first, "sure": round(sure, 3)}
        sufficiency = roles.for_all(R[0], axes=2)
        np.fill_diagonal(sufficiency, 1.0)
        return Reliability(
            names=names,
            sufficiency=sufficiency,
            lead=leads[0],
            lead_low=lead_low,
            lead_high=lead_high,
            standing=roles.for_all(heights[0]),
            standing_parts=roles.for_all(parts[0, :, np.arange(len(roles.distinct)), rivals].T).T,
            standings=roles.for_all(standing[0], axes=2),
            correlations=weights.correlations,
            agreement=weights.agreement,
            weights=weights.plain[0],
            factors=weights.factors,
            weights_low=low,
            weights_high=high,
            whitened_weights=weights.whitened[0],
            whitened=tuple(
                j for j, copied in enumerate(roles.copies) if known and copied != first and weights.whitened[0][j]
            ),
            mute=tuple(name for j, name in enumerate(names) if j not in roles.live),
            copies=tuple(roles.copies),
            sentences=len(self.vectors[0]),
            needed=needed,
            pairs=weights.pairs,
            lexical=self.lexical is not None,
            seed=self.seed,
            sure=sure,
            best=first,
            decided=decided,
            origin={**_ORIGIN, "decided": decided, **facts},
        )

    def _standing_parts(
        self, whitenings: Sequence[SoftWhitening], resamples: int, rng: np.random.Generator, progress: Progress
    ) -> tuple[Matrix64, Matrix64]:
        """Return what each distinct member predicts of each [1 + resamples, D, D], and the parts of their standings."""
        own = self.roles.distinct
        leading = [whitening.leading(self.vectors[j]) for whitening, j in zip(whitenings, own, strict=True)]
        features = surface = None
        if self.lexical is not None:
            features = self.lexical.features(self.seed, min(DIM, len(leading[0]) // _ROWS_A_DIM))
            pairs = [near_pairs(self.near, [j], np.random.default_rng([self.seed, 4])) for j in own]
            both = [dependence(self.vectors[j], self.lexical, near) for j, near in zip(own, pairs, strict=True)]
            surface = Surface(*np.array(both).T)
        R = explained(leading, features, resamples, rng, progress)
        return R, standing_parts(R, np.array([whitening.dimensions for whitening in whitenings]), surface)

    def _weights(
        self,
        whitenings: Sequence[SoftWhitening],
        standing: Matrix64,
        best: NDArray[np.int64],
        counts: Matrix64,
        known: bool,
    ) -> _Weights:
        """Return the weights of all members.

        Args:
            whitenings: those of the distinct members.
            standing: [1 + resamples, D, D] how far each of them stands above each.
            best: [1 + resamples] the place of the best among them.
            counts: [1 + resamples, q] how often each query counts.
            known: whether it is known which member to trust; if not, all count the same.
        """
        roles, own, J = self.roles, self.roles.distinct, len(self.vectors)
        whole = [whitening.apply(self.vectors[j]) for whitening, j in zip(whitenings, own, strict=True)]
        by_best = {b: self._beside(int(b), whole, standing[:, b], counts) for b in np.unique(best)}
        weighted = by_best[best[0]]
        plain, whitened, factors = (np.ones((rows, len(own))) for rows in (len(best), len(best), 3))
        if known:
            plain = np.stack([by_best[b].plain[i] for i, b in enumerate(best)])
            whitened = np.stack([by_best[b].whitened[i] for i, b in enumerate(best)])
            factors = weighted.factors.T
        pairs = near_pairs(self.near, own, np.random.default_rng([self.seed, 4]))
        C = cosines(self.vectors, pairs.pairs)
        spread = C.std(axis=1)
        # Copies share one weight, each in the units of its own spread. With too few sentences the spread alone decides.
        wanted = spread[roles.live].min() if roles.known and not known else spread[roles.copies]
        ratio = np.divide(wanted, spread, out=np.ones(J), where=spread > 0)
        share = roles.for_all(1 / np.bincount([roles.place[j] for j in roles.live]))
        plain, whitened = (roles.for_all(weights) * (share * ratio) for weights in (plain, whitened))
        factors = roles.for_all(factors) * np.stack([np.ones(J), share, ratio])
        [r], _ = correlations(C[own], pairs.owner, np.ones((1, len(self.near.queries))))
        r = roles.for_all(r, axes=2)
        np.fill_diagonal(r, 1.0)
        agreement = roles.for_all(weighted.agreement[0])
        return _Weights(agreement, plain, whitened, factors.T, r, len(pairs.pairs))

    def _beside(self, b: int, whole: Sequence[Matrix64], standing: Matrix64, counts: Matrix64) -> _Weighted:
        """Return the weights of the members if the one at place b is the best, in every bootstrap sample.

        Args:
            b: the place of the best among the distinct members.
            whole: their whitened vectors.
            standing: [1 + resamples, D] how far the best stands above each.
            counts: [1 + resamples, q] how often each query counts.
        """
        X = [self.vectors[j] for j in self.roles.distinct]
        pairs = near_pairs(self.near, [self.roles.distinct[b]], np.random.default_rng([self.seed, 4]))
        near, owner = pairs.pairs[: pairs.near], pairs.owner[: pairs.near]
        level = float(cosines([X[b]], pairs.pairs[pairs.near :]).mean())
        plain, whitened = cosines(X, near), cosines(whole, near)
        whitened[b] = plain[b]
        weighed = []
        for C in (plain, whitened):
            r, spread = correlations(C, owner, counts)
            samples = zip(standing, r, spread, strict=True)
            weighed.append((r[:, b], np.array([weight_factors(b, *sample, level) for sample in samples])))
        (agreement, by_plain), (_, by_whitened) = weighed
        return _Weighted(agreement, by_plain.prod(axis=2), by_whitened.prod(axis=2), by_whitened[0])


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


def sample_vectors(view: Matrix, rows: NDArray[np.int64], number: int, *, unit: bool = True) -> Matrix64:
    """Return rows [m, d] of a view, scaled to length one unless `unit` is false; other shards are not read.

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
        result[done:end] = unit_rows(X) if unit else X
        done = end
    return result
