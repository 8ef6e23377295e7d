"""The list of slow test files."""

from __future__ import annotations

from pathlib import Path

from slow_files import SLOW_FILES


def test_slow_files_exist() -> None:
    names = {file.name for file in Path(__file__).parent.rglob("test_*.py")}
    assert not set(SLOW_FILES) - names, "correct tests/slow_files.py: these files were renamed or removed"
