"""What commands read and print: files, pipes and standard input; tables, JSON and progress bars."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ensembed.corpora.corpus import BadBytes, read_lines
from ensembed.support.text_tables import text_table

STDIN = "standard input"


def read_batches(path: Path, errors: BadBytes = "strict", size: int = 1024) -> Iterator[list[str]]:
    """Yield the lines of a text file, or of standard input (`-`), in lists, including blank lines."""
    stdin = str(path) == "-"
    lines = read_lines(sys.stdin.buffer, name=STDIN, errors=errors) if stdin else read_lines(path, errors=errors)
    while batch := list(itertools.islice(lines, size)):
        yield batch


def print_json(value: Any) -> None:  # noqa: ANN401 - anything that JSON can hold
    """Print a JSON document on one line; NaN is an error."""
    click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Print an aligned table, the first `left` columns aligned left."""
    click.echo(text_table(headers, rows, left=left))


def print_sentence(sentence: Mapping[str, Any]) -> None:
    """Print a sentence of a group on one line: its cosine, its id or its row, its text."""
    text = " ".join(sentence["text"].split())
    click.echo(f"  {sentence['cosine']:.4f}  {sentence.get('id', sentence['row']):>8}  {text[:90]}")


def human_bytes(size: int) -> str:
    """Return a size for a person."""
    return f"{size / 1e6:,.1f} MB"
