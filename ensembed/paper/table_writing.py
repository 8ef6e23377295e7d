"""From findings to tables, and from tables to files."""

from __future__ import annotations

from pathlib import Path

from ensembed.paper.findings import Findings
from ensembed.paper.tables.marked_table import Table
from ensembed.paper.tables.paper_tables import main_table, paper_tables
from ensembed.paper.tables.table_formats import to_csv, to_json, to_latex, to_markdown, to_text
from ensembed.paper.tables.tables_beyond_paper import further_tables
from ensembed.support.atomic_files import write_all_atomically


def all_tables(findings: Findings) -> tuple[Table, ...]:
    """Every table that has something to say: the paper's, then those beyond it."""
    return tuple(table for table in (*paper_tables(findings), *further_tables(findings)) if table.rows)


def main_text(findings: Findings) -> str:
    """The main table for a terminal, with its notes."""
    return to_text(main_table(findings), findings)


def write_tables(findings: Findings, folder: Path) -> list[Path]:
    """Every table as Markdown, CSV, JSON and LaTeX.

    Nothing in the folder changes before all of them are made and safely on the disk.

    Returns:
        The files, in the order of the tables.
    """
    contents = {folder / name: text.encode() for name, text in table_files(findings).items()}
    folder.mkdir(parents=True, exist_ok=True)
    write_all_atomically(contents)
    return list(contents)


def table_files(findings: Findings) -> dict[str, str]:
    """The text of every table in every format, by the name of its file."""
    contents = {}
    for table in all_tables(findings):
        contents[f"{table.name}.md"] = to_markdown(table, findings)
        contents[f"{table.name}.csv"] = to_csv(table)
        contents[f"{table.name}.json"] = to_json(table, findings)
        contents[f"{table.name}.tex"] = to_latex(table, findings)
    return contents
