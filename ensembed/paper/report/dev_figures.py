"""Figures of the searches on STS-B dev, GCCA's spectrum, the likeness of members, and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ensembed.paper import published
from ensembed.paper.findings import DEV, CurvePoint, Findings, System
from ensembed.paper.report import drawing
from ensembed.paper.report.drawing import (
    Figure,
    Style,
    draw,
    edge_labels,
    figure,
    listing,
    look,
    plain_axes,
    short,
    signed,
)
from ensembed.support import heatmap
from ensembed.support.extras import import_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Cell: TypeAlias = tuple[float, str]
"""The number behind a cell's colour, and the text in it."""

_HEIGHT = 420
_ENOUGH = 0.005  # half a point, once it is x 100


def tau(findings: Findings) -> Figure | None:
    """Draw the dev score against tau, the paper's beside ours."""
    if not findings.taus:
        return None
    ours = {point.tau: point.score.pearson for point in sorted(findings.taus, key=lambda point: point.tau)}
    theirs = {float(tau): row.pearson / 100 for tau, row in published.table1_gcca().items() if row.pearson is not None}
    chosen, best_printed = (max(curve, key=lambda key: curve[key]) for curve in (ours, theirs))

    def paint(page: Canvas) -> None:
        axes, style = page.subplots(), look("meta:gcca", findings)
        line: Style = {"color": style.color, "marker": style.marker}
        dashed: Style = {"color": drawing.MUTED, "marker": "o", "markerfacecolor": "white", "dashes": (4, 2)}
        for name, curve, best, marks in (("here", ours, chosen, line), ("the paper", theirs, best_printed, dashed)):
            axes.plot(list(curve), [100 * value for value in curve.values()], **marks)
            end = (max(curve), 100 * curve[max(curve)])
            axes.annotate(name, end, xytext=(14, 0), textcoords="offset points", va="center", clip_on=False)
            for key, value in curve.items():
                letters: Style = {"fontsize": drawing.SMALL, "weight": "bold" if key == best else "normal"}
                above: Style = {"xytext": (0, 12), "textcoords": "offset points", "ha": "center"}
                axes.annotate(figure(value), (key, 100 * value), **above, **letters)
        ring: Style = {"markersize": 17, "color": "none", "markeredgecolor": drawing.INK, "zorder": 3}
        axes.plot([chosen], [100 * ours[chosen]], "o", **ring)
        axes.set_xscale("log")
        axes.margins(x=0.06, y=0.2)
        plain_axes(axes, drawing.DEV_AXIS, "τ, how strongly GCCA is regularised", sorted({*ours, *theirs}))

    span = max(ours.values()) - min(ours.values())
    caption = (
        f"GCCA on STS-B dev by τ. The ring marks the one that is used here, τ = {chosen:g} at {figure(ours[chosen])}; "
        f"all of ours lie within {figure(span)} points. The dashed line is the paper's, with other members, whose best "
        f"is τ = {best_printed:g} at {figure(theirs[best_printed])}."
    )
    return draw("tau", "The search for GCCA's τ", caption, (640, 340), paint)


def spectrum(findings: Findings) -> Figure | None:
    """Draw GCCA's eigenvalues, falling, between J - 1 for J members and what lies below zero."""
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
        axes.axhline(0, color=drawing.INK, linewidth=1)
        axes.axhline(ceiling, color=drawing.MUTED, linewidth=1, dashes=(4, 3))
        letters: Style = {"ha": "right", "fontsize": drawing.SMALL}
        over_line: Style = {"xycoords": ("axes fraction", "data"), "xytext": (0, 4)}
        words = f"{ceiling} = members − 1: all agree"
        axes.annotate(words, (1, ceiling), **over_line, textcoords="offset points", color=drawing.MUTED, **letters)
        axes.plot([positive], [0], "^", color=style.color, markersize=9, clip_on=False, zorder=3)
        words = f"{positive} of {len(values)} dimensions are positive"
        arrow = {"arrowstyle": "-", "color": drawing.MUTED, "linewidth": 0.8, "shrinkB": 6}
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2}
        at_right: Style = {"xytext": (0.98, 0.7 * ceiling), "textcoords": ("axes fraction", "data")}
        axes.annotate(words, (positive, 0), **at_right, bbox=box, arrowprops=arrow, **letters)
        axes.set_xlim(1, max(len(values), 2))
        axes.set_ylim(min(0, *values) - 0.06 * ceiling, max(ceiling, *values) + 0.13 * ceiling)
        plain_axes(axes, "eigenvalue", "dimension of the meta-embedding")

    shared = "so every one of them holds something that members share"
    rest = "in the others the members contradict each other" if positive < len(values) else shared
    caption = (
        f"GCCA's eigenvalues, largest first: how much the {len(findings.members)} members agree in each dimension, "
        f"from {ceiling} where all of them say the same to 0 where they share nothing. {positive} of {len(values)} "
        f"dimensions are positive, {rest}; {half} are above half of the most that there can be."
    )
    return draw("spectrum", "GCCA's spectrum", caption, (760, 340), paint)


def dimensions(findings: Findings) -> Figure | None:
    """Draw scores of the first dimensions alone."""
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
    return _draw_curves("dimensions", "Scores against dimensions", caption, "dimensions kept", curves, findings)


def sizes(findings: Findings) -> Figure | None:
    """Draw scores of methods fitted on parts of the main corpus."""
    curves = _curves(findings.sizes)
    if not curves:
        return None
    ends = {label: (points[0].score.pearson, points[-1].score.pearson) for label, points in curves.items()}
    gains = [f"{short(label)} {signed(last - first)}" for label, (first, last) in ends.items()]
    smallest, largest = (pick(point.x for point in findings.sizes) for pick in (min, max))
    band = "; bands are one standard deviation over draws" if any(point.spread for point in findings.sizes) else ""
    caption = (
        f"STS-B dev by the number of sentences of {findings.corpora[0].name} that a method was fitted on{band}; the "
        f"dashed line is the best member there, {short(_best_on_dev(findings).label)}, which needs none. From "
        f"{smallest:,} to {largest:,} sentences the score changes by (points): {listing(gains)}."
    )
    title = "Scores against the size of the corpus"
    return _draw_curves("sizes", title, caption, "sentences of the corpus", curves, findings)


def _best_on_dev(findings: Findings) -> System:
    return max(findings.singles, key=lambda system: system.score(DEV).pearson)


def _curves(points: Sequence[CurvePoint]) -> dict[str, list[CurvePoint]]:
    """Return points by label, each curve from left to right."""
    curves: dict[str, list[CurvePoint]] = {}
    for point in sorted(points, key=lambda point: point.x):
        curves.setdefault(point.label, []).append(point)
    return curves


def _draw_curves(
    name: str, title: str, caption: str, axis: str, curves: dict[str, list[CurvePoint]], findings: Findings
) -> Figure:
    """Draw curves, bands, the best member's line, and names at the right edge instead of a legend."""
    member = _best_on_dev(findings)

    def paint(page: Canvas) -> None:
        axes, reference = page.subplots(), 100 * member.score(DEV).pearson
        axes.axhline(reference, **drawing.DASHED)
        ends: list[tuple[str, float, float, Style]] = [(f"{short(member.label)}, whole", np.nan, reference, {})]
        for label, points in curves.items():
            style = look(label, findings)
            x, y = [point.x for point in points], np.array([100 * point.score.pearson for point in points])
            marks: Style = {"color": style.color, "marker": style.marker, "markerfacecolor": style.face}
            axes.plot(x, y, dashes=style.dashes, zorder=3, **marks)
            margin = np.array([100 * point.spread.pearson if point.spread else 0.0 for point in points])
            if margin.any():
                axes.fill_between(x, y - margin, y + margin, color=style.color, alpha=0.16, linewidth=0)
            ends.append((short(label), x[-1], y[-1], {}))
        axes.set_xscale("log", base=2)
        axes.margins(x=0.03, y=0.08)
        ticks = sorted({point.x for points in curves.values() for point in points})
        plain_axes(axes, drawing.DEV_AXIS, axis, _apart(ticks))
        edge_labels(axes, ends)

    return draw(name, title, caption, (drawing.WIDTH, _HEIGHT), paint)


def _apart(ticks: list[int]) -> list[int]:
    """Leave out ticks that would run into the one before them on a log axis; keep the last one."""
    kept = ticks[-1:]
    for tick in reversed(ticks[:-1]):
        if kept[-1] / tick >= (ticks[-1] / ticks[0]) ** 0.07:
            kept.append(tick)
    return kept[::-1]


def autoencoders(findings: Findings) -> Figure | None:
    """Draw depth by loss as two heat maps, the paper's beside ours."""
    if not findings.autoencoders:
        return None
    ours = {
        (point.hidden_layers, point.loss): (100 * r, f"{figure(r)}\n{figure(rho)}")
        for point in findings.autoencoders
        for r, rho in [(point.score.pearson, point.score.spearman)]
    }
    theirs = {
        (int(layers), loss): (cell.pearson, f"{cell.pearson:.1f}\n{cell.spearman:.1f}")
        for layers, row in published.table1_autoencoder().items()
        for loss, cell in row.items()
        if cell.pearson is not None
    }
    losses, printed_losses = (list(dict.fromkeys(loss for _, loss in cells)) for cells in (ours, theirs))
    depths = sorted({layers for layers, _ in (*ours, *theirs)})

    def paint(page: Canvas) -> None:
        both = page.subplots(1, 2, width_ratios=(len(losses), len(printed_losses)), sharey=True)
        maps = (("here", losses, ours), ("the paper", printed_losses, theirs))
        for axes, (title, columns, cells) in zip(both, maps, strict=True):
            grid = [[cells.get((depth, loss)) for loss in columns] for depth in depths]
            shown = [value for value, _ in cells.values()]
            heat(axes, grid, list(map(_layers, depths)), columns, (min(shown), max(shown)), mark=max(shown))
            axes.set_title(title)

    trained = {key: cell for key, cell in ours.items() if key[1] != "untrained"} or ours
    untrained = {key: cell for key, cell in ours.items() if key not in trained}
    best, printed = _best(trained), _best(theirs)
    rise = ours[best][0] - ours[_best(untrained)][0] if untrained else 0.0
    beside_untrained = f", {drawing.versus(rise / 100)} the best untrained" if untrained else ""
    caption = (
        "Autoencoders on STS-B dev by depth and loss: Pearson's r above, Spearman's rho below, both × 100; in each map "
        f"light is best, and the frame marks the highest r. Of those trained here {best[1]} with {_layers(best[0])} is "
        f"best ({ours[best][0]:.1f}{beside_untrained}); in the paper, with other members, {printed[1]} with "
        f"{_layers(printed[0])} ({theirs[printed][0]:.1f})."
    )
    return draw(
        "autoencoders", "The search for the autoencoder", caption, (drawing.WIDTH, 74 * len(depths) + 70), paint
    )


def likeness(findings: Findings) -> Figure | None:
    """Draw one heat map for each measure of how alike the members are."""
    names, measures = findings.likeness.names, findings.likeness.measures
    if len(names) < 2 or not measures:
        return None
    columns = min(len(measures), 3 if len(names) < 6 else 2)
    rows = -(-len(measures) // columns)
    # A correlation may be negative, and has to look so.
    low = min(0.0, *(value for matrix in measures.values() for row in matrix for value in row))
    numbers = [str(i) for i in range(1, len(names) + 1)]
    labels = [f"{short(name)}{drawing.GAP}{number}" for number, name in zip(numbers, names, strict=True)]

    def paint(page: Canvas) -> None:
        grid = list(page.subplots(rows, columns, squeeze=False, sharey=True).flat)
        for blank in grid[len(measures) :]:
            blank.set_axis_off()
        for axes, (measure, matrix) in zip(grid, measures.items(), strict=False):
            cells = [[(value, heatmap.figure(value)) for value in row] for row in matrix]
            heat(axes, cells, labels, numbers, (low, 1))
            axes.set_title(measure, fontsize=drawing.SMALL, color=drawing.MUTED)

    measure, matrix = next(iter(measures.items()))
    pairs = {
        f"{short(names[j])} and {short(names[i])} ({heatmap.figure(matrix[i][j])})": matrix[i][j]
        for i in range(len(names))
        for j in range(i)
    }
    most, least = (pick(pairs, key=lambda pair: pairs[pair]) for pick in (max, min))
    several = f"Most alike by {measure} are {most}, least alike {least}."
    finding = several if len(pairs) > 1 else f"By {measure} that is {most}."
    caption = (
        f"How alike the members are, from {heatmap.figure(low) if low else 0} (dark) to 1 (light): rows carry names, "
        f"columns the same members' numbers. {finding} Members that differ have more to tell each other."
    )
    return draw("likeness", "How alike the members are", caption, (drawing.WIDTH, rows * (46 * len(names) + 60)), paint)


def heat(
    axes: Axes,
    cells: Sequence[Sequence[Cell | None]],
    rows: Sequence[str],
    columns: Sequence[str],
    scale: tuple[float, float],
    mark: float | None = None,
) -> None:
    """Paint cells [rows, columns] on a scale from low to high, as rectangles; `mark` is the value that gets a frame."""
    # cividis grows lighter all the way: it reads without colours, too.
    cividis = import_extra("matplotlib", "report", "a heat map").colormaps["cividis"]
    low, high = scale
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            if cell is None:
                axes.text(j, i, "–", ha="center", va="center", color=drawing.FAINT)
                continue
            value, text = cell
            share = min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.5
            color = cividis(0.12 + 0.88 * share)
            light = 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2]
            x, y = [j - 0.48, j + 0.48, j + 0.48, j - 0.48], [i - 0.47, i - 0.47, i + 0.47, i + 0.47]
            axes.fill(x, y, color=color)
            marked = value == mark
            letters: Style = {
                "color": drawing.ON_LIGHT if light > 0.5 else drawing.ON_DARK,
                "weight": "bold" if marked else "normal",
            }
            axes.text(j, i, text, ha="center", va="center", fontsize=drawing.SIZE, **letters)
            if marked:
                axes.plot([*x, x[0]], [*y, y[0]], color=drawing.INK, linewidth=2.5, solid_joinstyle="miter")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlim(-0.55, len(columns) - 0.45)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _best(cells: Mapping[tuple[int, str], Cell]) -> tuple[int, str]:
    return max(cells, key=lambda key: cells[key][0])


def _layers(depth: int) -> str:
    return f"{depth or 'no'} hidden layer{'s' if depth > 1 else ''}"
