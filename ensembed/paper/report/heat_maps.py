"""Heat maps with numbers in their cells: the search for the autoencoder, and how alike the members are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ensembed.paper import published
from ensembed.paper.findings import Findings
from ensembed.paper.report import drawing
from ensembed.paper.report.drawing import INK, SMALL, WIDTH, Figure, Style, draw, figure, short, versus
from ensembed.support import heatmap
from ensembed.support.extras import import_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


class Cell(NamedTuple):
    """The number behind a cell's colour, and the text in it."""

    value: float
    text: str


def autoencoders(findings: Findings) -> Figure | None:
    """Draw depth by loss as two heat maps, the paper's beside ours."""
    if not findings.autoencoders:
        return None
    ours = {
        (point.hidden_layers, point.loss): Cell(
            100 * point.score.pearson, f"{figure(point.score.pearson)}\n{figure(point.score.spearman)}"
        )
        for point in findings.autoencoders
    }
    theirs = {
        (int(layers), loss): Cell(cell.pearson, f"{cell.pearson:.1f}\n{cell.spearman:.1f}")
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
            shown = [cell.value for cell in cells.values()]
            heat(axes, grid, list(map(_layers, depths)), columns, (min(shown), max(shown)), mark=max(shown))
            axes.set_title(title)

    trained = {key: cell for key, cell in ours.items() if key[1] != "untrained"} or ours
    untrained = {key: cell for key, cell in ours.items() if key not in trained}
    best, printed = _best(trained), _best(theirs)
    rise = (
        f", {versus((ours[best].value - ours[_best(untrained)].value) / 100)} the best untrained" if untrained else ""
    )
    caption = (
        "Autoencoders on STS-B dev by depth and loss: Pearson's r above, Spearman's rho below, both × 100; in each map "
        f"light is best, and the frame marks the highest r. Of those trained here {best[1]} with {_layers(best[0])} is "
        f"best ({ours[best].value:.1f}{rise}); in the paper, with other members, {printed[1]} with "
        f"{_layers(printed[0])} ({theirs[printed].value:.1f})."
    )
    return draw("autoencoders", "The search for the autoencoder", caption, (WIDTH, 74 * len(depths) + 70), paint)


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
            cells = [[Cell(value, heatmap.figure(value)) for value in row] for row in matrix]
            heat(axes, cells, labels, numbers, (low, 1))
            axes.set_title(measure, fontsize=SMALL, color=drawing.MUTED)

    measure, matrix = next(iter(measures.items()))
    pairs = {
        f"{short(names[j])} and {short(names[i])} ({heatmap.figure(matrix[i][j])})": matrix[i][j]
        for i in range(len(names))
        for j in range(i)
    }
    most, least = (pick(pairs, key=lambda pair: pairs[pair]) for pick in (max, min))
    finding = (
        f"Most alike by {measure} are {most}, least alike {least}."
        if len(pairs) > 1
        else f"By {measure} that is {most}."
    )
    caption = (
        f"How alike the members are, from {heatmap.figure(low) if low else 0} (dark) to 1 (light): rows carry names, "
        f"columns the same members' numbers. {finding} Members that differ have more to tell each other."
    )
    return draw("likeness", "How alike the members are", caption, (WIDTH, rows * (46 * len(names) + 60)), paint)


def heat(
    axes: Axes,
    cells: Sequence[Sequence[Cell | None]],
    rows: Sequence[str],
    columns: Sequence[str],
    scale: tuple[float, float],
    mark: float | None = None,
) -> None:
    """Paint cells [rows, columns] on a scale from low to high; `mark` is the value that gets a frame.

    The colours are cividis, which grows lighter all the way: it reads without colours, too. Cells are rectangles and
    not an image, so that the drawing stays one of vectors.
    """
    cividis = import_extra("matplotlib", "report", "a heat map").colormaps["cividis"]
    low, high = scale
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            if cell is None:
                axes.text(j, i, "–", ha="center", va="center", color=drawing.FAINT)
                continue
            share = min(max((cell.value - low) / (high - low), 0.0), 1.0) if high > low else 0.5
            color = cividis(0.12 + 0.88 * share)
            light = 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2]
            x, y = [j - 0.48, j + 0.48, j + 0.48, j - 0.48], [i - 0.47, i - 0.47, i + 0.47, i + 0.47]
            axes.fill(x, y, color=color)
            marked = mark is not None and cell.value == mark
            letters: Style = {"color": INK if light > 0.5 else "white", "weight": "bold" if marked else "normal"}
            axes.text(j, i, cell.text, ha="center", va="center", fontsize=drawing.SIZE, **letters)
            if marked:
                axes.plot([*x, x[0]], [*y, y[0]], color=INK, linewidth=2.5, solid_joinstyle="miter")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlim(-0.55, len(columns) - 0.45)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _best(cells: Mapping[tuple[int, str], Cell]) -> tuple[int, str]:
    return max(cells, key=lambda key: cells[key].value)


def _layers(depth: int) -> str:
    return f"{depth or 'no'} hidden layer{'s' if depth > 1 else ''}"
