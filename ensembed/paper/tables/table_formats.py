"""Tables as text for a terminal, Markdown, CSV, JSON and LaTeX.

People get correlations x 100 with one digit; CSV and JSON hold them as fractions with every digit. Everything but CSV,
which has no place for it, names the command, the settings and the provenance.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ensembed.paper.findings import METRICS, Findings
from ensembed.paper.tables.marked_table import Aside, Cell, Number, Piece, Row, Table, cell_text
from ensembed.paper.tables.table_notes import HELD, READ, shared_notes
from ensembed.sts.protocol import Score
from ensembed.support.text_tables import markdown_table, text_table

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    # After the \\ of the line above, these would be read as its arguments.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    **{character: f"\\{character}" for character in "$&#_%"},
}


def to_text(table: Table, findings: Findings) -> str:
    """For a terminal: columns, a blank line between kinds of rows, and the notes."""
    rows: list[list[str]] = []
    for i, row in enumerate(table.rows):
        if _starts_a_group(table.rows, i):
            rows.append([""] * len(table.headers))
        rows.append([_one_line(cell_text(cell)) for cell in row.cells])
    notes = [_one_line(note) for note in (READ, *shared_notes(findings), *table.notes)]
    return "\n".join([text_table(table.headers, rows, left=table.left), "", *notes, ""])


def to_markdown(table: Table, findings: Findings) -> str:
    """Title, command, the table with the best in bold and the best member in italics, notes and provenance."""
    rows = [
        ["".join(map(_markdown_piece, table.pieces(i, j))) for j in range(len(table.headers))]
        for i in range(len(table.rows))
    ]
    notes = [READ, *shared_notes(findings), *table.notes, *_marks(table, "in italics"), *_origin(findings)]
    return "\n".join(
        [
            f"# {escape_markdown(table.title)}",
            "",
            "Written by",
            "",
            *(f"    {line}" for line in findings.command.splitlines()),  # indented: nothing in it can end the block
            "",
            markdown_table([escape_markdown(header) for header in table.headers], rows, left=table.left),
            "",
            *(f"- {_markdown_item(note)}" for note in notes),
            "",
        ]
    )


def to_csv(table: Table) -> str:
    """Every number with every digit, correlations as fractions in two columns: `sts12 pearson`, `sts12 spearman`.

    The first column is the kind of the row. Where some figures are over other sub-testsets than ours, a third column,
    such as `sts13 star`, holds a `*` beside them.
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
                values.append(cell.value if isinstance(cell, Number) else cell)
                continue
            pair = cell if isinstance(cell, Score | Aside) else Aside(None, None)
            values += [pair.pearson, pair.spearman]
            if starred[j]:
                values.append(_star(pair))
        writer.writerow(values)
    return file.getvalue()


def to_json(table: Table, findings: Findings) -> str:
    """The table as data, with all that is known of its origin; correlations are fractions."""
    data = {
        "name": table.name,
        "title": table.title,
        "command": findings.command,
        "provenance": findings.provenance,
        "settings": findings.settings,
        "protocol": findings.protocol,
        "members": [asdict(member) for member in findings.members],
        "corpora": [asdict(corpus) for corpus in findings.corpora],
        "datasets": [asdict(dataset) for dataset in findings.datasets],
        "unit": HELD,
        "columns": table.headers,
        "rows": [
            {"kind": row.kind, "cells": dict(zip(table.headers, map(_data, row.cells), strict=True))}
            for row in table.rows
        ],
        "notes": [*shared_notes(findings), *table.notes],
    }
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def to_latex(table: Table, findings: Findings) -> str:
    r"""A `table` for a document with `\usepackage[T1]{fontenc}` and `\usepackage{booktabs}`."""
    comments = [f"Written by {findings.command}", *_origin(findings), r"Needs the packages booktabs and fontenc (T1)."]
    lines: list[str] = []
    for i in range(len(table.rows)):
        if _starts_a_group(table.rows, i):
            lines.append(r"\midrule")
        cells = ["".join(map(_latex_piece, table.pieces(i, j))) for j in range(len(table.headers))]
        lines.append(" & ".join(cells) + r" \\")
    columns = "l" * table.left + "r" * (len(table.headers) - table.left)
    notes = [READ, *shared_notes(findings), *table.notes, *_marks(table, "underlined")]
    return "\n".join(
        [
            *(f"% {line}" for comment in comments for line in comment.splitlines()),
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape_latex(table.title)}}}",
            rf"\label{{tab:{table.name}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(map(escape_latex, table.headers)) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            "",
            r"\raggedright\footnotesize",
            *(rf"{escape_latex(note)}\par" for note in notes),
            r"\end{table}",
            "",
        ]
    )


def escape_markdown(text: str) -> str:
    r"""The text in one line of Markdown that reads as it is.

    >>> print(escape_markdown("<odd> & 'name' \\ 100%_$ | news_mix_tok"))
    \<odd> & 'name' \\ 100%\_\$ \| news_mix_tok
    """
    text = re.sub(r"[\\`*|<~$]", r"\\\g<0>", _one_line(text))
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)  # inside a word it means nothing
    text = re.sub(r"&(?=#?\w+;)", r"\\&", text)  # else &lt; would be an entity
    return re.sub(r"\](?=[(:\[])", r"\\]", text)  # else [a](b) would be a link


def escape_latex(text: str) -> str:
    r"""The text in one line of LaTeX that reads as it is, a minus in front of a figure as such.

    >>> print(escape_latex("<odd> & 'name' \\ 100%_$ -0.5"))
    \textless{}odd\textgreater{} \& 'name' \textbackslash{} 100\%\_\$ $-$0.5
    """
    escaped = "".join(_LATEX.get(character, character) for character in _one_line(text))
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", escaped)


def _markdown_piece(piece: Piece) -> str:
    text = escape_markdown(piece.text)
    text = f"_{text}_" if piece.best_member else text
    return f"**{text}**" if piece.best else text


def _markdown_item(text: str) -> str:
    """The same where a line begins, so that it begins no heading, list or quotation."""
    return re.sub(r"^(\d*)([#+>=.)-])", r"\1\\\2", escape_markdown(text))


def _latex_piece(piece: Piece) -> str:
    text = escape_latex(piece.text)
    text = rf"\underline{{{text}}}" if piece.best_member else text
    return rf"\textbf{{{text}}}" if piece.best else text


def _one_line(text: str) -> str:
    """Without line breaks and control characters, which would end a row or a comment."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def _starts_a_group(rows: Sequence[Row], i: int) -> bool:
    return i > 0 and rows[i].kind != rows[i - 1].kind


def _marks(table: Table, underlined: str) -> list[str]:
    """What the marks mean, where there are any."""
    pieces = [piece for i in range(len(table.rows)) for j in range(len(table.headers)) for piece in table.pieces(i, j)]
    where = "in the table" if table.marks == "table" else "in the column"
    best = [f"In bold: the best of our figures {where}"] if any(piece.best for piece in pieces) else []
    member = [f"{underlined}: the best member's"] if any(piece.best_member for piece in pieces) else []
    return ["; ".join([*best, *member]) + "."] if best else []


def _origin(findings: Findings) -> list[str]:
    settings = [f"{key}: {value}" for key, value in findings.settings.items()]
    facts = [f"{key} {value}" for key, value in findings.provenance.items()]
    return [f"Settings: {'; '.join(settings)}."] * bool(settings) + [f"Made with {', '.join(facts)}."]


def _star(cell: Cell) -> str:
    return "*" if isinstance(cell, Aside) and cell.sign == "*" else ""


def _data(cell: Cell) -> str | float | dict[str, Any] | None:
    if isinstance(cell, Number):
        return cell.value
    if isinstance(cell, Score | Aside):
        return asdict(cell)
    return cell
