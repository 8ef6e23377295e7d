"""What each member is worth: the ensemble without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ensembed.paper import published as paper
from ensembed.paper.findings import Findings
from ensembed.paper.report.drawing import Figure, draw
from ensembed.paper.report.figures.style import (
    DEV_AXIS,
    GAP,
    INK,
    SMALL,
    WIDTH,
    edge_text,
    figure,
    look,
    panels,
    short,
    signed,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def ablation(findings: Findings) -> Figure | None:
    """Leave one out: the whole ensemble's score, and where it goes without each member."""
    scores = {(one.method, one.without): one.score.pearson for one in findings.ablations}
    methods = [method for method, without in scores if not without]
    changes = {
        (method, name): scores[method, name] - scores[method, ""]
        for method, name in scores
        if name and method in methods
    }
    if not changes:
        return None
    names = list(dict.fromkeys(name for _, name in changes))
    low, high = 100 * min(scores.values()), 100 * max(scores.values())

    def paint(page: Canvas) -> None:
        for axes, method in zip(panels(page, len(methods)), methods, strict=True):
            style, full = look(f"meta:{method}", findings), 100 * scores[method, ""]
            axes.axvline(full, color=INK, linewidth=1, dashes=(4, 3))
            axes.plot([full], [0], style.marker, color=style.color, markersize=9)
            edge_text(axes, 0, figure(full / 100), bold=True)
            for place, name in enumerate(names, 1):
                if (method, name) in changes:
                    value = 100 * scores[method, name]
                    axes.plot([full, value], [place, place], color=style.color, solid_capstyle="butt")
                    axes.plot([value], [place], style.marker, color=style.color, markerfacecolor="white")
                    edge_text(axes, place, f"{figure(value / 100)}{GAP}{signed(changes[method, name])}")
            axes.set_title(method)
            axes.set_yticks(range(len(names) + 1), ["all members", *(f"without {short(name)}" for name in names)])
            axes.set_ylim(len(names) + 0.5, -0.5)
            room = high - low or 1
            axes.set_xlim(low - 0.08 * room, high + 0.75 * room)  # the figures stand at the right edge
            axes.grid(visible=False, axis="y")
        page.supxlabel(DEV_AXIS, fontsize=SMALL)

    worst, best = (pick(changes, key=lambda key: changes[key]) for pick in (min, max))
    gain = (
        f"{best[0]} is better without {short(best[1])} ({signed(changes[best])})"
        if changes[best] > 0
        else "no method is better without any of its members"
    )
    caption = (
        "STS-B dev with all members (filled mark, dashed line) and without one of them (hollow marks). The largest "
        f"loss is that of {worst[0]} without {short(worst[1])} ({signed(changes[worst])}); {gain}. {_paper()}"
    )
    return draw("ablation", "Leave one member out", caption, (WIDTH, 34 * (len(names) + 1) + 84), paint)


def _paper() -> str:
    rows = {
        (method, without): (one.pearson - row["full"].pearson) / 100
        for method, row in paper.table3().items()
        for without, one in row.items()
        if one.pearson is not None and row["full"].pearson is not None
    }
    method, without = min(rows, key=lambda key: rows[key])
    return f"In the paper, with other members, it is that of {method} {without} ({signed(rows[method, without])})."
