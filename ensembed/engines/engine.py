"""What an engine is, and the engine that is always available: this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder
from ensembed.methods.passes import LocalPasses, Passes
from ensembed.numerics.pass_options import Pass
from ensembed.support.progress import Progress, silent
from ensembed.views import View, ViewStore

T = TypeVar("T")


@dataclass(frozen=True)
class Stage:
    """What a part of a run took.

    Attributes:
        name: the encoder's name, "moments" or "train".
        rows: the number of rows that were worked on.
        seconds: the time from beginning to end.
        workers: the number of processes.
        memory: the peak of the largest process in bytes; 0 if it is unknown.
    """

    name: str
    rows: int
    seconds: float
    workers: int
    memory: int

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / max(self.seconds, 1e-9)


class Engine(Passes, Protocol):
    """Encodes a corpus, and runs the passes that methods need over the views."""

    @property
    def stages(self) -> Sequence[Stage]:
        """What was done so far, in order; empty for an engine that does not record it."""

    def embed_all(
        self,
        store: ViewStore,
        corpus: Corpus,
        encoders: Sequence[Encoder],
        *,
        verify: bool = False,
        progress: Progress = silent,
    ) -> list[View]:
        """Fill the views of several encoders, see `ViewStore.embed_all`."""

    def run_training(self, training: Callable[..., T], rows: int, how: Pass) -> T:
        """Return the result of a training, which may run in a group of processes.

        Args:
            training: a function that other processes can be sent. It takes `device`, `threads` and `progress`; in a
                group also `keep_every`, the seconds between checkpoints, and `group` (`Alone` of
                `ensembed.numerics.process_group`). The first process's result counts.
            rows: the number of rows that are trained on.
            how: device, threads and progress; `checkpoint` is a folder that all processes see.
        """


class Local(LocalPasses):
    """Encodes and fits on the cores of this machine: what `Ensemble.fit` does if no engine is given."""

    stages: Sequence[Stage] = ()  # this engine does not record them
    embed_all = staticmethod(ViewStore.embed_all)

    def run_training(self, training: Callable[..., T], rows: int, how: Pass) -> T:  # noqa: ARG002 - they are not split
        """Return the result of a training in this process."""
        return training(device=how.device, threads=how.threads, progress=how.progress)
