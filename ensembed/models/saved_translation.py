"""What a translating model knows: whose vectors it gives, how well, and what texts it was fitted on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ensembed.encoders.base import SavedSpec, same_settings
from ensembed.reliability.familiarity import Familiarity
from ensembed.reliability.search_agreement import Figure

FIGURES = ("translated", "kept", "unlike")
"""The figures of a map: of what it translates, of the source alone, and of translating text unlike the sample."""


@dataclass(frozen=True, eq=False)
class Translation:
    """Says that a model gives the vectors of another one, its target.

    Attributes:
        target: the spec of that other model; its name is only shown, never opened.
        figures: how much of what the target finds is found, by the names in `FIGURES`.
        kind: the kind of map, and its settings.
        familiarity: where the first member's vectors of the sample lie.
    """

    target: SavedSpec
    figures: Mapping[str, Figure]
    kind: Mapping[str, Any]
    familiarity: Familiarity

    def is_for(self, spec: SavedSpec) -> bool:
        """Return whether a model with this spec is the target."""
        return same_settings(self.target.settings, spec.settings)

    def warn_if_unlike(self, X: NDArray[Any]) -> None:
        """Warn if texts with these vectors of the first member look unlike the sample."""
        self.familiarity.warn_if_unlike(X, "texts", self.figures["unlike"].recall_10.value)

    def saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what a saved model keeps: facts for `config.json`, and tensors by name."""
        facts, tensors = self.familiarity.saved()
        return {
            "target": self.target.to_json(),
            "figures": {name: self.figures[name].to_json() for name in FIGURES},
            "kind": dict(self.kind),
            "familiarity": facts,
        }, {f"familiarity.{name}": tensor for name, tensor in tensors.items()}

    @classmethod
    def restored(
        cls, facts: Mapping[str, Any], dim: int, columns: int, take: Callable[..., NDArray[Any]]
    ) -> Translation:
        """Return what was saved, of a model of `dim` dimensions whose first member has `columns`."""
        target = SavedSpec.from_json(facts["target"])
        if target.dim != dim or not isinstance(facts["kind"], dict):
            raise ValueError(f"a translation to {target.dim!r} dimensions by a model of {dim}")
        familiarity = Familiarity.restored(
            facts["familiarity"], columns, lambda name, *shape: take(f"familiarity.{name}", *shape)
        )
        figures = {name: Figure.from_json(facts["figures"][name]) for name in FIGURES}
        return cls(target, figures, facts["kind"], familiarity)
