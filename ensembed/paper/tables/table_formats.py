"""All tables of a run as files, and a table as text for a terminal, Markdown, CSV, JSON and LaTeX.

People get correlations x 100 with one digit; CSV and JSON hold them as fractions with every digit.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from ensembed.paper.findings import METRICS, Findings
from ensembed.paper.tables.marked_table import Aside, Cell, Number, Piece, Table, cell_text
from ensembed.paper.tables.paper_tables import main_table, paper_tables, tables_beyond_paper
from ensembed.paper.tables.table_notes import HELD, READ, shared_notes
from ensembed.sts.protocol import Score
from ensembed.support.atomic_files import make_folder, write_all_atomically
from ensembed.support.text_tables import markdown_table, text_table

_LATEX_NAMES = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater", "|": "bar"}
_LATEX = str.maketrans(
    {
        **{character: rf"\text{name}{{}}" for character, name in _LATEX_NAMES.items()},
        **{character: f"\\{character}" for character in "{}$&#_%"},
        **{character: f"{{{character}}}" for character in "[]*"},  # after a \\ they would be read as its arguments
        "`": r"\textasciigrave{}",
        '"': r"\textquotedbl{}",
        "±": r"$\pm$",
    }
)
# What would make a heading, a list or a quotation of a note.
_BEGINNING = re.compile(r"^(\d*)([#+>=.)-])")


def all_tables(findings: Findings) -> tuple[Table, ...]:
    """Return every table that has rows: the paper's, then those beyond it."""
    return tuple(table for table in (*paper_tables(findings), *tables_beyond_paper(findings)) if table.rows)


def main_text(findings: Findings) -> str:
    """Return the main table for a terminal, with its notes."""
    return to_text(main_table(findings), findings)


def write_tables(findings: Findings, folder: Path) -> list[Path]:
    """Write every table as Markdown, CSV, JSON and LaTeX, all or none, and return the files in the tables' order."""
    contents = {folder / name: text.encode() for name, text in table_files(findings).items()}
    make_folder(folder)
    write_all_atomically(contents)
    return list(contents)


def table_files(findings: Findings) -> dict[str, str]:
    """Return the text of every table in every format, by the name of its file."""
    texts: dict[str, str] = {}
    for table in all_tables(findings):
        texts |= {f"{table.name}.md": to_markdown(table, findings), f"{table.name}.csv": to_csv(table)}
        texts |= {f"{table.name}.json": to_json(table, findings), f"{table.name}.tex": to_latex(table, findings)}
    return texts


def to_text(table: Table, findings: Findings) -> str:
    """Write a table for a terminal: columns, a blank line between kinds of rows, and the notes."""
    rows: list[list[str]] = []
    for i, row in enumerate(table.rows):
        if _starts_a_group(table, i):
            rows.append([""] * len(table.headers))
        rows.append([_one_line(cell_text(cell)) for cell in row.cells])
    notes = [_one_line(note) for note in (READ, *shared_notes(findings), *table.notes)]
    return "\n".join([text_table(table.headers, rows, left=table.left), "", *notes, ""])


def to_markdown(table: Table, findings: Findings) -> str:
    """Write title, command, the table with the best in bold and the best member in italics, notes and provenance."""
    rows = [_cells(table, i, _markdown_piece) for i in range(len(table.rows))]
    notes = [READ, *shared_notes(findings), *table.notes, *_marks(table, "in italics"), *_origin(findings)]
    lines = [
        f"# {escape_markdown(table.title)}",
        "",
        "Written by",
        "",
        *(f"    {line}" for line in findings.command.splitlines()),  # indented: nothing in it can end the block
        "",
        markdown_table([escape_markdown(header) for header in table.headers], rows, left=table.left),
        "",
        *("- " + _BEGINNING.sub(r"\1\\\2", escape_markdown(note)) for note in notes),
        "",
    ]
    return "\n".join(lines)


def to_csv(table: Table) -> str:
    """Write every number with every digit, correlations as fractions in two columns: `sts12 pearson`, `sts12 spearman`.

    The first column is the kind of the row; `sts13 star` holds a `*` where a figure is over other sub-testsets.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    starred = [any(_star(row.cells[j]) for row in table.rows) for j in range(len(table.headers))]
    headers = ["kind"]
    for j, header in enumerate(table.headers):
        names = [f"{header} {metric}" for metric in METRICS] if table.is_pair(j) else [header]
        headers += [*names, f"{header} star"] if starred[j] else names
    writer.writerow(headers)
    for row in table.rows:
        values: list[Any] = [row.kind]
        for j, cell in enumerate(row.cells):
            if not table.is_pair(j):
                values.append(_data(cell))
                continue
            pair = cell if isinstance(cell, Score | Aside) else Aside(None, None)
            values += [pair.pearson, pair.spearman, *([_star(pair)] if starred[j] else [])]
        writer.writerow(values)
    return file.getvalue()


def to_json(table: Table, findings: Findings) -> str:
    """Write the table as data, with its origin; correlations are fractions."""
    cells = [dict(zip(table.headers, map(_data, row.cells), strict=True)) for row in table.rows]
    facts = {name: getattr(findings, name) for name in ("command", "provenance", "settings", "protocol")}
    parts = {name: list(map(asdict, getattr(findings, name))) for name in ("members", "corpora", "datasets")}
    data = {"name": table.name, "title": table.title, **facts, **parts, "unit": HELD, "columns": table.headers}
    data["rows"] = [{"kind": row.kind, "cells": by_name} for row, by_name in zip(table.rows, cells, strict=True)]
    data["notes"] = [*shared_notes(findings), *table.notes]
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def to_latex(table: Table, findings: Findings) -> str:
    r"""Write a `table` for a document with `\usepackage[T1]{fontenc}` and `\usepackage{booktabs}`."""
    comments = [f"Written by {findings.command}", *_origin(findings), r"Needs the packages booktabs and fontenc (T1)."]
    rows: list[str] = []
    for i in range(len(table.rows)):
        if _starts_a_group(table, i):
            rows.append(r"\midrule")
        rows.append(" & ".join(_cells(table, i, _latex_piece)) + r" \\")
    notes = [READ, *shared_notes(findings), *table.notes, *_marks(table, "underlined")]
    return Template(files("ensembed.paper.tables").joinpath("table.tex").read_text("utf-8")).substitute(
        comments="\n".join(f"% {line}" for comment in comments for line in comment.splitlines()),
        title=escape_latex(table.title),
        name=table.name,
        columns="l" * table.left + "r" * (len(table.headers) - table.left),
        headers=" & ".join(map(escape_latex, table.headers)),
        rows="".join(f"{row}\n" for row in rows),
        notes="\n".join(rf"{escape_latex(note)}\par" for note in notes),
    )


def escape_markdown(text: str) -> str:
    r"""Return one line of Markdown that reads as the text does.

    >>> print(escape_markdown("<odd> & 'name' \\ 100%_$ | news_mix_tok"))
    \<odd> & 'name' \\ 100%\_\$ \| news_mix_tok
    """
    text = re.sub(r"[\\`*|<~$]", r"\\\g<0>", _one_line(text))
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)  # inside a word it means nothing
    text = re.sub(r"&(?=#?\w+;)", r"\\&", text)  # else &lt; would be an entity
    return re.sub(r"\](?=[(:\[])", r"\\]", text)  # else [a](b) would be a link


def escape_latex(text: str) -> str:
    r"""Return one line of LaTeX that reads as the text does, with a true minus in front of a number.

    >>> print(escape_latex("<odd> & 'name' \\ 100%_$ -0.5"))
    \textless{}odd\textgreater{} \& 'name' \textbackslash{} 100\%\_\$ $-$0.5
    """
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", _one_line(text).translate(_LATEX))


def _cells(table: Table, i: int, write: Callable[[Piece], str]) -> list[str]:
    return ["".join(map(write, table.pieces(i, j))) for j in range(len(table.headers))]


def _piece(piece: Piece, escape: Callable[[str], str], best_member: str, best: str) -> str:
    text = escape(piece.text)
    text = best_member.format(text) if piece.best_member else text
    return best.format(text) if piece.best else text


_markdown_piece = partial(_piece, escape=escape_markdown, best_member="_{}_", best="**{}**")
_latex_piece = partial(_piece, escape=escape_latex, best_member=r"\underline{{{}}}", best=r"\textbf{{{}}}")


def _one_line(text: str) -> str:
    """Remove line breaks and control characters, which would end a row or a comment."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def _starts_a_group(table: Table, i: int) -> bool:
    return i > 0 and table.rows[i].kind != table.rows[i - 1].kind


def _marks(table: Table, underlined: str) -> list[str]:
    """Say what the marks mean, where there are any."""
    pieces = [piece for i in range(len(table.rows)) for j in range(len(table.headers)) for piece in table.pieces(i, j)]
    if not any(piece.best for piece in pieces):
        return []
    best = f"In bold: the best of our figures in the {'table' if table.marks == 'table' else 'column'}"
    return [f"{best}; {underlined}: the best member's." if any(piece.best_member for piece in pieces) else f"{best}."]


def _origin(findings: Findings) -> list[str]:
    settings = [f"{key}: {value}" for key, value in findings.settings.items()]
    facts = [f"{key} {value}" for key, value in findings.provenance.items()]
    return [f"Settings: {'; '.join(settings)}."] * bool(settings) + [f"Made with {', '.join(facts)}."]


def _star(cell: Cell) -> str:
    return "*" if isinstance(cell, Aside) and cell.sign == "*" else ""


def _data(cell: Cell) -> str | float | dict[str, Any] | None:
    if isinstance(cell, Number):
        return cell.value
    return asdict(cell) if isinstance(cell, Score | Aside) else cell
