"""The rows of a table as the page shows them: texts with the classes that the style sheet knows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from ensembed.paper.tables.marked_table import Aside, Piece, Table
from ensembed.sts.protocol import Score

_ROLES = ("r", "slash", "rho")
_FIGURES = re.compile(r"[\d.,]+( or [\d.,]+)*")


class Part(NamedTuple):
    """A part of a cell: its text, and its classes (`r` and `rho` are what the switches hide)."""

    text: str
    classes: str = ""


@dataclass(frozen=True)
class PageRow:
    """One row.

    Attributes:
        printed: whether its figures are from a paper and not ours.
        starts: whether another kind of rows begins with it.
        spread: whether it is the spread of the row above, under which sorting leaves it.
        cells: the parts of every cell.
    """

    printed: bool
    starts: bool
    spread: bool
    cells: tuple[tuple[Part, ...], ...]


def page_rows(table: Table) -> list[list[PageRow]]:
    """The rows in groups, ours and printed ones: sorting leaves them apart.

    Example:
        >>> from ensembed.paper.tables.marked_table import Row
        >>> table = Table("toy", "A toy", ("system", "dev"), (Row("single", ("a", Score(0.7, 0.72))),))
        >>> [[row]] = page_rows(table)
        >>> [part.text for part in row.cells[1]], row.cells[1][0].classes
        (['70.0', '/', '72.0'], 'r best best-member')
    """
    kinds = [row.kind for row in table.rows]
    rows = [
        PageRow(
            kind in ("paper", "literature"),
            i > 0 and kind != kinds[i - 1],
            any(isinstance(cell, Aside) and cell.sign == "±" for cell in table.rows[i].cells),
            tuple(_parts(table, i, j) for j in range(len(table.headers))),
        )
        for i, kind in enumerate(kinds)
    ]
    return [list(group) for _, group in groupby(rows, key=lambda row: row.printed)]


def word_columns(table: Table) -> list[bool]:
    """For each column whether it holds words, which are set left and sorted as such: `512 or 1024` are figures."""
    return [
        j < table.left or any(isinstance(cell, str) and not _FIGURES.fullmatch(cell) for cell in column)
        for j, column in enumerate(zip(*(row.cells for row in table.rows), strict=True))
    ]


def _parts(table: Table, i: int, j: int) -> tuple[Part, ...]:
    cell, pieces = table.rows[i].cells[j], table.pieces(i, j)
    if isinstance(cell, Score):
        return tuple(Part(piece.text, _classes(piece, role)) for piece, role in zip(pieces, _ROLES, strict=True))
    text = "".join(piece.text for piece in pieces)
    if isinstance(cell, Aside):
        # A sign belongs to both figures: it stays where one of them is hidden.
        first, slash, second = text.strip("±*").partition("/")
        before, after = text[: text.index(first)], "*" if text.endswith("*") else ""
        return (Part(before), Part(first, "r"), Part(slash, "slash"), Part(second, "rho"), Part(after))
    return (Part(text),)


def _classes(piece: Piece, role: str) -> str:
    return " ".join([role] + ["best"] * piece.best + ["best-member"] * piece.best_member)
