"""The report: one HTML file with tables, figures and all that is needed to trust them, and the folder around it.

The page loads nothing: style, script and figures are in it, and its content security policy forbids the rest. All text
of a run is escaped, since members, corpora and sentences may hold anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from ensembed.errors import InputError
from ensembed.paper import published
from ensembed.paper.experiments.bootstrap import ALPHA
from ensembed.paper.findings import Findings
from ensembed.paper.report.cost_figure import cost
from ensembed.paper.report.drawing import Figure
from ensembed.paper.report.headline import headline
from ensembed.paper.report.heat_maps import autoencoders, likeness
from ensembed.paper.report.line_figures import dimensions, sizes, spectrum, tau
from ensembed.paper.report.score_figures import ablation, bars, domains, scatter, significance
from ensembed.paper.tables.marked_table import Aside, Piece, Table
from ensembed.paper.tables.table_formats import all_tables, table_files, write_tables
from ensembed.paper.tables.table_notes import READ, absences, choices, shared_notes
from ensembed.support.atomic_files import why_not_writable, write_all_atomically
from ensembed.support.extras import import_extra

FORMATS = {"Markdown": "md", "CSV": "csv", "JSON": "json", "LaTeX": "tex"}
"""The files of every table, in the folder `tables` beside the page."""

_FIGURES = (
    *(bars, significance, scatter),
    *(tau, autoencoders, spectrum),
    *(ablation, likeness, dimensions, sizes, domains, cost),
)


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    id: str  # for links
    title: str
    lead: str  # what it shows
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()


def check_before(folder: Path, *, training: bool) -> None:
    """Refuse now what would fail after hours: a folder that cannot be written to, a library that is not installed.

    Raises:
        InputError: the report cannot be written there.
        MissingError: says how to install what is missing.
    """
    if problem := why_not_writable(folder):
        raise InputError(f"the report cannot be written to {folder}: {problem}")
    for module in ("pydantic", "jinja2", "matplotlib"):
        import_extra(module, "report", "a report")
    if training:
        import_extra("torch", "ae", "training autoencoders (--autoencoder none leaves them out)")


def write_report(findings: Findings, folder: Path) -> list[Path]:
    """Write the report, the findings, every table and every figure; return the paths, the report's first."""
    drawn = all_figures(findings)
    page = report_html(findings, drawn).encode()  # before any file of an earlier run is changed
    report, data = folder / "report.html", folder / "findings.json"
    figures = {folder / "figures" / f"{figure.name}.svg": figure.svg.encode() for figure in drawn}
    try:  # a table of an earlier run that has no successor must not stay
        earlier = {folder / "tables" / name for name in table_files(Findings.from_json(data.read_bytes()))}
    except (OSError, InputError):
        earlier = set()
    try:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        tables = write_tables(findings, folder / "tables")
        write_all_atomically(figures)
        write_all_atomically({data: findings.to_json(), report: page})
        for path in earlier - set(tables):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"the report cannot be written to {folder}: {error}") from error
    return [report, data, *tables, *figures]


def all_figures(findings: Findings) -> tuple[Figure, ...]:
    """Return every figure that the findings have data for; equal findings give equal bytes.

    Raises:
        MissingError: matplotlib is not installed.
    """
    drawn = (figure(findings) for figure in _FIGURES)
    return tuple(figure for figure in drawn if figure is not None)


def report_html(findings: Findings, figures: Sequence[Figure] | None = None) -> str:
    """Return the whole page, without the sections that have no data; `figures` None draws them.

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
        main="main-table",
        formats=FORMATS,
        unit=READ,
        shared_notes=shared_notes(findings),
        fine_print=[*choices(findings), *absences(findings)],
        specs=json.dumps([member.spec for member in findings.members], indent=1, ensure_ascii=False),
        citation=published.CITATION,
        level=ALPHA,
        policy=_policy(script),
        style=markup(style),
        script=markup(script),
        inline=lambda figure: markup(figure.svg),  # the figures' texts are escaped where they are drawn
        page_rows=page_rows,
        word_columns=word_columns,
    )
    return page.lstrip() + "\n"


def page_sections(findings: Findings, drawn: Sequence[Figure]) -> list[Section]:
    """Return the sections that have something to show, in order; every figure and every table is in one of them."""
    figures = {figure.name: figure for figure in drawn}
    tables = {table.name: table for table in all_tables(findings)}
    sections = []
    for plan in json.loads(_read("sections.json")):
        shown = tuple(figures.pop(name) for name in plan["figures"] if name in figures)
        listed = tuple(tables.pop(name) for name in plan["tables"] if name in tables)
        if shown or listed:
            sections.append(Section(plan["id"], plan["title"], plan["lead"], shown, listed))
    if findings.changes.better or findings.changes.worse:
        sections.append(Section("pairs", "Pairs that changed", ""))
    made_of = tuple(tables.pop(name) for name in ("members", "datasets") if name in tables)
    if figures or tables:
        rest = (tuple(figures.values()), tuple(tables.values()))
        sections.append(Section("appendix", "Appendix", "Every sub-testset.", *rest))
    return [*sections, Section("making", "How it was made", "", (), made_of)]


@dataclass(frozen=True)
class PageRow:
    """One row of a table in the page."""

    printed: bool  # its figures are from a paper and not ours
    starts: bool  # another kind of rows begins with it
    spread: bool  # it is the spread of the row above, under which sorting leaves it
    cells: list[list[Piece]]


def page_rows(table: Table) -> list[list[PageRow]]:
    """Return the rows in groups, ours and printed ones: sorting leaves them apart.

    Example:
        >>> from ensembed.paper.tables.marked_table import Row, Score
        >>> table = Table("toy", "A toy", ("system", "dev"), (Row("single", ("a", Score(0.7, 0.72))),))
        >>> [[row]] = page_rows(table)
        >>> [(piece.text, piece.role) for piece in row.cells[1]]
        [('70.0', 'r'), ('/', 'slash'), ('72.0', 'rho')]
    """
    kinds = [row.kind for row in table.rows]
    rows = [
        PageRow(
            kind in ("paper", "literature"),
            i > 0 and kind != kinds[i - 1],
            any(isinstance(cell, Aside) and cell.sign == "±" for cell in table.rows[i].cells),
            [table.pieces(i, j) for j in range(len(table.headers))],
        )
        for i, kind in enumerate(kinds)
    ]
    return [list(group) for _, group in groupby(rows, key=lambda row: row.printed)]


def word_columns(table: Table) -> list[bool]:
    """Return for each column whether it holds words, which are set left and sorted as such: `512 or 1024` does not."""
    numbers = re.compile(r"[\d.,]+( or [\d.,]+)*")
    return [
        j < table.left or any(isinstance(cell, str) and not numbers.fullmatch(cell) for cell in column)
        for j, column in enumerate(zip(*(row.cells for row in table.rows), strict=True))
    ]


def _read(name: str) -> str:
    return files("ensembed.paper.report").joinpath(name).read_text("utf-8")


def _policy(script: str) -> str:
    """Return a policy that loads nothing and runs our script only; figures need 'unsafe-inline' style attributes."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
