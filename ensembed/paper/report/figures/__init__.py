"""The report's figures: pure functions from findings to SVG, drawn with matplotlib.

Members are grey and hollow or hatched, meta-embeddings coloured and filled, the same in every figure; nothing is told
by colour alone. Each SVG can stand in a page beside the others: its ids are its own, its text is text, and it refers
to nothing outside.
"""

from __future__ import annotations

from ensembed.paper.findings import Findings
from ensembed.paper.report.cost_figure import cost
from ensembed.paper.report.drawing import Figure
from ensembed.paper.report.figures.ablation import ablation
from ensembed.paper.report.figures.domains import domains
from ensembed.paper.report.figures.likeness import likeness
from ensembed.paper.report.figures.scatter import scatter
from ensembed.paper.report.figures.search import autoencoders, tau
from ensembed.paper.report.figures.significance import significance
from ensembed.paper.report.figures.spectrum import spectrum
from ensembed.paper.report.line_figures import dimensions, sizes
from ensembed.paper.report.score_figures import bars

__all__ = ["Figure", "all_figures"]

_FIGURES = (
    bars,
    significance,
    scatter,
    tau,
    autoencoders,
    spectrum,
    ablation,
    likeness,
    dimensions,
    sizes,
    domains,
    cost,
)


def all_figures(findings: Findings) -> tuple[Figure, ...]:
    """Every figure that the findings have data for, in the order of the report.

    Equal findings give equal bytes. matplotlib's settings are left as they were.

    Raises:
        MissingError: matplotlib is not installed.
    """
    drawn = (figure(findings) for figure in _FIGURES)
    return tuple(figure for figure in drawn if figure is not None)
