"""Processes that die in the middle of a change to files, for the tests of what is left then."""

from __future__ import annotations

import itertools
import os
import signal
import stat
import sys
from collections.abc import Callable

_EVENTS = {"os.rename", "os.remove", "os.mkdir"}
_WRITES = os.O_WRONLY | os.O_RDWR


def die_at(n: int) -> None:
    """Have this process send itself SIGKILL in its n-th operation that changes files from now on.

    When that is a sync, half of the file's bytes are lost as well. Other syncs are left out: whoever is left alive need
    not wait for the disk.
    """
    operations = itertools.count(1)

    def hook(event: str, args: tuple[object, ...]) -> None:
        writes = event in _EVENTS or (event == "open" and isinstance(args[2], int) and args[2] & _WRITES)
        if writes and next(operations) == n:
            os.kill(os.getpid(), signal.SIGKILL)

    def torn_sync(descriptor: int) -> None:
        if next(operations) == n:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode):
                os.truncate(descriptor, found.st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = torn_sync  # type: ignore[assignment] # the process is made to die
    sys.addaudithook(hook)


def status_of(action: Callable[[], object]) -> int:
    """How a forked child that does this ends: 0, or the negative number of a signal."""
    pid = os.fork()
    if pid == 0:
        action()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
