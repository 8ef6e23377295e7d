"""Table 1 as pictures: the search for GCCA's tau, and for the autoencoder's depth and loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ensembed.paper import published as paper
from ensembed.paper.findings import Findings
from ensembed.paper.report.drawing import Figure, draw
from ensembed.paper.report.figures.style import DEV_AXIS, INK, MUTED, SMALL, WIDTH, figure, look, versus
from ensembed.paper.report.heat_maps import Cell, heat

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def tau(findings: Findings) -> Figure | None:
    """Dev score against tau, the paper's beside ours."""
    if not findings.taus:
        return None
    ours = {point.tau: point.score.pearson for point in sorted(findings.taus, key=lambda point: point.tau)}
    theirs = {float(key): one.pearson / 100 for key, one in paper.table1_gcca().items() if one.pearson is not None}
    chosen, printed = (max(curve, key=lambda key: curve[key]) for curve in (ours, theirs))

    def paint(page: Canvas) -> None:
        axes, style = page.subplots(), look("meta:gcca", findings)
        curves: tuple[tuple[str, dict[float, float], dict[str, Any]], ...] = (
            ("here", ours, {"color": style.color, "marker": style.marker}),
            ("the paper", theirs, {"color": MUTED, "marker": "o", "markerfacecolor": "white", "dashes": (4, 2)}),
        )
        for name, curve, marks in curves:
            axes.plot(list(curve), [100 * value for value in curve.values()], **marks)
            last = max(curve)
            axes.annotate(
                name, (last, 100 * curve[last]), xytext=(14, 0), textcoords="offset points", va="center", clip_on=False
            )
            for key, value in curve.items():
                axes.annotate(
                    figure(value),
                    (key, 100 * value),
                    xytext=(0, 12),
                    textcoords="offset points",
                    ha="center",
                    fontsize=SMALL,
                    weight="bold" if key == max(curve, key=lambda at: curve[at]) else "normal",
                )
        axes.plot([chosen], [100 * ours[chosen]], "o", markersize=17, color="none", markeredgecolor=INK, zorder=3)
        axes.set_xscale("log")
        ticks = sorted({*ours, *theirs})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.margins(x=0.06, y=0.2)
        axes.set_title(DEV_AXIS, fontsize=SMALL, color=MUTED)
        axes.set_xlabel("τ, how strongly GCCA is regularised")
        axes.tick_params(length=0)

    span = max(ours.values()) - min(ours.values())
    caption = (
        f"GCCA on STS-B dev by τ. The ring marks the one that is used here, τ = {chosen:g} at {figure(ours[chosen])}; "
        f"all of ours lie within {figure(span)} points. The dashed line is the paper's, with other members, whose best "
        f"is τ = {printed:g} at {figure(theirs[printed])}."
    )
    return draw("tau", "The search for GCCA's τ", caption, (640, 340), paint)


def autoencoders(findings: Findings) -> Figure | None:
    """Depth by loss as two heat maps, the paper's beside ours."""
    if not findings.autoencoders:
        return None
    ours = {
        (point.hidden_layers, point.loss): Cell(
            100 * point.score.pearson, f"{figure(point.score.pearson)}\n{figure(point.score.spearman)}"
        )
        for point in findings.autoencoders
    }
    theirs = {
        (int(layers), loss): Cell(one.pearson, f"{one.pearson:.1f}\n{one.spearman:.1f}")
        for layers, row in paper.table1_autoencoder().items()
        for loss, one in row.items()
        if one.pearson is not None
    }
    losses, printed_losses = (list(dict.fromkeys(loss for _, loss in cells)) for cells in (ours, theirs))
    depths = sorted({layers for layers, _ in (*ours, *theirs)})

    def paint(page: Canvas) -> None:
        left, right = page.subplots(1, 2, width_ratios=(len(losses), len(printed_losses)), sharey=True)
        names = [_layers(depth) for depth in depths]
        for axes, title, columns, cells in (
            (left, "here", losses, ours),
            (right, "the paper", printed_losses, theirs),
        ):
            grid = [[cells.get((depth, loss)) for loss in columns] for depth in depths]
            shown = [cell.value for cell in cells.values()]
            heat(axes, grid, names, columns, (min(shown), max(shown)), mark=max(shown))
            axes.set_title(title)

    trained = {key: cell for key, cell in ours.items() if key[1] != "untrained"} or ours
    untrained = {key: cell for key, cell in ours.items() if key not in trained}
    depth, loss = best = _best(trained)
    rise = (
        f", {versus((ours[best].value - ours[_best(untrained)].value) / 100)} the best untrained" if untrained else ""
    )
    caption = (
        "Autoencoders on STS-B dev by depth and loss: Pearson's r above, Spearman's rho below, both × 100; in each map "
        f"light is best, and the frame marks the highest r. Of those trained here {loss} with {_layers(depth)} is best "
        f"({ours[best].value:.1f}{rise}); in the paper, with other members, {_best(theirs)[1]} with "
        f"{_layers(_best(theirs)[0])} ({theirs[_best(theirs)].value:.1f})."
    )
    return draw("autoencoders", "The search for the autoencoder", caption, (WIDTH, 74 * len(depths) + 70), paint)


def _best(cells: Mapping[tuple[int, str], Cell]) -> tuple[int, str]:
    return max(cells, key=lambda key: cells[key].value)


def _layers(depth: int) -> str:
    return f"{depth or 'no'} hidden layer{'s' if depth > 1 else ''}"
