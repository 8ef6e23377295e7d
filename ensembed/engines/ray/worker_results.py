"""What workers tell the driver: one small row per shard."""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ensembed import errors
from ensembed.errors import EncoderError, EnsembedError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Result:
    """What became of one shard.

    Attributes:
        job: the number of the view in this run.
        start: the shard's first row.
        rows: how many it has.
        name: of its file, once it is finished.
        pending: whether rows of it are open.
        seconds: that it took.
        read_seconds: that reading its sentences took of them.
        memory: of the worker at its peak, in bytes.
        worker: which one it was.
        kind: the class of the error; empty where there was none.
        error: what it says.
        everywhere: whether the error stops the whole run, not this shard alone.
        died: whether the error is that processes die.
    """

    job: int
    start: int
    rows: int
    name: str = ""
    pending: bool = False
    seconds: float = 0.0
    read_seconds: float = 0.0
    memory: int = 0
    worker: str = ""
    kind: str = ""
    error: str = ""
    everywhere: bool = False
    died: bool = False

    def fail(self, error: EnsembedError, *, everywhere: bool) -> None:
        """Note an error."""
        self.kind, self.error, self.everywhere = type(error).__name__, str(error), everywhere

    @property
    def exception(self) -> EnsembedError:
        """The error again, in another process."""
        found = getattr(errors, self.kind, EncoderError)
        made: EnsembedError = found(self.error)
        return made

    def to_table(self) -> pa.Table:
        """One row."""
        import pyarrow as pa

        return pa.table({key: [value] for key, value in dataclasses.asdict(self).items()})

    @classmethod
    def of_table(cls, table: pa.Table) -> list[Result]:
        """The inverse of `to_table`, for any number of rows."""
        rows: list[dict[str, Any]] = table.to_pylist()
        return [cls(**row) for row in rows]


def worker_name() -> str:
    """Which process of which machine this is."""
    return f"{socket.gethostname()}:{os.getpid()}"


def peak_memory() -> int:
    """The most memory that this process ever had, in bytes; 0 where the system does not say."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
