"""The demo encoder needs no files."""

from __future__ import annotations

from pathlib import Path

ON_DISK = False


def make_demo(folder: Path) -> str:  # noqa: ARG001 - every kind is made in a folder
    """Return the encoder's name."""
    return "demo"
