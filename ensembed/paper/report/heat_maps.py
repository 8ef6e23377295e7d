"""Heat maps with figures in their cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ensembed.paper.report.figures.style import FAINT, INK, SIZE
from ensembed.support.extras import import_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Cell:
    """What a cell's colour says, and the text in it."""

    value: float
    text: str


def heat(
    axes: Axes,
    cells: Sequence[Sequence[Cell | None]],
    rows: Sequence[str],
    columns: Sequence[str],
    scale: tuple[float, float],
    mark: float | None = None,
) -> None:
    """Paint cells [rows, columns]; `mark` is the value that gets a frame.

    The colours are cividis, which grows lighter all the way: it reads without colours, too. Cells are rectangles and
    not an image, so that the drawing stays one of vectors.
    """
    cividis = import_extra("matplotlib", "report", "a heat map").colormaps["cividis"]
    low, high = scale
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            if cell is None:
                axes.text(j, i, "–", ha="center", va="center", color=FAINT)
                continue
            share = min(max((cell.value - low) / (high - low), 0.0), 1.0) if high > low else 0.5
            color = cividis(0.12 + 0.88 * share)
            light = 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2]
            axes.fill([j - 0.48, j + 0.48, j + 0.48, j - 0.48], [i - 0.47, i - 0.47, i + 0.47, i + 0.47], color=color)
            marked = mark is not None and cell.value == mark
            axes.text(
                j,
                i,
                cell.text,
                ha="center",
                va="center",
                color=INK if light > 0.5 else "white",
                fontsize=SIZE,
                weight="bold" if marked else "normal",
            )
            if marked:
                axes.plot(
                    [j - 0.48, j + 0.48, j + 0.48, j - 0.48, j - 0.48],
                    [i - 0.47, i - 0.47, i + 0.47, i + 0.47, i - 0.47],
                    color=INK,
                    linewidth=2.5,
                    solid_joinstyle="miter",
                )
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlim(-0.55, len(columns) - 0.45)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
