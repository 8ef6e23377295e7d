"""The figure of milliseconds beside quality, with labels that meet neither dots nor each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ensembed.paper.findings import Cost, Findings
from ensembed.paper.report import drawing
from ensembed.paper.report.drawing import Figure, Style, draw, listing, look, plain_axes, short, signed, spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_HEIGHT = 480
_LEFT, _RIGHT, _BOTTOM, _TOP = 60, 24, 50, 40  # pixels around the axes
_ACROSS, _UP = drawing.WIDTH - _LEFT - _RIGHT, _HEIGHT - _BOTTOM - _TOP  # pixels of the axes
_COLUMN = 30  # pixels from the dots furthest to the right to their labels
_TURNS = 24  # directions in which a label may stand
_LETTER, _LINE = 7.6, 16  # pixels of a label's letter, on average, and of its height


class Box(NamedTuple):
    """A rectangle, in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, others: Sequence[Box]) -> bool:
        """Return whether it overlaps with any other."""
        return any(
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
            for other in others
        )

    @property
    def inside(self) -> bool:
        """Whether all of it lies within the axes."""
        return self.left >= 0 and self.right <= _ACROSS and self.bottom >= 0 and self.top <= _UP


def cost(findings: Findings) -> Figure | None:
    """Draw time per sentence against dev score, for members, meta-embeddings, and those without one member."""
    costs = [cost for cost in findings.costs if cost.milliseconds > 0]
    if not costs:
        return None
    front = pareto(costs)
    named = [*front, *_worth_naming(costs)]
    x = [math.log(cost.milliseconds) for cost in costs]
    y = [100 * cost.dev.pearson for cost in costs]
    x_range, y_range = _padded(x, right=0.42), _padded(y)  # most labels stand at the right
    low, high = (math.exp(end) for end in x_range)

    def paint(page: Canvas) -> None:
        page.set_layout_engine("none")  # labels are placed by pixels, so the axes must not move
        axes = page.add_axes((_LEFT / drawing.WIDTH, _BOTTOM / _HEIGHT, _ACROSS / drawing.WIDTH, _UP / _HEIGHT))
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        axes.set_ylim(*y_range)
        steps: Style = {"color": drawing.FAINT, "linewidth": 6, "alpha": 0.35, "drawstyle": "steps-post", "zorder": 1}
        on_front = [(cost.milliseconds, 100 * cost.dev.pearson) for cost in front]
        axes.plot(*zip(*on_front, strict=True), solid_capstyle="round", **steps)
        dots = list(zip(_scaled(x, x_range, _ACROSS), _scaled(y, y_range, _UP), strict=True))
        texts = [short(cost.label) if cost in named else "" for cost in costs]
        for cost, dot, text, box in zip(costs, dots, texts, _labels(dots, texts), strict=True):
            style, part = look(cost.label, findings), " without " in cost.label
            if text:
                line = {"arrowstyle": "-", "color": drawing.FAINT, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 5}
                weight, color = "bold" if cost in front else "normal", drawing.MUTED if part else drawing.INK
                letters: Style = {"va": "center", "fontsize": drawing.SMALL, "color": color, "weight": weight}
                place: Style = {"xytext": (box.left, (box.bottom + box.top) / 2), "textcoords": "axes pixels"}
                arrow = {**line, "relpos": (_near_end(dot[0], box), 0.5)}
                axes.annotate(text, dot, xycoords="axes pixels", arrowprops=arrow, **place, **letters)
            mark: Style = {"markerfacecolor": "white" if part else style.face, "markersize": 6 if part else 9}
            axes.plot([cost.milliseconds], [100 * cost.dev.pearson], style.marker, color=style.color, zorder=3, **mark)
        plain_axes(axes, drawing.DEV_AXIS, "milliseconds per sentence", _ticks(low, high))

    caption = (
        "Further left is cheaper, higher is better; grey hollow marks are members, filled ones meta-embeddings, small "
        "hollow ones meta-embeddings without one member, of which the best for each member is named. "
        f"Nothing is both cheaper and better than {listing([short(cost.label) for cost in front])} (bold, on the grey "
        f"steps). {_finding(costs)}"
    )
    return draw("cost", "Time per sentence and score", caption, (drawing.WIDTH, _HEIGHT), paint)


def pareto(costs: Sequence[Cost]) -> list[Cost]:
    """Return those that nothing beats in both time and dev score, cheapest first."""
    front: list[Cost] = []
    for cost in sorted(costs, key=lambda cost: (cost.milliseconds, -cost.dev.pearson)):
        if not front or cost.dev.pearson > front[-1].dev.pearson:
            front.append(cost)
    return front


def _worth_naming(costs: Sequence[Cost]) -> list[Cost]:
    """Return all, but of those without the same member, which cost the same, only the best: names need room."""
    best: dict[str, Cost] = {}
    for cost in sorted(costs, key=lambda cost: cost.dev.pearson):
        best[cost.label.partition(" without ")[2] or cost.label] = cost
    return list(best.values())


def _finding(costs: Sequence[Cost]) -> str:
    members = [cost for cost in costs if cost.label.startswith("single:")]
    others = [cost for cost in costs if cost not in members]
    if not members or not others:
        return ""
    member, meta = (max(group, key=lambda cost: cost.dev.pearson) for group in (members, others))
    return (
        f"The best meta-embedding, {short(meta.label)}, takes {meta.milliseconds:.3g} ms against "
        f"{member.milliseconds:.3g} ms of the best member, {short(member.label)}: "
        f"{meta.milliseconds / member.milliseconds:.1f} times the time for "
        f"{signed(meta.dev.pearson - member.dev.pearson)} points."
    )


def _padded(values: Sequence[float], right: float = 0.1) -> tuple[float, float]:
    room = max(values) - min(values) or 1.0
    return min(values) - 0.1 * room, max(values) + right * room


def _scaled(values: Sequence[float], ends: tuple[float, float], pixels: float) -> list[float]:
    return [(value - ends[0]) / (ends[1] - ends[0]) * pixels for value in values]


def _labels(dots: Sequence[tuple[float, float]], texts: Sequence[str]) -> list[Box]:
    """Return a place for each text, near its dot or in a column on the right, so that nothing overlaps if possible."""
    edge = max(x for x, _ in dots)
    column = [i for i, (x, _) in enumerate(dots) if texts[i] and x > edge - _COLUMN / 2]
    heights = spread([dots[i][1] for i in column], _LINE)
    placed = {i: _box(edge + _COLUMN, y, texts[i]) for i, y in zip(column, heights, strict=True)}
    taken = [_around(x, y, 7) for x, y in dots] + list(placed.values())
    lines = [step for i, box in placed.items() for step in _line(*dots[i], box)]
    for i, (x, y) in enumerate(dots):
        if i in placed:
            continue
        near = [_beside(x, y, texts[i], away, turn) for away in range(12, 300, 6) for turn in range(_TURNS)]
        others = taken[:i] + taken[i + 1 :]
        free = [box for box in near if box.inside and not box.meets(others)]
        clear = (box for box in free if not any(step.meets([*others, *lines]) for step in _line(x, y, box)))
        placed[i] = next((box for box in clear if not box.meets(lines)), (free or near)[0])
        if texts[i]:
            taken.append(placed[i])
            lines += _line(x, y, placed[i])
    return [placed[i] for i in range(len(dots))]


def _around(x: float, y: float, reach: float) -> Box:
    return Box(x - reach, y - reach, x + reach, y + reach)


def _box(left: float, middle: float, text: str) -> Box:
    return Box(left, middle - _LINE / 2, left + len(text) * _LETTER, middle + _LINE / 2)


def _near_end(x: float, box: Box) -> float:
    """Return where on a text the line from its dot ends: 0 at its left, 1 at its right."""
    return 0.0 if x < box.left else 1.0 if x > box.right else 0.5


def _line(x: float, y: float, box: Box) -> list[Box]:
    """Return steps on the line from a dot to its text."""
    end_x = box.left + _near_end(x, box) * (box.right - box.left)
    end_y = (box.bottom + box.top) / 2
    return [_around(x + (end_x - x) * step / 24, y + (end_y - y) * step / 24, 1) for step in range(2, 24)]


def _beside(x: float, y: float, text: str, away: float, turn: int) -> Box:
    """Return the box of a text in one of the directions from a dot: to the right, then more and more up and down."""
    angle = 2 * math.pi / _TURNS * ((turn + 1) // 2) * (1 if turn % 2 else -1)
    # The text's near end (or, straight above and below, its middle) lies on the circle around the dot.
    left = x + away * math.cos(angle) - len(text) * _LETTER * (1 - math.cos(angle)) / 2
    return _box(left, y + away * math.sin(angle), text)


def _ticks(low: float, high: float) -> list[float]:
    """Return round values on a log axis: 1, 2, 5, 10, ..."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low < 5000 else (1,)
    return [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
