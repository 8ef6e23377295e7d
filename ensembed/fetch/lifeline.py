"""A command that ends when standard input does: `child.run` starts this file as a script; nothing imports it.

However the parent dies, `kill -9` included, the kernel closes its end of the pipe, and the download with it. Without
this an orphaned npm would go on filling a temporary folder that the next pull has removed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def main(command: list[str]) -> int:
    """Run the command and return its exit status, unless standard input ends first."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def watch() -> None:
        while os.read(0, 1):  # not sys.stdin: a daemon thread inside its lock makes the interpreter abort at exit
            pass
        if sys.platform != "win32" and os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)  # we lead the group: this ends the command, its children and us
        child.kill()

    threading.Thread(target=watch, daemon=True).start()
    return child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
