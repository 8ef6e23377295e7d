"""The pictures of the site, drawn from the code and from results/: `python -m website.pictures` writes docs/pictures.

Every picture is 400 units wide with text of 13 units or more, so that it can be read on a phone. Its colours are
variables: dark where the system is dark, or as the site's own switch says (docs/site.css).
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from ensembed.paper.findings import DEV

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
WIDTH = 400

_LIGHT = "--ink:#1b1f24;--soft:#57606a;--line:#8c959f;--fill:#eef1f6;--one:#3949ab;--two:#b45309;--three:#0f766e"
_DARK = "--ink:#e6e8ee;--soft:#a9b1bd;--line:#7d8590;--fill:#2b3040;--one:#9fa8ff;--two:#f5b26b;--three:#5fd3c4"
_STYLE = (
    f".drawing{{{_LIGHT};font-family:system-ui,sans-serif}}"
    f"@media (prefers-color-scheme:dark){{.drawing{{{_DARK}}}}}"
    ".drawing text{fill:var(--ink);font-size:14px}.drawing .soft{fill:var(--soft);font-size:13px}"
    ".drawing .box{fill:var(--fill);stroke:var(--line)}.drawing .edge{stroke:var(--line);fill:none;stroke-width:1.5}"
    ".drawing .tip{fill:var(--line)}.drawing .one{fill:var(--one)}.drawing .two{fill:var(--two)}"
    ".drawing .three{fill:var(--three)}.drawing .axis{stroke:var(--line)}"
    ".drawing .beside{fill:var(--ink)}"
)


def flow() -> str:
    """Draw the way from sentences to one vector each."""
    parts = [_box(80, 8, 240, 36, "your sentences, no labels")]
    names = ("minilm", "use-m3", "your own")
    for j, name in enumerate(names):
        x = 14 + 128 * j
        parts += [_arrow(200, 44, x + 58, 78), _box(x, 80, 116, 36, name)]
        parts += [_arrow(x + 58, 116, x + 58, 150), *_vector(x + 10, 152, 8, ("one", "two", "three")[j])]
        parts.append(_arrow(x + 58, 172, 200, 222))
    parts.append(_text(200, 196, "views: a row per sentence", "soft", background=True))
    parts += [_box(60, 224, 280, 52, ""), _text(200, 246, "one fit, without labels"), _text(200, 265, _HOW, "soft")]
    parts += [_arrow(200, 276, 200, 310), *_vector(104, 312, 16, "one")]
    parts += [
        _text(200, 354, "one vector per sentence"),
        _text(200, 374, "search · duplicates · clusters · server", "soft"),
    ]
    return _svg(386, "From sentences to vectors", "Sentences, three encoders, one fit, one vector.", parts)


_HOW = "whom to trust, and how to combine"


def rooms() -> str:
    """Draw the rooms of the package, in the order of the import contract in pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text()
    contract = text.partition('name = "Rooms import downwards only"')[2].partition("\n]")[0]
    layers = re.findall(r'^    "([\w |]+)",$', contract, re.MULTILINE)
    parts: list[str] = []
    for i, layer in enumerate(layers):
        names = layer.split(" | ")
        width = (WIDTH - 20 - 8 * (len(names) - 1)) / len(names)
        for j, name in enumerate(names):
            parts.append(_box(10 + j * (width + 8), 8 + 38 * i, width, 30, name))
    bottom = 8 + 38 * len(layers)
    parts.append(_text(200, bottom + 16, "each room imports only what is below it", "soft"))
    return _svg(bottom + 28, "The rooms of the code", " > ".join(layers), parts)


def cost(table: dict[str, Any]) -> str:
    """Draw quality against time, from the table of costs of `ensembed reproduce`."""
    rows = [row for row in table["rows"] if "mean" in row["cells"] and row["cells"]["mean"]]
    points: list[tuple[str, float, float]] = [
        (row["cells"]["system"], row["cells"]["ms per sentence"], 100 * row["cells"]["mean"]["pearson"]) for row in rows
    ]
    left, right, top, bottom = 44, 388, 12, 300
    low, high = math.floor(min(y for *_, y in points)) - 1, math.ceil(max(y for *_, y in points)) + 1
    # A logarithmic scale of time: a static encoder is a hundred times as fast as a transformer.
    first, longest = math.log10(min(x for _, x, _ in points)) - 0.15, math.log10(max(x for _, x, _ in points))
    last = first + (longest - first) * (right - left) / (right - left - 104)  # names stand behind the last point

    def across(ms: float) -> float:
        return left + (math.log10(ms) - first) / (last - first) * (right - left)

    def up(score: float) -> float:
        return bottom - (score - low) / (high - low) * (bottom - top)

    parts = [_line(left, bottom, right, bottom), _line(left, top, left, bottom)]
    for ms in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5):
        if first <= math.log10(ms) <= last:
            parts += [
                _line(across(ms), bottom, across(ms), bottom + 5),
                _text(across(ms), bottom + 20, f"{ms:g}", "soft"),
            ]
    for level in range(low, high + 1, 2):
        parts += [
            _line(left - 5, up(level), left, up(level)),
            _text(left - 8, up(level) + 4, f"{level}", "soft", "end"),
        ]
    cores = table["provenance"]["processor"].rpartition(", ")[2]
    sets = len([one for one in table["datasets"] if one["name"] != DEV])
    parts.append(_text((left + right) / 2, bottom + 42, f"milliseconds per sentence, {cores}", "soft"))
    parts.append(
        _text((left + right) / 2, bottom + 60, f"upwards: Pearson's r x 100, mean of {sets} test sets", "soft")
    )
    # Systems of the same members take the same time: their names are listed, with a line to the point.
    listed = sorted((p for p in points if p[0].startswith("meta:")), key=lambda p: -p[2])
    edge = max(across(ms) for _, ms, _ in listed) + 24
    for index, (name, ms, score) in enumerate(listed):
        y, x = top + 26 + 22 * index, across(ms)
        parts.append(f'<path class="edge" d="M{x:.1f} {up(score):.1f}L{edge - 4:.1f} {y - 5:.1f}"/>')
        parts.append(_text(edge, y, _label(name, score), "", "start"))
    for name, ms, score in points:
        parts.append(_dot(across(ms), up(score), _COLOURS.get(name, _COLOURS[name.partition(":")[0]])))
    for name, ms, score in (p for p in points if p not in listed):
        anchor, shift = ("start", 10) if across(ms) < 200 else ("end", -10)
        down = 18 if name.startswith("single:") else -9
        parts.append(_text(across(ms) + shift, up(score) + down, _label(name, score), "", anchor))
    words = "; ".join(f"{name} {ms:.2f} ms, {score:.1f}" for name, ms, score in points)
    return _svg(bottom + 70, "Quality against cost", words, parts)


_COLOURS = {"meta:auto": "two", "meta": "three", "single": "one", "beside": "beside"}


def _label(name: str, score: float) -> str:
    return f"{re.split('[:/]', name)[-1]} {score:.1f}"


def agreement(likeness: dict[str, Any]) -> str:
    """Draw how alike encoders are, from what `ensembed compare` wrote."""
    names = [one["encoder"] for one in likeness["encoders"]]
    size = (WIDTH - 104) / len(names)
    parts: list[str] = []
    for i, name in enumerate(names):
        y = 58 + i * 44
        parts.append(_text(94, y + 26, name, "", "end"))
        parts.append(_text(100 + (i + 0.5) * size, 30 if i % 2 else 48, name, "soft"))
        for j in range(len(names)):
            value = likeness["cka"][i][j]
            parts.append(
                f'<rect class="one" fill-opacity="{0.06 + 0.5 * value**2:.2f}" x="{100 + j * size:.1f}" y="{y}" '
                f'width="{size - 3:.1f}" height="41" rx="3"/>'
            )
            parts.append(_text(100 + (j + 0.5) * size - 1.5, y + 26, f"{value:.2f}"))
    bottom = 58 + 44 * len(names)
    parts.append(_text(200, bottom + 18, "1: the same up to rotation; 0: nothing in common", "soft"))
    pairs = "; ".join(f"{a} and {b} {one['cka']:.2f}" for one in likeness["pairs"] for a, b in [one["encoders"]])
    return _svg(bottom + 30, "Agreement of encoders", pairs, parts)


def before_after(results: dict[str, Any]) -> str:
    """Draw where members and ensemble rank the answers of questions, from what experiments/before_after.py wrote."""
    systems: list[str] = results["systems"]
    size, left = 46, WIDTH - 46 * len(systems)
    centres = {name: left + (i + 0.5) * size - 2 for i, name in enumerate(systems)}
    before = [centres[name] for name in systems[:-1]]
    parts = [_text(sum(before) / len(before), 16, "before", "soft"), _text(centres[systems[-1]], 16, "after", "soft")]
    # Names are longer than their columns are wide: every second one is higher, with a line to its column.
    for i, name in enumerate(systems):
        low = 60 if i % 2 else 42
        anchor = "end" if i == len(systems) - 1 else "middle"
        x = WIDTH - 2 if anchor == "end" else centres[name]
        parts += [_text(x, low, name, "", anchor), _line(centres[name], low + 4, centres[name], 68)]
    y = 72.0
    for one in results["questions"]:
        lines = textwrap.wrap(one["question"], 26)
        height = 8 + 17 * max(2, len(lines))
        first = y + height / 2 + 5 - 8.5 * (len(lines) - 1)
        parts += [_text(2, first + 17 * i, line, "", "start") for i, line in enumerate(lines)]
        for name in systems:
            rank = one["ranks"][name]
            # The first ranks are what a reader sees: the strength of the colour falls with the logarithm.
            strength = max(0.06, 0.56 - 0.12 * math.log2(rank))
            colour = "two" if name == systems[-1] else "one"
            parts.append(
                f'<rect class="{colour}" fill-opacity="{strength:.2f}" x="{centres[name] - 21:.1f}" y="{y + 2:g}" '
                f'width="{size - 4}" height="{height - 4:g}" rx="3"/>'
            )
            parts.append(_text(centres[name], y + height / 2 + 5, str(rank)))
        y += height
    means = results["mean_reciprocal_rank"]
    parts.append(_text(2, y + 22, "mean reciprocal rank", "soft", "start"))
    for label, key, down in ((f"these {len(results['questions'])}", "shown", 42), ("all headings", "all", 62)):
        parts.append(_text(left - 8, y + down, label, "soft", "end"))
        parts += [_text(centres[name], y + down, f"{means[key][name]:.2f}") for name in systems]
    words = "; ".join(
        one["question"] + " " + ", ".join(f"{name} {one['ranks'][name]}" for name in systems)
        for one in results["questions"]
    )
    parts.append(_text(WIDTH / 2, y + 88, f"rank of the right answer among {results['answers']}: 1 is best", "soft"))
    return _svg(y + 98, "Before and after", words, parts)


def pictures() -> dict[str, str]:
    """Return all pictures by the names of their files."""
    results = ROOT / "results"
    return {
        "flow.svg": flow(),
        "rooms.svg": rooms(),
        "cost.svg": cost(json.loads((results / "reproduce" / "tables" / "cost.json").read_text())),
        "agreement.svg": agreement(json.loads((results / "compare.json").read_text())),
        "before_after.svg": before_after(json.loads((results / "before_after.json").read_text())),
    }


def _svg(height: float, title: str, description: str, parts: Sequence[str]) -> str:
    name = re.sub(r"\W+", "-", title.lower())
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-labelledby="{name}-title {name}-text"><title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-text">{escape(description)}</desc><style>{_STYLE}</style>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


def _box(x: float, y: float, width: float, height: float, label: str) -> str:
    box = f'<rect class="box" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'
    return box + (_text(x + width / 2, y + height / 2 + 5, label) if label else "")


def _text(x: float, y: float, label: str, style: str = "", anchor: str = "middle", background: bool = False) -> str:
    halo = ' paint-order="stroke" stroke="var(--md-default-bg-color,Canvas)" stroke-width="6"' if background else ""
    kind = f' class="{style}"' if style else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{halo}>{escape(label)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="axis" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _dot(x: float, y: float, colour: str) -> str:
    return f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="5.5"/>'


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
    tip = f'<path class="tip" d="M0 0L-9 -4L-9 4Z" transform="translate({x2:g} {y2:g}) rotate({angle:.1f})"/>'
    return f'<path class="edge" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>{tip}'


def _vector(x: float, y: float, cells: int, colour: str) -> list[str]:
    """Draw a vector as a row of cells of different strength."""
    strengths = [0.25 + 0.7 * abs(math.sin(2.4 * i + len(colour))) for i in range(cells)]
    return [
        f'<rect class="{colour}" fill-opacity="{s:.2f}" x="{x + 12 * i:g}" y="{y:g}" width="11" height="18" rx="1"/>'
        for i, s in enumerate(strengths)
    ]


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, svg in pictures().items():
        (FOLDER / file).write_text(svg)
        print(FOLDER / file)
