"""What is known of members' reliability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix64 = NDArray[np.float64]
Decided: TypeAlias = Literal["lead", "words", "nothing"]


@dataclass(frozen=True, eq=False)
class Reliability:
    """How far each of J members can be trusted, found without a label.

    Attributes:
        names: the members.
        sufficiency: [J, J] the part of what member j says, beyond the words of a sentence, that a linear map of what
            member i says predicts of sentences it was not fitted on; the diagonal is 1.
        lead: [J] how much more a member predicts of its strongest rival than that predicts of it. The best member is
            the one with the largest. 0 for members that say nothing: they are compared with nobody.
        lead_low: [J] of the 95% bootstrap interval.
        lead_high: [J] of the same.
        agreement: [J] how a member's cosines correlate with the best one's, over pairs that are near under the best.
        weights: [J] what the members' cosines count, 1 for the best: what methods take as `weights`. 0 for members that
            say nothing or next to nothing. Members that say the same share one weight. A member that is not the best
            can have more than 1, where its cosines lie closer together than the best one's: it counts for less all the
            same.
        weights_low: [J] of the 95% bootstrap interval.
        weights_high: [J] of the same.
        whitened_weights: [J] the same for vectors of which those of `whitened` are softly whitened: what `Auto` takes.
        whitened: the places of the members that gain by it: all but the best, its copies, and those that say nothing.
        mute: names of members that say nothing: constant, random, or of other sentences.
        copies: for each member the place of the first member that says the same; its own where there is none.
        sentences: how many were looked at.
        pairs: how many pairs of sentences that are near under the best.
        lexical: whether the sentences' words were known, so that what they explain could be left out.
        seed: of the samples.
        sure: the part of the bootstrap samples in which the best member is the best one.
        best: the place of the member that is trusted most: of those that say something the one with the largest lead,
            and of those that lead alike the one that follows the words least.
        decided: what made it the best: its "lead"; the "words", between members that lead alike; or "nothing", where no
            two members agree and nothing else tells which to believe, so that all count the same.
    """

    names: tuple[str, ...]
    sufficiency: Matrix64
    lead: Matrix64
    lead_low: Matrix64
    lead_high: Matrix64
    agreement: Matrix64
    weights: Matrix64
    weights_low: Matrix64
    weights_high: Matrix64
    whitened_weights: Matrix64
    whitened: tuple[int, ...]
    mute: tuple[str, ...]
    copies: tuple[int, ...]
    sentences: int
    pairs: int
    lexical: bool
    seed: int
    sure: float = 1.0
    best: int = 0
    decided: Decided = "lead"

    @property
    def origin(self) -> dict[str, Any]:
        """What the facts of a fitted method say about weights by reliability."""
        facts = {"trusted": self.best, "decided": self.decided, "sure": round(self.sure, 3)}
        return {"weights_from": "reliability", **facts}
