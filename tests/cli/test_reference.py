"""The command line's page in the docs."""

from __future__ import annotations

from pathlib import Path

from ensembed.cli.reference import reference


def test_docs_cli_md_equals_the_help() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
    assert page.read_text() == reference(), "run: python -m ensembed.cli.reference > docs/reference/cli.md"
