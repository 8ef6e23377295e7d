"""The scores of many ensembles: of their members and of methods, and how far methods are from the best member.

Correlations are fractions here; they become x 100 where they are printed. `ensembles.json` holds an `Ensembles` whole,
so that its page can be made again without running anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ensembed.errors import InputError
from ensembed.paper.findings import (
    DEV,
    MEAN,
    METRICS,
    CorpusFacts,
    DatasetFacts,
    MemberFacts,
    Metric,
    mean_score,
)
from ensembed.sts.protocol import Protocol, Score

AUTO = "auto"
NOISE = 0.001
"""How far below its best member a method may be and still count as level with it: 0.1 of a point."""
FALL = 0.002
"""How far a useless member may bring the method down: 0.2 points."""


@dataclass(frozen=True)
class Row:
    """Something that was scored on every data set.

    Attributes:
        label: a member's name, or a method's.
        dim: the length of its vectors.
        scores: by data set.
    """

    label: str
    dim: int
    scores: dict[str, Score]

    def score(self, where: str) -> Score:
        """On a data set, or the plain mean over the test sets for `mean`."""
        if where == MEAN:
            return mean_score([score for name, score in self.scores.items() if name != DEV])
        if where not in self.scores:
            raise InputError(f"{self.label} was not scored on {where!r}; it was on: {', '.join(self.scores)}")
        return self.scores[where]


@dataclass(frozen=True)
class Trust:
    """How far the members of an ensemble are trusted, estimated without labels; see `ensembed.reliability.Reliability`.

    Attributes:
        best: the name of the member that is trusted most.
        weights: of every member's cosines.
        weights_low: of their 95% bootstrap intervals.
        weights_high: of the same.
        mute: names of members that say nothing.
        whitened_weights: what `Auto` takes instead of `weights`.
        whitened: the places of the members that it whitens.
    """

    best: str
    weights: tuple[float, ...]
    weights_low: tuple[float, ...]
    weights_high: tuple[float, ...]
    mute: tuple[str, ...]
    whitened_weights: tuple[float, ...]
    whitened: tuple[int, ...]


@dataclass(frozen=True)
class Combined:
    """One ensemble: how far its members were trusted, and what every method made of it."""

    members: tuple[str, ...]
    trust: Trust
    methods: tuple[Row, ...]

    @property
    def name(self) -> str:
        """For a table."""
        return " + ".join(self.members)

    def method(self, label: str) -> Row:
        """What the method of that label made of it."""
        return _only(self.methods, label)


@dataclass(frozen=True)
class Addition:
    """A useless member beside those of an ensemble.

    Attributes:
        members: the useful ones.
        added: what the other is.
        trust: of all of them; the last is the useless one.
        auto: what `auto` makes of all of them.
    """

    members: tuple[str, ...]
    added: str
    trust: Trust
    auto: Row


@dataclass(frozen=True)
class Elsewhere:
    """How far the members of an ensemble are trusted on some corpus under some seed, and what `auto` makes of it."""

    members: tuple[str, ...]
    corpus: str
    seed: int
    trust: Trust
    auto: Row


@dataclass(frozen=True)
class Ensembles:
    """All that was found.

    Attributes:
        provenance: versions, machine and time.
        protocol: how a year's sub-testsets become one score.
        text: the version of the data sets' text.
        datasets: what was scored.
        corpora: the first is what everything was fitted on; on the others the members were trusted, to compare.
        members: the encoders.
        singles: each on its own.
        combined: every ensemble of two members or more.
        additions: of useless members.
        elsewhere: on all corpora and under several seeds.
    """

    provenance: dict[str, str]
    protocol: Protocol
    text: str
    datasets: tuple[DatasetFacts, ...]
    corpora: tuple[CorpusFacts, ...]
    members: tuple[MemberFacts, ...]
    singles: tuple[Row, ...]
    combined: tuple[Combined, ...]
    additions: tuple[Addition, ...]
    elsewhere: tuple[Elsewhere, ...]

    @property
    def methods(self) -> tuple[str, ...]:
        """Their labels, in the order of the tables."""
        return tuple(row.label for row in self.combined[0].methods)

    def of(self, members: Sequence[str]) -> Combined:
        """The ensemble of these members."""
        matches = [case for case in self.combined if case.members == tuple(members)]
        if not matches:
            raise InputError(f"there is no ensemble of {', '.join(members)}")
        return matches[0]

    def best_member(self, members: Sequence[str], metric: Metric, where: str = MEAN) -> tuple[str, float]:
        """The name of the best of these members and its correlation: what an oracle would take."""
        scores = {name: float(getattr(_only(self.singles, name).score(where), metric)) for name in members}
        best = max(scores, key=scores.__getitem__)
        return best, scores[best]

    def best_score(self, members: Sequence[str], where: str = MEAN) -> Score:
        """The best of these members' correlations, each on its own: they may be two members'."""
        return Score(*(self.best_member(members, metric, where)[1] for metric in METRICS))

    def regret(self, members: Sequence[str], row: Row, where: str = MEAN) -> Score:
        """How far a row is below the best of these members, in each correlation; negative where it is above."""
        best, score = self.best_score(members, where), row.score(where)
        return Score(best.pearson - score.pearson, best.spearman - score.spearman)

    def regrets(self, label: str, where: str = MEAN) -> Regrets:
        """Of a method, over all ensembles."""
        return Regrets(tuple(self.regret(case.members, case.method(label), where) for case in self.combined))

    def resisting(self, label: str = AUTO, where: str = MEAN) -> list[Combined]:
        """The ensembles that a method leaves below their best member in one of the correlations, noise allowed."""
        both = zip(self.combined, self.regrets(label, where).each, strict=True)
        return [case for case, regret in both if not level(regret)]

    def change(self, addition: Addition, where: str = MEAN) -> Score:
        """How much `auto` gains by a useless member; negative where it loses."""
        before, after = self.of(addition.members).method(AUTO).score(where), addition.auto.score(where)
        return Score(after.pearson - before.pearson, after.spearman - before.spearman)


@dataclass(frozen=True)
class Regrets:
    """Of one method, one per ensemble."""

    each: tuple[Score, ...]

    @property
    def mean(self) -> Score:
        """Over the ensembles."""
        return mean_score(self.each)

    @property
    def worst(self) -> Score:
        """The largest of each correlation: they may be two ensembles'."""
        return Score(max(regret.pearson for regret in self.each), max(regret.spearman for regret in self.each))

    @property
    def level(self) -> int:
        """How many ensembles are at or above their best member in both correlations, noise allowed."""
        return sum(level(regret) for regret in self.each)


def level(regret: Score) -> bool:
    """Whether both correlations are at or above the best member's, noise allowed."""
    return max(regret.pearson, regret.spearman) <= NOISE


def _only(rows: Sequence[Row], label: str) -> Row:
    matches = [row for row in rows if row.label == label]
    if not matches:
        raise InputError(f"there is no {label!r}; there are: {', '.join(row.label for row in rows)}")
    return matches[0]


def plain(values: Any) -> tuple[float, ...]:  # noqa: ANN401 - anything numpy makes an array of
    """Numbers as records keep them."""
    return tuple(float(value) for value in values)
