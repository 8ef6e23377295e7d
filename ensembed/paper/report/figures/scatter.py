"""Cosine against gold, pair by pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ensembed.paper.findings import Findings, Scatter
from ensembed.paper.report.drawing import Figure, draw
from ensembed.paper.report.figures.style import GAP, INK, MUTED, SMALL, WIDTH, figure, listing, look, panels, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_COLUMNS = 3


def scatter(findings: Findings) -> Figure | None:
    """Small multiples, one for each method that the findings hold pairs of."""
    clouds = findings.scatters
    if not clouds:
        return None
    systems = {system.label: system for system in findings.systems}
    scores = [systems[one.label].score(one.dataset) for one in clouds]

    def paint(page: Canvas) -> None:
        for i, axes in enumerate(panels(page, len(clouds), _COLUMNS)):
            _cloud(axes, clouds[i], findings)
            r, rho = scores[i].pearson, scores[i].spearman
            axes.set_title(short(clouds[i].label))
            axes.set_title(f"r {figure(r)}{GAP}ρ {figure(rho)}", loc="right", fontsize=SMALL, color=MUTED)
        page.supxlabel("gold score", fontsize=SMALL)
        page.supylabel("cosine", fontsize=SMALL, rotation_mode="anchor")

    datasets = listing(list(dict.fromkeys(one.dataset for one in clouds)))
    best = max(range(len(clouds)), key=lambda i: scores[i].pearson)
    caption = (
        f"Each dot is a pair of sentences of {datasets}: its gold score across, the cosine of its two vectors up. r "
        f"and ρ, Pearson's and Spearman's, are × 100 and those of the main table: the nearer r is to 100, the nearer "
        f"are the dots to the line. The highest r is that of {short(clouds[best].label)} "
        f"({figure(scores[best].pearson)})."
    )
    height = -(-len(clouds) // _COLUMNS) * 265 + 30
    return draw("scatter", "Cosine against gold score", caption, (WIDTH, height), paint)


def _cloud(axes: Axes, one: Scatter, findings: Findings) -> None:
    style = look(one.label, findings)
    # Few pairs can be seen one by one; thousands must let each other through.
    alpha = 0.7 if len(one.gold) < 200 else 0.28
    axes.plot(
        one.gold, one.predicted, "o", color=style.color, markersize=3.4, markeredgewidth=0, alpha=alpha, clip_on=False
    )
    slope, start = np.polyfit(one.gold, one.predicted, 1)
    ends = np.array([min(one.gold), max(one.gold)])
    axes.plot(ends, start + slope * ends, color=INK, linewidth=1.2)
