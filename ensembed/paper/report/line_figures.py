"""Dev score against dimensions, and against the size of the corpus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ensembed.paper.findings import DEV, CurvePoint, Findings, System
from ensembed.paper.report.drawing import Figure, draw
from ensembed.paper.report.figures.style import (
    DEV_AXIS,
    FAINT,
    INK,
    MUTED,
    SMALL,
    WIDTH,
    figure,
    listing,
    look,
    short,
    signed,
    spread,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_HEIGHT = 420
_AXES = _HEIGHT - 80  # what is left of it for the curves themselves, about
_LINE = 18  # pixels that a label needs
_ENOUGH = 0.005  # half a point, once it is x 100


def dimensions(findings: Findings) -> Figure | None:
    """Scores of the first dimensions alone."""
    curves = _curves(findings.dimensions)
    if not curves:
        return None
    member = _best_on_dev(findings)
    reference = member.score(DEV).pearson
    label = max(curves, key=lambda key: curves[key][-1].score.pearson)
    points = curves[label]
    enough = next(point for point in points if point.score.pearson >= points[-1].score.pearson - _ENOUGH)
    reaching = [point.x for point in points if point.score.pearson >= reference]
    reached = f"it reaches the dashed line with {reaching[0]}" if reaching else "it never reaches the dashed line"
    caption = (
        "What is left on STS-B dev when only the first dimensions of a vector are kept; the dashed line is the best "
        f"member there, {short(member.label)}, at full length ({figure(reference)}). {short(label)}, the highest at "
        f"full length, is within half a point of its {figure(points[-1].score.pearson)} with {enough.x} of "
        f"{points[-1].x} dimensions; {reached}."
    )

    def paint(page: Canvas) -> None:
        axes = _paint(page, curves, findings, member)
        axes.set_xlabel("dimensions kept")

    return draw("dimensions", "Scores against dimensions", caption, (WIDTH, _HEIGHT), paint)


def sizes(findings: Findings) -> Figure | None:
    """Scores of methods fitted on parts of the main corpus."""
    curves = _curves(findings.sizes)
    if not curves:
        return None
    member = _best_on_dev(findings)
    gains = [
        f"{short(label)} {signed(points[-1].score.pearson - points[0].score.pearson)}"
        for label, points in curves.items()
    ]
    smallest, largest = (pick(point.x for point in findings.sizes) for pick in (min, max))
    band = "; bands are one standard deviation over draws" if any(one.spread for one in findings.sizes) else ""
    caption = (
        f"STS-B dev by the number of sentences of {findings.corpora[0].name} that a method was fitted on{band}; the "
        f"dashed line is the best member there, {short(member.label)}, which needs none. From {smallest:,} to "
        f"{largest:,} sentences the score changes by (points): {listing(gains)}."
    )

    def paint(page: Canvas) -> None:
        axes = _paint(page, curves, findings, member)
        axes.set_xlabel("sentences of the corpus")

    return draw("sizes", "Scores against the size of the corpus", caption, (WIDTH, _HEIGHT), paint)


def _best_on_dev(findings: Findings) -> System:
    return max((one for one in findings.systems if one.kind == "single"), key=lambda one: one.score(DEV).pearson)


def _curves(points: Sequence[CurvePoint]) -> dict[str, list[CurvePoint]]:
    """Points by label, each curve from left to right."""
    curves: dict[str, list[CurvePoint]] = {}
    for point in sorted(points, key=lambda point: point.x):
        curves.setdefault(point.label, []).append(point)
    return curves


def _paint(page: Canvas, curves: dict[str, list[CurvePoint]], findings: Findings, member: System) -> Axes:
    """Curves, bands, the member's line, and names at the right edge instead of a legend."""
    axes = page.subplots()
    reference = 100 * member.score(DEV).pearson
    axes.axhline(reference, color=INK, linewidth=1, dashes=(4, 3))
    names = [f"{short(member.label)}, whole"]
    ends: list[tuple[float, float]] = [(np.nan, reference)]
    for label, points in curves.items():
        style = look(label, findings)
        x = [point.x for point in points]
        y = np.array([100 * point.score.pearson for point in points])
        axes.plot(
            x, y, color=style.color, marker=style.marker, markerfacecolor=style.face, dashes=style.dashes, zorder=3
        )
        margin = np.array([100 * point.spread.pearson if point.spread else 0.0 for point in points])
        if margin.any():
            axes.fill_between(x, y - margin, y + margin, color=style.color, alpha=0.16, linewidth=0)
        names.append(short(label))
        ends.append((x[-1], y[-1]))
    axes.set_xscale("log", base=2)
    ticks = _apart(sorted({point.x for points in curves.values() for point in points}))
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.margins(x=0.03, y=0.08)
    axes.set_title(DEV_AXIS, fontsize=SMALL, color=MUTED)
    axes.tick_params(length=0)
    bottom, top = axes.get_ylim()
    places = spread([y for _, y in ends], _LINE * (top - bottom) / _AXES)
    axes.set_ylim(bottom, top)
    right = axes.get_xlim()[1]
    axes.set_xlim(axes.get_xlim())
    for name, (at, value), place in zip(names, ends, places, strict=True):
        axes.annotate(
            name,
            (right if np.isnan(at) else at, value),
            xytext=(1.03, place),
            textcoords=("axes fraction", "data"),
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.8, "shrinkB": 5, "relpos": (0, 0.5)},
        )
    return axes


def _apart(ticks: list[int]) -> list[int]:
    """The ticks, less those that would run into the one before them on a log axis; the last one stays."""
    kept = ticks[-1:]
    for tick in reversed(ticks[:-1]):
        if kept[-1] / tick >= (ticks[-1] / ticks[0]) ** 0.07:
            kept.append(tick)
    return kept[::-1]
