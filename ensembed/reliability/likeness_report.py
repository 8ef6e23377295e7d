"""The result of comparing encoders for people and programs: table, heat maps, advice, a Markdown page and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from numpy.typing import NDArray

from ensembed.corpora.corpus import Corpus
from ensembed.encoders import Encoder
from ensembed.reliability.likeness import Comparison, Pair
from ensembed.support.heatmap import Panel, figure, svg_heatmap
from ensembed.support.provenance import provenance
from ensembed.support.text_tables import markdown_table

HEADERS = ["encoder", "encoder", "CKA", "cosines", "overlap"]
# From this CKA on, an encoder adds next to nothing to the other for a linear method.
_TWINS = 0.95
_LIMITS = (
    "Different does not mean good: without labels nobody can tell which encoder is better (`ensembed evaluate` scores "
    "them on pairs that have labels). Look for members that are good and differ."
)
# The page says what the help says, with the references.
_MEANINGS = (
    "All figures are of vectors scaled to length one, and of each distinct sentence once.",
    (
        "CKA: linear centred kernel alignment (Kornblith et al. 2019) with the unbiased estimate of HSIC (Song et al. "
        "2012; Nguyen et al. 2021): 0 for encoders with nothing in common."
    ),
    "cosines: Pearson's r between the cosines of all pairs of sampled sentences.",
    (
        "overlap: the mean part of a sampled sentence's nearest neighbours, by cosine among the sampled ones, that two "
        "encoders share."
    ),
)


@dataclass(frozen=True)
class LikenessReport:
    """A comparison and what it is about.

    Attributes:
        comparison: the figures.
        what: a description of the sentences.
        corpus: the sentences.
        members: the encoders, in the order of the comparison's names.
    """

    comparison: Comparison
    what: str
    corpus: Corpus
    members: Sequence[Encoder]

    def rows(self, labels: Sequence[str]) -> list[list[str]]:
        """Return a row of the table for every pair, the most alike first; `labels` are the names to show."""
        shown = dict(zip(self.comparison.names, labels, strict=True))
        return [
            [shown[pair.first], shown[pair.second], figure(pair.cka), figure(pair.cosines), figure(pair.overlap)]
            for pair in self.comparison.pairs
        ]

    def panels(self) -> list[Panel]:
        """Return the three heat maps."""
        return [
            Panel("CKA", self.comparison.cka),
            Panel("Correlation of cosines", self.comparison.cosines),
            Panel(f"Overlap of {self.comparison.neighbours} neighbours", self.comparison.overlap),
        ]

    def protocol(self) -> list[str]:
        """Return what the figures were measured on."""
        result = self.comparison
        sample = f"{result.sampled} of them, seed {result.seed}" if result.sampled < result.rows else "all of them"
        return [
            f"CKA: {result.rows} sentences, {self.what}.",
            f"Cosines and {result.neighbours} neighbours: {sample}. Overlap by chance: {result.chance:.3f}.",
        ]

    def advice(self, labels: Sequence[str]) -> list[str]:
        """Return what the figures say about the encoders, a sentence each."""
        shown = dict(zip(self.comparison.names, labels, strict=True))

        def both(pair: Pair) -> str:
            return f"{shown[pair.first]} and {shown[pair.second]} (CKA {figure(pair.cka)})"

        mute = set(self.comparison.mute)
        lines = [f"{shown[name]} tells no sentences apart: its figures are 0." for name in self.comparison.mute]
        pairs = [pair for pair in self.comparison.pairs if not {pair.first, pair.second} & mute]
        if pairs and pairs[0].cka >= _TWINS:
            lines.append(f"Most alike: {both(pairs[0])}: the one adds little to the other.")
        elif len(pairs) > 1:
            lines.append(f"Most alike: {both(pairs[0])}.")
        if len(pairs) > 1:
            lines.append(f"Most different: {both(pairs[-1])}.")
        return [*lines, _LIMITS]

    def svg(self) -> str:
        """Return the heat maps as an SVG document."""
        return svg_heatmap(self.comparison.names, self.panels(), self.protocol())

    def page(self, origin: str, picture: str = "") -> str:
        """Return everything as a Markdown page.

        Args:
            origin: the sentence that says how the page was made.
            picture: the address of the heat maps, if they were written.
        """
        labels = [name.replace("|", "\\|") for name in self.comparison.names]
        specs = ", ".join(f"{one.spec.name} ({one.spec.dim}, {one.spec.revision})" for one in self.members)
        made = ", ".join(f"{name} {value}" for name, value in provenance().items())
        notes = [*self.protocol(), f"The corpus's key: {self.corpus.key}.", *_MEANINGS, *self.advice(labels)]
        notes += [f"Encoders (dimension, revision): {specs}.", f"Made with {made}."]
        image = [f"![heat maps]({quote(picture)})", ""] if picture else []
        table = markdown_table(HEADERS, self.rows(labels), left=2)
        lines = ["# How alike encoders are", "", origin, "", *image, table, "", *(f"- {note}" for note in notes)]
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        result = self.comparison

        def rounded(matrix: NDArray[Any]) -> list[list[float]]:
            return [[round(float(value), 6) for value in row] for row in matrix]

        key, sentences = self.corpus.key, len(self.corpus)
        return {
            "corpus": {"what": self.what, "sentences": sentences, "distinct": result.rows, "key": key},
            "encoders": [
                {"encoder": name, "spec": member.spec.to_json(), "key": member.spec.key}
                for name, member in zip(result.names, self.members, strict=True)
            ],
            **{name: getattr(result, name) for name in ("rows", "sampled", "neighbours", "seed", "chance")},
            "mute": list(result.mute),
            **{name: rounded(getattr(result, name)) for name in ("cka", "cosines", "overlap")},
            "pairs": [
                {"encoders": [pair.first, pair.second], "cka": pair.cka, "cosines": pair.cosines}
                | {"overlap": pair.overlap}
                for pair in result.pairs
            ],
        }
