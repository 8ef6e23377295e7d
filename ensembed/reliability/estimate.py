"""Which members to trust, found without a label: the steps from views to weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensembed.corpus import Corpus
from ensembed.errors import InputError, ViewError
from ensembed.progress import Progress, silent
from ensembed.reliability.agreement import NearPairs, correlations, cosines, near_pairs, nearest, weights
from ensembed.reliability.lexical import DIM, Lexical
from ensembed.reliability.result import Reliability
from ensembed.reliability.sample import sample_rows, sample_sentences, sample_vectors
from ensembed.reliability.sufficiency import lead, predictions
from ensembed.rows import check_views

Matrix64 = NDArray[np.float64]

LEAST_ROWS = 50
"""Fewer distinct sentences do not show which of several members is the best."""
MUTE = 0.1
"""Members that agree less than this with all others, and with the words, over near and random pairs, say nothing."""
SAME = 0.99
"""Members that agree more than this say the same."""

# Rows of length one that vary less than this, squared, are all the same but for rounding.
_LEAST_VARIANCE = 1e-10
# Sentences for each dimension of words and of letters: fewer, and a regression on them explains what is not theirs.
_ROWS_A_DIM = 20
_INTERVAL = (2.5, 97.5)
# Leads that differ by less do so by the corpus: on some two members are level that are 0.02 apart on another.
_LEVEL = 0.01


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
    """Find out how far each member of an ensemble can be trusted, without a label.

    The best member is the one that predicts more of what the others say than they predict of what it says, beyond what
    the words of the sentences predict by themselves (`ensembed.reliability.sufficiency`; after Darrin et al. 2024,
    "When is an Embedding Model More Promising than Another?"). The others count by how their cosines of near sentences
    agree with those of the best (`ensembed.reliability.agreement`). Of members that lead alike the one is taken whose
    cosines follow the words least: what weak members have in common is that they look at words.

    A member that agrees with no other and not with the words (a constant, random vectors, vectors of other sentences)
    is mute: its weight is 0 and it has no part in the rest. Members that say the same are looked at once and share one
    weight. Where no two members agree and nothing else tells which to believe, those that tell sentences apart count
    the same.

    What it cannot tell is knowledge from noise that comes on top of knowledge: neither is predicted by the others. A
    member that is a good one with much noise of its own added (as large as half of the vector, say) can seem to lead.
    Encoders as they are trained lose what they do not know rather than add noise, which is why it works on them.

    The intervals are those of a bootstrap over sentences and over queries, given the regressions: they do not tell how
    the members would do on sentences of another kind.

    Args:
        views: row-aligned arrays [n, d_j], memory maps or stored views. Only sampled rows are kept in memory.
        sentences: what the rows are vectors of, as a corpus or a sequence. Without them nothing can be said about
            words: the order of members that lean on words is less sure, and repeated sentences are not found.
        names: what to call the members; by default `view 0`, `view 1` and so on.
        rows: how many distinct sentences to sample; all if there are no more.
        queries: how many of them to look for near sentences of.
        neighbours: how many near sentences of each, under every member in turn.
        resamples: of the bootstrap.
        seed: of the samples.
        progress: told of what is done.

    Raises:
        InputError: there are several members and fewer than 50 distinct sentences, or an argument is out of range.
        ViewError: the views do not fit together, hold NaN or Inf, or none of them tells sentences apart.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> truth = rng.standard_normal((400, 12))
        >>> good, fair = (truth[:, :known] + 0.1 * rng.standard_normal((400, known)) for known in (12, 9))
        >>> found = reliability([fair, good, np.ones((400, 3))], names=["fair", "good", "constant"])
        >>> found.names[found.best], found.mute
        ('good', ('constant',))
        >>> found.weights[1:]
        array([1., 0.])
    """
    checked = check_views(views)
    J = len(checked)
    names = tuple(f"view {j}" for j in range(J)) if names is None else tuple(names)
    if len(names) != J:
        raise InputError(f"there are {J} views and {len(names)} names: {list(names)}")
    least = {"rows": LEAST_ROWS, "queries": 1, "neighbours": 1, "resamples": 1, "seed": 0}
    given = {"rows": rows, "queries": queries, "neighbours": neighbours, "resamples": resamples, "seed": seed}
    for name, value in given.items():
        if not (isinstance(value, (int, np.integer)) and value >= least[name]):
            raise InputError(f"{name} must be a whole number of at least {least[name]}, not {value!r}")
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
    known = sentences is not None
    if J == 1:
        return _alone(names, len(sample), known, seed)
    lexical = None if sentences is None else Lexical(sample_sentences(sentences, sample))
    chosen = np.random.default_rng([seed, 1]).choice(len(sample), min(queries, len(sample)), replace=False)
    near = _near_sentences(vectors, np.sort(chosen), min(neighbours, len(sample) - 1), progress)
    roles = _roles(near, vectors, lexical, np.random.default_rng([seed, 3]))
    return _estimate(names, near, vectors, roles, lexical, resamples, seed, progress)


def _alone(names: tuple[str, ...], n: int, lexical: bool, seed: int) -> Reliability:
    """One member: it counts, whatever it says."""
    one, nothing, same = np.ones(1), np.zeros(1), np.eye(1)
    return Reliability(
        names, same, nothing, nothing, nothing, same, one, one, one, (), (0,), n, 0, lexical=lexical, seed=seed
    )


@dataclass(frozen=True)
class _Near:
    """The neighbours [q, k] of query rows [q] under each member that tells sentences apart."""

    queries: NDArray[np.int64]
    found: dict[int, NDArray[np.int64]]

    def pairs(self, members: Sequence[int], n: int) -> NearPairs:
        """Pairs that are near under one of these members."""
        return near_pairs([self.found[j] for j in members], self.queries, n)


@dataclass(frozen=True)
class _Roles:
    """Who is listened to.

    Attributes:
        live: the members that say something.
        copies: for each of all members the first that says the same.
        agreement: [J, J] over pairs that are near under any member.
        known: whether anything tells which to believe.
    """

    live: list[int]
    copies: list[int]
    agreement: Matrix64
    known: bool


def _near_sentences(vectors: Sequence[Matrix64], queries: NDArray[np.int64], k: int, progress: Progress) -> _Near:
    varied = [j for j, X in enumerate(vectors) if np.square(X - X.mean(axis=0)).sum(axis=1).mean() > _LEAST_VARIANCE]
    if not varied:
        raise ViewError(f"none of the {len(vectors)} views tells any two of {len(vectors[0])} sentences apart")
    found = {}
    for j in varied:
        found[j] = nearest(vectors[j], queries, k)
        progress("near sentences", len(found), len(varied))
    return _Near(queries, found)


def _roles(near: _Near, vectors: Sequence[Matrix64], lexical: Lexical | None, rng: np.random.Generator) -> _Roles:
    """Find out who says something, and who says the same.

    Who says the same as another is seen among near pairs. Who says something is seen with as many random pairs beside
    them: pairs that are there because one member errs are low for the others, so that weak members seem to disagree.
    """
    from scipy.sparse.csgraph import connected_components

    varied = list(near.found)
    n, size, q = len(vectors[0]), len(varied), len(near.queries)
    pairs = near.pairs(varied, n)
    others = np.stack([rng.integers(0, n, len(pairs.pairs)), near.queries[pairs.owner]], axis=1)
    mixed = np.vstack([pairs.pairs, others[others[:, 0] != others[:, 1]]])
    owner = np.concatenate([pairs.owner, pairs.owner[others[:, 0] != others[:, 1]]])
    C = cosines([vectors[j] for j in varied], mixed)
    agreement = np.eye(len(vectors))
    [same], _ = correlations(C[:, : len(pairs.pairs)], pairs.owner, np.ones((1, q)))
    agreement[np.ix_(varied, varied)] = same
    if lexical is not None:
        C = np.vstack([C, lexical.cosines(mixed)])
    [r], _ = correlations(C, owner, np.ones((1, q)))
    # Who agrees with the words, or with somebody who does, says something; the words are the last row.
    _, group = connected_components(r > MUTE, directed=False)
    heard = group[:size] == group[-1] if lexical is not None else np.zeros(size, bool)
    confirmed = bool(heard.any())
    if not confirmed:
        heard = group[:size] == np.bincount(group[:size]).argmax()
    # A member that neither another nor the words confirm is no more to be believed than any other.
    known = confirmed or size == 1 or int(np.count_nonzero(heard)) > 1
    live = [j for j, one in zip(varied, heard, strict=True) if one or not known]
    copies = list(range(len(vectors)))
    for j in live:
        copies[j] = next(copies[i] for i in live if i == j or (i < j and agreement[i, j] > SAME))
    return _Roles(live, copies, agreement, known)


def _estimate(
    names: tuple[str, ...],
    near: _Near,
    vectors: Sequence[Matrix64],
    roles: _Roles,
    lexical: Lexical | None,
    resamples: int,
    seed: int,
    progress: Progress,
) -> Reliability:
    """Order and weights of those who say something, with intervals."""
    n, J, live = len(vectors[0]), len(vectors), roles.live
    own = [j for j in live if roles.copies[j] == j]
    place = np.array([own.index(roles.copies[j]) for j in live])
    features = None if lexical is None else lexical.features(seed, min(DIM, n // _ROWS_A_DIM))
    rng = np.random.default_rng([seed, 2])
    predicted = predictions([vectors[j] for j in own], features, rng, progress)
    pairs = near.pairs(own, n)
    C = cosines([vectors[j] for j in live], pairs.pairs)
    # The first "resample" is the sample itself.
    R = predicted.explained(_counts(n, resamples, rng))
    r, spread = correlations(C, pairs.owner, _counts(len(near.queries), resamples, rng))
    leads = lead(R)
    first = np.array([live.index(j) for j in own])
    best = _best(leads, None if lexical is None else _wordiness(C[first], lexical.cosines(pairs.pairs)))
    found = np.ones((len(leads), len(live)))
    if roles.known:
        found = np.array(
            [
                _shared(weights(int(b), one_r[first[b], first], one_spread[first]), one_spread, first, place)
                for b, one_r, one_spread in zip(best, r, spread, strict=True)
            ]
        )
    whole_lead, whole_weights = np.zeros((len(leads), J)), np.zeros((len(leads), J))
    whole_lead[:, live], whole_weights[:, live] = leads[:, place], found
    sufficiency, agreement = np.eye(J), roles.agreement.copy()
    sufficiency[np.ix_(live, live)] = R[0][np.ix_(place, place)]
    agreement[np.ix_(live, live)] = r[0]
    lead_low, lead_high = np.percentile(whole_lead[1:], _INTERVAL, axis=0)
    weights_low, weights_high = np.percentile(whole_weights[1:], _INTERVAL, axis=0)
    return Reliability(
        names,
        sufficiency,
        whole_lead[0],
        lead_low,
        lead_high,
        agreement,
        whole_weights[0],
        weights_low,
        weights_high,
        tuple(name for j, name in enumerate(names) if j not in live),
        tuple(roles.copies),
        n,
        len(pairs.pairs),
        lexical is not None,
        seed,
        float(np.mean(best[1:] == best[0])),
        own[int(best[0])],
    )


def _best(leads: Matrix64, wordiness: Matrix64 | None) -> NDArray[np.int64]:
    """The place [resamples] of the best; of those that lead alike the one whose cosines follow the words least."""
    if wordiness is None:
        return np.asarray(leads.argmax(axis=1))
    level = leads >= leads.max(axis=1, keepdims=True) - _LEVEL
    return np.asarray(np.where(level, wordiness, np.inf).argmin(axis=1))


def _wordiness(C: Matrix64, words: Matrix64) -> Matrix64:
    """How the members' cosines [m, pairs] correlate with those of the words."""
    return np.asarray(np.corrcoef(np.vstack([C, words])))[-1, :-1]


def _counts(size: int, resamples: int, rng: np.random.Generator) -> Matrix64:
    """How often each of `size` things counts: [1 + resamples, size], once each in the first row."""
    return np.vstack([np.ones(size), rng.poisson(1.0, (resamples, size))])


def _shared(own: Matrix64, spread: Matrix64, first: NDArray[Any], place: NDArray[Any]) -> Matrix64:
    """The weights of all, from those of the first of each that say the same: shared, and each for its own spread."""
    scale = np.divide(spread[first][place], spread, out=np.zeros_like(spread), where=spread > 0)
    return np.asarray(own[place] / np.bincount(place)[place] * scale)
