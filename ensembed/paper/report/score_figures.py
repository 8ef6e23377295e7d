"""Bars per data set."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ensembed.paper.findings import MEAN, Findings
from ensembed.paper.report.drawing import Figure, draw
from ensembed.paper.report.figures.style import (
    FAINT,
    INK,
    SMALL,
    TEST_AXIS,
    WIDTH,
    edge_text,
    figure,
    look,
    panels,
    short,
    versus,
)
from ensembed.paper.tables.marked_table import with_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def bars(findings: Findings) -> Figure | None:
    """Members and meta-embeddings on every test set and on the mean, with their intervals."""
    systems = [system for system in findings.systems if system.kind != "up"]
    metas, members = ([system for system in systems if system.kind == kind] for kind in ("meta", "single"))
    if not metas or not findings.tests:
        return None
    intervals = {(one.label, one.dataset): one for one in findings.intervals}
    datasets = with_mean(findings.tests)
    values = [system.score(name).pearson for system in systems for name in datasets]
    values += [end.pearson for one in findings.intervals if one.dataset in datasets for end in (one.low, one.high)]
    lowest, highest = 100 * min(values), 100 * max(values)
    begin = max(0, 10 * math.floor(lowest / 10 - 0.5))
    best_members = {name: max(members, key=lambda one: one.score(name).pearson) for name in datasets}

    def paint(page: Canvas) -> None:
        for axes, dataset in zip(panels(page, len(datasets)), datasets, strict=True):
            best = max(system.score(dataset).pearson for system in systems)
            for place, system in enumerate(systems):
                style, value = look(system.label, findings), system.score(dataset).pearson
                axes.barh(
                    place,
                    100 * value - begin,
                    left=begin,
                    height=0.72,
                    facecolor=style.face,
                    edgecolor=style.color,
                    hatch=style.hatch,
                    linewidth=1,
                )
                interval = intervals.get((system.label, dataset))
                if interval is not None:
                    ends = [100 * interval.low.pearson, 100 * interval.high.pearson]
                    axes.plot(ends, [place, place], color=INK, linewidth=1.4, marker="|", markersize=5)
                edge_text(axes, place, figure(value), bold=value == best)
            axes.axvline(100 * best_members[dataset].score(dataset).pearson, color=INK, linewidth=1, dashes=(4, 3))
            axes.set_title(dataset, weight="bold" if dataset == MEAN else "normal")
            axes.set_yticks(range(len(systems)), [short(system.label) for system in systems])
            axes.set_ylim(len(systems) - 0.4, -0.6)
            axes.set_xlim(min(begin, lowest), highest + 0.26 * (highest - begin))  # figures stand at the right edge
            axes.set_xticks([tick for tick in range(0, 101, 20) if begin <= tick <= highest])
            axes.grid(visible=False, axis="y")
            axes.spines["bottom"].set_visible(False)
            axes.spines["left"].set_color(FAINT)
        page.supxlabel(TEST_AXIS, fontsize=SMALL)

    best_meta, member = max(metas, key=lambda one: one.score(MEAN).pearson), best_members[datasets[-1]]
    gain = best_meta.score(MEAN).pearson - member.score(MEAN).pearson
    on = "the mean" if len(findings.tests) > 1 else findings.tests[0]
    ahead = sum(best_meta.score(name).pearson > best_members[name].score(name).pearson for name in findings.tests)
    caption = (
        "Hatched bars are members, solid ones meta-embeddings; whiskers are 95% bootstrap intervals, the dashed line "
        "is the best member of each data set, and bold figures are the highest of their data set. "
        f"The best meta-embedding on {on}, {short(best_meta.label)} at {figure(best_meta.score(MEAN).pearson)}, is "
        f"{versus(gain)} the best member there, {short(member.label)} at {figure(member.score(MEAN).pearson)}."
        + (
            f" It is ahead of the best member of {ahead} of {len(findings.tests)} test sets."
            if len(datasets) > 1
            else ""
        )
        + (f" The axes begin at {begin}, not at 0." if begin else "")
    )
    rows = -(-len(datasets) // 4)
    height = rows * (26 * len(systems) + 62) + 30
    return draw("bars", "Scores by data set", caption, (WIDTH, height), paint)
