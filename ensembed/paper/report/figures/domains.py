"""Meta-embeddings by the corpus that they were fitted on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ensembed.paper.findings import MEAN, NO_CORPUS, Findings
from ensembed.paper.report.drawing import Figure, draw
from ensembed.paper.report.figures.style import (
    FAINT,
    GAP,
    GRID,
    INK,
    SMALL,
    TEST_AXIS,
    edge_text,
    figure,
    listing,
    short,
    signed,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# A corpus is no system, so it has marks of its own.
_MARKS = (("#0072b2", "o"), ("#d55e00", "X"), ("#009e73", "P"), ("#cc79a7", "*"), ("#e69f00", "h"))
_NO_MARK = (FAINT, "d")


def domains(findings: Findings) -> Figure | None:
    """Means over the test sets, one row per method, one mark per corpus; nothing where there is a single corpus."""
    scores = {(one.label, one.corpus): one.score(MEAN).pearson for one in findings.domains}
    corpora = [corpus for corpus in dict.fromkeys(corpus for _, corpus in scores) if corpus != NO_CORPUS]
    if len(corpora) < 2:
        return None
    labels = list(dict.fromkeys(label for label, _ in scores))
    marks = {corpus: _MARKS[i % len(_MARKS)] for i, corpus in enumerate(corpora)}
    if any(corpus == NO_CORPUS for _, corpus in scores):
        marks[NO_CORPUS] = _NO_MARK
    member = findings.best_member.score(MEAN).pearson

    def paint(page: Canvas) -> None:
        axes = page.subplots()
        axes.axvline(100 * member, color=INK, linewidth=1, dashes=(4, 3), label=short(findings.best_member.label))
        for place, label in enumerate(labels):
            own = {corpus: 100 * value for (of, corpus), value in scores.items() if of == label}
            axes.plot([min(own.values()), max(own.values())], [place, place], color=GRID, linewidth=5, zorder=1)
            edge_text(axes, place, GAP.join(figure(own[corpus] / 100) for corpus in marks if corpus in own))
        for corpus, (color, marker) in marks.items():
            name = "no corpus needed" if corpus == NO_CORPUS else f"fitted on {short(corpus)}"
            axes.plot(
                [100 * scores[label, corpus] for label in labels if (label, corpus) in scores],
                [place for place, label in enumerate(labels) if (label, corpus) in scores],
                marker,
                color=color,
                markersize=9,
                label=name,
            )
        axes.set_yticks(range(len(labels)), [short(label) for label in labels])
        axes.set_ylim(len(labels) - 0.4, -0.6)
        left, right = axes.get_xlim()
        axes.set_xlim(left, right + (0.12 + 0.08 * len(corpora)) * (right - left))  # the figures stand there
        axes.set_xlabel(f"{TEST_AXIS}, mean over the test sets")
        axes.grid(visible=False, axis="y")
        axes.tick_params(length=0)
        page.legend(loc="outside upper left", ncols=4, handletextpad=0.4, fontsize=SMALL)

    first, second = corpora[:2]
    changes = [
        f"{short(label)} {signed(scores[label, second] - scores[label, first])}"
        for label in labels
        if (label, first) in scores and (label, second) in scores
    ]
    best = max(scores, key=lambda key: scores[key])
    caption = (
        "One row for each meta-embedding, one mark and one figure for each corpus, in the order of the "
        f"legend; the dashed line is the best member there, {short(findings.best_member.label)}."
        + (f" Fitted on {short(second)} instead of {short(first)}: {listing(changes)} points." if changes else "")
        + f" The highest is {short(best[0])}"
        + ("" if best[1] == NO_CORPUS else f" fitted on {short(best[1])}")
        + f" at {figure(scores[best])}."
    )
    return draw("domains", "Scores by corpus", caption, (820, 36 * len(labels) + 110), paint)
