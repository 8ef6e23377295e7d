"""The folder that a run leaves: the report, the findings it was made from, every table and every figure."""

from __future__ import annotations

from pathlib import Path

from ensembed.errors import InputError
from ensembed.paper.findings import Findings
from ensembed.paper.report.figures import all_figures
from ensembed.paper.report.page import report_html
from ensembed.paper.tables.table_formats import table_files, write_tables
from ensembed.support.atomic_files import why_not_writable, write_all_atomically
from ensembed.support.extras import import_extra


def check_before(folder: Path, *, training: bool) -> None:
    """Refuse now what would fail after hours: a folder that cannot be written to, a library that is not here.

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
    """Write everything and return the paths, the report's first."""
    drawn = all_figures(findings)
    page = report_html(findings, drawn).encode()  # before anything that was there is changed
    report, data = folder / "report.html", folder / "findings.json"
    figures = {folder / "figures" / f"{figure.name}.svg": figure.svg.encode() for figure in drawn}
    earlier = _tables_of(data)
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


def _tables_of(data: Path) -> set[Path]:
    """The files of the run that was written there before: a table that has no successor must not stay."""
    try:
        findings = Findings.from_json(data.read_bytes())
    except (OSError, InputError):
        return set()
    return {data.parent / "tables" / name for name in table_files(findings)}
