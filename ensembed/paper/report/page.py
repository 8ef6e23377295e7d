"""The report: one HTML file with tables, figures and all that is needed to trust them.

The page loads nothing: style, script and figures are in it, and its content security policy forbids the rest. Whatever
a run found out is escaped, since members, corpora and sentences may hold anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from ensembed.paper import published as paper
from ensembed.paper.experiments.bootstrap import ALPHA
from ensembed.paper.findings import Findings
from ensembed.paper.report.figures import Figure, all_figures
from ensembed.paper.report.headline import headline
from ensembed.paper.report.rows import page_rows, word_columns
from ensembed.paper.tables.marked_table import Table
from ensembed.paper.tables.table_formats import all_tables
from ensembed.paper.tables.table_notes import READ, absences, choices, shared_notes
from ensembed.support.extras import import_extra

FORMATS = {"Markdown": "md", "CSV": "csv", "JSON": "json", "LaTeX": "tex"}
"""The files of every table, in the folder `tables` beside the page."""


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        id: for links.
        title: in the contents, too.
        lead: what it shows.
        figures: those there are.
        tables: those there are.
    """

    id: str
    title: str
    lead: str
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class _Plan:
    """A section before it is known what there is for it: names of figures and of tables."""

    id: str
    title: str
    lead: str
    figures: tuple[str, ...]
    tables: tuple[str, ...]


MAIN = _Plan(
    "main-table",
    "The main table",
    "Every encoder on its own, its up-projection (more dimensions, and nothing else), and every meta-embedding: the "
    "paper's, and auto, which is this library's own. "
    "Bold: the best of ours in its column. Underlined: the best single encoder.",
    ("bars",),
    ("table2-main",),
)
_PLANS = (
    MAIN,
    _Plan(
        "significance",
        "Is the difference real?",
        "Every meta-embedding against the member that is best on the same data set by the same metric, "
        "on the same resampled pairs.",
        ("significance",),
        ("significance", "intervals"),
    ),
    _Plan("scatter", "Predicted against gold", "What a correlation looks like, pair by pair.", ("scatter",), ()),
    _Plan(
        "search",
        "What was chosen on dev",
        "GCCA's tau and the autoencoder's depth and loss: all that was chosen by scores, and by those of dev only.",
        ("tau", "autoencoders", "spectrum"),
        ("table1-gcca", "table1-autoencoder"),
    ),
    _Plan(
        "ablation",
        "Without one member",
        "What the ensemble loses, or gains, when one encoder is left out.",
        ("ablation",),
        ("table3-ablation",),
    ),
    _Plan(
        "dimensions",
        "Fewer dimensions",
        "What is left of the quality when vectors are cut after their first dimensions.",
        ("dimensions",),
        ("dimensions",),
    ),
    _Plan(
        "corpus",
        "How much text, and which",
        "How many unlabelled sentences the methods need, and whether it matters where they are from.",
        ("sizes", "domains"),
        ("corpus-size", "corpus-domain"),
    ),
    _Plan(
        "likeness",
        "How alike the members are",
        "Measured on sentences of the main corpus, without labels.",
        ("likeness",),
        ("likeness",),
    ),
    _Plan(
        "cost", "What it costs", "Milliseconds per sentence, beside what they buy.", ("cost",), ("cost", "cost-members")
    ),
)


def report_html(findings: Findings, figures: Sequence[Figure] | None = None) -> str:
    """The whole page. Sections for which nothing was found out are not there.

    Args:
        findings: what to show.
        figures: those of the findings; None draws them.

    Raises:
        MissingError: the extra `report` is not installed.
    """
    jinja2: Any = import_extra("jinja2", "report", "the report")
    markup = jinja2.utils.markupsafe.Markup
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style, script = (_read(name) for name in ("report.css", "report.js"))
    sections = page_sections(findings, all_figures(findings) if figures is None else figures)
    page: str = environment.from_string(_read("template.html")).render(
        findings=findings,
        headline=headline(findings),
        sections=sections,
        contents={section.id: section.title for section in sections},
        main=MAIN.id,
        formats=FORMATS,
        unit=READ,
        shared_notes=shared_notes(findings),
        fine_print=[*choices(findings), *absences(findings)],
        specs=json.dumps([member.spec for member in findings.members], indent=1, ensure_ascii=False),
        citation=paper.CITATION,
        level=ALPHA,
        policy=_policy(script),
        style=markup(style),
        script=markup(script),
        # The figures' texts are escaped where they are drawn.
        inline=lambda figure: markup(figure.svg),
        page_rows=page_rows,
        word_columns=word_columns,
    )
    return page.lstrip() + "\n"


def page_sections(findings: Findings, drawn: Sequence[Figure]) -> list[Section]:
    """What there is to show, in order; every figure and every table is in one of them."""
    figures = {figure.name: figure for figure in drawn}
    tables = {table.name: table for table in all_tables(findings)}
    planned = [
        Section(
            plan.id,
            plan.title,
            plan.lead,
            tuple(figures.pop(name) for name in plan.figures if name in figures),
            tuple(tables.pop(name) for name in plan.tables if name in tables),
        )
        for plan in _PLANS
    ]
    changes, made_of = findings.changes, tuple(tables.pop(name) for name in ("members", "datasets") if name in tables)
    return [
        *(section for section in planned if section.figures or section.tables),
        *([Section("pairs", "Pairs that changed", "")] if changes.better or changes.worse else []),
        *(
            [Section("appendix", "Appendix", "Every sub-testset.", tuple(figures.values()), tuple(tables.values()))]
            if figures or tables
            else []
        ),
        Section("making", "How it was made", "", (), made_of),
    ]


def _read(name: str) -> str:
    return files("ensembed.paper.report").joinpath(name).read_text("utf-8")


def _policy(script: str) -> str:
    """Nothing is loaded, no script runs but ours; figures have style attributes, which need 'unsafe-inline'."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
