"""Kills workers that train, while they train."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def workers() -> list[int]:
    """The processes of this process's cluster that train just now."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith(b"ray::") and b"TrainWorker" in title and os.getpid() in ancestors(int(folder.name)):
            found.append(int(folder.name))
    return found


def ancestors(process: int) -> list[int]:
    found = []
    while process > 1:
        # Behind the name, which may hold anything: the state, and the parent.
        try:
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        found.append(process)
    return found


class KillAt:
    """Progress that kills a worker once an epoch or step is reported, and remembers them, and those after the death."""

    def __init__(self, epoch: int) -> None:
        self.epochs: list[int] = []
        self.after: list[int] = []
        self.killed: list[int] = []
        self._epoch = epoch

    def __call__(self, label: str, done: int, _total: int | None, /) -> None:
        if not label.startswith("train ·"):
            return
        self.epochs.append(done)
        if self.killed:
            self.after.append(done)
        elif done >= self._epoch:
            self.killed = workers()[:1]
            for process in self.killed:
                os.kill(process, signal.SIGKILL)
