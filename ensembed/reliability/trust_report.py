"""The result of `reliability` for people and programs: table, verdict and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ensembed.encoders import Encoder
from ensembed.reliability.trust_estimate import LEVEL_BELOW, Reliability

HEADERS = ["member", "standing", "lead", "dims", "length", "words", "agrees", "weight", "95%", "weight is"]
_PARTS = ("lead", "dimensions", "length", "words")
_NAMES = ("trust", "own", "spread")
# With at least this probability the report calls the best member certain.
_SURE = 0.9
_STANDING = (
    "standing = lead + dims + length + words, against the strongest rival. lead: predicts more of the rival than the "
    "rival of it. dims: uses more dimensions. length, words: its cosines depend less on the lengths and words of "
    "sentences. agrees: how its cosines correlate with those of the best."
)
_WEIGHT = (
    "weight = trust x own x spread, as `fit` takes it. trust: 1 as high as the best, less below it, and more if it "
    "agrees. own: less if another member says the same. spread: more if its cosines lie close together."
)
_LIMITS = (
    "No label was read. Lead and weight are about these sentences: for another kind of text, run it on that. Where you "
    "have scored pairs, `ensembed evaluate` tells for certain."
)


@dataclass(frozen=True)
class TrustReport:
    """An estimate of reliability and what it is about.

    Attributes:
        estimate: the figures.
        labels: the names of the members to show.
        what: a description of the sentences.
    """

    estimate: Reliability
    labels: Sequence[str]
    what: str

    @cached_property
    def order(self) -> list[int]:
        """The members, the most trusted first, those that say nothing last."""
        standing, best = self.estimate.standing, self.estimate.best
        return sorted(range(len(self.labels)), key=lambda j: (self._is_mute(j), j != best, -standing[j]))

    def rows(self) -> list[list[str]]:
        """Return a row of the table for every member."""
        estimate, rows = self.estimate, []
        for j in self.order:
            parts = [f"{part:+.1f}" for part in (estimate.standing[j], *estimate.standing_parts[j])]
            weight = f"{estimate.whitened_weights[j]:.2f}"
            interval = f"{estimate.weights_low[j]:.2f} to {estimate.weights_high[j]:.2f}"
            product = " x ".join(f"{factor:.2f}" for factor in estimate.factors[j])
            figures = [*parts, f"{estimate.agreement[j]:.2f}", weight, interval, product]
            if estimate.decided == "too few":  # only the spread of the cosines counts: the others would say nothing
                figures = [*"------", weight, "", "spread"]
            rows.append([self.labels[j], *([*"------", "0.00", "", ""] if self._is_mute(j) else figures)])
        return rows

    def lines(self) -> list[str]:
        """Return what the figures say about the members, a sentence each."""
        estimate, labels = self.estimate, self.labels
        mute = [
            f"{label} says nothing about these sentences that another member or the words confirm: its weight is 0."
            for j, label in enumerate(labels)
            if self._is_mute(j)
        ]
        copies = [
            f"{labels[j]} says the same as {labels[first]}: they share one weight."
            for j, first in enumerate(estimate.copies)
            if j != first
        ]
        looked = f"{estimate.sentences} distinct sentences of {self.what}, {estimate.pairs} pairs, seed {estimate.seed}"
        columns = [] if estimate.decided == "too few" else [_STANDING, _WEIGHT]
        return [self._verdict(), *mute, *copies, *columns, f"Looked at: {looked}.", _LIMITS]

    def to_json(self, members: Sequence[Encoder]) -> dict[str, Any]:
        """Return the figures as plain JSON."""
        estimate = self.estimate

        def numbers(values: Any) -> Any:  # noqa: ANN401 - a number, or lists of numbers
            return values.round(6).tolist()

        return {
            "best": estimate.names[estimate.best],
            "sure": estimate.sure,
            "decided": estimate.decided,
            "needed": estimate.needed,
            "members": [
                {
                    "member": name,
                    "spec": members[j].spec.to_json(),
                    "standing": numbers(estimate.standing[j]),
                    "standing_parts": dict(zip(_PARTS, numbers(estimate.standing_parts[j]), strict=True)),
                    "lead": numbers(estimate.lead[j]),
                    "lead_interval": [numbers(estimate.lead_low[j]), numbers(estimate.lead_high[j])],
                    "agreement_with_best": numbers(estimate.agreement[j]),
                    "weight": numbers(estimate.whitened_weights[j]),
                    "weight_factors": dict(zip(_NAMES, numbers(estimate.factors[j]), strict=True)),
                    "weight_interval": [numbers(estimate.weights_low[j]), numbers(estimate.weights_high[j])],
                    "plain_weight": numbers(estimate.weights[j]),
                    "whitened": j in estimate.whitened,
                    "mute": self._is_mute(j),
                    "copy_of": None if estimate.copies[j] == j else estimate.names[estimate.copies[j]],
                }
                for j, name in enumerate(estimate.names)
            ],
            "sufficiency": numbers(estimate.sufficiency),
            **{name: getattr(estimate, name) for name in ("sentences", "pairs", "lexical", "seed")},
        }

    def _is_mute(self, j: int) -> bool:
        return self.estimate.names[j] in self.estimate.mute

    def _verdict(self) -> str:
        """Return which member to trust most, and how certain that is."""
        estimate, labels = self.estimate, self.labels
        copies, best = estimate.copies, labels[estimate.best]
        rivals = [j for j in self.order if not self._is_mute(j) and copies[j] != copies[estimate.best]]
        if estimate.decided == "nothing":
            return "No two members agree, so none can be preferred: all have the same weight."
        if estimate.decided == "too few":
            return (
                f"{estimate.sentences} distinct sentences are too few to tell which member is better: it takes "
                f"{estimate.needed} with these members. Their leads would be chance, so all members count the "
                "same, each for the spread of its cosines: that loses less than to trust the wrong one."
            )
        if not rivals:
            alone = "all others say the same" if len(estimate.names) - len(estimate.mute) > 1 else "there is no other"
            return f"{best} has nothing to be compared with: {alone}."
        sure = f"{estimate.sure:.0%} sure"
        if estimate.sure < LEVEL_BELOW:
            return (
                f"{best} and {labels[rivals[0]]} are level: these sentences do not show which is better, so both "
                f"are trusted nearly the same, which can lose least. {best} is ahead by a little ({sure})."
            )
        words = (
            " Another member has a larger lead, but this one uses more dimensions, or depends less on words and length."
        )
        why = words if estimate.decided == "words" else ""
        if estimate.sure >= _SURE:
            return f"Trust {best} most ({sure}).{why}"
        return f"Trust {best} most, probably ({sure}). {labels[rivals[0]]} is next.{why}"
