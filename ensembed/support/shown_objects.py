"""How objects show themselves: `repr` on a line, `print` and notebooks as a table that fits a screen."""

from __future__ import annotations

import dataclasses
import html
import reprlib
from typing import Any

import numpy as np

Facts = list[tuple[str, str]]

# A table has at most so many rows, and a value so many characters.
_ROWS, _VALUE = 20, 96
# Arrays of one dimension that are no longer than this are shown with their numbers.
_NUMBERS = 8


class Shown:
    """An object that shows a few facts about itself; what is no dataclass writes `_facts`."""

    def _facts(self) -> Facts:
        """Return what is shown: the name of each field, and its value in a few words."""
        return field_facts(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self._facts())})"

    def __str__(self) -> str:
        facts = _cut(self._facts())
        width = max(len(name) for name, _ in facts)
        return "\n".join([type(self).__name__, *(f"  {name:{width}}  {value}" for name, value in facts)])

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        return html_table(type(self).__name__, self._facts())


def field_facts(value: Any) -> Facts:  # noqa: ANN401 - any dataclass
    """Return the fields of a dataclass, and the value of each in a few words."""
    return [(field.name, short_value(getattr(value, field.name))) for field in dataclasses.fields(value) if field.repr]


def html_table(title: str, facts: Facts) -> str:
    """Return facts as an HTML table that a notebook shows."""
    left = 'style="text-align:left"'
    rows = "".join(
        f"<tr><th {left}>{html.escape(name)}</th><td {left}>{html.escape(value)}</td></tr>"
        for name, value in _cut(facts)
    )
    return f"<table><caption>{html.escape(title)}</caption>{rows}</table>"


def _cut(facts: Facts) -> Facts:
    """Return the facts, long values and long lists of them shortened."""
    shown = [(name, value if len(value) <= _VALUE else value[: _VALUE - 1] + "…") for name, value in facts]
    return shown if len(shown) <= _ROWS else [*shown[: _ROWS - 1], ("…", f"and {len(shown) - _ROWS + 1} more")]


def short_value(value: object) -> str:
    """Return a value in at most some dozens of characters; of a large array, its type and shape.

    Example:
        >>> short_value(np.array([1.0, 0.25])), short_value(np.zeros((300, 2), np.float32)), short_value(("a",))
        ('[1, 0.25]', 'float32[300, 2]', "('a',)")
    """
    if isinstance(value, np.ndarray):
        if value.ndim == 1 and len(value) <= _NUMBERS:
            return f"[{', '.join(f'{item:.4g}' for item in value.tolist())}]"
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, float):
        return f"{value:.4g}"
    return reprlib.repr(value)
