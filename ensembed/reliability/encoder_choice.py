"""Choose encoders for a text without labels: the subset with the largest expected gain for its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from ensembed.errors import InputError
from ensembed.reliability.agreement import weight_factors
from ensembed.reliability.trust_estimate import CONFIDENCE, Reliability
from ensembed.support.checks import check_whole

Matrix64 = NDArray[np.float64]

TRUTH = 0.85
"""The assumed correlation of the best member's cosines with the truth: about what good encoders reach on STS."""
POINTS = 0.02
"""By how much this correlation falls for every unit of standing. Fitted on STS-B dev."""
NARROW = 0.2
"""Members disagree less on pairs that people compare than on those of a corpus: by this factor. Fitted on STS-B dev."""
WORTH = 0.002
"""A gain below this is not worth another encoder: it is noise."""
MOST_SUBSETS = 20_000


@dataclass(frozen=True)
class Subset:
    """An ensemble, or an encoder alone, and what to expect of it.

    Attributes:
        members: the places of the encoders.
        gain: the expected correlation less that of the best encoder alone, as a fraction.
        cost: the cost of its members together, in the unit of the costs that were given.
        dim: the members' dimensions together.
    """

    members: tuple[int, ...]
    gain: float
    cost: float
    dim: int


@dataclass(frozen=True)
class Choice:
    """What suits a text.

    Attributes:
        ranking: the encoders' places, the best first; those that say nothing, and copies, are left out.
        better: for each of them the probability that it is better than the next; None for the last.
        best: the subset to take.
        alone: the best single encoder within the limits.
        adds: for each encoder what it adds to the others of `best`, or would add, as a fraction.
        helps: whether an ensemble is expected to be better than `alone` by more than noise.
        subsets: the best subsets, the best first.
    """

    ranking: tuple[int, ...]
    better: tuple[float | None, ...]
    best: Subset
    alone: Subset
    adds: dict[int, float]
    helps: bool
    subsets: tuple[Subset, ...]


def choose(
    estimate: Reliability, costs: Sequence[float], dims: Sequence[int], *, members: int = 3, budget: float | None = None
) -> Choice:
    """Choose the subset with the largest expected gain; of those that differ by noise, the cheapest.

    The expected correlation of an ensemble with the truth follows from those of its members, which fall with their
    standing, and from how the members' cosines correlate: the less they do, the more an ensemble gains.

    Args:
        estimate: the reliability of all encoders together.
        costs: what each encoder costs, such as milliseconds a sentence.
        dims: their dimensions.
        members: the most members of an ensemble.
        budget: the largest cost of an ensemble.

    Raises:
        InputError: no encoder is within the budget, there are too many subsets, or `members` is no number of members.
    """
    check_whole("members", members, 1)
    live = [j for j, name in enumerate(estimate.names) if name not in estimate.mute and estimate.copies[j] == j]
    place = {j: k for k, j in enumerate(live)}
    standing = estimate.standings[np.ix_(live, live)]
    order = sorted(live, key=lambda j: (j != estimate.best, standing[place[estimate.best], place[j]]))
    better = [float(1 / (1 + np.exp(-CONFIDENCE * standing[place[i], place[j]]))) for i, j in pairwise(order)]
    sizes = range(1, min(members, len(live)) + 1)
    chosen = [subset for size in sizes for subset in combinations(live, size)]
    if len(chosen) > MOST_SUBSETS:
        raise InputError(
            f"{len(live)} encoders have {len(chosen)} subsets: name fewer encoders, or allow fewer members"
        )
    affordable = [subset for subset in chosen if budget is None or sum(costs[j] for j in subset) <= budget]
    if not affordable:
        cheapest = min(live, key=lambda j: costs[j])
        raise InputError(
            f"no encoder costs {budget:.3g} or less: the cheapest, {estimate.names[cheapest]}, costs "
            f"{costs[cheapest]:.3g}; raise the budget, or name a faster one"
        )

    def subset_of(places: tuple[int, ...]) -> Subset:
        cost, dim = sum(costs[j] for j in places), sum(dims[j] for j in places)
        return Subset(places, expected(estimate, places) - TRUTH, cost, dim)

    subsets = sorted(map(subset_of, affordable), key=lambda subset: -subset.gain)
    near = [subset for subset in subsets if subset.gain >= subsets[0].gain - WORTH / 2]
    best = min(near, key=lambda subset: (subset.cost, len(subset.members)))
    alone = max((subset for subset in subsets if len(subset.members) == 1), key=lambda subset: subset.gain)
    helps = best.gain - alone.gain > WORTH
    if not helps:
        best = alone
    adds = {j: _added(estimate, best.members, j) for j in order}
    return Choice(tuple(order), (*better, None), best, alone, adds, helps, tuple(subsets))


def expected(estimate: Reliability, places: Sequence[int]) -> float:
    """Return the expected correlation of an ensemble's cosines with the truth, weighed as `Auto` does.

    Example:
        >>> one = Reliability(("a",), 100, lexical=False, seed=0)
        >>> expected(one, [0])
        0.85
    """
    members = list(places)
    truth = TRUTH - POINTS * np.maximum(estimate.standings[estimate.best, members], 0.0)
    if len(members) == 1:
        return float(truth[0])
    standing = estimate.standings[np.ix_(members, members)]
    rivals = np.where(np.eye(len(members), dtype=bool), np.inf, standing)
    best = int(rivals.min(axis=1).argmax())
    corpus = estimate.correlations[np.ix_(members, members)]
    weights = weight_factors(best, standing[best], corpus, np.ones(len(members)), 0.0).prod(axis=1)
    r = 1 - NARROW * (1 - corpus)
    return float(weights @ truth / np.sqrt(weights @ r @ weights))


def _added(estimate: Reliability, members: tuple[int, ...], j: int) -> float:
    """Return what encoder j adds to the other members."""
    others = tuple(member for member in members if member != j)
    return expected(estimate, (*others, j)) - expected(estimate, others) if others else 0.0
