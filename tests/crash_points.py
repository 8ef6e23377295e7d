"""Run by the tests in a process of its own: dies at every file operation of an embedding in turn, and finishes it.

For n = 1, 2, ... a forked child embeds into `root/n` and sends itself SIGKILL in its n-th operation; when that is a
sync, half of the bytes are lost as well. Another child then goes on until the end. Prints the number of deaths.
"""

from __future__ import annotations

import itertools
import os
import signal
import stat
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ensembed.corpus import ListCorpus
from ensembed.encoders.demo import DemoEncoder
from ensembed.views import ViewStore

SENTENCES = [f"sentence {i % 7}" for i in range(10)]
_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir"}


def embed(root: Path) -> None:
    ViewStore(root, shard_rows=4).embed(ListCorpus(SENTENCES), DemoEncoder(4))


def embed_and_die(root: Path, n: int) -> None:
    operations = itertools.count(1)
    sync = os.fsync

    def hook(event: str, _args: tuple[object, ...]) -> None:
        if event in _EVENTS and next(operations) == n:
            os.kill(os.getpid(), signal.SIGKILL)

    def torn_sync(descriptor: int) -> None:
        if next(operations) == n:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode):
                os.truncate(descriptor, found.st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        sync(descriptor)

    os.fsync = torn_sync  # type: ignore[assignment]
    sys.addaudithook(hook)
    embed(root)


def status_of(action: Callable[[], None]) -> int:
    """How a forked child that does this ends: 0, or the negative number of a signal."""
    pid = os.fork()
    if pid == 0:
        action()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(root: Path) -> None:
    for n in itertools.count(1):
        status = status_of(partial(embed_and_die, root / str(n), n))
        if status == 0:
            print(n - 1)
            return
        if status != -signal.SIGKILL:
            sys.exit(f"the child ended with {status} at operation {n}")
        if status_of(partial(embed, root / str(n))) != 0:
            sys.exit(f"could not go on after a death at operation {n}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
