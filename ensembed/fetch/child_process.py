"""Run pip, npm or the hub's client in a child process: quiet, watched, and never outliving us."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_POLL_SECONDS = 0.2
_LINES = 4
_WIDTH = 300


@dataclass(frozen=True)
class Finished:
    """How a child ended: its exit status, its standard output, the first and last lines of its standard error."""

    status: int
    output: str
    complaint: str


def run(command: Sequence[str], work: Path, watch: Callable[[int], None]) -> Finished:
    """Run a command in the folder `work`; a few times a second `watch` gets the size of the largest file in there.

    Neither pip nor npm tells a program how far it is, but both write the archive to a temporary file as it arrives.
    The temporary folder is put inside `work`, so the largest file there is the progress, and removing `work` removes
    all that an interrupted child leaves.
    """
    temporary = work / "tmp"
    temporary.mkdir()
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))
    lifeline = Path(__file__).with_name("lifeline.py")
    out, err = work / "stdout.txt", work / "stderr.txt"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(lifeline), *command],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            cwd=work,  # `python -m` and npm both look into the current folder: show them an empty one
            env=environment,
            start_new_session=True,  # Ctrl-C reaches us alone, and the lifeline may kill its whole group
        )
        try:
            while True:
                try:
                    status = process.wait(_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    watch(_largest(work))
        finally:
            if process.stdin is not None:
                process.stdin.close()  # the lifeline: if the child is still there, it ends now
            process.wait()
    return Finished(status, out.read_text(errors="replace"), _shortened(err.read_text(errors="replace")))


def _largest(folder: Path) -> int:
    """The size of the largest file in the folder; files that vanish while we look do not count."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                largest = max(largest, Path(parent, name).stat().st_size)
    return largest


def _shortened(text: str) -> str:
    """The first and last lines: npm says what happened at the top of a stack trace, pip at the end of its retries."""
    lines = [line.strip()[:_WIDTH] for line in text.splitlines() if line.strip()]
    if len(lines) > 2 * _LINES:
        lines = [*lines[:_LINES], "...", *lines[-_LINES:]]
    return "\n".join(lines) or "it printed no error"
