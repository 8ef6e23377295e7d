"""The figure of milliseconds beside quality."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ensembed.paper.findings import BESIDE, Cost, Findings
from ensembed.paper.report import drawing
from ensembed.paper.report.drawing import Figure, Style, draw, edge_labels, listing, look, plain_axes, short, signed

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_HEIGHT = 480
_STARS = "Stars are encoders that are no members. "


def cost(findings: Findings) -> Figure | None:
    """Draw time per sentence against dev score, for members, meta-embeddings, and those without one member."""
    costs = [cost for cost in findings.costs if cost.milliseconds > 0]
    if not costs:
        return None
    front = pareto(costs)
    named = [*front, *_worth_naming(costs)]

    def paint(page: Canvas) -> None:
        axes = page.subplots()
        steps: Style = {"color": drawing.FAINT, "linewidth": 6, "alpha": 0.35, "drawstyle": "steps-post", "zorder": 1}
        on_front = [(cost.milliseconds, 100 * cost.dev.pearson) for cost in front]
        axes.plot(*zip(*on_front, strict=True), solid_capstyle="round", **steps)
        for cost in costs:
            style, part = look(cost.label, findings), " without " in cost.label
            mark: Style = {"markerfacecolor": "white" if part else style.face, "markersize": 6 if part else 9}
            axes.plot([cost.milliseconds], [100 * cost.dev.pearson], style.marker, color=style.color, zorder=3, **mark)
        axes.set_xscale("log")
        axes.margins(x=0.05, y=0.08)
        plain_axes(axes, drawing.DEV_AXIS, "milliseconds per sentence", _ticks(*axes.get_xlim()))
        labels = []
        for cost in costs:
            if cost in named:
                color = drawing.MUTED if " without " in cost.label else drawing.INK
                letters: Style = {"weight": "bold" if cost in front else "normal", "color": color}
                labels.append((short(cost.label), cost.milliseconds, 100 * cost.dev.pearson, letters))
        edge_labels(axes, labels, drawing.SMALL)

    caption = (
        "Further left is cheaper, higher is better; grey hollow marks are members, filled ones meta-embeddings, small "
        "hollow ones meta-embeddings without one member, of which the best for each member is named. "
        f"{_STARS if any(cost.label.startswith(BESIDE) for cost in costs) else ''}"
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
    others = [cost for cost in costs if cost not in members and not cost.label.startswith(BESIDE)]
    if not members or not others:
        return ""
    member, meta = (max(group, key=lambda cost: cost.dev.pearson) for group in (members, others))
    return (
        f"The best meta-embedding, {short(meta.label)}, takes {meta.milliseconds:.3g} ms against "
        f"{member.milliseconds:.3g} ms of the best member, {short(member.label)}: "
        f"{meta.milliseconds / member.milliseconds:.1f} times the time for "
        f"{signed(meta.dev.pearson - member.dev.pearson)} points."
    )


def _ticks(low: float, high: float) -> list[float]:
    """Return round values on a log axis: 1, 2, 5, 10, ..."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low < 5000 else (1,)
    return [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
