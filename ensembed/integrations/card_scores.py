"""Scores for a model's card, in the forms in which people have them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ensembed.errors import InputError
from ensembed.sts import Result

Scores: TypeAlias = Result | Sequence[Any] | Mapping[str, Any]

_FORM = (
    "scores are what `ensembed evaluate --json` prints, read as JSON, or results of ensembed.sts.evaluate: one, a "
    "list, or lists by the names of models"
)


@dataclass(frozen=True)
class Figure:
    """One score: the two correlations, as fractions."""

    dataset: str
    protocol: str
    pearson: float
    spearman: float


@dataclass(frozen=True)
class Table:
    """The scores of one or several models.

    Attributes:
        figures: by the names of models, in the order in which they were given.
        own: the name among them that is the model the card is about; None where that cannot be told.
        version: of the ensembed that scored; empty if it is not known.
    """

    figures: Mapping[str, tuple[Figure, ...]]
    own: str | None
    version: str = ""


def read_scores(scores: Scores, name: str, members: Sequence[str]) -> Table:
    """The table that the scores make.

    Args:
        scores: see `model_card`.
        name: what the card calls its model.
        members: the names of its members, which are often scored beside it.

    Raises:
        InputError: they have another form, or a figure is no correlation.
    """
    version = ""
    if isinstance(scores, Mapping) and "models" in scores:
        about = scores.get("provenance")
        version = str(about.get("ensembed", "")) if isinstance(about, Mapping) else ""
        scores = scores["models"]
    by_name = scores if isinstance(scores, Mapping) and "dataset" not in scores else {name: scores}
    if not by_name:
        raise InputError(f"the scores are empty: {_FORM}")
    figures = {str(key): tuple(_figure(one) for one in _listed(value)) for key, value in by_name.items()}
    for key, found in figures.items():
        if not found:
            raise InputError(f"there are no scores of {key!r}: {_FORM}")
    return Table(figures, _own(list(figures), name, members), version)


def _own(names: Sequence[str], name: str, members: Sequence[str]) -> str | None:
    if name in names:
        return name
    others = [one for one in names if one not in members]
    return others[0] if len(others) == 1 else None


def _listed(value: object) -> Sequence[object]:
    if isinstance(value, (Result, Mapping)):
        return [value]
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return value
    raise InputError(f"{_FORM}; got {type(value).__name__}")


def _figure(one: object) -> Figure:
    facts = one.to_json() if isinstance(one, Result) else one
    if not isinstance(facts, Mapping):
        raise InputError(f"{_FORM}; got {type(one).__name__}")
    if absent := [key for key in ("dataset", "protocol", "pearson", "spearman") if key not in facts]:
        raise InputError(f"{_FORM}; a result lacks {', '.join(absent)}")
    values = [facts["pearson"], facts["spearman"]]
    for value in values:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or abs(value) > 1:
            raise InputError(f"the score {value!r} on {facts['dataset']} is no correlation: a number from -1 to 1")
    return Figure(str(facts["dataset"]), str(facts["protocol"]), float(values[0]), float(values[1]))
