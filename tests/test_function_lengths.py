"""A function fits on a screen: at most 60 lines from its `def` to its end, its docstring not counted."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "ensembed"
MOST_LINES = 60


def _lengths(source: str) -> dict[str, int]:
    """Return the number of lines of every function by its name and line, without docstrings and decorators."""
    lengths = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            docstring = (first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0
            lengths[f"{node.name}, line {node.lineno}"] = (node.end_lineno or 0) - node.lineno + 1 - docstring
    return lengths


def test_lengths_are_counted_without_docstrings_and_decorators() -> None:
    source = '@cache\ndef short(x):\n    """Do it.\n\n    Well.\n    """\n    return x\n'
    assert _lengths(source) == {"short, line 2": 2}


def test_every_function_fits_on_a_screen() -> None:
    too_long = {
        f"{path.relative_to(PACKAGE)}: {name}": length
        for path in sorted(PACKAGE.rglob("*.py"))
        for name, length in _lengths(path.read_text()).items()
        if length > MOST_LINES
    }
    assert not too_long
