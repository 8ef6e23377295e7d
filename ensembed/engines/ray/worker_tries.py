"""How often a shard was begun: a process that dies cannot say so, but its mark stays.

Ray takes a block to another process for as long as processes die on it, which would be for ever where a sentence
kills them all. So a worker leaves a mark in the shared store before it begins a shard and takes it away at the end; a
worker that finds as many marks as there are attempts gives the shard up.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ensembed.errors import EncoderError, StoreError

_MARK = "try-"


class BlockError(EncoderError):
    """The encoder fails on this block; others may do."""


class DiedError(BlockError):
    """Processes die on this block."""


class Tries:
    """The marks in a folder.

    Args:
        folder: which may be missing.
        most: how often a shard is begun at the most.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most

    @contextmanager
    def one_more(self, start: int) -> Iterator[None]:
        """Begin the shard of that first row.

        Raises:
            DiedError: it was begun as often as it may be, and never ended.
        """
        marks = [self._folder / f"{_MARK}{start:09d}-{k}" for k in range(self._most)]
        if not any(_made(mark) for mark in marks):
            raise DiedError(
                f"its process died each of the {self._most} times that it was tried (a crash, no memory left, or "
                "nodes that went away); the cluster's logs say more"
            )
        # An exception is an end, too.
        try:
            yield
        finally:
            for mark in marks:
                mark.unlink(missing_ok=True)


def _made(mark: Path) -> bool:
    """Whether the mark could be made; another process may be at it."""
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    except OSError as error:
        raise StoreError(f"cannot write in the view store: {error}; what is finished is kept, run again") from error
    return True
