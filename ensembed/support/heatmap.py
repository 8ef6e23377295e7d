"""Heat maps of how alike things are, for a terminal and as SVG, and short forms of names for tables.

The scale is fixed, 0 to 1, so that two maps can be compared. The SVG is written here, not by matplotlib, so that
`ensembed compare --svg` works without any extra.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

if TYPE_CHECKING:
    from rich.console import Console

Color = tuple[int, int, int]

# From unlike to alike; lightness falls all the way, so that the map also reads in grey.
_RAMP: tuple[Color, ...] = ((255, 248, 214), (240, 187, 92), (193, 86, 71), (92, 24, 68))
_SHADES, _ASCII_SHADES = " ░▒▓█", " .:+#"
_TERMINAL_NAME = 32
_CELL = 8  # characters
_SVG_NAME = 36
_CELL_WIDTH, _CELL_HEIGHT, _LINE, _MARGIN = 52, 32, 20, 16  # pixels
_CHARACTER = 8.5  # pixels of a character, on average, in the widest of the usual fonts
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, eq=False)
class Panel:
    """One matrix [J, J] of figures, and what it shows."""

    title: str
    matrix: NDArray[Any]


def figure(value: float) -> str:
    """Format with two decimals, and without a sign if it rounds to zero.

    Example:
        >>> figure(0.456), figure(-0.001)
        ('0.46', '0.00')
    """
    return f"{round(float(value), 2) + 0.0:.2f}"


def shorten_middle(text: str, limit: int, mark: str = "…") -> str:
    """Shorten a text to `limit` characters, keeping its beginning and its end.

    Example:
        >>> shorten_middle("openai:https://api.example.com/v1#embedding-3", 20)
        'openai:htt…bedding-3'
    """
    if len(text) <= limit:
        return text
    kept = limit - len(mark)
    return text[: kept - kept // 2] + mark + text[len(text) - kept // 2 :]


def short_names(names: Sequence[str], limit: int, mark: str = "…") -> list[str]:
    """Shorten names to `limit` characters each; those that would then look the same begin with their number.

    Example:
        >>> short_names(["minilm", "st:a-long-name", "st:a-lone-name"], 10)
        ['minilm', '2 st:…name', '3 st:…name']
    """
    short = [shorten_middle(name, limit, mark) for name in names]
    return [
        text if short.count(text) == 1 else shorten_middle(f"{i} {name}", limit, mark)
        for i, (name, text) in enumerate(zip(names, short, strict=True), 1)
    ]


def can_show(text: str, encoding: str | None) -> bool:
    """Return whether an output of this encoding can show the text."""
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def print_heatmap(names: Sequence[str], panel: Panel, console: Console | None = None) -> None:
    """Print the map: coloured cells on a terminal that has colours, shades elsewhere."""
    from rich.console import Console
    from rich.text import Text

    console = console or Console()
    colored = console.is_terminal and console.color_system is not None and not console.no_color
    plain = not can_show(_SHADES + "…", console.encoding)
    shades, mark = (_ASCII_SHADES, "...") if plain else (_SHADES, "…")
    labels = [f"{i} {shorten_middle(name, _TERMINAL_NAME, mark)}" for i, name in enumerate(names, 1)]
    width = max(len(label) for label in labels)
    numbers = "".join(str(j).center(_CELL) for j in range(1, len(names) + 1)).rstrip()
    lines = [Text(panel.title), Text(" " * (width + 1) + numbers)]
    for label, row in zip(labels, panel.matrix, strict=True):
        line = Text(label.ljust(width + 1))
        for value in row:
            if colored:
                back = _color(value)
                line.append(figure(value).center(_CELL), style=f"{_hex(_ink(back))} on {_hex(back)}")
            else:
                shade = shades[min(int(_level(value) * len(shades)), len(shades) - 1)]
                line.append(f"{figure(value)} {shade}".rjust(_CELL))
        if not colored:  # a coloured cell ends with colour
            line.rstrip()
        lines.append(line)
    for line in lines:
        console.print(line, soft_wrap=True)


def svg_heatmap(names: Sequence[str], panels: Sequence[Panel], caption: Sequence[str]) -> str:
    """Draw the maps side by side as one SVG document on white ground, without scripts or anything from outside.

    Args:
        names: the names of the rows, and by number of the columns.
        panels: the matrices.
        caption: lines below them.
    """
    labels = [f"{i} {shorten_middle(name, _SVG_NAME)}" for i, name in enumerate(names, 1)]
    label_width = _CHARACTER * max(len(label) for label in labels) + 8
    pitch = max(len(names) * _CELL_WIDTH, *(_CHARACTER * 1.1 * len(panel.title) for panel in panels)) + _MARGIN
    top = _MARGIN + 44
    bottom = top + len(names) * _CELL_HEIGHT
    width = max(label_width + len(panels) * pitch, *(_CHARACTER * len(line) for line in caption)) + 2 * _MARGIN
    height = bottom + len(caption) * _LINE + 2 * _MARGIN
    size = f'viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}"'
    font = 'font-family="system-ui, sans-serif" font-size="13"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" {font}>',
        f"<title>{_xml(', '.join(panel.title for panel in panels))}</title>",
        '<rect width="100%" height="100%" rx="8" fill="#ffffff"/>',
    ]
    for i, (label, name) in enumerate(zip(labels, names, strict=True)):
        parts.append(_text(_MARGIN, top + (i + 0.5) * _CELL_HEIGHT, label, anchor="start", title=name))
    for p, panel in enumerate(panels):
        left = _MARGIN + label_width + p * pitch
        parts.append(_text(left, top - 34, panel.title, anchor="start", weight="600"))
        parts += [_text(left + (j + 0.5) * _CELL_WIDTH, top - 12, str(j + 1)) for j in range(len(names))]
        for i, row in enumerate(panel.matrix):
            for j, value in enumerate(row):
                x, y, back = left + j * _CELL_WIDTH, top + i * _CELL_HEIGHT, _hex(_color(value))
                cell = f'x="{x:g}" y="{y:g}" width="{_CELL_WIDTH}" height="{_CELL_HEIGHT}" fill="{back}"'
                middle, title = (x + _CELL_WIDTH / 2, y + _CELL_HEIGHT / 2), f"{names[i]}, {names[j]}: {value:.4f}"
                ink = _hex(_ink(_color(value)))
                parts += [f"<rect {cell}/>", _text(*middle, figure(value), ink, title=title)]
    for i, line in enumerate(caption):
        parts.append(_text(_MARGIN, bottom + _MARGIN + (i + 0.5) * _LINE, line, "#555555", anchor="start"))
    return "\n".join([*parts, "</svg>\n"])


def _text(
    x: float,
    y: float,
    text: str,
    fill: str = "#222222",
    *,
    anchor: str = "middle",
    weight: str = "400",
    title: str = "",
) -> str:
    inside = f"<title>{_xml(title)}</title>" if title else ""
    where = f'x="{x:g}" y="{y:g}" dominant-baseline="central" text-anchor="{anchor}"'
    return f'<text {where} font-weight="{weight}" fill="{fill}">{inside}{_xml(text)}</text>'


def _xml(text: str) -> str:
    """Escape a text; characters that XML cannot hold at all become U+FFFD."""
    return escape(_NOT_XML.sub("\ufffd", text))


def _level(value: float) -> float:
    return min(max(float(value), 0.0), 1.0)


def _color(value: float) -> Color:
    """Return the ramp's colour, its stops evenly spaced from 0 to 1."""
    place = _level(value) * (len(_RAMP) - 1)
    below = min(math.floor(place), len(_RAMP) - 2)
    red, green, blue = (
        round(a + (b - a) * (place - below)) for a, b in zip(_RAMP[below], _RAMP[below + 1], strict=True)
    )
    return red, green, blue


def _ink(back: Color) -> Color:
    """Return black or white, whichever has more contrast (WCAG 2: relative luminance above or below 0.179)."""
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in back]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return (0, 0, 0) if luminance > 0.179 else (255, 255, 255)


def _hex(color: Color) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)
