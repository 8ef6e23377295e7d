"""How alike the members are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ensembed.paper.findings import Findings
from ensembed.paper.report.drawing import Figure, draw
from ensembed.paper.report.figures.style import GAP, MUTED, SMALL, WIDTH, short
from ensembed.paper.report.heat_maps import Cell, heat
from ensembed.support.heatmap import figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def likeness(findings: Findings) -> Figure | None:
    """One heat map for each measure."""
    names, measures = findings.likeness.names, findings.likeness.measures
    if len(names) < 2 or not measures:
        return None
    columns = min(len(measures), 3 if len(names) < 6 else 2)
    rows = -(-len(measures) // columns)
    # A correlation may be negative, and has to look so.
    low = min(0.0, *(value for matrix in measures.values() for row in matrix for value in row))
    numbers = [str(i) for i in range(1, len(names) + 1)]

    def paint(page: Canvas) -> None:
        grid = list(page.subplots(rows, columns, squeeze=False, sharey=True).flat)
        for blank in grid[len(measures) :]:
            blank.set_axis_off()
        for axes, (measure, matrix) in zip(grid, measures.items(), strict=False):
            cells = [[Cell(value, figure(value)) for value in row] for row in matrix]
            labels = [f"{short(name)}{GAP}{number}" for number, name in zip(numbers, names, strict=True)]
            heat(axes, cells, labels, numbers, (low, 1))
            axes.set_title(measure, fontsize=SMALL, color=MUTED)

    measure, matrix = next(iter(measures.items()))
    pairs = {(i, j): matrix[i][j] for i in range(len(names)) for j in range(i)}
    most, least = (chosen(pairs, key=lambda pair: pairs[pair]) for chosen in (max, min))

    def named(pair: tuple[int, int]) -> str:
        return f"{short(names[pair[1]])} and {short(names[pair[0]])} ({figure(pairs[pair])})"

    finding = (
        f"Most alike by {measure} are {named(most)}, least alike {named(least)}."
        if len(pairs) > 1
        else f"By {measure} that is {named(most)}."
    )
    caption = (
        f"How alike the members are, from {figure(low) if low else 0} (dark) to 1 (light): rows carry names, columns "
        f"the same members' numbers. {finding} Members that differ have more to tell each other."
    )
    height = rows * (46 * len(names) + 60)
    return draw("likeness", "How alike the members are", caption, (WIDTH, height), paint)
