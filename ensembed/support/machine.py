"""What this machine offers: its cores, and the folders for cached files and for data."""

from __future__ import annotations

import os
from pathlib import Path


def available_cores() -> int:
    """Return how many cores this process may use: in a container these are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cache_dir() -> Path:
    """Return the folder for pulled encoders and cached views: `ENSEMBED_CACHE`, or `ensembed` in the user's cache."""
    if chosen := os.environ.get("ENSEMBED_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ensembed"


def fetched_dir() -> Path:
    """Return the folder in the cache for data that was fetched to no other folder."""
    return cache_dir() / "data"


def chosen_data_dir() -> Path | None:
    """Return the data folder that the user named in `ENSEMBED_DATA`, whether it exists or not."""
    chosen = os.environ.get("ENSEMBED_DATA")
    return Path(chosen).expanduser() if chosen else None


def data_dirs() -> list[Path]:
    """Return the folders to look for STS data and corpora in: `ENSEMBED_DATA`, then data fetched into the cache."""
    fetched = fetched_dir() if any(fetched_dir().glob("[!.]*")) else None  # the dot files are locks
    return [folder for folder in (chosen_data_dir(), fetched) if folder is not None]


def data_dir() -> Path | None:
    """Return the first of `data_dirs()`, or None."""
    return next(iter(data_dirs()), None)
