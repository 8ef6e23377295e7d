"""Figures that compare systems: on every data set, with the best member, pair by pair, and by corpus."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ensembed.paper import published
from ensembed.paper.experiments.bootstrap import ALPHA
from ensembed.paper.findings import MEAN, NO_CORPUS, Comparison, Findings
from ensembed.paper.report import drawing
from ensembed.paper.report.drawing import Figure, Style, draw, edge_text, figure, listing, look, short, signed
from ensembed.paper.tables.marked_table import with_mean
from ensembed.paper.tables.table_notes import outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# A corpus is no system, so it has marks of its own.
_CORPUS_MARKS = (("#0072b2", "o"), ("#d55e00", "X"), ("#009e73", "P"), ("#cc79a7", "*"), ("#e69f00", "h"))
_SCATTER_COLUMNS = 3


def bars(findings: Findings) -> Figure | None:
    """Draw members and meta-embeddings on every test set and on the mean, with their intervals."""
    systems = [system for system in findings.systems if system.kind != "up"]
    metas = [system for system in systems if system.kind == "meta"]
    if not metas or not findings.tests:
        return None
    intervals = {(interval.label, interval.dataset): interval for interval in findings.intervals}
    datasets = with_mean(findings.tests)
    scores = {(system.label, name): system.score(name).pearson for system in systems for name in datasets}
    ends = [end.pearson for ci in findings.intervals if ci.dataset in datasets for end in (ci.low, ci.high)]
    lowest, highest = (100 * pick(*scores.values(), *ends) for pick in (min, max))
    begin = max(0, 10 * math.floor(lowest / 10 - 0.5))
    best_members = {name: max(findings.singles, key=lambda system: system.score(name).pearson) for name in datasets}

    def paint(page: Canvas) -> None:
        rows = [short(system.label) for system in systems]
        for axes, dataset in drawing.row_panels(page, datasets, rows, drawing.TEST_AXIS):
            best = max(scores[system.label, dataset] for system in systems)
            for place, system in enumerate(systems):
                style, value = look(system.label, findings), scores[system.label, dataset]
                colors: Style = {"facecolor": style.face, "edgecolor": style.color, "hatch": style.hatch}
                axes.barh(place, 100 * value - begin, left=begin, height=0.72, linewidth=1, **colors)
                if interval := intervals.get((system.label, dataset)):
                    whisker = [100 * interval.low.pearson, 100 * interval.high.pearson]
                    axes.plot(whisker, [place, place], color=drawing.INK, linewidth=1.4, marker="|", markersize=5)
                edge_text(axes, place, figure(value), bold=value == best)
            axes.axvline(100 * best_members[dataset].score(dataset).pearson, **drawing.DASHED)
            axes.set_xlim(min(begin, lowest), highest + 0.26 * (highest - begin))  # numbers stand at the right edge
            axes.set_xticks([tick for tick in range(0, 101, 20) if begin <= tick <= highest])
            axes.spines["bottom"].set_visible(False)
            axes.spines["left"].set_color(drawing.FAINT)

    best_meta, member = max(metas, key=lambda system: system.score(MEAN).pearson), best_members[datasets[-1]]
    gain = best_meta.score(MEAN).pearson - member.score(MEAN).pearson
    on = "the mean" if len(findings.tests) > 1 else findings.tests[0]
    ahead = sum(best_meta.score(name).pearson > best_members[name].score(name).pearson for name in findings.tests)
    of_tests = f" It is ahead of the best member of {ahead} of {len(findings.tests)} test sets."
    caption = (
        "Hatched bars are members, solid ones meta-embeddings; whiskers are 95% bootstrap intervals, the dashed line "
        "is the best member of each data set, and bold figures are the highest of their data set. "
        f"The best meta-embedding on {on}, {short(best_meta.label)} at {figure(best_meta.score(MEAN).pearson)}, is "
        f"{drawing.versus(gain)} the best member there, {short(member.label)} at {figure(member.score(MEAN).pearson)}."
        + (of_tests if len(datasets) > 1 else "")
        + (f" The axes begin at {begin}, not at 0." if begin else "")
    )
    height = -(-len(datasets) // 4) * (26 * len(systems) + 62) + 30
    return draw("bars", "Scores by data set", caption, (drawing.WIDTH, height), paint)


def significance(findings: Findings) -> Figure | None:
    """Draw a forest plot: meta-embedding minus best member, on the mean and on every test set."""
    tests = [test for test in findings.comparisons if test.metric == "pearson"]
    compared = {(test.dataset, test.label): test for test in tests if test.dataset in with_mean(findings.tests)}
    if not compared:
        return None
    labels = list(dict.fromkeys(label for _, label in compared))
    datasets = list(dict.fromkeys(dataset for dataset, _ in compared))
    ends = [100 * end for test in compared.values() for end in (test.low, test.high)]
    left, right = min(0, *ends), max(0, *ends)
    room = right - left or 1
    axis = "difference of Pearson’s r × 100; right of 0 the meta-embedding is better"

    def paint(page: Canvas) -> None:
        for axes, dataset in drawing.row_panels(page, datasets, [short(label) for label in labels], axis):
            axes.axvline(0, color=drawing.INK, linewidth=1)
            for place, label in enumerate(labels):
                if (test := compared.get((dataset, label))) is None:
                    continue
                style, clear = look(label, findings), outcome(test) != "undecided"
                axes.plot([100 * test.low, 100 * test.high], [place, place], color=style.color, solid_capstyle="butt")
                face = style.color if clear else "white"
                axes.plot([100 * test.difference], [place], style.marker, color=style.color, markerfacecolor=face)
                edge_text(axes, place, signed(test.difference), bold=clear)
            axes.set_xlim(left - 0.05 * room, right + 0.38 * room)  # numbers stand at the right edge

    caption = (
        f"Each meta-embedding minus the best member of each data set by Pearson's r ({_members(compared)}) with the "
        f"95% interval of the difference; filled marks and bold figures are differences that a paired bootstrap test "
        f"calls significant (p < {ALPHA:g} after Holm's correction). {_significant(list(compared.values()))}"
    )
    height = -(-len(datasets) // 4) * (27 * len(labels) + 62) + 30
    return draw("significance", "Differences to the best member", caption, (drawing.WIDTH, height), paint)


def _members(compared: Mapping[tuple[str, str], Comparison]) -> str:
    """Return `minilm`, or `minilm on sts12 and sts13, use-lite on mean`."""
    datasets: dict[str, list[str]] = {}
    for dataset, member in dict.fromkeys((dataset, test.member) for (dataset, _), test in compared.items()):
        datasets.setdefault(short(member), []).append(dataset)
    if len(datasets) == 1:
        return next(iter(datasets))
    return ", ".join(f"{member} on {listing(names)}" for member, names in datasets.items())


def _significant(compared: Sequence[Comparison]) -> str:
    on_sets = [outcome(test) for test in compared if test.dataset != MEAN]
    gains, losses = on_sets.count("above"), on_sets.count("below")
    sets = f"{gains} of {len(on_sets)} differences are significant gains and {losses} significant losses."
    if len(on_sets) == len(compared):
        return sets
    parts = []
    for result, word in (("above", "better"), ("below", "worse")):
        names = [short(test.label) for test in compared if test.dataset == MEAN and outcome(test) == result]
        if names:
            parts.append(f"{listing(names)} {'is' if len(names) == 1 else 'are'} significantly {word}")
    return f"On the mean {' and '.join(parts) or 'no difference is significant'}; over the single test sets {sets}"


def scatter(findings: Findings) -> Figure | None:
    """Draw the cosine of every pair against its gold score, in small axes for each method."""
    clouds = findings.scatters
    if not clouds:
        return None
    systems = {system.label: system for system in findings.systems}
    scores = [systems[cloud.label].score(cloud.dataset) for cloud in clouds]

    def paint(page: Canvas) -> None:
        for axes, cloud, score in zip(drawing.panels(page, len(clouds), _SCATTER_COLUMNS), clouds, scores, strict=True):
            # Few pairs can be seen one by one; thousands must let each other through.
            alpha = 0.7 if len(cloud.gold) < 200 else 0.28
            dots: Style = {"markersize": 3.4, "markeredgewidth": 0, "alpha": alpha, "clip_on": False}
            axes.plot(cloud.gold, cloud.predicted, "o", color=look(cloud.label, findings).color, **dots)
            slope, start = np.polyfit(cloud.gold, cloud.predicted, 1)
            ends = np.array([min(cloud.gold), max(cloud.gold)])
            axes.plot(ends, start + slope * ends, color=drawing.INK, linewidth=1.2)
            axes.set_title(short(cloud.label))
            words = f"r {figure(score.pearson)}{drawing.GAP}ρ {figure(score.spearman)}"
            axes.set_title(words, loc="right", fontsize=drawing.SMALL, color=drawing.MUTED)
        page.supxlabel("gold score", fontsize=drawing.SMALL)
        page.supylabel("cosine", fontsize=drawing.SMALL, rotation_mode="anchor")

    datasets = listing(list(dict.fromkeys(cloud.dataset for cloud in clouds)))
    best = max(range(len(clouds)), key=lambda i: scores[i].pearson)
    caption = (
        f"Each dot is a pair of sentences of {datasets}: its gold score across, the cosine of its two vectors up. r "
        f"and ρ, Pearson's and Spearman's, are × 100 and those of the main table: the nearer r is to 100, the nearer "
        f"are the dots to the line. The highest r is that of {short(clouds[best].label)} "
        f"({figure(scores[best].pearson)})."
    )
    height = -(-len(clouds) // _SCATTER_COLUMNS) * 265 + 30
    return draw("scatter", "Cosine against gold score", caption, (drawing.WIDTH, height), paint)


def ablation(findings: Findings) -> Figure | None:
    """Draw the whole ensemble's score, and the score without each member."""
    scores = {(point.method, point.without): point.score.pearson for point in findings.ablations}
    methods = [method for method, without in scores if not without]
    changes = {(m, name): scores[m, name] - scores[m, ""] for m, name in scores if name and m in methods}
    if not changes:
        return None
    names = list(dict.fromkeys(name for _, name in changes))
    rows = ["all members", *(f"without {short(name)}" for name in names)]
    low, high = 100 * min(scores.values()), 100 * max(scores.values())
    room = high - low or 1

    def paint(page: Canvas) -> None:
        for axes, method in drawing.row_panels(page, methods, rows, drawing.DEV_AXIS):
            style, full = look(f"meta:{method}", findings), 100 * scores[method, ""]
            axes.axvline(full, **drawing.DASHED)
            axes.plot([full], [0], style.marker, color=style.color, markersize=9)
            edge_text(axes, 0, figure(full / 100), bold=True)
            for place, name in enumerate(names, 1):
                if (method, name) in changes:
                    value = 100 * scores[method, name]
                    axes.plot([full, value], [place, place], color=style.color, solid_capstyle="butt")
                    axes.plot([value], [place], style.marker, color=style.color, markerfacecolor="white")
                    edge_text(axes, place, f"{figure(value / 100)}{drawing.GAP}{signed(changes[method, name])}")
            axes.set_ylim(len(names) + 0.5, -0.5)
            axes.set_xlim(low - 0.08 * room, high + 0.75 * room)  # numbers stand at the right edge

    worst, best = (pick(changes, key=lambda key: changes[key]) for pick in (min, max))
    gain = f"{best[0]} is better without {short(best[1])} ({signed(changes[best])})"
    gain = gain if changes[best] > 0 else "no method is better without any of its members"
    printed = {
        (method, without): (row.pearson - rows["full"].pearson) / 100
        for method, rows in published.table3().items()
        for without, row in rows.items()
        if row.pearson is not None and rows["full"].pearson is not None
    }
    theirs = min(printed, key=lambda key: printed[key])
    caption = (
        "STS-B dev with all members (filled mark, dashed line) and without one of them (hollow marks). The largest "
        f"loss is that of {worst[0]} without {short(worst[1])} ({signed(changes[worst])}); {gain}. "
        f"In the paper, with other members, it is that of {' '.join(theirs)} ({signed(printed[theirs])})."
    )
    return draw("ablation", "Leave one member out", caption, (drawing.WIDTH, 34 * (len(names) + 1) + 84), paint)


def domains(findings: Findings) -> Figure | None:
    """Draw means over the test sets, one row per method, one mark per corpus; nothing if there is a single corpus."""
    scores = {(system.label, system.corpus): system.score(MEAN).pearson for system in findings.domains}
    corpora = [corpus for corpus in dict.fromkeys(corpus for _, corpus in scores) if corpus != NO_CORPUS]
    if len(corpora) < 2:
        return None
    labels = list(dict.fromkeys(label for label, _ in scores))
    marks = {corpus: _CORPUS_MARKS[i % len(_CORPUS_MARKS)] for i, corpus in enumerate(corpora)}
    if any(corpus == NO_CORPUS for _, corpus in scores):
        marks[NO_CORPUS] = (drawing.FAINT, "d")
    member = findings.best_member

    def paint(page: Canvas) -> None:
        axes = page.subplots()
        axes.axvline(100 * member.score(MEAN).pearson, **drawing.DASHED, label=short(member.label))
        for place, label in enumerate(labels):
            own = {corpus: 100 * value for (of, corpus), value in scores.items() if of == label}
            axes.plot([min(own.values()), max(own.values())], [place, place], color=drawing.GRID, linewidth=5, zorder=1)
            edge_text(axes, place, drawing.GAP.join(figure(own[corpus] / 100) for corpus in marks if corpus in own))
        for corpus, (color, marker) in marks.items():
            name = "no corpus needed" if corpus == NO_CORPUS else f"fitted on {short(corpus)}"
            rows = [(100 * scores[label, corpus], y) for y, label in enumerate(labels) if (label, corpus) in scores]
            axes.plot(*zip(*rows, strict=True), marker, color=color, markersize=9, label=name)
        axes.set_yticks(range(len(labels)), [short(label) for label in labels])
        axes.set_ylim(len(labels) - 0.4, -0.6)
        left, right = axes.get_xlim()
        axes.set_xlim(left, right + (0.12 + 0.08 * len(corpora)) * (right - left))  # numbers stand at the right edge
        axes.set_xlabel(f"{drawing.TEST_AXIS}, mean over the test sets")
        axes.grid(visible=False, axis="y")
        axes.tick_params(length=0)
        page.legend(loc="outside upper left", ncols=4, handletextpad=0.4, fontsize=drawing.SMALL)

    first, second = corpora[:2]
    both = [label for label in labels if (label, first) in scores and (label, second) in scores]
    changes = [f"{short(label)} {signed(scores[label, second] - scores[label, first])}" for label in both]
    best = max(scores, key=lambda key: scores[key])
    caption = (
        "One row for each meta-embedding, one mark and one figure for each corpus, in the order of the "
        f"legend; the dashed line is the best member there, {short(member.label)}."
        + (f" Fitted on {short(second)} instead of {short(first)}: {listing(changes)} points." if changes else "")
        + f" The highest is {short(best[0])}"
        + ("" if best[1] == NO_CORPUS else f" fitted on {short(best[1])}")
        + f" at {figure(scores[best])}."
    )
    return draw("domains", "Scores by corpus", caption, (820, 36 * len(labels) + 110), paint)
