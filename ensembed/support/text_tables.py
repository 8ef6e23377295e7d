"""Format tables as text: aligned for a terminal, as Markdown, or as CSV."""

from __future__ import annotations

import csv
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, TextIO

# Columns of text become no narrower than this to make a table fit; it is printed as records instead.
_NARROW = 12

# Characters that a terminal obeys instead of showing them: C0, DEL, C1, and those that turn the direction of a line.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Return a text that cannot move the cursor or change the colours: control characters as JSON escapes them.

    Example:
        >>> print(printable("a\x1b[31mb"))
        a\u001b[31mb
    """
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Format a table with columns as wide as needed, the first `left` of them aligned left, the others right.

    If standard output is a terminal that is too narrow, long cells take several lines.

    Example:
        >>> print(text_table(["name", "n"], [["a", "10"], ["bcdef", "9"]]))
        name    n
        -----  --
        a      10
        bcdef   9
    """
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    if sys.stdout.isatty():
        screen = shutil.get_terminal_size().columns
        if sum(widths) + 2 * (len(widths) - 1) > screen:
            return narrow_table(headers, rows, left=left, screen=screen)
    lines = []
    for row in (headers, ["-" * width for width in widths], *rows):
        cells = [
            cell.ljust(width) if j < left else cell.rjust(width)
            for j, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def narrow_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: int, screen: int) -> str:
    """Format a table in `screen` columns: long cells of text take several lines, or every cell a line of its own.

    Example:
        >>> print(narrow_table(["name", "n"], [["a dog and another dog", "1"]], left=1, screen=18))
        name             n
        ---------------  -
        a dog and        1
        another dog
        >>> print(narrow_table(["name", "n", "m"], [["a dog", "1.5", "2.5"]], left=1, screen=9))
        name: a
          dog
        n: 1.5
        m: 2.5
    """
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    spare = screen - 2 * (len(widths) - 1)
    while sum(widths) > spare:
        widest = max(range(left), key=lambda j: widths[j])
        if widths[widest] <= max(_NARROW, len(headers[widest])):
            return "\n\n".join(_record(headers, row, screen) for row in rows)
        widths[widest] -= 1
    lines = []
    for row in (headers, ["-" * width for width in widths], *rows):
        wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
        for i in range(max(map(len, wrapped))):
            cells = [part[i] if i < len(part) else "" for part in wrapped]
            aligned = (
                cell.ljust(width) if j < left else cell.rjust(width)
                for j, (cell, width) in enumerate(zip(cells, widths, strict=True))
            )
            lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)


def _record(headers: Sequence[str], row: Sequence[str], screen: int) -> str:
    """Return a row as lines of `header: cell`."""
    cells = (f"{header}: {cell}" if header else cell for header, cell in zip(headers, row, strict=True))
    return "\n".join("\n".join(textwrap.wrap(cell, screen, subsequent_indent="  ")) for cell in cells)


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Format the same as a Markdown table.

    Example:
        >>> print(markdown_table(["name", "n"], [["a", "10"]]))
        | name | n |
        | --- | ---: |
        | a | 10 |
    """
    rule = ["---" if j < left else "---:" for j in range(len(headers))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (headers, rule, *rows))


def csv_writer(file: TextIO, delimiter: str = ",") -> Any:  # noqa: ANN401 - csv does not name its type
    r"""Return a writer of CSV whose lines end with `\n`, and that puts quotes around a cell with `\r`, too.

    Before Python 3.13 the writer of the standard library does so only if `\r` may end a line; its reader refuses `\r`
    without quotes.

    Example:
        >>> csv_writer(sys.stdout).writerow(["a b", "c, d"])
        a b,"c, d"
    """
    return csv.writer(_LineFeeds(file), delimiter=delimiter, lineterminator="\r\n")


class _LineFeeds:
    """Ends every row with a line feed alone; the writer passes a row at a time."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, row: str) -> None:
        self._file.write(row.removesuffix("\r\n") + "\n")
