"""Run pip, npm or the hub's client in a child process that is quiet, watched, and never outlives this one.

The child is started through this file, run as a script, which ends the command when its standard input ends: also when
this process is killed. So this file imports the standard library only.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_POLL_SECONDS = 0.2
_LINES = 4
# pip's tries before the last, which all say the same; the hub's, which says why beside it; npm's lines without words.
_NO_NEWS = re.compile(r"WARNING: Retrying \(Retry\(total=[1-9]|Retrying in |npm (error|ERR!)\W*$")
_WIDTH = 300


@dataclass(frozen=True)
class Finished:
    """How a child ended: its exit status, its standard output, the first and last lines of its standard error."""

    status: int
    output: str
    complaint: str


def run(command: Sequence[str], work: Path, watch: Callable[[int], None]) -> Finished:
    """Run a command in the folder `work`; `watch` gets the size of the largest file in there, as the progress."""
    temporary = work / "tmp"
    temporary.mkdir()
    out, err = work / "stdout.txt", work / "stderr.txt"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, *command],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            cwd=work,  # `python -m` and npm both look into the current folder: show them an empty one
            env=os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary)),
            start_new_session=True,  # Ctrl-C reaches only us, and the script may kill its whole group
        )
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
                watch(_largest(work))
        finally:
            if process.stdin is not None:
                process.stdin.close()  # a child that still runs ends now
            process.wait()
    return Finished(process.returncode, out.read_text(errors="replace"), _shortened(err.read_text(errors="replace")))


def _largest(folder: Path) -> int:
    """Return the size of the largest file in the folder; files that vanish meanwhile do not count."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                largest = max(largest, Path(parent, name).stat().st_size)
    return largest


def _shortened(text: str) -> str:
    """Keep the first and last lines, once each: npm says what happened above a stack trace, pip after its retries."""
    lines = list(dict.fromkeys(line.strip()[:_WIDTH] for line in text.splitlines() if line.strip()))
    lines = [line for line in lines if not _NO_NEWS.match(line)]
    if len(lines) > 2 * _LINES:
        lines = [*lines[:_LINES], "...", *lines[-_LINES:]]
    return "\n".join(lines) or "it printed no error"


def main(command: list[str]) -> int:
    """Run the command and return its exit status, unless standard input ends first."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def watch() -> None:
        while os.read(0, 1):  # not sys.stdin: a daemon thread that holds its lock makes the interpreter abort at exit
            pass
        if sys.platform != "win32" and os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)  # we lead the group: this ends the command, its children and us
        child.kill()

    threading.Thread(target=watch, daemon=True).start()
    return child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
