"""A table before it is text: cells that still hold their numbers, correlations as fractions, and marks for the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from ensembed.errors import InputError
from ensembed.paper.findings import MEAN
from ensembed.sts.protocol import Score

RowKind: TypeAlias = Literal["single", "up", "meta", "paper", "literature", ""]


@dataclass(frozen=True)
class Number:
    """A number for programs and its text for the reader."""

    value: float
    text: str


@dataclass(frozen=True)
class Aside:
    """Two correlations that are never marked: quoted figures, a spread, a difference."""

    pearson: float | None  # a fraction; None where nothing was printed
    spearman: float | None
    sign: Literal["", "*", "±", "+"] = ""  # `*`: over other sub-testsets than ours; `±`: a spread; `+`: a difference


Cell: TypeAlias = str | int | Number | Score | Aside | None


class Piece(NamedTuple):
    """A part of a cell's text."""

    text: str
    role: Literal["", "r", "slash", "rho"] = ""  # which of two correlations it is, or the slash between them
    best: bool = False  # the best figure among all of ours: bold
    best_member: bool = False  # the best among single encoders: underlined, or italic in Markdown


class Row(NamedTuple):
    """One row: whose figures it has, and its cells."""

    kind: RowKind
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """Rows under headers, with a name for its files."""

    name: str  # the stem of its files, such as `table2-main`
    title: str
    headers: tuple[str, ...]  # one per column, all different; the first column names the row
    rows: Sequence[Row]
    notes: Sequence[str] = ()  # notes to this table, beyond those of all tables of a run
    left: int = 1  # how many columns, from the first, hold words and are set left
    marks: Literal["columns", "table", "none"] = "columns"  # where the best is marked: in each column, once, or not

    def __post_init__(self) -> None:
        if len(set(self.headers)) != len(self.headers):
            raise InputError(f"the headers of table {self.name!r} are not all different: {', '.join(self.headers)}")
        for row in self.rows:
            if len(row.cells) != len(self.headers):
                counts = f"{len(self.headers)} columns, but a row of {len(row.cells)}"
                raise InputError(f"table {self.name!r} has {counts}: {row.cells}")

    def pieces(self, row: int, column: int) -> list[Piece]:
        """Return a cell's text in parts, Pearson and Spearman apart, each with its marks; none for an empty cell."""
        kind, cells = self.rows[row]
        pieces = cell_pieces(cells[column])
        if not isinstance(cells[column], Score):
            return pieces
        best, member = (highest[column] for highest in self._best)
        member = member if kind == "single" else {}
        return [Piece(text, role, text == best.get(role), text == member.get(role)) for text, role, *_ in pieces]

    def is_pair(self, column: int) -> bool:
        """Return whether the column holds pairs of correlations."""
        return any(isinstance(row.cells[column], Score | Aside) for row in self.rows)

    @cached_property
    def _best(self) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
        """The highest figures of all rows, and those of members."""
        return self._highest(self.rows), self._highest([row for row in self.rows if row.kind == "single"])

    def _highest(self, rows: Sequence[Row]) -> list[dict[str, str]]:
        """Return for each column and correlation the highest printed figure: what reads the same is equal."""
        rows = [] if self.marks == "none" else rows
        cells = [[row.cells[j] for row in rows] for j in range(len(self.headers))]
        columns = [[cell for cell in column if isinstance(cell, Score)] for column in cells]
        if self.marks == "table":
            columns = [[score for column in columns for score in column]] * len(columns)
        metrics = {"r": "pearson", "rho": "spearman"}
        return [
            {role: figure(max((getattr(score, m) for score in column), default=None)) for role, m in metrics.items()}
            for column in columns
        ]


def cell_text(cell: Cell) -> str:
    """Return a cell's text, without marks."""
    return "".join(piece.text for piece in cell_pieces(cell))


def cell_pieces(cell: Cell) -> list[Piece]:
    """Return a cell's text in parts, without marks."""
    if not isinstance(cell, Score | Aside):
        text = cell.text if isinstance(cell, Number) else "" if cell is None else str(cell)
        return [Piece(text)] if text else []
    sign = cell.sign if isinstance(cell, Aside) else ""
    r, rho = (figure(value, signed=sign == "+") for value in (cell.pearson, cell.spearman))
    pair = [Piece(r, "r"), Piece("/", "slash"), Piece(rho, "rho")]
    return [*([Piece("±")] if sign == "±" else []), *pair, *([Piece("*")] if sign == "*" else [])]


def spread(score: Score | None) -> Aside | None:
    """Return a standard deviation as a cell."""
    return None if score is None else Aside(score.pearson, score.spearman, "±")


def with_mean(tests: Sequence[str]) -> list[str]:
    """Return the columns of the test sets and their mean; a single one is its own mean."""
    return [*tests, MEAN] if len(tests) > 1 else list(tests)


def points(value: float) -> Number:
    """Return a difference of correlations: a fraction for programs, points with their sign for the reader."""
    return Number(value, figure(value, signed=True))


def probability(value: float) -> Number:
    """Return a p-value as a cell."""
    return Number(value, "< 0.001" if value < 0.001 else f"{value:.3f}")


def figure(value: float | None, *, signed: bool = False) -> str:
    """Return x 100 with one digit, as papers print correlations; a dash for None."""
    if value is None:
        return "-"
    text = f"{100 * value:+.1f}" if signed else f"{100 * value:.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text
