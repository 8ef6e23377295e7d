"""The report: one HTML file, which loads nothing and escapes all text of a run, and the folder around it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from ensembed.errors import InputError
from ensembed.paper import published
from ensembed.paper.experiments.bootstrap import ALPHA
from ensembed.paper.findings import MEAN, OWN, Comparison, Findings
from ensembed.paper.report.cost_figure import cost
from ensembed.paper.report.dev_figures import autoencoders, dimensions, likeness, sizes, spectrum, tau
from ensembed.paper.report.drawing import Figure, listing, short
from ensembed.paper.report.score_figures import ablation, bars, domains, scatter, significance
from ensembed.paper.tables import table_notes
from ensembed.paper.tables.marked_table import Aside, Piece, Table, points
from ensembed.paper.tables.table_formats import all_tables, table_files, write_tables
from ensembed.paper.tables.table_notes import READ, VERBS, absences, choices, outcome, shared_notes
from ensembed.support.atomic_files import make_folder, why_not_writable, write_all_atomically
from ensembed.support.extras import import_extra
from ensembed.support.file_limits import JSON_BYTES, open_regular

FORMATS = {"Markdown": "md", "CSV": "csv", "JSON": "json", "LaTeX": "tex"}  # of every table, in the folder `tables`

_FINDINGS = "findings.json"
_SCORES = (bars, significance, scatter)
_FIGURES = (*_SCORES, tau, autoencoders, spectrum, ablation, likeness, dimensions, sizes, domains, cost)
_NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    id: str  # for links
    title: str
    lead: str  # what it shows
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()


def check_before(folder: Path, *, training: bool) -> None:
    """Refuse now what would fail after hours: a folder that cannot be written to, a library that is not installed."""

    def is_report(folder: Path) -> bool:
        names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
        return _FINDINGS in names or names <= {"tables", "figures"}  # the latter are what an interrupted run left

    if problem := why_not_writable(folder, is_report):
        raise InputError(f"the report cannot be written to {folder}: {problem}")
    for module in ("pydantic", "jinja2", "matplotlib"):
        import_extra(module, "report", "a report")
    if training:
        import_extra("torch", "ae", "training autoencoders (--autoencoder none leaves them out)")


def write_report(findings: Findings, folder: Path) -> list[Path]:
    """Write the report, the findings, every table and every figure; return the paths, the report's first."""
    drawn = all_figures(findings)
    page = report_html(findings, drawn).encode()  # before any file of an earlier run is changed
    report, data = folder / "report.html", folder / _FINDINGS
    figures = {folder / "figures" / f"{figure.name}.svg": figure.svg.encode() for figure in drawn}
    earlier = earlier_tables(folder)  # one that has no successor must not stay
    try:
        make_folder(folder / "figures")
        tables = write_tables(findings, folder / "tables")
        write_all_atomically(figures)
        write_all_atomically({data: findings.to_json(), report: page})
        for path in earlier - set(tables):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"the report cannot be written to {folder}: {error}") from error
    return [report, data, *tables, *figures]


def earlier_tables(folder: Path) -> set[Path]:
    """Return the tables that a report in the folder has; none if its findings cannot be read."""
    try:
        with open_regular(folder / _FINDINGS) as file:
            findings = Findings.from_json(file.read(JSON_BYTES))
        # Every table has both below it, however long they are; names do not depend on them.
        return {folder / "tables" / name for name in table_files(replace(findings, command="", provenance={}))}
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError):
        return set()


def all_figures(findings: Findings) -> tuple[Figure, ...]:
    """Return every figure that the findings have data for; equal findings give equal bytes."""
    return tuple(figure for draw in _FIGURES if (figure := draw(findings)) is not None)


def report_html(findings: Findings, figures: Sequence[Figure] | None = None) -> str:
    """Return the whole page, without the sections that have no data; `figures` None draws them."""
    jinja2: Any = import_extra("jinja2", "report", "the report")
    markup = jinja2.utils.markupsafe.Markup
    strict = {"autoescape": True, "undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    style, script = (_read(name) for name in ("report.css", "report.js"))
    sections = page_sections(findings, all_figures(findings) if figures is None else figures)
    page: str = (
        jinja2.Environment(**strict)
        .from_string(_read("template.html"))
        .render(
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
    """Return the rows in groups, ours and printed ones: sorting leaves them apart."""
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
    loads = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
    return f"{loads}; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Verdict:
    """How a meta-embedding did against its best member."""

    outcome: str  # `above`, `below` or `undecided`
    name: str  # the meta-embedding, without its kind: `gcca`
    difference: str  # in points of Pearson's r
    sentences: tuple[str, ...]  # the verdict, the paired test, and on how many test sets it holds


@dataclass(frozen=True)
class Headline:
    """The first thing a reader sees: one line, a few sentences, and a verdict per meta-embedding, the best first."""

    title: str
    lead: str
    verdicts: tuple[Verdict, ...]


def headline(findings: Findings) -> Headline:
    """Put the paired tests into words; Pearson's r decides, as in the paper, and rho is named where it disagrees."""
    by_r = sorted(table_notes.deciding(findings, "pearson"), key=lambda test: -test.difference)
    if not by_r:
        return Headline("What the encoders score on their own", "No meta-embedding was compared with a member.", ())
    lead = [
        f"On {table_notes.place(findings)}, {_grouped(by_r)}.",
        *_by_rho(by_r, table_notes.deciding(findings, "spearman")),
    ]
    if any(test.label == OWN for test in by_r) and len(by_r) > 1:
        lead.append(f"Of these {short(OWN)} is this library's own method; the others are the paper's.")
    return Headline(_title(by_r), " ".join(lead), tuple(_verdict(test, findings) for test in by_r))


def _verdict(comparison: Comparison, findings: Findings) -> Verdict:
    difference, low, high = table_notes.difference_texts(comparison)
    sentences = [
        _beats(comparison, short(comparison.member)),
        f"{low} to {high} (95%)",
        table_notes.p_text(comparison.p_holm),
    ]
    tests = [test for test in findings.comparisons if test.dataset != MEAN and test.metric == "pearson"]
    on_sets = [outcome(test) for test in tests if test.label == comparison.label]
    if len(on_sets) > 1:
        counts = f"{on_sets.count('above')} of {len(on_sets)} test sets above"
        sentences.append(f"{counts}, {on_sets.count('below')} below" if "below" in on_sets else counts)
    return Verdict(outcome(comparison), short(comparison.label), difference, tuple(sentences))


def _title(by_r: Sequence[Comparison]) -> str:
    member, total = short(by_r[0].member), len(by_r)
    winners = sum(outcome(test) == "above" for test in by_r)
    if total == 1:
        return f"{short(by_r[0].label)} {_beats(by_r[0], member)}, the best of its members"
    if winners == total:
        every = "Both" if total == 2 else f"All {_count(total).lower()}"
        return f"{every} meta-embeddings beat their best member, {member}"
    if winners == 0:
        none = "Neither" if total == 2 else "None"
        return f"{none} of the {_count(total).lower()} meta-embeddings beats its best member, {member}"
    verb = "beats its" if winners == 1 else "beat their"
    return f"{_count(winners)} of {_count(total).lower()} meta-embeddings {verb} best member, {member}"


def _grouped(by_r: Sequence[Comparison]) -> str:
    """Return `svd (+2.1) and gcca (+1.4) beat minilm; avg (-0.3) does not differ significantly from it`."""
    clauses: list[str] = []
    for result, (singular, plural) in VERBS.items():
        if named := [_named(test) for test in by_r if outcome(test) == result]:
            member = "it" if clauses else short(by_r[0].member)
            clauses.append(f"{listing(named)} {plural if len(named) > 1 else singular} {member}")
    return "; ".join(clauses)


def _by_rho(by_r: Sequence[Comparison], by_rho: Sequence[Comparison]) -> list[str]:
    """Say so where Spearman's rho leads to another verdict, or has another best member."""
    if not by_rho:
        return []
    outcomes = {test.label: outcome(test) for test in by_r}
    others = [f"{_named(test)} {_beats(test, 'it')}" for test in by_rho if outcome(test) != outcomes[test.label]]
    member = "" if by_rho[0].member == by_r[0].member else short(by_rho[0].member)
    if others:
        where = f", whose best member is {member}," if member else ""
        return [f"That is by Pearson's r; by Spearman's rho{where} {listing(others)}."]
    if member:
        return [f"By Spearman's rho the best member is {member}, and the verdicts are the same."]
    return ["Pearson's r and Spearman's rho agree on that."]


def _beats(comparison: Comparison, member: str) -> str:
    return f"{VERBS[outcome(comparison)][0]} {member}"


def _named(comparison: Comparison) -> str:
    return f"{short(comparison.label)} ({points(comparison.difference).text})"


def _count(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else str(number)
