"""Measurements of several parts on a machine that is only there for a while."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ensembed.support.provenance import provenance


def measure(file: Path, parts: Mapping[str, Callable[[], Any]]) -> None:
    """Measure, print and write after every part, should a later one fail."""
    file.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"provenance": provenance()}
    for name, part in parts.items():
        found[name] = part()
        print(name, json.dumps(found[name]), flush=True)
        file.write_text(json.dumps(found, indent=1) + "\n")
