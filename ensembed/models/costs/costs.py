"""What was measured, and the tables that are made of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MemberCosts:
    """One member's costs; times in seconds.

    Attributes:
        name: what it is called.
        dim: the length of its vectors.
        open_s: to open it.
        first_s: for the first sentence it was ever given.
        seconds: for all sentences.
        single_p50_s: for a sentence by itself, the median.
        single_p95_s: 95% of the sentences by themselves are not slower.
        memory: bytes by which the process grew, at the peak; None where the system does not say.
    """

    name: str
    dim: int
    open_s: float
    first_s: float
    seconds: float
    single_p50_s: float
    single_p95_s: float
    memory: int | None


@dataclass(frozen=True)
class EnsembleCosts:
    """The costs of an ensemble; times in seconds.

    Attributes:
        members: each alone.
        sentences: how many distinct ones were encoded.
        characters: in all of them.
        cores: that this process may use.
        one_after_the_other_s: the ensemble, concatenated, its members in turn.
        side_by_side_s: the same with every member in a thread of its own.
        transform_s: for every method, to combine the members' vectors of all sentences.
        cached_s: to look all vectors of all members up in a view store.
    """

    members: tuple[MemberCosts, ...]
    sentences: int
    characters: int
    cores: int
    one_after_the_other_s: float
    side_by_side_s: float
    transform_s: dict[str, float]
    cached_s: float

    @property
    def alone_s(self) -> float:
        """The sum of the members' times."""
        return sum(member.seconds for member in self.members)

    def to_json(self) -> dict[str, Any]:
        """Everything, with the rates and shares that the tables show."""
        facts = dataclasses.asdict(self)
        for member, found in zip(self.members, facts["members"], strict=True):
            found["sentences_per_s"] = self.sentences / member.seconds
            found["characters_per_s"] = self.characters / member.seconds
            found["share"] = member.seconds / self.alone_s
        return facts | {
            "alone_s": self.alone_s,
            "transform_share": {name: time / self.alone_s for name, time in self.transform_s.items()},
            "cached_sentences_per_s": self.sentences / self.cached_s,
        }

    def member_table(self) -> tuple[list[str], list[list[str]]]:
        """A row per member."""
        headers = [
            "member", "dim", "sentences/s", "characters/s", "share", "open", "first", "single p50", "p95", "memory",
        ]  # fmt: skip
        rows = [
            [
                one.name,
                str(one.dim),
                _rate(self.sentences / one.seconds),
                _rate(self.characters / one.seconds),
                f"{one.seconds / self.alone_s:.1%}",
                _time(one.open_s),
                _time(one.first_s),
                _time(one.single_p50_s),
                _time(one.single_p95_s),
                "-" if one.memory is None else f"{one.memory / 1e6:.0f} MB",
            ]
            for one in self.members
        ]
        return headers, rows

    def ensemble_table(self) -> tuple[list[str], list[list[str]]]:
        """A row per thing that is done with all members."""
        ways = {
            "members alone, added up": self.alone_s,
            "ensemble, one after the other": self.one_after_the_other_s,
            "ensemble, side by side": self.side_by_side_s,
            **{f"transform, {name}": time for name, time in self.transform_s.items()},
            "looked up in the view store": self.cached_s,
        }
        rows = [
            [what, _time(time), _rate(self.sentences / time), _share(time / self.alone_s)]
            for what, time in ways.items()
        ]
        return [f"{self.sentences:,} sentences, {self.cores} cores", "time", "sentences/s", "of the sum"], rows


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _share(value: float) -> str:
    return f"{value:.1%}" if value >= 0.1 else f"{100 * value:.2g}%"
