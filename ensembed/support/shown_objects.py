"""How objects show themselves: `repr` on a line, `print` and notebooks as a table that fits a screen."""

from __future__ import annotations

import dataclasses
import html
import reprlib
import textwrap
from collections import Counter
from typing import Any

import numpy as np

from ensembed.support.text_tables import printable

Facts = list[tuple[str, str]]

# A table has at most so many rows, and a value so many lines of so many characters.
_ROWS, _LINES, _WIDTH = 20, 4, 96
# Arrays of one dimension that are no longer than this are shown with their numbers.
_NUMBERS = 8


class Shown:
    """An object that shows a few facts about itself; what is no dataclass writes `_facts`."""

    def _facts(self) -> Facts:
        """Return what is shown: the name of each field, and its value in a few words."""
        return field_facts(self)

    def __repr__(self) -> str:
        return printable(f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self._facts())})")

    def __str__(self) -> str:
        facts = _cut(self._facts())
        width = max(len(name) for name, _ in facts)
        indent = "\n" + " " * (width + 4)
        rows = (f"  {name:{width}}  {indent.join(_lines(value))}" for name, value in facts)
        return "\n".join([type(self).__name__, *rows])

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
        f"<tr><th {left}>{html.escape(name)}</th><td {left}>{html.escape(' '.join(_lines(value)))}</td></tr>"
        for name, value in _cut(facts)
    )
    return f"<table><caption>{html.escape(title)}</caption>{rows}</table>"


def _lines(value: str) -> list[str]:
    """Return a value in lines; what does not fit in `_LINES` of them is left out."""
    beginning = value[: 8 * _LINES * _WIDTH]  # wrapping megabytes, which a file may hold, takes seconds
    lines = textwrap.wrap(beginning, _WIDTH, max_lines=_LINES, placeholder=" …", break_on_hyphens=False)
    return [printable(line) for line in lines] or [""]


def _cut(facts: Facts) -> Facts:
    """Return the facts; of a long list, without the last ones of the most frequent name, such as `member`."""
    extra = len(facts) - _ROWS
    if extra <= 0:
        return facts
    [(name, _)] = Counter(name for name, _ in facts).most_common(1)
    rows = [i for i, fact in enumerate(facts) if fact[0] == name]
    rows = rows[-extra - 1 :] if len(rows) > extra else list(range(_ROWS - 1, len(facts)))
    return [
        *facts[: rows[0]],
        ("…", f"and {len(rows)} more"),
        *(facts[i] for i in range(rows[0], len(facts)) if i not in rows),
    ]


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
