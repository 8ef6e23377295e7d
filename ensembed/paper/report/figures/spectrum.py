"""GCCA's eigenvalues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ensembed.paper.findings import Findings
from ensembed.paper.report.drawing import Figure, draw
from ensembed.paper.report.figures.style import INK, MUTED, SMALL, look

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def spectrum(findings: Findings) -> Figure | None:
    """The eigenvalues, falling, between J - 1 for J members and what lies below zero."""
    values = findings.spectrum
    ceiling = len(findings.members) - 1
    if not values or ceiling < 1:
        return None
    positive = sum(value > 0 for value in values)
    half = sum(value > ceiling / 2 for value in values)

    def paint(page: Canvas) -> None:
        axes, style = page.subplots(), look("meta:gcca", findings)
        places = range(1, len(values) + 1)
        axes.fill_between(places, values, where=[value > 0 for value in values], color=style.color, alpha=0.18, lw=0)
        axes.plot(places, values, color=style.color)
        axes.axhline(0, color=INK, linewidth=1)
        axes.axhline(ceiling, color=MUTED, linewidth=1, dashes=(4, 3))
        axes.annotate(
            f"{ceiling} = members − 1: all agree",
            (1, ceiling),
            xycoords=("axes fraction", "data"),
            xytext=(0, 4),
            textcoords="offset points",
            ha="right",
            color=MUTED,
            fontsize=SMALL,
        )
        axes.plot([positive], [0], "^", color=style.color, markersize=9, clip_on=False, zorder=3)
        axes.annotate(
            f"{positive} of {len(values)} dimensions are positive",
            (positive, 0),
            xytext=(0.98, 0.7 * ceiling),
            textcoords=("axes fraction", "data"),
            ha="right",
            fontsize=SMALL,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2},
            arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.8, "shrinkB": 6},
        )
        axes.set_xlim(1, max(len(values), 2))
        axes.set_ylim(min(0, *values) - 0.06 * ceiling, max(ceiling, *values) + 0.13 * ceiling)
        axes.set_title("eigenvalue", fontsize=SMALL, color=MUTED)
        axes.set_xlabel("dimension of the meta-embedding")
        axes.tick_params(length=0)

    rest = (
        "in the others the members contradict each other"
        if positive < len(values)
        else "so every one of them holds something that members share"
    )
    caption = (
        f"GCCA's eigenvalues, largest first: how much the {len(findings.members)} members agree in each dimension, "
        f"from {ceiling} where all of them say the same to 0 where they share nothing. {positive} of {len(values)} "
        f"dimensions are positive, {rest}; {half} are above half of the most that there can be."
    )
    return draw("spectrum", "GCCA's spectrum", caption, (760, 340), paint)
