"""Where things are kept on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """The folder for pulled encoders and cached views: `ENSEMBED_CACHE`, or `ensembed` in the user's cache folder."""
    if chosen := os.environ.get("ENSEMBED_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ensembed"


def data_dir() -> Path | None:
    """The folder with STS data and corpora: `ENSEMBED_DATA`, or `../shared/data` when it exists, else None."""
    if chosen := os.environ.get("ENSEMBED_DATA"):
        return Path(chosen).expanduser()
    beside = Path("..") / "shared" / "data"
    return beside if beside.is_dir() else None
