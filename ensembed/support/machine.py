"""What this machine offers: its cores, and the folders for cached files and for data."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ensembed.errors import InputError
from ensembed.support.checks import check_whole

# Read by libraries when they are loaded or first used: BLAS and OpenMP (torch), numexpr, and the tokenizers' threads.
_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS")
_limits: list[int] = []  # what `limit_threads` was given last, if anything


def available_cores(root: Path = Path("/")) -> int:
    """Return how many cores this process may use: by its affinity, its control groups and `limit_threads`.

    Control groups bound containers (`docker --cpus`, Kubernetes, systemd's CPUQuota). `root` is for tests.
    """
    cores = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, *_limits]
    with suppress(OSError, ValueError):  # no Linux, or no right to read
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)  # version 2 has no controllers
            if controllers and "cpu" not in controllers.split(","):
                continue
            top = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
            # A container may see its own group as the top, whatever its path is outside.
            for folder in (top / path.strip("/"), *(top / path.strip("/")).parents):
                with suppress(OSError, ValueError):
                    if controllers:
                        quota, period = ((folder / f"cpu.cfs_{part}_us").read_text() for part in ("quota", "period"))
                    else:
                        quota, period = (folder / "cpu.max").read_text().split()
                    if quota.strip() != "max" and int(quota) > 0:
                        cores.append(max(math.ceil(int(quota) / int(period)), 1))
                if folder == top:
                    break
    return min(cores)


def limit_threads(threads: int) -> None:
    """Let this process use so many cores from now on, and the processes that it starts.

    Bounds BLAS, OpenMP, torch, tokenizers, and the encoders and passes that are not told a number of their own. Call it
    early: encoders that are open keep their threads, and tokenizers that were used keep theirs unless `threads` is 1.

    Example:
        >>> import ensembed
        >>> ensembed.limit_threads(2)  # doctest: +SKIP
    """
    check_whole("threads", threads, 1)
    from threadpoolctl import threadpool_limits

    _limits[:] = [threads]
    os.environ.update(dict.fromkeys(_VARIABLES, str(threads)))
    if threads == 1:  # tokenizers look at this one before every batch
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threadpool_limits(int(threads))  # it does not know numpy's
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


@contextmanager
def blas_threads(threads: int | None) -> Iterator[None]:
    """Let BLAS use so many threads while a block runs; None lets it use no more than there are cores."""
    if threads is not None:
        check_whole("threads", threads, 1)
    from threadpoolctl import threadpool_info, threadpool_limits

    usual = max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=1)
    with threadpool_limits(threads or min(usual, available_cores()), user_api="blas"):
        yield


def cache_dir() -> Path:
    """Return the folder for pulled encoders and cached views: `ENSEMBED_CACHE`, or `ensembed` in the user's cache.

    It is absolute: the programs that download run in folders of their own.
    """
    try:
        if chosen := os.environ.get("ENSEMBED_CACHE"):
            return Path(chosen).expanduser().absolute()
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "ensembed"
    except RuntimeError as error:  # as in a container whose user has no home folder
        raise InputError(f"there is no folder for the cache: {error} Name a folder in ENSEMBED_CACHE") from None


def fetched_dir() -> Path:
    """Return the folder in the cache for data that was fetched to no other folder."""
    return cache_dir() / "data"


def chosen_data_dir() -> Path | None:
    """Return the data folder that the user named in `ENSEMBED_DATA`, whether it exists or not."""
    chosen = os.environ.get("ENSEMBED_DATA")
    return Path(os.path.expanduser(chosen)) if chosen else None  # noqa: PTH111 - keeps a ~ that is nobody's


def data_dirs() -> list[Path]:
    """Return the folders to look for STS data and corpora in: `ENSEMBED_DATA`, then data fetched into the cache."""
    fetched = fetched_dir() if any(fetched_dir().glob("[!.]*")) else None  # the dot files are locks
    return [folder for folder in (chosen_data_dir(), fetched) if folder is not None]


def data_dir() -> Path | None:
    """Return the first of `data_dirs()`, or None."""
    return next(iter(data_dirs()), None)
