"""How a pass over all rows of the views runs: one object that methods give to the engine that runs it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from ensembed.support.progress import Progress, silent

if TYPE_CHECKING:
    from typing_extensions import TypedDict

    class PassOptions(TypedDict, total=False):
        """The fields of `Pass` as keyword arguments."""

        precision: Precision
        threads: int | None
        device: str | None
        progress: Progress
        checkpoint: Path | None


Precision: TypeAlias = Literal["float64", "float32"]


@dataclass(frozen=True)
class Pass:
    """How a pass over the views runs.

    Attributes:
        precision: the precision of products of rows. "float32" multiplies blocks of rows, shifted by the mean of the
            first, in float32 and adds them up in float64: twice as fast, with errors near 1e-7 (up to 6e-6 for columns
            of few values).
        threads: cores to use; None takes as many as BLAS would. The result does not depend on it.
        device: compute with torch on that device, "cuda" for instance, always in float64; None uses numpy.
        progress: receives the number of rows, or of epochs, that are done.
        checkpoint: a folder in which a training is kept from time to time, and from which it goes on, to the same
            weights, after an interruption. It is removed at the end.
    """

    precision: Precision = "float64"
    threads: int | None = None
    device: str | None = None
    progress: Progress = silent
    checkpoint: Path | None = None
