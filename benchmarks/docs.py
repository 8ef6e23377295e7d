"""The measured parts of docs/explanation/speed.md and docs/guides/scaling.md: tables between marks, and the plot.

    python -m benchmarks.docs

`<!-- bench AREA -->` and `<!-- /bench -->` stand around the tables of an area, which are those of `results/bench.md`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks import results
from benchmarks.results import Record
from ensembed.support.atomic_files import write_atomically
from ensembed.support.progress import short_count

PAGES = (Path("docs/explanation/speed.md"), Path("docs/guides/scaling.md"))
PLOT = Path("docs/explanation/speed.svg")
ABSENT = "Not measured yet."
_BLOCK = re.compile(r"(<!-- bench (\w+) -->\n).*?(<!-- /bench -->)", re.DOTALL)


def fill(page: str, areas: Mapping[str, Record]) -> str:
    """The page with every area's latest figures."""

    def block(match: re.Match[str]) -> str:
        one = areas.get(match[2])
        return f"{match[1]}\n{results.block(one) if one else ABSENT}\n\n{match[3]}"

    return _BLOCK.sub(block, page)


def write(areas: Mapping[str, Record]) -> None:
    """Bring the pages and the plot up to date."""
    for page in PAGES:
        write_atomically(page, fill(page.read_text(), areas).encode())
    if lines(areas):
        write_atomically(PLOT, draw(areas))


def lines(areas: Mapping[str, Record]) -> dict[str, list[Record]]:
    """The lines to draw, by what grows along them."""
    found: dict[str, list[Record]] = {}
    for one in areas.values():
        for line in one["data"].get("growth", ()):
            found.setdefault(line["against"], []).append(line)
    return found


def draw(areas: Mapping[str, Record]) -> bytes:
    """An SVG: a column for each thing that grows, time above and memory below, both axes logarithmic."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    columns = lines(areas)
    # Without a salt and with a date the same figures would be other bytes every time.
    with mpl.rc_context({"svg.hashsalt": "ensembed", "font.size": 9, "svg.fonttype": "none"}):
        figure = Figure((4.2 * len(columns), 6), layout="constrained")
        axes = figure.subplots(2, len(columns), squeeze=False)
        for column, (against, found) in enumerate(columns.items()):
            for row, unit in enumerate(("seconds", "peak memory, MB")):
                panel = axes[row, column]
                drawn = False
                for line in found:
                    points = [(point[0], point[row + 1]) for point in line["points"] if point[row + 1] is not None]
                    if points:
                        panel.plot(*zip(*points, strict=True), marker="o", markersize=3, label=line["series"])
                        drawn = True
                if not drawn:
                    panel.set_axis_off()
                    continue
                panel.set(xscale="log", yscale="log", xlabel=against, ylabel=unit)
                # The sizes that were measured: an axis of less than a decade crowds its own labels.
                sizes = sorted({point[0] for line in found for point in line["points"]})
                panel.set_xticks(sizes, [short_count(size) for size in sizes])
                panel.minorticks_off()
                if row and min(line.get_ydata().min() for line in panel.lines) > 0:
                    panel.set_ylim(bottom=10)  # flat should look flat
                panel.grid(alpha=0.3, which="both")
                panel.legend(fontsize=7)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


if __name__ == "__main__":
    write(results.read(Path("results")))
