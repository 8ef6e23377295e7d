"""What an engine is: whoever runs the long passes, on this machine or on many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ensembed.corpora.corpus import Corpus
from ensembed.encoders.base import Encoder
from ensembed.methods.passes import Passes
from ensembed.support.progress import Progress, silent
from ensembed.views import View, ViewStore


@dataclass(frozen=True)
class Stage:
    """What one part of a run took.

    Attributes:
        name: of the part: an encoder's name, "moments", "train".
        rows: that went through.
        seconds: from its beginning to its end.
        workers: processes that took part.
        memory: of the largest of them at its peak, in bytes; 0 where nobody knows.
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
    """Encodes a corpus, and runs the passes that methods need over the views.

    Attributes:
        stages: what was done so far and what it took, in order; empty where an engine keeps no account.
    """

    @property
    def stages(self) -> Sequence[Stage]:
        """What was done so far."""

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
