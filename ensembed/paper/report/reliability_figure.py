"""The figure of `ensembed reliability --plot`: leads and weights as dots with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ensembed.paper.report.drawing import FAINT, INK, SMALL, draw, edge_text, short
from ensembed.reliability.trust_report import TrustReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_BEST, _OTHER = "#009e73", "#0072b2"
_WIDTH = 820


def reliability_svg(report: TrustReport) -> str:
    """Draw the members in the order of trust as an SVG document; raise a MissingError without matplotlib."""
    estimate, order = report.estimate, report.order
    leads = (estimate.lead, estimate.lead_low, estimate.lead_high)
    weights = (estimate.weights, estimate.weights_low, estimate.weights_high)
    panels = (
        ("lead", "predicts more of its strongest rival than that of it →", *leads),
        ("weight", "what its cosines count", *weights),
    )

    def paint(page: Canvas) -> None:
        both = page.subplots(1, 2, sharey=True)
        for axes, (title, meaning, values, low, high) in zip(both, panels, strict=True):
            _dots(axes, report, [(values[j], low[j], high[j]) for j in order], signed=title == "lead")
            axes.set_title(title)
            axes.set_xlabel(meaning, fontsize=SMALL)
            axes.grid(visible=False, axis="y")
            axes.tick_params(length=0)
        both[0].set_yticks(range(len(order)), [short(f"single:{estimate.names[j]}") for j in order])
        both[0].set_ylim(len(order) - 0.4, -0.6)

    caption = " ".join(report.lines())
    return draw("reliability", "Which members to trust", caption, (_WIDTH, 34 * len(order) + 84), paint).svg


def _dots(axes: Axes, report: TrustReport, rows: list[tuple[float, float, float]], *, signed: bool) -> None:
    ends = [end for row in rows for end in row]
    left, right = min(0.0, *ends), max(0.0, *ends)
    axes.axvline(0, color=INK, linewidth=1)
    for place, (j, (value, low, high)) in enumerate(zip(report.order, rows, strict=True)):
        if report.estimate.names[j] in report.estimate.mute:
            axes.text(0, place, "  says nothing", va="center", fontsize=SMALL, color=FAINT)
            continue
        is_best = j == report.estimate.best
        color, marker = (_BEST, "D") if is_best else (_OTHER, "o")
        axes.plot([low, high], [place, place], color=color, solid_capstyle="butt")
        axes.plot([value], [place], marker, color=color)
        text = f"{value:+.3f}" if signed else f"{value:.2f}"
        edge_text(axes, place, text.replace("-", "−"), bold=is_best)
    room = right - left or 1.0
    axes.set_xlim(left - 0.06 * room, right + 0.3 * room)  # the figures are at the right edge
