"""Run by the tests in a process of its own: dies at every file operation of a conversion in turn, and opens it again.

For n = 1, 2, … a forked child converts into the cache `root/n` and sends itself SIGKILL in its n-th operation. Another
child then opens the vectors, and compares them with what it finds in the file. Prints the number of deaths.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from make_words import small_vectors

from ensembed.encoders.words.word_vectors import open_word_vectors

_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"}


def convert(source: Path, cache: Path) -> None:
    os.environ["ENSEMBED_CACHE"] = str(cache)
    found = open_word_vectors(source)
    expected = small_vectors()
    assert all(np.array_equal(found.vectors[found.row(word)], vector) for word, vector in expected.items())
    assert not list((cache / "words").glob(".*.tmp")), "something half-converted is left"


def convert_and_die(source: Path, cache: Path, n: int) -> None:
    operations = itertools.count(1)
    sync = os.fsync

    def die_at(_what: object) -> None:
        if next(operations) == n:
            os.kill(os.getpid(), signal.SIGKILL)

    def dying_sync(descriptor: int) -> None:
        die_at("sync")
        sync(descriptor)

    os.fsync = dying_sync  # type: ignore[assignment] # the process is made to die
    sys.addaudithook(lambda event, _args: die_at(event) if event in _EVENTS else None)
    convert(source, cache)


def status_of(action: Callable[[], None]) -> int:
    """How a forked child that does this ends: 0, or the negative number of a signal."""
    pid = os.fork()
    if pid == 0:
        action()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(source: Path, root: Path) -> None:
    for n in itertools.count(1):
        status = status_of(partial(convert_and_die, source, root / str(n), n))
        if status == 0:
            print(n - 1)
            return
        if status != -signal.SIGKILL:
            sys.exit(f"the child ended with {status} at operation {n}")
        if status_of(partial(convert, source, root / str(n))) != 0:
            sys.exit(f"could not convert after a death at operation {n}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
