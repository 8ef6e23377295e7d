"""Format tables as text: aligned for a terminal, or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Format a table with columns as wide as needed, the first `left` of them aligned left, the others right.

    Example:
        >>> print(text_table(["name", "n"], [["a", "10"], ["bcdef", "9"]]))
        name    n
        -----  --
        a      10
        bcdef   9
    """
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    lines = []
    for row in (headers, ["-" * width for width in widths], *rows):
        cells = [
            cell.ljust(width) if j < left else cell.rjust(width)
            for j, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


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
