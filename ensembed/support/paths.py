"""Where things are kept on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """The folder for pulled encoders and cached views: `ENSEMBED_CACHE`, or `ensembed` in the user's cache folder."""
    if chosen := os.environ.get("ENSEMBED_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ensembed"


def fetched_dir() -> Path:
    """The folder in the cache for data that was fetched to no other place."""
    return cache_dir() / "data"


def chosen_data_dir() -> Path | None:
    """The data folder that the user named in `ENSEMBED_DATA`, there or not."""
    chosen = os.environ.get("ENSEMBED_DATA")
    return Path(chosen).expanduser() if chosen else None


def data_dirs() -> list[Path]:
    """The folders with STS data and corpora, in the order in which to look.

    `ENSEMBED_DATA`, or else `../shared/data` when it exists; then what was fetched into the cache, when there is any.
    """
    beside = Path("..") / "shared" / "data"
    own = chosen_data_dir() or (beside if beside.is_dir() else None)
    fetched = fetched_dir() if any(fetched_dir().glob("[!.]*")) else None  # the dot files are locks
    return [folder for folder in (own, fetched) if folder is not None]


def data_dir() -> Path | None:
    """The first of `data_dirs()`, or None."""
    return next(iter(data_dirs()), None)
