"""What commands read and print: files, pipes and standard input; tables, JSON and progress bars."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ensembed.support.text_tables import printable, text_table

STDIN = "standard input"


def print_json(value: Any) -> None:  # noqa: ANN401 - anything that JSON can hold
    """Print a JSON document on one line; NaN is an error."""
    click.echo(printable(json.dumps(value, ensure_ascii=False, allow_nan=False)))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Print an aligned table, the first `left` columns aligned left."""
    click.echo(text_table(headers, [[printable(cell) for cell in row] for row in rows], left=left))


def print_index_facts(facts: Mapping[str, Any]) -> None:
    """Print what is in a search index."""
    shown = {**facts, "bytes": human_bytes(facts["bytes"])}
    rows = [[key, str(value)] for key, value in shown.items() if value or key != "without_block_checksums"]
    print_table(["what", ""], rows, left=2)


def print_sentence(sentence: Mapping[str, Any]) -> None:
    """Print a sentence of a group on one line: its cosine, its id or its row, its text."""
    text, name = " ".join(sentence["text"].split()), str(sentence.get("id", sentence["row"]))
    room = max(shutil.get_terminal_size().columns - 20, 20) if sys.stdout.isatty() else 90
    click.echo(f"  {sentence['cosine']:.4f}  {printable(name):>8}  {printable(text[: min(room, 90)])}")


def human_bytes(size: int) -> str:
    """Return a size for a person."""
    return f"{size / 1e6:,.1f} MB"
