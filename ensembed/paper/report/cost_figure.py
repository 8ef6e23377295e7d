"""Milliseconds beside quality."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ensembed.paper.findings import Cost, Findings
from ensembed.paper.report.drawing import Figure, draw
from ensembed.paper.report.figures.style import (
    DEV_AXIS,
    FAINT,
    INK,
    MUTED,
    SMALL,
    WIDTH,
    listing,
    look,
    short,
    signed,
    spread,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_HEIGHT = 480
_LEFT, _RIGHT, _BOTTOM, _TOP = 60, 24, 50, 40  # pixels around the axes
_COLUMN = 30  # pixels from the dots furthest to the right to their labels
_TURNS = 24  # directions in which a label may stand
_LETTER, _LINE = 7.6, 16  # pixels of a label's letter, on average, and of its height


class Box(NamedTuple):
    """A rectangle, in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: Box) -> bool:
        """Whether the two share some ground."""
        return (
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
        )

    def within(self, other: Box) -> bool:
        """Whether all of it lies in the other."""
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.bottom >= other.bottom
            and self.top <= other.top
        )


def cost(findings: Findings) -> Figure | None:
    """Time per sentence against dev score, for members, meta-embeddings, and those without one member."""
    costs = [one for one in findings.costs if one.milliseconds > 0]
    if not costs:
        return None
    front = pareto(costs)
    named = [*front, *_worth_naming(costs)]
    x = [math.log(one.milliseconds) for one in costs]
    y = [100 * one.dev.pearson for one in costs]
    x_range, y_range = _padded(x, right=0.42), _padded(y)  # labels like to stand at the right
    width, height = WIDTH - _LEFT - _RIGHT, _HEIGHT - _BOTTOM - _TOP

    def paint(page: Canvas) -> None:
        page.set_layout_engine("none")  # labels are placed by pixels, so the axes must not move
        axes = page.add_axes((_LEFT / WIDTH, _BOTTOM / _HEIGHT, width / WIDTH, height / _HEIGHT))
        axes.set_xscale("log")
        axes.set_xlim(*(math.exp(end) for end in x_range))
        axes.set_ylim(*y_range)
        axes.plot(
            [one.milliseconds for one in front],
            [100 * one.dev.pearson for one in front],
            color=FAINT,
            linewidth=6,
            alpha=0.35,
            drawstyle="steps-post",
            solid_capstyle="round",
            zorder=1,
        )
        dots = [(_scaled(at, x_range, width), _scaled(value, y_range, height)) for at, value in zip(x, y, strict=True)]
        texts = [short(one.label) if one in named else "" for one in costs]
        for one, dot, text, box in zip(costs, dots, texts, _labels(dots, texts, width, height), strict=True):
            style, part = look(one.label, findings), " without " in one.label
            if text:
                axes.annotate(
                    text,
                    dot,
                    xycoords="axes pixels",
                    xytext=(box.left, (box.bottom + box.top) / 2),
                    textcoords="axes pixels",
                    va="center",
                    fontsize=SMALL,
                    color=MUTED if part else INK,
                    weight="bold" if one in front else "normal",
                    arrowprops={
                        "arrowstyle": "-",
                        "color": FAINT,
                        "linewidth": 0.7,
                        "shrinkA": 0,
                        "shrinkB": 5,
                        "relpos": (_near_end(dot[0], box), 0.5),
                    },
                )
            axes.plot(
                [one.milliseconds],
                [100 * one.dev.pearson],
                style.marker,
                color=style.color,
                markerfacecolor="white" if part else style.face,
                markersize=6 if part else 9,
                zorder=3,
            )
        ticks = _ticks(*(math.exp(end) for end in x_range))
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("milliseconds per sentence")
        axes.set_title(DEV_AXIS, fontsize=SMALL, color=MUTED)
        axes.tick_params(length=0)

    caption = (
        "Further left is cheaper, higher is better; grey hollow marks are members, filled ones meta-embeddings, small "
        "hollow ones meta-embeddings without one member, of which the best for each member is named. "
        f"Nothing is both cheaper and better than {listing([short(one.label) for one in front])} (bold, on the grey "
        f"steps). {_finding(costs)}"
    )
    return draw("cost", "What a sentence costs, and what it buys", caption, (WIDTH, _HEIGHT), paint)


def pareto(costs: Sequence[Cost]) -> list[Cost]:
    """Those that nothing beats in both time and dev score, cheapest first."""
    front: list[Cost] = []
    for one in sorted(costs, key=lambda one: (one.milliseconds, -one.dev.pearson)):
        if not front or one.dev.pearson > front[-1].dev.pearson:
            front.append(one)
    return front


def _worth_naming(costs: Sequence[Cost]) -> list[Cost]:
    """All of them, but of those without the same member, which cost the same, only the best: names need room."""
    best: dict[str, Cost] = {}
    for one in costs:
        _, without, member = one.label.partition(" without ")
        key = member if without else one.label
        if key not in best or one.dev.pearson > best[key].dev.pearson:
            best[key] = one
    return list(best.values())


def _finding(costs: Sequence[Cost]) -> str:
    members = [one for one in costs if one.label.startswith("single:")]
    others = [one for one in costs if one not in members]
    if not members or not others:
        return ""
    member, meta = (max(group, key=lambda one: one.dev.pearson) for group in (members, others))
    return (
        f"The best meta-embedding, {short(meta.label)}, takes {meta.milliseconds:.3g} ms against "
        f"{member.milliseconds:.3g} ms of the best member, {short(member.label)}: "
        f"{meta.milliseconds / member.milliseconds:.1f} times the time for "
        f"{signed(meta.dev.pearson - member.dev.pearson)} points."
    )


def _padded(values: Sequence[float], right: float = 0.1) -> tuple[float, float]:
    room = max(values) - min(values) or 1.0
    return min(values) - 0.1 * room, max(values) + right * room


def _scaled(value: float, ends: tuple[float, float], pixels: float) -> float:
    return (value - ends[0]) / (ends[1] - ends[0]) * pixels


def _labels(dots: Sequence[tuple[float, float]], texts: Sequence[str], width: float, height: float) -> list[Box]:
    """A place for each text that is not empty.

    What lies furthest to the right are the meta-embeddings, which cost nearly the same: their texts form a column
    beside them. Any other text gets the nearest place to its dot where it meets no dot and no other text, if possible
    one to which the way crosses nothing; where there is none, among very many, it is set to the right all the same.
    """
    edge = max(x for x, _ in dots)
    column = [i for i, (x, _) in enumerate(dots) if texts[i] and x > edge - _COLUMN / 2]
    heights = spread([dots[i][1] for i in column], _LINE)
    placed = {i: _box(edge + _COLUMN, y, texts[i]) for i, y in zip(column, heights, strict=True)}
    taken = [_around(x, y, 7) for x, y in dots] + list(placed.values())
    ways = [step for i, box in placed.items() for step in _way(*dots[i], box)]
    for i, (x, y) in enumerate(dots):
        if i in placed:
            continue
        near = [_beside(x, y, texts[i], away, turn) for away in range(12, 300, 6) for turn in range(_TURNS)]
        others = taken[:i] + taken[i + 1 :]
        free = [box for box in near if box.within(Box(0, 0, width, height)) and not _meet([box], others)]
        clear = (box for box in free if not _meet([box], ways) and not _meet(_way(x, y, box), [*others, *ways]))
        placed[i] = next(clear, (free or near)[0])
        if texts[i]:
            taken.append(placed[i])
            ways += _way(x, y, placed[i])
    return [placed[i] for i in range(len(dots))]


def _meet(some: Sequence[Box], others: Sequence[Box]) -> bool:
    return any(one.meets(other) for one in some for other in others)


def _around(x: float, y: float, reach: float) -> Box:
    return Box(x - reach, y - reach, x + reach, y + reach)


def _box(left: float, middle: float, text: str) -> Box:
    return Box(left, middle - _LINE / 2, left + len(text) * _LETTER, middle + _LINE / 2)


def _near_end(x: float, box: Box) -> float:
    """Where on a text the line from its dot ends: 0 at its left, 1 at its right."""
    return 0.0 if x < box.left else 1.0 if x > box.right else 0.5


def _way(x: float, y: float, box: Box) -> list[Box]:
    """Steps on the line from a dot to its text."""
    end_x = box.left + _near_end(x, box) * (box.right - box.left)
    end_y = (box.bottom + box.top) / 2
    return [_around(x + (end_x - x) * step / 24, y + (end_y - y) * step / 24, 1) for step in range(2, 24)]


def _beside(x: float, y: float, text: str, away: float, turn: int) -> Box:
    """The box of a text in one of the directions from a dot: to the right, then more and more up and down."""
    angle = 2 * math.pi / _TURNS * ((turn + 1) // 2) * (1 if turn % 2 else -1)
    # The text's near end (or, straight above and below, its middle) lies on the circle around the dot.
    left = x + away * math.cos(angle) - len(text) * _LETTER * (1 - math.cos(angle)) / 2
    return _box(left, y + away * math.sin(angle), text)


def _ticks(low: float, high: float) -> list[float]:
    """Round values on a log axis: 1, 2, 5, 10, ..."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low < 5000 else (1,)
    return [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
