"""Messages of the library speak to both kinds of users: where one names a shell option, it names the argument, too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ensembed

PACKAGE = Path(ensembed.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+\b(?!:)")  # with a colon behind it, it is a property of a style sheet
# `wait`, wait=3, Index.open(folder): what a person writes in Python.
ARGUMENT = re.compile(r"`\w+`|\w=|\w\(|in Python")
# What only commands reach, and options of other programs.
EXCEPT = {
    "serve/access.py": "--allow-host",
    "serve/app.py": "--index",
    "paper/report/page.py": "--autoencoder",
    "engines/ray/cluster_resources.py": "--num-cpus",
    "encoders/tfhub/tensorflow_start.py": "--force-reinstall",
}


def _messages(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a module, those that stand side by side as one; no docstrings and no lists of words."""
    lone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr | ast.List | ast.Compare)
        for part in ast.iter_child_nodes(node)
    }
    for node in ast.walk(tree):
        if id(node) in lone | parts:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _shell_only(text: str) -> list[str]:
    """Return the options that a message names without an argument beside them; commands in full are fine."""
    without_commands = re.sub(r"`ensembed [^`]*`", "", text)
    return OPTION.findall(without_commands) if not ARGUMENT.search(without_commands) else []


def test_a_message_that_names_an_option_names_the_argument() -> None:
    named = {
        (name, option)
        for path in sorted(PACKAGE.rglob("*.py"))
        for text in _messages(ast.parse(path.read_text()))
        for option in _shell_only(text)
        if not (name := path.relative_to(PACKAGE).as_posix()).startswith("cli/")
    }
    assert named <= set(EXCEPT.items())


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("give one (--threshold)", ["--threshold"]),
        ("give one (threshold=…, --threshold)", []),
        ("wait for it (`wait`, --wait)", []),
        ("run `ensembed embed --verify`", []),
        ("run `ensembed embed` with --verify", ["--verify"]),
    ],
)
def test_options_without_arguments_are_found(text: str, options: list[str]) -> None:
    assert _shell_only(text) == options
