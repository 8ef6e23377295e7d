"""The differences to the best member, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ensembed.paper.experiments.bootstrap import ALPHA
from ensembed.paper.findings import MEAN, Comparison, Findings
from ensembed.paper.report.drawing import Figure, draw
from ensembed.paper.report.figures.style import INK, SMALL, WIDTH, edge_text, listing, look, panels, short, signed
from ensembed.paper.tables.marked_table import with_mean
from ensembed.paper.tables.table_notes import outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def significance(findings: Findings) -> Figure | None:
    """A forest plot: meta-embedding minus best member, on the mean and on every test set."""
    compared = {
        (one.dataset, one.label): one
        for one in findings.comparisons
        if one.metric == "pearson" and one.dataset in with_mean(findings.tests)
    }
    if not compared:
        return None
    labels = list(dict.fromkeys(label for _, label in compared))
    datasets = list(dict.fromkeys(dataset for dataset, _ in compared))
    ends = [100 * end for one in compared.values() for end in (one.low, one.high)]
    left, right = min(0, *ends), max(0, *ends)

    def paint(page: Canvas) -> None:
        for axes, dataset in zip(panels(page, len(datasets)), datasets, strict=True):
            axes.axvline(0, color=INK, linewidth=1)
            for place, label in enumerate(labels):
                if (dataset, label) not in compared:
                    continue
                one, style = compared[dataset, label], look(label, findings)
                axes.plot([100 * one.low, 100 * one.high], [place, place], color=style.color, solid_capstyle="butt")
                face = style.color if outcome(one) != "undecided" else "white"
                axes.plot([100 * one.difference], [place], style.marker, color=style.color, markerfacecolor=face)
                edge_text(axes, place, signed(one.difference), bold=outcome(one) != "undecided")
            axes.set_title(dataset, weight="bold" if dataset == MEAN else "normal")
            axes.set_yticks(range(len(labels)), [short(label) for label in labels])
            axes.set_ylim(len(labels) - 0.4, -0.6)
            room = right - left or 1
            axes.set_xlim(left - 0.05 * room, right + 0.38 * room)  # the figures stand at the right edge
            axes.grid(visible=False, axis="y")
        page.supxlabel("difference of Pearson’s r × 100; right of 0 the meta-embedding is better", fontsize=SMALL)

    caption = (
        f"Each meta-embedding minus the best member of each data set by Pearson's r ({_members(compared)}) with the "
        f"95% interval of the difference; filled marks and bold figures are differences that a paired bootstrap test "
        f"calls significant (p < {ALPHA:g} after Holm's correction). {_finding(list(compared.values()))}"
    )
    height = -(-len(datasets) // 4) * (27 * len(labels) + 62) + 30
    return draw("significance", "Differences to the best member", caption, (WIDTH, height), paint)


def _members(compared: Mapping[tuple[str, str], Comparison]) -> str:
    """`minilm`, or `minilm on sts12 and sts13, use-lite on mean`."""
    datasets: dict[str, list[str]] = {}
    for dataset, member in dict.fromkeys((dataset, one.member) for (dataset, _), one in compared.items()):
        datasets.setdefault(short(member), []).append(dataset)
    if len(datasets) == 1:
        return next(iter(datasets))
    return ", ".join(f"{member} on {listing(names)}" for member, names in datasets.items())


def _finding(compared: Sequence[Comparison]) -> str:
    means = [one for one in compared if one.dataset == MEAN]
    on_sets = [one for one in compared if one.dataset != MEAN]
    gains, losses = (sum(outcome(one) == result for one in on_sets) for result in ("above", "below"))
    sets = f"{gains} of {len(on_sets)} differences are significant gains and {losses} significant losses."
    if not means:
        return sets
    better, worse = ([short(one.label) for one in means if outcome(one) == result] for result in ("above", "below"))
    parts = ([f"{listing(better)} {_are(better)} significantly better"] if better else []) + (
        [f"{listing(worse)} {_are(worse)} significantly worse"] if worse else []
    )
    return f"On the mean {' and '.join(parts) or 'no difference is significant'}; over the single test sets {sets}"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
