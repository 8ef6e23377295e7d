"""This library's own method beside the paper's: `Auto`, with weights that are found on a corpus and without a score."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import ensembed.reliability as reliability_package
from ensembed.methods import Auto
from ensembed.paper.laboratory import Laboratory
from ensembed.reliability import reliability
from ensembed.reliability.result import Decided
from ensembed.support.provenance import provenance

_BY: dict[Decided, str] = {
    "lead": "it trusts {} most (by its lead, {})",
    "words": "it trusts {} most (of those that lead alike it follows the words least, {})",
    "nothing": "nothing told which member to trust most",
}


@dataclass(frozen=True)
class Trusted:
    """How far `Auto` trusts the members on a corpus; see `ensembed.reliability.Reliability`.

    Attributes:
        best: the place of the member that is trusted most.
        decided: by what it was found.
        sure: the part of the bootstrap samples in which it is the best.
        method: `Auto` with the weights that were found.
    """

    best: int
    decided: Decided
    sure: float
    method: Auto

    def note(self, names: Sequence[str], corpus: str) -> str:
        """For a person: whose method it is, which of the members of these names it trusts, and how much.

        Example:
            >>> found = Trusted(1, "lead", 0.98, Auto(weights=(0.052, 1.0), whitened=(0,)))
            >>> for part in found.note(["small", "large"], "news").split("; "):
            ...     print(part)
            this library's own, not the paper's
            it trusts large most (by its lead, in 98% of the bootstrap samples)
            weights: small 0.052, large 1, found on news without a score
            softly whitened: small
        """
        weights, whitened = self.method.weights, self.method.whitened
        numbers = [1.0] * len(names) if isinstance(weights, str) else weights
        counts = ", ".join(f"{name} {number:.2g}" for name, number in zip(names, numbers, strict=True))
        parts = [
            "this library's own, not the paper's",
            _BY[self.decided].format(names[self.best], f"in {self.sure:.0%} of the bootstrap samples"),
            f"weights: {counts}, found on {corpus} without a score",
            *([f"softly whitened: {', '.join(names[j] for j in whitened)}"] if whitened else []),
        ]
        return "; ".join(parts)


def trusted(laboratory: Laboratory, corpus: str) -> Trusted:
    """How far the members are trusted on a corpus of the laboratory, from the notebook if it is there."""
    specs = [encoder.spec for encoder in laboratory.ensemble.encoders]
    known = provenance()
    made_with = [known["numpy"], known["scipy"], known["processor"]]
    # Whether the words were known makes a difference, too.
    facts = [[spec.key for spec in specs], laboratory.corpus_key(corpus), corpus in laboratory.texts, made_with, code()]

    def find() -> Trusted:
        found = reliability(
            laboratory.corpora[corpus],
            sentences=laboratory.texts.get(corpus),
            names=[spec.name for spec in specs],
            progress=laboratory.progress,
        )
        return Trusted(int(found.best), found.decided, found.sure, Auto().trusting(found))

    return laboratory.notebook.record(Trusted, facts, find)


@cache  # what was imported is what runs, whatever becomes of the files
def code() -> str:
    """The hash of the code that finds reliability: what older code found does not count."""
    [folder] = reliability_package.__path__
    package = Path(folder).parent
    used = [package / name for name in ("numerics/eigen.py", "numerics/row_matrices.py", "methods/auto.py")]
    files = [*sorted(Path(folder).glob("*.py")), *used]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
